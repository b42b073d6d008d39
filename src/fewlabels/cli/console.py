"""Output of commands: tables on stdout; progress bar, messages and warnings on stderr."""

import shlex
import shutil
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

import typer

from fewlabels.errors import InputError

if TYPE_CHECKING:
    from fewlabels.evaluation.tables import Table
    from fewlabels.features import FeatureSet

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells expect
WIDEST = 1000  # columns: wider than any table
NARROW = 70  # columns below which a bar shows only how much is done
LEAST_WORDS = 10  # columns of a column of words in a table


said_at = [0.0]  # when `say` was called last, by time.monotonic: __main__ asks


def say(text: str, *, whole: bool = False) -> None:
    """Print a message for the user on stderr.

    Args:
        text: One or more lines.
        whole: Whether lines are left as they are, such as a command to copy.
    """
    said_at[0] = time.monotonic()
    typer.echo(text if whole else fit(text, sys.stderr), err=True)


def fit(text: str, stream: TextIO) -> str:
    """Lines broken between words, if they go to a terminal that is narrower."""
    if not stream.isatty():
        return text
    how: Any = {"break_long_words": False, "break_on_hyphens": False}
    width = shutil.get_terminal_size().columns
    return "\n".join(textwrap.fill(line, width, **how) for line in text.split("\n"))


@contextmanager
def saying_warnings() -> Iterator[None]:
    """Print warnings as messages, without the line of code that raised them."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, *_, **__: say(f"fewlabels: {message}")
        yield


def end_interrupted(what: str) -> None:
    """Say what is done after Ctrl-C, and exit as shells expect."""
    say(f"Interrupted: {what}")
    raise typer.Exit(EXIT_INTERRUPTED)


def command_line() -> str:
    """The command line of this process, for records."""
    return shlex.join(["fewlabels", *sys.argv[1:]])


def require_path(path: Path) -> None:
    """Refuse a path that does not exist, before anything heavy is imported."""
    if not path.exists():
        raise InputError(f"{path} does not exist. Check the path for typos.")


def require_features(path: Path | None) -> None:
    """The same for features, which may be A+B, two files side by side."""
    if path is not None and not path.exists():
        for part in str(path).split("+"):
            require_path(Path(part))


def load_features(path: Path | None, *, per_class: int | None) -> "FeatureSet":
    """Features of a file; the embedded ones if no file is given."""
    return load_several([path], per_class=per_class)[0]


def load_several(paths: Sequence[Path | None], *, per_class: int | None) -> "list[FeatureSet]":
    """Features of several files; `per_class` is for files without labels, refused if all have."""
    from fewlabels.features import load_embedded, read_features

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
        each if not without else _with_blocks(each, per_class)
        for each, without in zip(found, bare, strict=True)
    ]


def _with_blocks(features: "FeatureSet", per_class: int) -> "FeatureSet":
    """The same features, each `per_class` consecutive rows one class."""
    from fewlabels.features.readers import block_labels

    labels, names = block_labels(len(features), per_class), features.class_names or None
    known = (features.provenance, features.names)
    return type(features).from_arrays(features.features, labels, names, *known)


def load_mean_features(path: Path | None) -> "FeatureSet | None":
    """The features whose mean `center(mean)` subtracts, if given; they need no labels."""
    from fewlabels.features import read_features

    return None if path is None else read_features(path, labels_needed=False)


def describe_features(features: "FeatureSet") -> str:
    """A short description of the features."""
    known = features.provenance
    named = [known[key] for key in ("dataset", "backbone", "split") if key in known]
    return " ".join(named or [known.get("file", "")])


class ProgressBar:
    """A bar per stage on stderr with rate and time left; invisible if stderr is not a terminal."""

    def __init__(self, unit: str) -> None:
        from rich import progress
        from rich.console import Console

        self.speed = 0.0  # units per second of the latest stage
        self._begun: dict[str, float] = {}  # time in seconds at which a stage began
        self._tasks: dict[str, Any] = {}
        console = Console(stderr=True)
        columns = [
            progress.SpinnerColumn(),  # moves also while a long step is computed
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn(unit),
            progress.TextColumn("{task.fields[speed]}"),
            progress.TimeRemainingColumn(),
        ]
        if console.width < NARROW:
            del columns[4:], columns[2]
        self._bars = progress.Progress(
            *columns,
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def show(self, stage: str, done: int, total: int) -> None:
        """Show that `done` of `total` units of a stage are done; a finished stage disappears."""
        if stage not in self._tasks:
            self._bars.start()  # with the first stage, so that an unused bar does nothing
            self._begun[stage] = time.perf_counter()
            self._tasks[stage] = self._bars.add_task(stage, total=total, speed="")
        self.speed = done / max(time.perf_counter() - self._begun[stage], 1e-9)
        shown = f"{self.speed:,.0f}/s" if done else ""
        task = self._tasks[stage]
        self._bars.update(task, completed=done, speed=shown, visible=done < total)


@contextmanager
def progress_bar(
    description: str, total: int, *, unit: str = "episodes"
) -> Iterator[Callable[[int], None]]:
    """A bar with one stage; call the result with the number of units that were done."""
    done = 0
    with ProgressBar(unit) as bar:

        def advance(n: int) -> None:
            nonlocal done
            done += n
            bar.show(description, done, total)

        advance(0)
        yield advance


def print_table(table: "Table") -> None:
    """Print a table on stdout, at full width if stdout is not a terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable

    from fewlabels.evaluation.tables import TEXT_COLUMNS

    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1))
    for place, name in enumerate(table.header):
        text = name in TEXT_COLUMNS
        longest = max(len(row[place]) for rows in ([table.header], *table.sections) for row in rows)
        shown.add_column(
            name,
            justify="left" if text else "right",
            no_wrap=not text,
            overflow="fold",
            min_width=min(longest, LEAST_WORDS) if text else None,
        )
    for section in table.sections:
        for row in section:
            ends = row is section[-1] and section is not table.sections[-1]
            shown.add_row(*row, end_section=ends)
    console = Console()
    needed = console.measure(shown, options=console.options.update(width=WIDEST))
    # A terminal folds words; one that is too narrow for the words breaks lines, which hides nothing
    console.width = max(console.width, needed.minimum if console.is_terminal else needed.maximum)
    console.print(table.title, style="bold", highlight=False)
    console.print(shown)
    console.print(table.caption, style="dim", highlight=False)
