"""The leaderboard: all methods on the same episodes, accuracy beside time, paired with PT+MAP.

Per kind of episode, each method first labels a few episodes, which tells its time. Methods up to
`SLOW` milliseconds per episode label all episodes, slower ones a part of them; both kinds are
compared with the baseline on the very episodes that they labelled.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from fewlabels.errors import InputError
from fewlabels.evaluation.comparison import Comparison, compare_pair
from fewlabels.evaluation.queries import QuerySpec
from fewlabels.evaluation.results import EvaluationResult
from fewlabels.evaluation.run import evaluate
from fewlabels.evaluation.settings import Tuned, read_settings
from fewlabels.evaluation.sweep import Cell, check_cells, plan_cells
from fewlabels.evaluation.tables import NONE, Table, interval
from fewlabels.features import FeatureSet
from fewlabels.methods import ConfiguredMethod, find_method, method_names
from fewlabels.methods.base import BETA

BASELINE = "map"
SHOTS = (1, 5)
QUERIES = ("15", "dirichlet:2:75", "present:2:75")
FOR_FOLDERS = ("map-folder", "folder")  # their rules are for whole folders: on request only
SLOW = 50.0  # milliseconds per episode above which a method labels fewer episodes
FEWER = 10  # times fewer
FEWEST = 10  # episodes of a slow method: fewer tell nothing of its place
N_TRIED = 20  # episodes that tell the time of a method
N_AGAIN = 5  # episodes of the methods that seem slow: a first call may compile or import
SETTINGS = "leaderboard.toml"  # beside this file; written by benchmarks/leaderboard.py


@dataclass(frozen=True)
class Standing:
    """One method on one kind of episode, beside the baseline on the same episodes."""

    comparison: Comparison

    @property
    def result(self) -> EvaluationResult:
        """The method's own result."""
        return self.comparison.result

    @property
    def milliseconds(self) -> float:
        """Wall time per episode."""
        return 1000 * self.result.seconds / self.result.n_episodes

    def to_dict(self) -> dict[str, Any]:
        """All figures, ready for JSON."""
        return {**self.comparison.to_dict(), "ms_per_episode": round(self.milliseconds, 4)}


@dataclass(frozen=True)
class Leaderboard:
    """The standings of all methods, best first, and the methods that were left out."""

    kinds: tuple[tuple[int, str], ...]  # shots and queries
    standings: dict[str, tuple[Standing, ...]]  # by method, one per kind
    left_out: dict[str, str]  # method: why
    about: str = ""

    def gain(self, method: str) -> float:
        """Mean difference to the baseline over the kinds of episodes, in percentage points."""
        rows = self.standings[method]
        return sum(each.comparison.difference for each in rows) / len(rows)

    def to_dict(self) -> dict[str, Any]:
        """All standings, ready for JSON."""
        rows = {name: [each.to_dict() for each in rows] for name, rows in self.standings.items()}
        return {"standings": rows, "left_out": self.left_out}


def recorded_settings() -> Tuned:
    """The settings that were tuned on validation classes, as recorded with the package."""
    return read_settings(Path(str(files("fewlabels.evaluation") / SETTINGS)))


def choose_methods(
    methods: Sequence[str] | None, *, with_mean: bool
) -> tuple[list[str], dict[str, str]]:
    """The methods to run, the baseline first, and those that are left out with the reason."""
    names = list(dict.fromkeys(methods or [n for n in method_names() if n not in FOR_FOLDERS]))
    wanting = [name for name in names if find_method(name).pipeline.needs_mean]
    left_out = {} if with_mean else dict.fromkeys(wanting, "needs features of the base classes")
    return [BASELINE, *(n for n in names if n not in (BASELINE, *left_out))], left_out


def make_leaderboard(
    features: FeatureSet,
    methods: Sequence[str] | None = None,
    *,
    shots: Sequence[int] = SHOTS,
    queries: Sequence[str] = QUERIES,
    n_way: int = 5,
    n_episodes: int = 200,
    tuned: Tuned | None = None,
    beta: float | str | None = None,
    mean_features: FeatureSet | None = None,
    about: str = "",
    on_progress: Callable[[int], object] | None = None,
    **options: Any,
) -> Leaderboard:
    """All methods over the kinds of episodes.

    Args:
        features: What the episodes are drawn from.
        methods: Names; by default all but those for whole folders.
        shots: Labelled rows per class.
        queries: Words of `QuerySpec`.
        n_way: Classes per episode.
        n_episodes: Episodes of each kind; slow methods label a tenth of them, at least ten.
        tuned: Settings by method and shots; methods and shots that it does not hold keep theirs.
        beta: Power of the methods that have this knob, such as "auto"; by default their own.
        mean_features: Where SimpleShot takes the mean of the base classes from; without it, the
            methods that need it are left out.
        about: What the features are, for titles.
        on_progress: Called with the number of newly finished (episode, method) pairs.
        **options: draws, seed, engine, device, as in `evaluate`.
    """
    names, left_out = choose_methods(methods, with_mean=mean_features is not None)
    if n_episodes < FEWEST:
        raise InputError(f"n_episodes must be at least {FEWEST}, got {n_episodes}.")
    dataset = features.provenance.get("dataset")
    known = {
        name: {n_shot: (tuned or {}).get(name, {}).get(n_shot, {}) for n_shot in shots}
        for name in names
    }
    plan: Any = {"dataset": dataset, "tuned": known}
    plan["knobs"] = {} if beta is None else {BETA.name: [beta]}
    cells = [
        cell
        for n_shot, word in product(dict.fromkeys(shots), dict.fromkeys(queries))
        for cell in plan_cells(names, shots=[n_shot], queries=[word], **plan)
    ]
    check_cells(
        features,
        cells,
        n_way=n_way,
        **{name: options[name] for name in ("draws", "seed") if name in options},
    )
    found: dict[str, list[Standing]] = {name: [] for name in names}
    for cell in cells:
        how = {"n_way": n_way, "n_shot": cell.n_shot, "queries": cell.queries, **options}
        for standing in _stand(features, cell, n_episodes, mean_features, how, on_progress):
            found[standing.result.method].append(standing)
    board = Leaderboard(
        tuple((cell.n_shot, cell.queries) for cell in cells),
        {name: tuple(rows) for name, rows in found.items()},
        left_out,
        about,
    )
    order = sorted(names, key=board.gain, reverse=True)
    return Leaderboard(board.kinds, {n: board.standings[n] for n in order}, left_out, about)


def _stand(
    features: FeatureSet,
    cell: Cell,
    n_episodes: int,
    mean_features: FeatureSet | None,
    how: dict[str, Any],
    on_progress: Callable[[int], object] | None,
) -> list[Standing]:
    """The standings of all methods on one kind of episode."""

    def run(methods: Sequence[ConfiguredMethod], n: int, **more: Any) -> list[EvaluationResult]:
        wanting = any(method.pipeline.needs_mean for method in methods)
        mean = mean_features if wanting else None
        return evaluate(methods, features, n_episodes=n, mean_features=mean, **how, **more)

    slow: list[ConfiguredMethod] = [m for m in cell.methods if m.name != BASELINE]
    for n in (N_TRIED, N_AGAIN):
        tried = zip(slow, run(slow, n) if slow else (), strict=True)
        slow = [method for method, result in tried if 1000 * result.seconds / n > SLOW]
    fast = [method for method in cell.methods if method not in slow]
    results = run(fast, n_episodes, on_progress=on_progress)
    standings = [Standing(compare_pair(result, results[0])) for result in results]
    if slow:
        baseline, *results = run(
            [fast[0], *slow], max(n_episodes // FEWER, FEWEST), on_progress=on_progress
        )
        standings += [Standing(compare_pair(result, baseline)) for result in results]
    return standings


def tabulate_leaderboard(board: Leaderboard, *, paired: bool = False) -> Table:
    """One row per method, one column per kind of episode; accuracies or paired differences."""
    rows = []
    for name, standings in board.standings.items():
        cells = []
        for each in standings:
            compared = each.comparison
            if not paired:
                cells.append(interval(each.result.accuracy, each.result.ci95))
            elif compared.is_baseline:
                cells.append("baseline")
            else:
                cells.append(interval(compared.difference, compared.ci95, sign="+"))
        counts = sorted({each.result.n_episodes for each in standings})
        times = sorted(each.milliseconds for each in standings)
        gain = NONE if name == BASELINE else f"{board.gain(name):+.2f}"
        shown = (f"{times[len(times) // 2]:.2f}", gain, "–".join(f"{n:,}" for n in counts[:2]))
        rows.append((standings[0].result.title, *cells, *shown))
    first = next(iter(board.standings.values()))[0].result
    header = tuple(f"{shots}-shot {describe_kind(word)}" for shots, word in board.kinds)
    what = "difference to PT+MAP in points, paired" if paired else "accuracy in %"
    notes = [f"{what}, mean ± 95 % interval", "mean gain over PT+MAP in points, best first"]
    notes.append("ms: median wall time per episode")
    notes.append(f"methods above {SLOW:g} ms on fewer episodes")
    notes += [f"{name} left out: {why}" for name, why in board.left_out.items()]
    title = ", ".join(filter(None, [f"Leaderboard, {first.n_way}-way", board.about]))
    caption = "; ".join(notes)
    return Table(title, ("method", *header, "ms", "gain", "episodes"), [rows], caption)


def describe_kind(queries: str) -> str:
    """The word of a QuerySpec as the head of a column.

    >>> [describe_kind(word) for word in ("15", "dirichlet:2:75", "present:1-4:60", "9,1")]
    ['balanced', 'Dirichlet(2)', '1-4 present', '9,1']
    """
    spec = QuerySpec.parse(queries)
    if spec.kind == "each":
        return "balanced"
    if spec.kind == "counts":
        return str(spec)
    kind, number, _ = str(spec).split(":")
    return f"{number} present" if kind == "present" else f"Dirichlet({number})"
