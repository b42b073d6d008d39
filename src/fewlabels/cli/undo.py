"""`fewlabels move`: photographs into one folder per class; `fewlabels undo`: back again."""

import json
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from fewlabels.cli import options
from fewlabels.cli.arguments import say_remark
from fewlabels.cli.console import require_path


def move_command(
    source: Annotated[
        Path, Argument(help="Labelling project, or folder of images.", metavar="PROJECT")
    ],
    output: Annotated[
        Path,
        Option(
            "--output",
            "-o",
            help="Where the folders of the classes are made.",
            metavar="FOLDER",
            rich_help_panel=options.OUTPUTS,
        ),
    ],
    labels: options.WrittenLabels = None,
    photos: options.PhotosNow = None,
    class_from: options.ClassFrom = "deepest",
    sub_classes: options.SubClasses = "",
    abstain: Annotated[
        float,
        Option(
            help="Images less sure than this go to a folder 'doubtful', 0 to 1.",
            metavar="CONFIDENCE",
            rich_help_panel=options.LABELS,
        ),
    ] = 0.0,
    dry_run: Annotated[
        bool,
        Option("--dry-run", help="Only list what would move.", rich_help_panel=options.OUTPUTS),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Move photographs into one folder per class; `fewlabels undo` moves them back.

    fewlabels move photos --labels labels.csv -o sorted --dry-run
    """
    require_path(source)
    from fewlabels.labeling.sorting import move_photos

    moved = move_photos(
        source,
        output,
        labels=labels,
        photos=photos,
        class_from=class_from,
        abstain=abstain,
        sub_classes=sub_classes,
        dry_run=dry_run,
    )
    for remark in moved.remarks:
        say_remark(remark)
    if as_json:
        found = {
            "journal": None if moved.journal is None else str(moved.journal),
            "counts": moved.counts,
            "moves": [{"from": str(each.source), "to": str(each.target)} for each in moved.moves],
        }
        typer.echo(json.dumps(found, indent=2, ensure_ascii=True))
        return
    if dry_run:
        for move in moved.moves:
            typer.echo(f"{move.source} -> {move.target}".encode(errors="replace").decode())
    typer.echo(moved.describe())


def undo_command(
    journal: Annotated[
        Path,
        Argument(
            help="The file that `fewlabels move` named, or the folder that it made.",
            metavar="JOURNAL",
        ),
    ],
    finish: Annotated[
        bool, Option("--finish", help="Finish interrupted moves instead of undoing them.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Move files back to where they were, or finish moves that were interrupted.

    fewlabels undo sorted

    Of a folder, the last moves come first: give it again for the moves before them.
    """
    from fewlabels.errors import InputError
    from fewlabels.io.moves import finish_moves, undo_moves
    from fewlabels.io.words import count
    from fewlabels.labeling.sorting import JOURNALS, MOVED

    if journal.is_dir():
        found = sorted(journal.glob(JOURNALS))  # the names begin with the time
        if not found:
            raise InputError(
                f"{journal} must hold a file {JOURNALS}, got none. Nothing was moved there, or it "
                "was moved back already."
            )
        journal = found[-1]
    do, place = (finish_moves, "new") if finish else (undo_moves, "old")
    n = do(journal, suffixes=MOVED)
    if as_json:
        typer.echo(json.dumps({"files": n, "place": place}, indent=2))
    else:
        typer.echo(f"{count(n, 'file')} at the {place} place.")
