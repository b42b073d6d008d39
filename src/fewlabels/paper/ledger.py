"""Every measured cell, kept on disk by all that it depends on: an interrupted run continues where it stopped."""

import hashlib
import json
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from fewlabels import __version__
from fewlabels.errors import FileFormatError
from fewlabels.evaluation import EvaluationResult, evaluate
from fewlabels.evaluation.folder import to_json, write_file
from fewlabels.methods.base import Method, configure
from fewlabels.paper.library import Library, Source

CELLS = "cells.json"
AT_ONCE = 10  # methods that share their draws and inner products; what an interruption loses is at most these, some ten seconds
RECIPES = {  # name: (method, its pipeline where it is not the method's own)
    "ncm-raw": ("ncm-raw", None),
    "ncm": ("ncm", None),
    "kmeans": ("kmeans", None),
    "map": ("map", None),
    "map-without-pt": ("map", "center | unit"),  # Table 6 drops all of Eq. (1), the unit norm too
}
Cell = dict[str, Any]  # what EvaluationResult.to_dict gives, and the machine


@dataclass(frozen=True)
class Entry:
    """One cell to measure: a method on one kind of episode of one source."""

    source: Source
    method: Method
    n_shot: int = 1
    queries: str = "15"
    n_way: int = 5
    draws: str = "authors"  # as the paper's numbers were made

    @property
    def kind(self) -> tuple[Any, ...]:
        """Entries of one kind meet the same episodes, of vectors that were preprocessed alike."""
        return (
            self.source,
            self.n_way,
            self.n_shot,
            self.queries,
            self.draws,
            self.method.pipeline.rowwise.steps,
        )


def make_entry(source: Source, recipe: str, *, n_shot: int = 1, **options: Any) -> Entry:
    """An entry by its recipe, with the paper's settings for the dataset.

    Args:
        source: Of the features.
        recipe: One of `RECIPES`.
        n_shot: Support rows per class.
        **options: queries, n_way and draws of `Entry`; beta, lam, alpha and proportions of `configure`.
    """
    name, pipeline = RECIPES[recipe]
    kind = {key: options.pop(key) for key in ("queries", "n_way", "draws") if key in options}
    return Entry(
        source,
        configure(name, n_shot=n_shot, dataset=source.dataset, pipeline=pipeline, **options),
        n_shot,
        **kind,
    )


@dataclass
class Ledger:
    """Measures entries that are not yet known, and knows those that are."""

    folder: Path
    library: Library
    n_episodes: int = 10_000
    seed: int = 0
    device: str = "auto"
    on_progress: Callable[[int], object] | None = None
    cells: dict[str, Cell] = field(init=False)

    def __post_init__(self) -> None:
        self.cells = _read_cells(self.folder / CELLS)

    def key(self, entry: Entry) -> str:
        """Sixteen hex digits that name all that the cell's accuracy depends on."""
        method = entry.method
        settings = {knob: str(value) for knob, value in method.settings.items()}
        features = self.library.load(entry.source).fingerprint
        kind = [entry.n_way, entry.n_shot, entry.queries, entry.draws, self.seed, self.n_episodes]
        text = json.dumps(
            [__version__, features, method.classifier, str(method.pipeline), settings, kind],
            sort_keys=True,
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def find(self, entry: Entry) -> Cell | None:
        """The measured cell, None where its features are not here or it was not measured."""
        return self.cells.get(self.key(entry)) if self.library.has(entry.source) else None

    def to_measure(self, entries: Iterable[Entry]) -> list[Entry]:
        """Entries whose features are here and that are not yet known, each once."""
        here = {self.key(entry): entry for entry in entries if self.library.has(entry.source)}
        return [entry for key, entry in here.items() if key not in self.cells]

    def measure(self, entries: Iterable[Entry]) -> None:
        """Measure what is not yet known, and write it down group by group; Ctrl-C loses only the group at work."""
        # MAP comes first: it forms the inner products that NCM can do without, but is faster with
        ordered = sorted(
            self.to_measure(entries),
            key=lambda entry: (entry.kind, entry.method.classifier != "map"),
        )
        for _, found in groupby(ordered, key=lambda entry: entry.kind):
            same = list(found)
            for group in (same[first : first + AT_ONCE] for first in range(0, len(same), AT_ONCE)):
                for entry, result in zip(group, self._evaluate(group), strict=True):
                    self.cells[self.key(entry)] = {**result.to_dict(), "machine": machine()}
                write_file(self.folder / CELLS, to_json(self.cells))

    def _evaluate(self, group: Sequence[Entry]) -> list[EvaluationResult]:
        first = group[0]
        results = evaluate(
            self.library.load(first.source),
            [entry.method for entry in group],
            n_way=first.n_way,
            n_shot=first.n_shot,
            queries=first.queries,
            n_episodes=self.n_episodes,
            draws=first.draws,
            seed=self.seed,
            device=self.device,
            on_progress=self.on_progress,
        )
        if results[0].interrupted:
            raise KeyboardInterrupt
        return results


@cache
def machine() -> str:
    """The machine in a few words: times mean nothing without it."""
    described = Path("/proc/cpuinfo")  # platform.processor() says little on Linux
    lines = described.read_text(encoding="utf-8").splitlines() if described.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{models[0] if models else platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def _read_cells(path: Path) -> dict[str, Cell]:
    if not path.exists():
        return {}
    try:
        cells = json.loads(path.read_bytes())
        if not isinstance(cells, dict) or not all(
            isinstance(cell, dict) and "accuracy" in cell for cell in cells.values()
        ):
            raise ValueError("no cells")
    except (OSError, ValueError) as error:
        raise FileFormatError(
            f"{path} cannot be read as measured cells ({error}). Delete it to measure anew."
        ) from error
    return cells
