"""Estimate of the accuracy: each label of the person is hidden once and predicted from the others.

The person's labels are not a random sample: those that `suggest` asks for are the hardest, those
confirmed by class are the easiest. So hidden labels are weighted such that their confidences are
distributed like those of the unlabelled items (post-stratification by confidence). What confidence
does not show remains, such as a wrong prediction with high confidence: after many suggested labels
the estimate is too low rather than too high.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fewlabels.fitting import Rows
from fewlabels.labeling.answer import Answer, solve

Z95 = 1.959963984540054  # 97.5 % quantile of the normal distribution


@dataclass(frozen=True)
class EstimateSettings:
    """Numbers of the estimate."""

    n_groups: int = 5  # labels are hidden a fifth at a time; with ten groups it costs twice as much
    # and agrees within two points
    most_unlabelled: int = 1000  # items without a label in each group's solution
    most_labelled: int = 2000  # items with a label; the interval is two points wide by then
    most_strata: int = 8  # of confidence
    least_per_stratum: int = 5  # hidden labels
    # Errors fall as (labels per class) to the power of minus this: on validation folders 0.2 to 0.4
    # from 2 to 10 labels; the smaller, because an estimate should not promise too much.
    learning_exponent: float = 0.2


SETTINGS = EstimateSettings()


class Estimate(NamedTuple):
    """Accuracy of the predicted labels, with a 95 % interval."""

    n_right: int  # of the hidden labels, unweighted
    n_hidden: int
    accuracy: float  # weighted
    low: float
    high: float


class _Predicted(NamedTuple):
    right: NDArray[np.bool_]  # of the hidden labels
    sure: NDArray[np.float32]  # confidence in them
    elsewhere: NDArray[np.float32]  # confidence in the labels of all unlabelled items


def estimate_accuracy(
    vectors: Rows,
    labels: NDArray[np.int64],
    *,
    n_way: int,
    answer: Answer | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    pool: Executor | None = None,
    settings: EstimateSettings = SETTINGS,
) -> Estimate | None:
    """Hide every label once, but never the last one of a class; None if no class has two labels.

    Args:
        vectors: Of all items.
        labels: Class numbers of all items, -1 where unknown, (N,).
        n_way: Number of classes.
        answer: For these labels; where its method hid labels itself, nothing is solved again.
        cancelled: Asked before each group; when it returns True, the result is None.
        pool: Threads that solve the groups.
        settings: Numbers of the estimate.
    """
    if vectors.method.hides_labels:
        answer = solve(vectors, labels, n_way=n_way) if answer is None else answer
        return None if cancelled() else _estimate_from(answer, labels, settings)
    rows = _draw(labels, settings)
    vectors, labels = vectors.subset(rows), labels[rows]

    def predict(hidden: NDArray[np.int64]) -> _Predicted | None:
        if cancelled():
            return None
        kept = labels.copy()
        kept[hidden] = -1
        answer = solve(vectors, kept, n_way=n_way)
        # Not calibrated: the temperatures of the groups differ by chance.
        sure = answer.uncalibrated.max(axis=1)
        return _Predicted(answer.labels[hidden] == labels[hidden], sure[hidden], sure[labels < 0])

    groups = _split(labels, n_way, settings.n_groups)
    found = list(map(predict, groups) if pool is None else pool.map(predict, groups))
    predicted = [each for each in found if each is not None]
    if not predicted or len(predicted) < len(found):
        return None
    joined = _Predicted(*(np.concatenate(parts) for parts in zip(*predicted, strict=True)))
    return _estimate(joined, settings)


def _estimate_from(
    answer: Answer, labels: NDArray[np.int64], settings: EstimateSettings
) -> Estimate | None:
    """The estimate from labels that the method hid itself; None where it hid none."""
    assignment = None if answer.fitted is None else answer.fitted.assignment
    if assignment is None or assignment.held_out is None:
        return None
    held_out = assignment.held_out[0].cpu().numpy()
    known = labels >= 0
    hidden = ~np.isnan(held_out).any(axis=1)
    if not hidden.any():
        return None
    right = held_out[hidden].argmax(axis=1) == labels[known][hidden]
    sure = held_out[hidden].max(axis=1)
    counts = np.bincount(labels[known])
    return _estimate(
        _Predicted(right, sure, answer.confidences[~known]), settings, shots=np.median(counts)
    )


def _estimate(
    predicted: _Predicted, settings: EstimateSettings, *, shots: float | None = None
) -> Estimate:
    """The estimate and its interval.

    Args:
        predicted: Hidden labels.
        settings: Numbers of the estimate.
        shots: Labels per class. A prediction of hidden labels has a fifth less of them; with more
            labels errors fall by a power of their number, and the estimate allows for that.
    """
    weights = weigh(predicted.sure, predicted.elsewhere, settings)
    accuracy = float(weights @ predicted.right)
    n_effective = 1 / float(weights @ weights)  # effective sample size (Kish 1965)
    low, high = wilson(accuracy * n_effective, n_effective)
    if shots is not None:
        left = shots - np.ceil(shots / settings.n_groups)
        fall = float(max(left, 1) / max(shots, 1)) ** settings.learning_exponent
        accuracy, high = (1 - fall * (1 - each) for each in (accuracy, high))
    n = len(predicted.right)
    return Estimate(int(predicted.right.sum()), n, accuracy, low, high)


def _draw(labels: NDArray[np.int64], settings: EstimateSettings) -> NDArray[np.int64]:
    """Rows that take part, sorted: a random sample, with at least two labels per class."""
    rng = np.random.default_rng(0)
    unknown, known = (rng.permutation(np.flatnonzero(which)) for which in (labels < 0, labels >= 0))
    rank = np.empty(len(known), dtype=np.int64)  # of each label within its class
    for way in np.unique(labels[known]):
        mine = labels[known] == way
        rank[mine] = np.arange(mine.sum())
    known = known[np.argsort(rank >= 2, kind="stable")]
    n_known = max(settings.most_labelled, int((rank < 2).sum()))
    return np.sort(np.concatenate([known[:n_known], unknown[: settings.most_unlabelled]]))


def _split(labels: NDArray[np.int64], n_way: int, n_groups: int) -> list[NDArray[np.int64]]:
    """Labelled rows in groups to hide, without those whose class has no other label."""
    counts = np.bincount(labels[labels >= 0], minlength=n_way)
    hideable = np.flatnonzero((labels >= 0) & (counts[labels] > 1))
    by_class = hideable[np.argsort(labels[hideable], kind="stable")]
    # With a stride, the labels of one class fall into different groups.
    return [by_class[start::n_groups] for start in range(min(n_groups, len(by_class)))]


def weigh(
    sure: NDArray[np.floating],
    elsewhere: NDArray[np.floating],
    settings: EstimateSettings = SETTINGS,
) -> NDArray[np.float64]:
    """Weights that sum to 1 and give `sure` the distribution of `elsewhere`, (n,), (m,) -> (n,).

    >>> weigh(np.repeat([0.5, 0.9], 5), np.array([0.9, 0.9, 0.9, 0.4])).round(2).tolist()
    [0.05, 0.05, 0.05, 0.05, 0.05, 0.15, 0.15, 0.15, 0.15, 0.15]
    """
    n_strata = max(1, min(settings.most_strata, len(sure) // settings.least_per_stratum))
    inner = np.linspace(0, 1, n_strata + 1)[1:-1]
    edges = np.unique(np.quantile(sure, inner, method="higher"))
    stratum = np.searchsorted(edges, sure, side="right")
    here = np.bincount(stratum, minlength=len(edges) + 1)
    there = here
    if len(elsewhere):
        others = np.searchsorted(edges, elsewhere, side="right")
        there = np.bincount(others, minlength=len(edges) + 1)
    weights = there[stratum] / here[stratum]
    if not weights.any():  # all items elsewhere are in strata without a hidden label
        return np.full(len(sure), 1 / len(sure))
    return np.asarray(weights / weights.sum())


def wilson(n_right: float, n: float) -> tuple[float, float]:
    """The 95 % interval of a proportion (Wilson 1927), which stays within 0 and 1 for small n.

    >>> [round(bound, 3) for bound in wilson(8, 10)]
    [0.49, 0.943]
    """
    p, z2 = n_right / n, Z95 * Z95
    center = p + z2 / (2 * n)
    spread = Z95 * sqrt(max(0.0, p * (1 - p) / n + z2 / (4 * n * n)))
    return max(0.0, (center - spread) / (1 + z2 / n)), min(1.0, (center + spread) / (1 + z2 / n))
