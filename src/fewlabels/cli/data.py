"""`fewlabels data`: the benchmarks that can be read, and a look through a folder of images."""

import json
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fewlabels.cli import options

if TYPE_CHECKING:
    from fewlabels.data.checking import CheckReport, SplitCount
    from fewlabels.data.image_set import Problem

EXIT_PROBLEMS = 1
MOST_SHOWN = 20  # problems in a terminal; --json has all
WIDEST = 1000  # columns: wider than any table

data_app = typer.Typer(
    help="Benchmarks and folders of images.", no_args_is_help=True, rich_markup_mode=None
)


@data_app.command("list")
def list_command() -> None:
    """The benchmarks: classes and images of each split, where to get them, and how they may lie on disk."""
    from fewlabels.data import BENCHMARKS
    from fewlabels.data.forms import FORMS
    from fewlabels.data.image_set import SPLITS

    rows = [
        (
            each.name,
            *(f"{len(each.classes[split])} · {each.n_images[split]:,}" for split in SPLITS),
            f"{sum(each.n_images.values()):,}",
        )
        for each in BENCHMARKS.values()
    ]
    _print_table(
        "Benchmarks",
        ("dataset", *SPLITS, "images"),
        rows,
        "classes · images of each split, as the literature counts them",
    )
    for each in BENCHMARKS.values():
        _print(f"\n{each.name}", style="bold")
        _print_item("paper", each.cite)
        _print_item("get it", each.obtain)
        for place, form in enumerate(FORMS[each.name]):
            _print_item("" if place else "forms", f"{form.NAME}: {form.WORDS}")


@data_app.command("check")
def check_command(
    folder: Annotated[
        Path,
        typer.Argument(
            help="A benchmark in one of its forms, or a folder of images.", metavar="DIR"
        ),
    ],
    dataset: Annotated[
        str | None,
        typer.Option(
            help="The benchmark it should be; see fewlabels data list. [found out]",
            show_default=False,
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Count remarks as problems.")] = False,
    as_json: options.Json = False,
) -> None:
    """Decode every image and check classes and counts; exit code 1 if there is a problem.

    fewlabels data check cifar-fs --dataset cifar-fs
    """
    from fewlabels.data.checking import check_survey
    from fewlabels.data.survey import survey_folder

    survey = survey_folder(folder, dataset=dataset)
    with _image_bar(len(survey)) as advance, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of metadata that nobody uses
        report = check_survey(survey, on_progress=advance)
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2))
    else:
        _print_report(report)
    if report.problems or (strict and report.remarks):
        raise typer.Exit(EXIT_PROBLEMS)


def _print_report(report: "CheckReport") -> None:
    from fewlabels.data import BENCHMARKS

    title = f"{report.folder}: {'images of your own' if report.dataset is None else BENCHMARKS[report.dataset].title}"
    rows = [
        (
            split.split,
            _count(split.n_classes, split.expected_classes),
            _count(split.n_images, split.expected_images),
            _span(split.class_sizes) if split.n_classes else "–",
            _span(split.sides),
            *([f"{split.n_unlabelled:,}"] if _any_unlabelled(report.splits) else []),
        )
        for split in report.splits
    ]
    header = (
        "split",
        "classes",
        "images",
        "images a class",
        "pixels a side",
        *(["unlabelled"] if _any_unlabelled(report.splits) else []),
    )
    _print_table(title, header, rows, f"read as: {report.form}")
    typer.echo()
    _print_problems("problem", report.problems)
    _print_problems("remark", report.remarks)
    if not report.problems:
        counts = (
            "" if report.dataset is None else ", and classes and counts are those of the literature"
        )
        _print(f"No problems: all {report.n_images:,} images can be read{counts}.", style="green")


def _print_problems(what: str, problems: "Sequence[Problem]") -> None:
    if not problems:
        return
    _print(
        f"{len(problems):,} {what}{'s' if len(problems) > 1 else ''}",
        style="bold red" if what == "problem" else "bold",
    )
    for problem in problems[:MOST_SHOWN]:
        _print(f"  {problem}")
    if len(problems) > MOST_SHOWN:
        _print(f"  and {len(problems) - MOST_SHOWN:,} more; --json lists all")


def _any_unlabelled(splits: "Sequence[SplitCount]") -> bool:
    return any(split.n_unlabelled for split in splits)


def _count(found: int, expected: int | None) -> str:
    return f"{found:,}" if expected in (None, found) else f"{found:,} of {expected:,}"


def _span(ends: tuple[int, int]) -> str:
    return f"{ends[0]:,}" if ends[0] == ends[1] else f"{ends[0]:,} to {ends[1]:,}"


def _print_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], caption: str
) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    for place, name in enumerate(header):
        table.add_column(name, justify="left" if place == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    _print(title, style="bold")
    _print(table)
    _print(caption, style="dim")


def _print_item(label: str, text: str) -> None:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDEST
    typer.echo(
        textwrap.fill(
            text,
            width,
            initial_indent=f"  {label:<8}",
            subsequent_indent=" " * 10,
            break_on_hyphens=False,
        )
    )


def _print(what: object, *, style: str | None = None) -> None:
    """On stdout, as it is: nothing in a name is markup; as wide as it needs to be where stdout is no terminal."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = WIDEST
    console.print(what, style=style, markup=False, highlight=False, soft_wrap=isinstance(what, str))


@contextmanager
def _image_bar(total: int) -> Iterator[Callable[[int], None]]:
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
        TextColumn("check"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("images"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=talk, transient=True, disable=not talk.is_terminal) as progress:
        task = progress.add_task("check", total=total)
        yield lambda done: progress.advance(task, done)
