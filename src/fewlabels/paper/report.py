"""The content of an exhibit, which is a table or a figure of the paper, and its files."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from math import hypot
from pathlib import Path
from typing import Any, Protocol

from fewlabels.errors import FileFormatError
from fewlabels.evaluation.folder import to_json
from fewlabels.evaluation.results import versions
from fewlabels.evaluation.tables import NONE, Table, interval, to_latex, to_markdown
from fewlabels.io.files import write_file
from fewlabels.paper.ledger import Experiment, Ledger, Measurement
from fewlabels.paper.library import FeatureSource, Library
from fewlabels.paper.published import Accuracy


@dataclass(frozen=True)
class Report:
    """An exhibit with the published numbers and ours."""

    name: str
    title: str
    paper: str  # the paper's caption
    table: Table
    notes: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)  # JSON: what figures are drawn from
    sources: tuple[FeatureSource, ...] = ()  # the features that our numbers were measured on
    picture: str = ""  # what the drawing shows, for a caption


class Exhibit(Protocol):
    """A table or a figure that can be regenerated."""

    name: str
    title: str

    def sources(self) -> list[FeatureSource]:
        """All features that it can use."""
        ...

    def experiments(self, library: Library) -> list[Experiment]:
        """What to measure on the features that are here."""
        ...

    def report(self, ledger: Ledger) -> Report:
        """What was published beside what was measured."""
        ...


def label(name: str) -> str:
    """An exhibit's name as the paper writes it.

    >>> label("table5"), label("time")
    ('Table 5', 'Time')
    """
    return f"{name[:-1].capitalize()} {name[-1]}" if name[-1].isdigit() else name.capitalize()


def words_of(value: Measurement | Accuracy | None, *, absent: str = NONE) -> str:
    """An accuracy with its interval, ours or published.

    >>> words_of(Accuracy(87.69, 0.23)), words_of(Accuracy(55.31)), words_of(None)
    ('87.69 ± 0.23', '55.31', '–')
    """
    if value is None:
        return absent
    accuracy, ci95 = value if isinstance(value, Accuracy) else (value["accuracy"], value["ci95"])
    return interval(accuracy, float("nan") if ci95 is None else ci95)


def difference(ours: Measurement | None, published: Accuracy | None) -> str:
    """Ours less published, with the interval of the difference."""
    if ours is None or published is None:
        return NONE
    half = hypot(ours["ci95"] or 0.0, published.ci95 or 0.0)
    return interval(ours["accuracy"] - published.accuracy, half or float("nan"), sign="+")


def sources_here(experiments: Sequence[Experiment], library: Library) -> tuple[FeatureSource, ...]:
    """The features of experiments that are here."""
    return tuple(dict.fromkeys(each.source for each in experiments if library.has(each.source)))


def describe_run(ledger: Ledger, *, draws: str = "authors'") -> str:
    """The conditions of all cells, for a caption."""
    return (
        f"n = {ledger.n_episodes:,} episodes per cell, {draws} draws, seed {ledger.seed}; "
        "accuracy in %, mean ± 95 % interval"
    )


def write_report(
    folder: Path, report: Report, pictures: Mapping[str, bytes], *, command: str
) -> None:
    """Write the JSON, the Markdown, the LaTeX and the drawings of an exhibit."""
    found = {**asdict(report), "command": command, "commit": commit(), "versions": versions()}
    write_file(folder / f"{report.name}.json", to_json(found))
    lines = [to_markdown(report.table), *(f"- {note}" for note in report.notes)]
    write_file(folder / f"{report.name}.tex", f"{to_latex(report.table)}\n".encode())
    pointer = []
    if "svg" in pictures:
        pointer = [f"\n![{report.title}]({report.name}.svg)", f"\n{report.picture}"]
    text = "\n".join([lines[0], "", *lines[1:], *pointer]).rstrip() + "\n"
    write_file(folder / f"{report.name}.md", text.encode())
    for suffix, content in pictures.items():
        write_file(folder / f"{report.name}.{suffix}", content)


def read_reports(folder: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """What `write_report` wrote, of the exhibits that are in the folder."""
    found = []
    for path in (folder / f"{name}.json" for name in names):
        if path.is_file():
            try:
                found.append(json.loads(path.read_bytes()))
            except ValueError as error:
                raise FileFormatError(
                    f"{path} is damaged ({error}). "
                    f"Write it again with `fewlabels reproduce {path.stem}`."
                ) from error
    return found


@cache
def commit() -> str | None:
    """The commit of the source of the package, with "+" if it was changed; None without git."""

    def git(*words: str) -> str:
        here = str(Path(__file__).parent)
        return subprocess.run(
            ["git", "-C", here, *words], capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + (
            "+" if git("status", "--porcelain", "--", "../..") else ""
        )
    except (OSError, subprocess.SubprocessError):
        return None
