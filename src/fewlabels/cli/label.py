"""`fewlabels label`: a folder and a few labels in, all labels out; and `fewlabels next`: what to label next."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fewlabels.cli import options
from fewlabels.cli.console import end_interrupted, say
from fewlabels.cli.extract import ExtractionBar

if TYPE_CHECKING:
    from fewlabels.labeling.sources import Source

SourceArgument = Annotated[
    Path,
    typer.Argument(
        help="Folder of images, file of features, or labelling project.",
        metavar="PHOTOS",
        show_default=False,
    ),
]
Labels = Annotated[
    Path | None,
    typer.Option(
        help="CSV with columns path and label, or a folder with a sub-folder a class. [sub-folders of PHOTOS]",
        show_default=False,
    ),
]
Backbone = Annotated[
    str | None,
    typer.Option(
        help="efficientnet-lite0, timm:NAME, hf:ORG/NAME, a checkpoint of fewlabels train, or several: a+b. [efficientnet-lite0]",
        show_default=False,
    ),
]
BatchSize = Annotated[
    int | None, typer.Option(help="Images a network is given at once.", show_default=False)
]
NumWorkers = Annotated[
    int | None, typer.Option(help="Threads that read images; 0 for none.", show_default=False)
]
Abstain = Annotated[
    float, typer.Option(help="Leave out labels that are less sure than this, 0 to 1.")
]


def label_command(
    photos: SourceArgument,
    labels: Labels = None,
    output: Annotated[Path, typer.Option(help="Where the labels go: .csv or .parquet.")] = Path(
        "labels.csv"
    ),
    backbone: Backbone = None,
    abstain: Abstain = 0.0,
    none_of_these: Annotated[
        bool,
        typer.Option(
            "--none-of-these",
            help="Add a column: how probable it is that an image belongs to no class.",
        ),
    ] = False,
    copy_to: Annotated[
        Path | None, typer.Option(help="Copy the images into a folder a class.", show_default=False)
    ] = None,
    link_to: Annotated[
        Path | None, typer.Option(help="The same with links instead of copies.", show_default=False)
    ] = None,
    label_studio: Annotated[
        Path | None,
        typer.Option(help="Write predictions for Label Studio (.json).", show_default=False),
    ] = None,
    label_studio_prefix: Annotated[
        str, typer.Option(help="What Label Studio puts before the paths.")
    ] = "/data/local-files/?d=",
    model: Annotated[
        Path | None,
        typer.Option(
            help="Keep a model for `fewlabels predict` (.safetensors).", show_default=False
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a report to look at (.html).", show_default=False)
    ] = None,
    truth: Annotated[
        str | None,
        typer.Option(
            help="True labels to measure by: a CSV file, or 'folders' for sub-folders.",
            show_default=False,
        ),
    ] = None,
    device: options.Device = "auto",
    batch_size: BatchSize = None,
    num_workers: NumWorkers = None,
    as_json: options.Json = False,
) -> None:
    """Label a folder of images from a few labels.

    fewlabels label photos --labels few.csv --output labels.csv

    fewlabels label features.parquet --output labels.csv --abstain 0.9
    """
    from fewlabels.labeling.exports import (
        check_class_folders,
        check_table,
        file_into_folders,
        write_label_studio,
        write_table,
    )
    from fewlabels.labeling.outcome import describe_score, label_source
    from fewlabels.labeling.predictor import Predictor, check_model
    from fewlabels.labeling.report import write_report
    from fewlabels.labeling.sources import check_truth, choose_backbone, files_read, root_of
    from fewlabels.labeling.table import check_abstain
    from fewlabels.labeling.writing import check_apart, check_suffix, check_writable

    check_abstain(abstain)  # all that can be refused is refused before the work
    check_table(output)
    check_apart(
        files_read(photos, labels=labels, truth=truth, backbone=choose_backbone(photos, backbone)),
        {
            "--output": output,
            "--report": report,
            "--label-studio": label_studio,
            "--model": model,
            "--copy-to": copy_to,
            "--link-to": link_to,
        },
    )
    check_truth(truth)
    for argument, file, suffix in (
        ("--report", report, ".html"),
        ("--label-studio", label_studio, ".json"),
    ):
        if file is not None:
            check_writable(file)
            check_suffix(argument, file, [suffix])
    if model is not None:
        check_model(model)
    for place in filter(None, (copy_to, link_to)):
        check_class_folders(place, root_of(photos))
    source = open_with_progress(
        photos,
        labels,
        backbone=backbone,
        device=device,
        batch_size=batch_size,
        num_workers=num_workers,
        enough=True,
        truth=truth,
    )
    true = source.truth
    outcome = label_source(source, abstain=abstain, none_of_these=none_of_these)
    score, unscored = (
        (None, None) if true is None else (outcome.score(true), outcome.unscored(true))
    )
    for remark in outcome.remarks:
        say(remark)
    written = [output]
    write_table(output, outcome.rows, outcome.none_of_these)
    if label_studio is not None:
        write_label_studio(label_studio, outcome.rows, prefix=label_studio_prefix)
        written.append(label_studio)
    if model is not None:
        Predictor.of(outcome).save(model)
        written.append(model)
    if report is not None:
        write_report(report, outcome, true)
        written.append(report)
    for folder, link in ((copy_to, False), (link_to, True)):
        if folder is not None:
            if n_others := file_into_folders(folder, outcome.rows, source.collection, link=link):
                say(
                    f"{folder} holds {n_others:,} other files, of an earlier run perhaps: nothing was removed."
                )
            written.append(folder)
    if as_json:
        found = outcome.summary() | {"output": str(output)}
        if unscored is not None:
            right = (0, 0, 0) if score is None else (score.n_right, score.n_right_nearest, score.n)
            found["score"] = (
                dict(zip(("right", "right_nearest_class_mean", "of"), right, strict=True))
                | unscored._asdict()
            )
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        typer.echo(outcome.describe())
        if score is not None:
            typer.echo(describe_score(score))
        if unscored is not None and (words := unscored.describe()):
            typer.echo(words)
    say(f"Written: {', '.join(map(str, written))}")


def next_command(
    photos: SourceArgument,
    labels: Labels = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many.")] = 20,
    backbone: Backbone = None,
    device: options.Device = "auto",
    batch_size: BatchSize = None,
    num_workers: NumWorkers = None,
    as_json: options.Json = False,
) -> None:
    """Which images to label next, the most helpful first.

    fewlabels next photos --labels few.csv --count 20
    """
    from fewlabels.labeling.outcome import suggest_next

    source = open_with_progress(
        photos,
        labels,
        backbone=backbone,
        device=device,
        batch_size=batch_size,
        num_workers=num_workers,
    )
    for remark in source.remarks:
        say(remark)
    names, advice = suggest_next(source, n=count)
    if as_json:
        typer.echo(json.dumps({"next": names, "advice": advice}, indent=2, ensure_ascii=False))
    else:
        if names:
            typer.echo("\n".join(names))
        say(advice)


def open_with_progress(
    photos: Path,
    labels: Path | None,
    *,
    backbone: str | None,
    device: str,
    batch_size: int | None,
    num_workers: int | None,
    enough: bool = False,
    truth: str | None = None,
) -> "Source":
    """Open what the person named, with a bar while features are computed."""
    from fewlabels.features.store import FeatureStore
    from fewlabels.labeling.sources import Extraction, choose_backbone, open_source

    with resumable() as bar:
        extraction = Extraction(
            choose_backbone(photos, backbone), device, batch_size, num_workers, FeatureStore(), bar
        )
        return open_source(photos, labels=labels, extraction=extraction, enough=enough, truth=truth)


@contextmanager
def resumable() -> Iterator[ExtractionBar]:
    """A bar while features are computed; Ctrl-C ends with a word on what is kept."""
    with ExtractionBar() as bar:
        try:
            yield bar
        except KeyboardInterrupt:
            end_interrupted(
                "the features computed so far are kept; the same command goes on from there."
            )
