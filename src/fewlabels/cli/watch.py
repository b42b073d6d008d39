"""`fewlabels watch`: labels of images as they arrive in a folder."""

import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from fewlabels.cli import options
from fewlabels.cli.console import end_interrupted, require_path, say
from fewlabels.cli.label import Abstain


def watch_command(
    folder: Annotated[Path, typer.Argument(help="Folder of images.", metavar="FOLDER")],
    model: options.Model,
    abstain: Abstain = 0.0,
    sub_classes: options.SubClasses = "",
    skip_existing: Annotated[
        bool,
        Option(
            "--skip-existing",
            help="Leave images alone that are there at the start.",
            rich_help_panel=options.LABELS,
        ),
    ] = False,
    interval: Annotated[
        float,
        Option(
            min=0.01,
            help="Seconds between two looks; a file must not change for so long.",
            metavar="SECONDS",
            rich_help_panel=options.COMPUTING,
        ),
    ] = 2.0,
    device: options.Device = "auto",
    as_json: Annotated[
        bool,
        Option("--json", help="Print one JSON object per line.", rich_help_panel=options.OUTPUTS),
    ] = False,
) -> None:
    """Label images as they arrive in a folder, until Ctrl-C: CSV on stdout, a line per image.

    A file that has lines already gets no second header.

    fewlabels watch inbox --model groceries.safetensors >> labels.csv
    """
    require_path(folder)
    require_path(model)
    from fewlabels.io.words import count
    from fewlabels.labeling.outputs import to_csv
    from fewlabels.labeling.predict import Predictor
    from fewlabels.labeling.watching import watch_folder

    n = 0

    def wait() -> bool:
        time.sleep(interval)
        return True

    try:
        predictor = Predictor.load(model, device=device, sub_classes=sub_classes)
        arriving = watch_folder(
            folder, predictor, wait=wait, abstain=abstain, skip_existing=skip_existing
        )
        if not (as_json or _continues_a_file()):
            typer.echo(to_csv([]), nl=False)
        say(f"Watching {folder}; Ctrl-C stops.")
        for rows, remarks in arriving:
            for remark in remarks:
                say(remark)
            n += len(rows)
            for row in rows:
                line = json.dumps(row._asdict(), ensure_ascii=True) if as_json else ""
                typer.echo(line or to_csv([row]).partition("\n")[2].rstrip("\n"))
            sys.stdout.flush()
    except KeyboardInterrupt:
        end_interrupted(f"{count(n, 'image')} labelled.")


def _continues_a_file() -> bool:
    """Whether stdout is a file that has lines already, as with >> in a shell."""
    try:
        found = os.fstat(sys.stdout.fileno())
    except (OSError, ValueError):  # no file behind it
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size > 0
