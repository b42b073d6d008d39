"""Measured cells of tables and figures, kept on disk under a key of all that they depend on.

An interrupted run continues where it stopped.
"""

import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from fewlabels import EvaluationResult, configure, evaluate
from fewlabels.errors import FileFormatError, InputError
from fewlabels.evaluation.folder import to_json
from fewlabels.io.files import write_file
from fewlabels.io.stamps import short_hash
from fewlabels.methods import ConfiguredMethod
from fewlabels.paper.library import FeatureSource, Library

OF_EPISODES = ("queries", "n_way", "draws", "share")
CELLS, DIGEST = "cells.json", "digest"
AT_ONCE = 10  # methods that share their draws; an interruption loses at most these, ten seconds
LEAST_EPISODES = 2  # of a cell: an interval needs two
VARIANTS = {  # name: (method, its pipeline where it is not the method's own)
    "ncm-raw": ("ncm-raw", None),
    "ncm": ("ncm", None),
    "kmeans": ("kmeans", None),
    "map": ("map", None),
    "map-without-pt": ("map", "center | unit"),  # Table 6 drops all of Eq. (1), the unit norm too
    # Of other papers, without the power transform.
    "s2m2": ("cosine-head", "unit"),
    "bd-cspn": ("bd-cspn", "unit"),
    "sgc": ("sgc", "unit"),
}
Measurement = dict[str, Any]  # what EvaluationResult.to_dict gives, and the machine
PACKAGE = Path(__file__).resolve().parents[1]
CODE = (  # what computes an accuracy, in the package
    *("methods/*.py", "transport/*.py", "preprocess/*.py", "kernels/*.py", "fitting.py"),
    *(f"evaluation/{name}.py" for name in ("run", "engines", "fused", "episodes", "results")),
    *(f"evaluation/{name}.py" for name in ("sampling", "queries", "_draw", "_shuffle")),
)


@dataclass(frozen=True)
class Experiment:
    """One cell to measure: a method on one kind of episode, on features of one source."""

    source: FeatureSource
    method: ConfiguredMethod
    n_shot: int = 1
    queries: str = "15"
    n_way: int = 5
    draws: str = "authors"  # as in the paper
    share: int = 1  # one of so many episodes is measured

    @property
    def kind(self) -> tuple[Any, ...]:
        """Experiments of one kind share episodes and row-wise preprocessing."""
        rowwise = str(self.method.pipeline.rowwise)
        return (self.source, self.n_way, self.n_shot, self.queries, self.draws, self.share, rowwise)


def make_experiment(
    source: FeatureSource, variant: str, *, n_shot: int = 1, **options: Any
) -> Experiment:
    """An experiment with the paper's settings for the dataset.

    Args:
        **options: queries, n_way, draws and share of `Experiment`; knobs of the method.
    """
    name, pipeline = VARIANTS[variant]
    kind = {key: options.pop(key) for key in OF_EPISODES if key in options}
    dataset = source.dataset
    method = configure(name, n_shot=n_shot, dataset=dataset, pipeline=pipeline, **options)
    return Experiment(source, method, n_shot, **kind)


@dataclass
class Ledger:
    """Measures the cells that were not measured before, and keeps them in a file."""

    folder: Path
    library: Library
    n_episodes: int = 10_000
    seed: int = 0
    device: str = "auto"
    stored: bool = False  # take cells that other versions of the code measured as well
    on_progress: Callable[[int], object] | None = None
    cells: dict[str, Measurement] = field(init=False)
    code: str = field(init=False)  # digest of the code that measures

    def __post_init__(self) -> None:
        if self.n_episodes < LEAST_EPISODES:
            raise InputError(
                f"n_episodes must be at least {LEAST_EPISODES}, or cells have no interval, "
                f"got {self.n_episodes}."
            )
        self.cells = read_cells(self.folder / CELLS)
        self.code = digest_code()
        if self.stored:
            self.cells = {self._key_of(cell): cell for cell in self.cells.values()}

    def key(self, experiment: Experiment) -> str:
        """Sixteen hex digits that name all that the accuracy of a cell depends on."""
        method, source = experiment.method, experiment.source
        what = [self.library.load(source).fingerprint, method.name, str(method.pipeline)]
        episodes = [experiment.n_way, experiment.n_shot, experiment.queries, experiment.draws]
        return self._hash(what, method.settings, [*episodes, self.seed, self._count(experiment)])

    def _count(self, experiment: Experiment) -> int:
        """How many episodes are measured."""
        return max(self.n_episodes // experiment.share, LEAST_EPISODES)

    def _key_of(self, cell: Measurement) -> str:
        """The key that a measured cell would have, had this code measured it."""
        what = [cell["features"]["fingerprint"], cell["method"], cell["pipeline"]]
        episodes = [cell[name] for name in ("n_way", "n_shot", "queries", "draws")]
        return self._hash(what, cell["settings"], [*episodes, cell["seed"], cell["n_episodes"]])

    def _hash(self, what: list[str], settings: Mapping[str, Any], how: list[Any]) -> str:
        named = [*what, {knob: str(value) for knob, value in settings.items()}]
        return short_hash(json.dumps([self.code, named, how], sort_keys=True).encode())

    def find(self, experiment: Experiment) -> Measurement | None:
        """The measured cell, None where its features are not here or it was not measured."""
        return self.cells.get(self.key(experiment)) if self.library.has(experiment.source) else None

    def to_measure(self, experiments: Iterable[Experiment]) -> list[Experiment]:
        """Experiments whose features are here and that were not measured, each once."""
        here = {self.key(each): each for each in experiments if self.library.has(each.source)}
        return [each for key, each in here.items() if key not in self.cells]

    def measure(self, experiments: Iterable[Experiment]) -> None:
        """Measure what was not measured, and write it group by group.

        Ctrl-C loses only the group that was being measured.
        """
        for group in group_experiments(self.to_measure(experiments)):
            results = self._evaluate(group)
            keys = [self.key(each) for each in group]
            # Cells of an older code are replaced.
            kept = {key: cell for key, cell in self.cells.items() if self._key_of(cell) not in keys}
            found = ({**result.to_dict(), "machine": machine()} for result in results)
            self.cells = kept | dict(zip(keys, found, strict=True))
            write_cells(self.folder / CELLS, self.cells)

    def _evaluate(self, group: Sequence[Experiment]) -> list[EvaluationResult]:
        first = group[0]
        how: dict[str, Any] = {
            **{"n_way": first.n_way, "n_shot": first.n_shot, "queries": first.queries},
            **{"n_episodes": self._count(first), "draws": first.draws, "seed": self.seed},
        }
        methods, features = [each.method for each in group], self.library.load(first.source)
        on_progress = self.on_progress
        results = evaluate(methods, features, **how, device=self.device, on_progress=on_progress)
        if results[0].interrupted:
            raise KeyboardInterrupt
        return results


def group_experiments(experiments: Iterable[Experiment]) -> list[list[Experiment]]:
    """Experiments that are measured in one call: of one kind, at most `AT_ONCE`."""
    # MAP first: it computes the inner products, which make the others faster
    ordered = sorted(experiments, key=lambda each: (each.kind, each.method.name != "map"))
    groups = []
    for _, found in groupby(ordered, key=lambda each: each.kind):
        same = list(found)
        groups += [same[first : first + AT_ONCE] for first in range(0, len(same), AT_ONCE)]
    return groups


def code_files(package: Path = PACKAGE) -> list[Path]:
    """The files of the package that take part in computing an accuracy, sorted."""
    return sorted(path for pattern in CODE for path in package.glob(pattern))


def digest_code(package: Path = PACKAGE) -> str:
    """Sixteen hex digits that name the code that computes an accuracy."""
    parts: list[bytes] = []
    for path in code_files(package):
        content = path.read_bytes()
        name = path.relative_to(package).as_posix()
        parts += [f"{name} {len(content)}\n".encode(), content]
    return short_hash(*parts)


@cache
def machine() -> str:
    """The processor and its number of cores, which a time depends on."""
    described = Path("/proc/cpuinfo")  # platform.processor() is often empty on Linux
    lines = described.read_text(encoding="utf-8").splitlines() if described.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = models[0] if models else platform.processor() or platform.machine()
    return f"{processor}, {os.cpu_count()} cores"


def write_cells(path: Path, cells: Mapping[str, Measurement]) -> None:
    """Write cells by their keys, each with its digest."""
    write_file(
        path, to_json({key: {**cell, DIGEST: _digest(key, cell)} for key, cell in cells.items()})
    )


def read_cells(path: Path) -> dict[str, Measurement]:
    """Cells by their keys; a cell that is not as it was written is refused.

    A file of a version that wrote no digests is not checked.
    """
    if not path.exists():
        return {}
    try:
        cells = json.loads(path.read_bytes())
        if not isinstance(cells, dict) or not all(
            isinstance(cell, dict) and "accuracy" in cell for cell in cells.values()
        ):
            raise ValueError("no cells")
        checked = any(DIGEST in cell for cell in cells.values())
        for key, cell in cells.items():
            if checked and cell.pop(DIGEST, None) != _digest(key, cell):
                raise ValueError(f"cell '{key}' is damaged")
    except (OSError, ValueError) as error:
        raise FileFormatError(
            f"{path} cannot be read as measured cells ({error}). Delete it to measure again."
        ) from error
    return cells


def _digest(key: str, cell: Measurement) -> str:
    return short_hash(json.dumps([key, cell], sort_keys=True).encode())
