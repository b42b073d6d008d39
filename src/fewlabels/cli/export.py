"""`fewlabels export`: labelled images in the form that another program reads."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from fewlabels.cli import options
from fewlabels.cli.arguments import say_remark
from fewlabels.cli.console import require_path
from fewlabels.cli.label import Abstain, Backbone, resumable
from fewlabels.cli.options import GroupedCommand
from fewlabels.errors import InputError


class ExportCommand(GroupedCommand):
    """A command whose help ends with the list of formats."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - click's signature
        """Write the list."""
        from fewlabels.labeling.exports import find_format, format_names

        with formatter.section("Formats (--to)"):
            formatter.write_dl([(name, find_format(name).words) for name in format_names()])


def export_command(
    source: Annotated[
        Path,
        Argument(
            help="Labelling project, folder of images, or file of features.", metavar="PROJECT"
        ),
    ],
    to: Annotated[
        str,
        Option(
            help="A format; the list is below.", metavar="FORMAT", rich_help_panel=options.OUTPUTS
        ),
    ],
    output: Annotated[
        Path,
        Option(
            "--output",
            "-o",
            help="A new or empty folder.",
            metavar="FOLDER",
            rich_help_panel=options.OUTPUTS,
        ),
    ],
    split: Annotated[
        str | None,
        Option(
            help="Fractions of train, validation and test, such as 0.8,0.1,0.1. "
            "Similar images are never divided.",
            metavar="A,B[,C]",
            rich_help_panel=options.OUTPUTS,
        ),
    ] = None,
    labels: options.WrittenLabels = None,
    photos: options.PhotosNow = None,
    class_from: options.ClassFrom = "deepest",
    sub_classes: options.SubClasses = "",
    boxes: options.Boxes = None,
    every: options.Every = None,
    column: options.Column = None,
    text_column: options.TextColumn = None,
    abstain: Abstain = 0.0,
    link: Annotated[
        bool,
        Option(
            "--link", help="Link the pictures, do not copy them.", rich_help_panel=options.OUTPUTS
        ),
    ] = False,
    label_studio_prefix: options.LabelStudioPrefix = options.LABEL_STUDIO_PREFIX,
    near: Annotated[
        float | None,
        Option(
            help="Cosine of features from which images are similar; 1 compares files only. [0.9]",
            metavar="COSINE",
            rich_help_panel=options.OUTPUTS,
        ),
    ] = None,
    burst: Annotated[
        float | None,
        Option(
            help="Seconds between two photographs of a camera that are not divided either; "
            "0 for none. [3]",
            metavar="SECONDS",
            rich_help_panel=options.OUTPUTS,
        ),
    ] = None,
    seed: Annotated[
        int,
        Option(
            help="Another one gives other splits.", metavar="N", rich_help_panel=options.OUTPUTS
        ),
    ] = 0,
    backbone: Backbone = None,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Write labelled images as other programs read them.

    fewlabels export photos.fewlabels --to hf --split 0.8,0.1,0.1 -o dataset

    fewlabels export photos --labels labels.csv --to ultralytics --split 0.8,0.2 -o yolo
    """
    require_path(source)
    fractions = None if split is None else _read_fractions(split)
    from fewlabels.data.bursts import SECONDS
    from fewlabels.labeling.exports import export_labels
    from fewlabels.preprocess.duplicates import NEAR

    with resumable() as bar:
        written = export_labels(
            source,
            to=to,
            output=output,
            labels=labels,
            photos=photos,
            class_from=class_from,
            boxes=boxes,
            every=every,
            columns=options.columns_by_role(column, text_column),
            split=fractions,
            near=NEAR if near is None else near,
            burst=SECONDS if burst is None else burst,
            seed=seed,
            abstain=abstain,
            sub_classes=sub_classes,
            link=link,
            label_studio_prefix=label_studio_prefix,
            backbone=backbone,
            device=device,
            on_progress=bar,
        )
    for remark in written.remarks:
        say_remark(remark)
    if as_json:
        found = {**written._asdict(), "output": str(written.output)}
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        typer.echo(written.describe())


def _read_fractions(text: str) -> list[float]:
    try:
        return [float(each) for each in text.split(",")]
    except ValueError:
        raise InputError(
            f"--split must be numbers with commas between them, such as 0.8,0.1,0.1, got '{text}'."
        ) from None
