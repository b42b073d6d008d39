"""`fewlabels data`: list the benchmarks, check a folder of images."""

import json
import shutil
import sys
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from fewlabels.cli import options
from fewlabels.cli.console import WIDEST, progress_bar
from fewlabels.io.words import count, listing

if TYPE_CHECKING:
    from fewlabels.data.checking import CheckReport
    from fewlabels.data.image_set import Problem

EXIT_PROBLEMS = 1
MOST_SHOWN = 20  # problems that are printed; --json has all

data_app = typer.Typer(
    help="Benchmarks and folders of images.", no_args_is_help=True, rich_markup_mode=None
)


@data_app.command("list", cls=options.GroupedCommand, short_help="List the benchmarks.")
def list_command(as_json: options.Json = False) -> None:
    """List the benchmarks: classes and images of each split, sources, and forms on disk."""
    from fewlabels.data import BENCHMARKS
    from fewlabels.data.forms import FORMS
    from fewlabels.data.image_set import SPLITS

    if as_json:
        found = [
            {
                "dataset": each.name,
                "classes": {split: len(each.classes[split]) for split in SPLITS},
                "images": {split: each.n_images[split] for split in SPLITS},
                "paper": each.cite,
                "get_it": each.obtain,
                "forms": [form.NAME for form in FORMS[each.name]],
            }
            for each in BENCHMARKS.values()
        ]
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    rows = []
    for each in BENCHMARKS.values():
        sizes = [f"{len(each.classes[split])} · {each.n_images[split]:,}" for split in SPLITS]
        rows.append((each.name, *sizes, f"{sum(each.n_images.values()):,}"))
    caption = "classes · images of each split, as in the literature"
    _print_table("Benchmarks", ("dataset", *SPLITS, "images"), rows, caption)
    for each in BENCHMARKS.values():
        _print(f"\n{each.name}", style="bold")
        _print_item("paper", each.cite)
        _print_item("get it", each.obtain)
        for place, form in enumerate(FORMS[each.name]):
            _print_item("" if place else "forms", f"{form.NAME}: {form.WORDS}")


@data_app.command("check", cls=options.GroupedCommand, short_help="Decode every image, and count.")
def check_command(
    folder: Annotated[
        Path,
        Argument(help="A benchmark in one of its forms, or a folder of images.", metavar="IMAGES"),
    ],
    dataset: Annotated[
        str | None, Option(help="The benchmark it should be; see fewlabels data list. [recognized]")
    ] = None,
    strict: Annotated[bool, Option("--strict", help="Count remarks as problems.")] = False,
    as_json: options.Json = False,
) -> None:
    """Decode every image and check classes and counts; exit code 1 if there are problems.

    fewlabels data check cifar-fs --dataset cifar-fs
    """
    from fewlabels.data.checking import check_survey
    from fewlabels.data.survey import survey_folder

    survey = survey_folder(folder, dataset=dataset)
    with progress_bar("check", len(survey), unit="images") as advance, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns about metadata that is not used
        report = check_survey(survey, on_progress=advance)
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2))
    else:
        _print_report(report)
    if report.problems or (strict and report.remarks):
        raise typer.Exit(EXIT_PROBLEMS)


def _print_report(report: "CheckReport") -> None:
    from fewlabels.data import BENCHMARKS

    benchmark = None if report.dataset is None else BENCHMARKS[report.dataset]
    title = f"{report.folder}: {'your own images' if benchmark is None else benchmark.title}"
    unlabelled = any(split.n_unlabelled for split in report.splits)
    rows = []
    for split in report.splits:
        n_classes = _count(split.n_classes, split.expected_classes)
        n_images = _count(split.n_images, split.expected_images)
        sizes = _span(split.class_sizes) if split.n_classes else "–"
        rest = [f"{split.n_unlabelled:,}"] if unlabelled else []
        rows.append((split.split, n_classes, n_images, sizes, _span(split.sides), *rest))
    header = ["split", "classes", "images", "images per class", "pixels per side"]
    header += ["unlabelled"] if unlabelled else []
    _print_table(title, header, rows, f"read as: {report.form}")
    typer.echo()
    _print_problems("problem", report.problems)
    _print_problems("remark", report.remarks)
    if not report.problems:
        counts = "" if benchmark is None else ", and classes and counts are those of the literature"
        _print(f"No problems: all {report.n_images:,} images can be read{counts}.", style="green")


def _print_problems(what: str, problems: "Sequence[Problem]") -> None:
    if not problems:
        return
    style = "bold red" if what == "problem" else "bold"
    _print(count(len(problems), what), style=style)
    rest = "; --json lists all" if len(problems) > MOST_SHOWN else ""
    _print("  " + listing(problems, most=MOST_SHOWN, separator="\n  ") + rest)


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
    indent: Any = {"initial_indent": f"  {label:<8}", "subsequent_indent": " " * 10}
    typer.echo(textwrap.fill(text, width, break_on_hyphens=False, **indent))


def _print(what: object, *, style: str | None = None) -> None:
    """Print on stdout without markup, at full width if stdout is not a terminal."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = WIDEST
    console.print(what, style=style, markup=False, highlight=False, soft_wrap=isinstance(what, str))
