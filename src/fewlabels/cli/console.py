"""What commands show: tables on stdout, a progress bar and remarks on stderr."""

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fewlabels.errors import InputError

if TYPE_CHECKING:
    from fewlabels.evaluation.tables import Table
    from fewlabels.features import FeatureSet

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells expect
WIDEST = 1000  # columns: wider than any table


def say(text: str) -> None:
    """A remark for the person, not for a pipe."""
    typer.echo(text, err=True)


def end_interrupted(what: str) -> None:
    """Say what the output covers after Ctrl-C, and exit as shells expect."""
    say(f"Interrupted: {what}")
    raise typer.Exit(EXIT_INTERRUPTED)


def command_line() -> str:
    """The command as it was typed, for the record."""
    return shlex.join(["fewlabels", *sys.argv[1:]])


def load_features(path: Path | None, *, per_class: int | None) -> "FeatureSet":
    """Features of a file, the embedded ones if none is named."""
    return load_several([path], per_class=per_class)[0]


def load_several(paths: Sequence[Path | None], *, per_class: int | None) -> "list[FeatureSet]":
    """The same for several files; `per_class` is for those without labels, and refused if there are none."""
    from fewlabels.features import FeatureSet, load_embedded, read_features
    from fewlabels.features.readers import block_labels

    found = [
        load_embedded() if path is None else read_features(path, labels_needed=per_class is None)
        for path in paths
    ]
    if per_class is None:
        return found
    bare = [bool((features.labels < 0).all()) for features in found]
    if not any(bare):
        have = "the features have labels" if len(found) == 1 else "all features have labels"
        raise InputError(f"--per-class must be left out where {have}, got {per_class}.")
    return [
        FeatureSet.from_arrays(
            each.features,
            block_labels(len(each), per_class),
            each.class_names or None,
            each.provenance,
            each.names,
        )
        if without
        else each
        for each, without in zip(found, bare, strict=True)
    ]


def load_mean_features(path: Path | None) -> "FeatureSet | None":
    """What `center(mean)` takes its mean of, if anything; it has no use for labels."""
    from fewlabels.features import read_features

    return None if path is None else read_features(path, labels_needed=False)


def describe_features(features: "FeatureSet") -> str:
    """What the features are of, in a few words."""
    named = [
        features.provenance[key]
        for key in ("dataset", "backbone", "split")
        if key in features.provenance
    ]
    return " ".join(named or [features.provenance.get("file", "")])


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr that moves by the number it is called with; none where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    talk = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("episodes"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=talk, transient=True, disable=not talk.is_terminal) as progress:
        task = progress.add_task(description, total=total)
        yield lambda done: progress.advance(task, done)


def print_table(table: "Table") -> None:
    """A table on stdout, as wide as it needs to be where stdout is no terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable

    from fewlabels.evaluation.tables import TEXT_COLUMNS

    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1))
    for name in table.header:
        shown.add_column(
            name,
            justify="left" if name in TEXT_COLUMNS else "right",
            no_wrap=name not in TEXT_COLUMNS,
        )
    for section in table.sections:
        for row in section:
            shown.add_row(
                *row, end_section=row is section[-1] and section is not table.sections[-1]
            )
    console = Console()
    if not console.is_terminal:
        console.width = max(
            console.width,
            console.measure(shown, options=console.options.update(width=WIDEST)).maximum,
        )
    console.print(table.title, style="bold", highlight=False)
    console.print(shown)
    console.print(table.caption, style="dim", highlight=False)
