"""Paired comparison: differences of methods on the same episodes, episode by episode.

Most of the variance of accuracies comes from the episodes: some are hard for every method. The
differences do not have this variance, so that their interval is several times narrower.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewlabels.errors import InputError
from fewlabels.evaluation.results import EvaluationResult, mean_and_ci95
from fewlabels.evaluation.settings import knobs_shown, knobs_used

TIE = 1e-12  # difference of two accuracies; both are fractions of the same number of queries


@dataclass(frozen=True)
class Comparison:
    """A result against a baseline on the same episodes; win, tie, loss are fractions of them."""

    result: EvaluationResult
    baseline: EvaluationResult
    difference: float  # of the mean accuracies, in percentage points
    ci95: float  # half-width of the paired 95 % interval of the difference
    win: float
    tie: float
    loss: float

    @property
    def is_baseline(self) -> bool:
        """Whether the result is the baseline itself."""
        return self.result is self.baseline

    def to_dict(self) -> dict[str, Any]:
        """The result's own dict, and under "comparison" the difference to the baseline."""
        made_with = (self.baseline.pipeline, self.baseline.settings)
        fractions = {"win": self.win, "tie": self.tie, "loss": self.loss}
        against = {
            "baseline": self.baseline.method,
            # words, and where they are numbers, these
            "baseline_settings": {**knobs_shown(*made_with), **knobs_used(*made_with)},
            "difference": round(self.difference, 4),
            "ci95": round(self.ci95, 4) if self.ci95 == self.ci95 else None,
            **{name: round(value, 4) for name, value in fractions.items()},
        }
        return {**self.result.to_dict(), "comparison": None if self.is_baseline else against}


def paired_difference(a: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[float, float]:
    """Mean of a - b and half-width of its 95 % interval by Student's t, (E,) and (E,).

    The half-width of one episode is NaN.

    >>> paired_difference(np.array([0.9, 0.8, 0.7]), np.array([0.8, 0.7, 0.6]))[0].__round__(6)
    0.1
    """
    return mean_and_ci95(a - b)


def compare_pair(result: EvaluationResult, baseline: EvaluationResult) -> Comparison:
    """One result against another of the same episodes."""
    hashes = [str(each.provenance.get("episode_hash")) for each in (result, baseline)]
    if hashes[0] != hashes[1] or result.n_episodes != baseline.n_episodes:
        raise InputError(
            "only results of the same episodes can be paired, got "
            f"{result.title} on {result.n_episodes} episodes {hashes[0]} and "
            f"{baseline.title} on {baseline.n_episodes} episodes {hashes[1]}. "
            "Run both with the same draws, seed and numbers."
        )
    difference, ci95 = paired_difference(result.accuracies, baseline.accuracies)
    gained = result.accuracies - baseline.accuracies
    parts = (gained > TIE, np.abs(gained) <= TIE, gained < -TIE)
    fractions = (float(part.mean()) for part in parts)
    return Comparison(result, baseline, 100 * difference, 100 * ci95, *fractions)


def compare_results(
    results: Sequence[EvaluationResult], *, baseline: str | None = None
) -> list[Comparison]:
    """Every result against the baseline of its kind of episode (ways, shots, queries).

    Args:
        baseline: A method's name; its first result of each kind is the baseline. The first
            result of all if left out.
    """
    comparisons = []
    kinds = dict.fromkeys(_kind(result) for result in results)
    for kind in kinds:
        same = [result for result in results if _kind(result) == kind]
        if len(same) < 2:
            raise InputError(
                "a comparison needs at least two results of each kind of episode, "
                f"got only {same[0].title}. Name two methods."
            )
        candidates = [result for result in same if baseline in (None, result.method)]
        if not candidates:
            known = ", ".join(dict.fromkeys(result.method for result in same))
            raise InputError(
                f"baseline must be one of the methods {known}, got '{baseline}'. "
                "Name it as a method too."
            )
        comparisons += [compare_pair(result, candidates[0]) for result in same]
    return comparisons


def _kind(result: EvaluationResult) -> tuple[int, int, str]:
    return result.n_way, result.n_shot, result.queries
