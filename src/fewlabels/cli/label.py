"""`fewlabels label`: all labels of a folder from a few; `fewlabels next`: what to label next."""

import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from fewlabels.cli import options
from fewlabels.cli.arguments import say_remark
from fewlabels.cli.console import command_line, end_interrupted, fit, require_path, say
from fewlabels.cli.extract import ExtractionBar

if TYPE_CHECKING:
    from fewlabels.labeling.outcome import Outcome

PhotosArgument = Annotated[
    Path,
    Argument(
        help="Folder of images, file of features, table of texts, or labelling project.",
        metavar="PHOTOS",
    ),
]
Labels = Annotated[
    Path | None,
    Option(
        help="CSV with columns path and label, or a folder with one sub-folder per class. "
        "[sub-folders of PHOTOS]",
        metavar="CSV|FOLDER",
        rich_help_panel=options.LABELS,
    ),
]
Method = Annotated[
    str | None,
    Option(
        help="Method that finds the labels; `fewlabels evaluate --help` lists them. [folder]",
        metavar="NAME",
        rich_help_panel=options.LABELS,
    ),
]
Backbone = Annotated[
    str | None,
    Option(
        help="fast, good or best; efficientnet-lite0, efficientnet-lite2, timm:NAME, hf:ORG/NAME, "
        "a checkpoint of fewlabels train, or several: a+b. [fast] "
        "Of texts: minilm, wordllama, tfidf, st:ORG/NAME. [the first that is installed]",
        metavar="NAME",
        rich_help_panel=options.COMPUTING,
    ),
]
BatchSize = Annotated[
    int | None,
    Option(help="Images per batch of the network.", metavar="N", rich_help_panel=options.COMPUTING),
]
NumWorkers = Annotated[
    int | None,
    Option(
        help="Threads that read images; 0 for none.", metavar="N", rich_help_panel=options.COMPUTING
    ),
]
Abstain = Annotated[
    float,
    Option(
        help="Leave out labels that are less sure than this, 0 to 1; column 'guess' has them.",
        metavar="CONFIDENCE",
        rich_help_panel=options.LABELS,
    ),
]


def label_command(
    photos: PhotosArgument,
    labels: Labels = None,
    output: Annotated[
        Path,
        Option(
            "--output",
            "-o",
            help="Where the labels are written: .csv or .parquet.",
            metavar="FILE",
            rich_help_panel=options.OUTPUTS,
        ),
    ] = Path("labels.csv"),
    method: Method = None,
    settings: options.Set = None,
    backbone: Backbone = None,
    abstain: Abstain = 0.0,
    accuracy: Annotated[
        float | None,
        Option(
            help="Instead of --abstain: leave out labels until so many of the others are right, "
            "such as 0.95.",
            metavar="FRACTION",
            rich_help_panel=options.LABELS,
        ),
    ] = None,
    none_of_these: Annotated[
        bool,
        Option(
            help="Whether to add a column: the probability that an image belongs to no class.",
            rich_help_panel=options.LABELS,
        ),
    ] = True,
    burst: Annotated[
        float,
        Option(
            help="Give photographs one label that a camera took at most so many seconds apart, "
            "by their EXIF times, such as 3.",
            metavar="SECONDS",
            rich_help_panel=options.LABELS,
        ),
    ] = 0.0,
    copy_to: Annotated[
        Path | None,
        Option(
            help="Copy the images into one folder per class.",
            metavar="FOLDER",
            rich_help_panel=options.OUTPUTS,
        ),
    ] = None,
    link_to: Annotated[
        Path | None,
        Option(help="The same with links.", metavar="FOLDER", rich_help_panel=options.OUTPUTS),
    ] = None,
    label_studio: Annotated[
        Path | None,
        Option(
            help="Write labels for Label Studio (.json): yours as annotations.",
            metavar="FILE",
            rich_help_panel=options.OUTPUTS,
        ),
    ] = None,
    label_studio_prefix: options.LabelStudioPrefix = options.LABEL_STUDIO_PREFIX,
    model: Annotated[
        Path | None,
        Option(
            help="Save a model for `fewlabels predict` (.safetensors).",
            metavar="FILE",
            rich_help_panel=options.OUTPUTS,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        Option(help="Write a report (.html).", metavar="FILE", rich_help_panel=options.OUTPUTS),
    ] = None,
    truth: Annotated[
        str | None,
        Option(
            help="True labels to compare with: a CSV file, or 'folders' for sub-folders.",
            metavar="CSV|folders",
            rich_help_panel=options.LABELS,
        ),
    ] = None,
    class_from: options.ClassFrom = "deepest",
    sub_classes: options.SubClasses = "",
    column: options.Column = None,
    text_column: options.TextColumn = None,
    boxes: options.Boxes = None,
    every: options.Every = None,
    classes: options.Classes = None,
    device: options.Device = "auto",
    batch_size: BatchSize = None,
    num_workers: NumWorkers = None,
    as_json: options.Json = False,
) -> None:
    """Label a folder of images from a few labels.

    fewlabels label photos --labels few.csv --output labels.csv

    fewlabels label features.parquet --output labels.csv --abstain 0.9

    fewlabels label texts.csv --text-column body
    """
    require_path(photos)
    from fewlabels.labeling.answer import DEFAULT_METHOD
    from fewlabels.labeling.label import label_folder

    with resumable() as bar:
        outcome = label_folder(
            photos,
            labels,
            output=output,
            method=method or DEFAULT_METHOD,
            settings=options.single_knobs(settings),
            backbone=backbone,
            abstain=abstain,
            accuracy=accuracy,
            none_of_these=none_of_these,
            burst=burst,
            sub_classes=sub_classes,
            truth=truth,
            class_from=class_from,
            columns=options.columns_by_role(column, text_column),
            boxes=boxes,
            every=every,
            classes=classes,
            report=report,
            model=model,
            copy_to=copy_to,
            link_to=link_to,
            label_studio=label_studio,
            label_studio_prefix=label_studio_prefix,
            device=device,
            batch_size=batch_size,
            n_workers=num_workers,
            on_progress=bar,
            command=command_line(),
        )
    for remark in outcome.remarks:
        say_remark(remark)
    if as_json:
        found = {**outcome.summary(), "output": str(output), **_score(outcome)}
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        typer.echo(fit(outcome.describe(), sys.stdout))
        if (truth_given := outcome.inputs.truth) is not None:
            score = outcome.score(truth_given)
            unscored = outcome.unscored(truth_given).describe(outcome.inputs.collection.noun)
            for words in filter(None, (score.describe() if score else "", unscored)):
                typer.echo(fit(words, sys.stdout))
    written = filter(None, (output, label_studio, model, report, copy_to, link_to))
    say(f"Written: {', '.join(map(str, written))}")
    say("Next, to check and correct on a page:")
    columns = options.columns_by_role(column, text_column)
    given = {
        "--labels": labels,
        "--backbone": backbone,
        "--classes": classes,
        "--class-from": None if class_from == "deepest" else class_from,
        "--sub-classes": sub_classes or None,
        "--boxes": boxes,
        "--every": every,
    }
    say(f"  {_next_command(photos, given, columns)}", whole=True)


def _next_command(
    photos: Path, given: Mapping[str, object], columns: Mapping[str, str] | None
) -> str:
    """The command that opens the page."""
    words = ["fewlabels", "serve", str(photos)]
    for option, value in given.items():
        words += [] if value is None else [option, str(value)]
    for role, column in (columns or {}).items():
        words += ["--column", f"{role}={column}"]
    return shlex.join(words)


def _score(outcome: "Outcome") -> dict[str, object]:
    """How many labels are right, for JSON, where true labels were given."""
    truth = outcome.inputs.truth
    if truth is None:
        return {}
    score = outcome.score(truth)
    counts = {"right": 0, "of": 0}
    if score is not None:
        rivals = {f"right_{name.replace(' ', '_')}": n for name, n in score.n_right_rivals.items()}
        counts = {"right": score.n_right, **rivals, "of": score.n}
    return {"score": counts | outcome.unscored(truth)._asdict()}


def next_command(
    photos: PhotosArgument,
    labels: Labels = None,
    count: Annotated[
        int,
        Option(
            "--count",
            "-n",
            min=1,
            help="Number of images to list.",
            metavar="N",
            rich_help_panel=options.OUTPUTS,
        ),
    ] = 20,
    method: Method = None,
    settings: options.Set = None,
    backbone: Backbone = None,
    class_from: options.ClassFrom = "deepest",
    column: options.Column = None,
    text_column: options.TextColumn = None,
    boxes: options.Boxes = None,
    every: options.Every = None,
    classes: options.Classes = None,
    device: options.Device = "auto",
    batch_size: BatchSize = None,
    num_workers: NumWorkers = None,
    as_json: options.Json = False,
) -> None:
    """List the images whose labels would help most.

    fewlabels next photos --labels few.csv --count 20
    """
    require_path(photos)
    from fewlabels.features.store import FeatureStore
    from fewlabels.labeling.answer import DEFAULT_METHOD, check_method
    from fewlabels.labeling.collection import Extraction
    from fewlabels.labeling.inputs import read_inputs
    from fewlabels.labeling.outcome import suggest_next

    method, knobs = method or DEFAULT_METHOD, options.single_knobs(settings)
    check_method(method, knobs)
    with resumable() as bar:
        extraction = Extraction(backbone, device, batch_size, num_workers, FeatureStore(), bar)
        inputs = read_inputs(
            photos,
            labels=labels,
            extraction=extraction,
            class_from=class_from,
            columns=options.columns_by_role(column, text_column),
            boxes=boxes,
            every=every,
            classes=classes,
        )
    for remark in inputs.remarks:
        say_remark(remark)
    names, advice = suggest_next(inputs, n=count, method=method, settings=knobs)
    if as_json:
        typer.echo(json.dumps({"next": names, "advice": advice}, indent=2, ensure_ascii=False))
    else:
        if names:
            typer.echo("\n".join(names))
        say(advice)


@contextmanager
def resumable() -> Iterator[ExtractionBar]:
    """A bar while features are computed; Ctrl-C ends with a line on what is kept."""
    with ExtractionBar() as bar:
        try:
            yield bar
        except KeyboardInterrupt:
            end_interrupted(
                "the features computed so far are kept; run the same command to continue."
            )
