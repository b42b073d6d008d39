"""What hidden labels tell: the accuracy, labels that look wrong, other methods; and class sizes.

Each label of the person is hidden once and predicted from the others.

The person's labels are not a random sample: those that `suggest` asks for are the hardest, those
confirmed by class are the easiest. So hidden labels are weighted such that their confidences are
distributed like those of the unlabelled items (post-stratification by confidence). What confidence
does not show remains, such as a wrong prediction with high confidence: after many suggested labels
the estimate is too low rather than too high.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import stdtrit

from fewlabels.fitting import Rows
from fewlabels.labeling.answer import Answer, solve
from fewlabels.methods import find_method
from fewlabels.methods.folder import hidden_groups, labelled_alike

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
    # from 2 to 10 labels; the smaller, because an interval should not promise too much.
    learning_exponent: float = 0.2
    # Half the width of the interval of a class size: this many times the variance of its members'
    # probabilities, beside 1.96 times the root. Errors of a model are not independent.
    # benchmarks/folders.py --sizes tells how often the intervals hold the truth.
    size_error: float = 0.75


SETTINGS = EstimateSettings()


class Estimate(NamedTuple):
    """Accuracy of the predicted labels, with a 95 % interval."""

    n_right: int  # of the hidden labels, unweighted
    n_hidden: int
    accuracy: float  # weighted
    low: float
    high: float


class ClassSize(NamedTuple):
    """Items of a class, those with a label included, with a 95 % interval."""

    expected: float
    low: int
    high: int

    def describe(self) -> str:
        """The interval in words.

        >>> ClassSize(7.2, 5, 9).describe(), ClassSize(3, 3, 3).describe()
        ('5 to 9', '3')
        """
        return f"{self.low:,}" + (f" to {self.high:,}" if self.high > self.low else "")


class Contradiction(NamedTuple):
    """A given label that the model, with this label hidden, contradicts."""

    row: int
    number: int  # of the class that the model found
    confidence: float


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
    evidence: NDArray[np.bool_] | None = None,
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
        evidence: Which labels count, (N,); all by default. A guess of the model that a person
            confirmed, one of many at once, says little about the model.
        cancelled: Asked before each group; when it returns True, the result is None.
        pool: Threads that solve the groups.
        settings: Numbers of the estimate.
    """
    if vectors.method.hides_labels:
        answer = solve(vectors, labels, n_way=n_way) if answer is None else answer
        return None if cancelled() else _estimate_from(answer, labels, evidence, settings)
    rows = _draw(labels, settings)
    vectors, labels = vectors.subset(rows), labels[rows]
    counted = np.ones(len(labels), dtype=bool) if evidence is None else evidence[rows]

    def predict(hidden: NDArray[np.int64]) -> _Predicted | None:
        if cancelled():
            return None
        kept = labels.copy()
        kept[hidden] = -1
        answer = solve(vectors, kept, n_way=n_way)
        hidden = hidden[counted[hidden]]
        # Not calibrated: the temperatures of the groups differ by chance.
        sure = answer.uncalibrated.max(axis=1)
        return _Predicted(answer.labels[hidden] == labels[hidden], sure[hidden], sure[labels < 0])

    known = np.flatnonzero(labels >= 0)
    groups = [
        known[group.numpy()]
        for group in hidden_groups(torch.as_tensor(labels[known]), n_way, settings.n_groups)
    ]
    found = list(map(predict, groups) if pool is None else pool.map(predict, groups))
    predicted = [each for each in found if each is not None]
    if not predicted or len(predicted) < len(found):
        return None
    joined = _Predicted(*(np.concatenate(parts) for parts in zip(*predicted, strict=True)))
    return _estimate(joined, settings) if len(joined.right) else None


def _estimate_from(
    answer: Answer,
    labels: NDArray[np.int64],
    evidence: NDArray[np.bool_] | None,
    settings: EstimateSettings,
) -> Estimate | None:
    """The estimate from labels that the method hid itself; None where it hid none."""
    rows, held_out = hidden_probabilities(answer, labels)
    if evidence is not None:
        rows, held_out = rows[evidence[rows]], held_out[evidence[rows]]
    if not len(rows):
        return None
    right = held_out.argmax(axis=1) == labels[rows]
    unknown = labels < 0
    return _estimate(
        _Predicted(right, held_out.max(axis=1), answer.confidences[unknown]),
        settings,
        shots=np.median(np.bincount(labels[~unknown])),
    )


def hidden_probabilities(
    answer: Answer, labels: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Rows whose labels the method hid, (n,), and their probabilities then, (n, W)."""
    assignment = None if answer.fitted is None else answer.fitted.assignment
    if assignment is None or assignment.held_out is None:
        return np.zeros(0, dtype=np.int64), np.zeros((0, 0), dtype=np.float32)
    held_out = assignment.held_out[0].float().cpu().numpy()
    hidden = ~np.isnan(held_out).any(axis=1)
    return np.flatnonzero(labels >= 0)[hidden], held_out[hidden]


def estimate_sizes(
    answer: Answer,
    labels: NDArray[np.int64],
    *,
    counted: NDArray[np.bool_] | None = None,
    settings: EstimateSettings = SETTINGS,
) -> list[ClassSize]:
    """How many items each class has, from the probabilities of all.

    A class of few items gets probability from items of other classes: 100 items with 0.2 each look
    like a class of 20. Hidden labels of the others tell how much, and the lower end of the interval
    allows for it. Where no label was hidden, only the given labels are certain.

    Args:
        answer: For these labels.
        labels: Class numbers of all items, -1 where unknown, (N,).
        counted: Items that are counted, (N,); all by default.
        settings: Numbers of the estimate.

    >>> answer = Answer(np.array([[1.0, 0.0], [0.9, 0.1], [0.5, 0.5]], dtype=np.float32))
    >>> [tuple(size) for size in estimate_sizes(answer, np.array([0, -1, -1]))]
    [(2.4, 1, 3), (0.6, 0, 2)]
    """
    counted = np.ones(len(labels), dtype=bool) if counted is None else counted
    unknown = counted & (labels < 0)
    p = answer.probabilities[unknown].astype(np.float64)
    given = np.bincount(labels[counted & (labels >= 0)], minlength=p.shape[1])
    mass = p.sum(axis=0)
    variance = (p * (1 - p)).sum(axis=0)
    half = Z95 * np.sqrt(variance) + settings.size_error * variance
    rows, held_out = hidden_probabilities(answer, labels)
    rate = _false_positive_limit(mass, labels[rows], held_out)
    # n items of a class and false positives of all others: n + (len(p) - n) rate = mass.
    least = np.maximum(mass - len(p) * rate, 0) / np.maximum(1 - rate, np.finfo(np.float64).tiny)
    low = given + np.floor(np.maximum(np.minimum(mass - half, least), 0))
    high = given + np.minimum(np.ceil(mass + half), len(p))
    return [
        ClassSize(round(float(each), 1), int(fewest), int(most))
        for each, fewest, most in zip(given + mass, low, high, strict=True)
    ]


def _false_positive_limit(
    mass: NDArray[np.float64], hidden: NDArray[np.int64], held_out: NDArray[np.float32]
) -> NDArray[np.float64]:
    """False-positive rate of each class at most: its mean probability for items of others, (W,).

    Upper end of the 95 % interval of the mean over hidden labels of the other classes, which count
    by their size. 1 where no two classes have hidden labels.

    Args:
        mass: Sum of the probabilities of each class, (W,).
        hidden: Classes of the hidden labels, (n,).
        held_out: Their probabilities, (n, W).
    """
    order = np.argsort(hidden, kind="stable")
    ways, first, n = np.unique(hidden[order], return_index=True, return_counts=True)
    if len(ways) < 2:
        return np.ones(len(mass))
    p = held_out[order].astype(np.float64)
    means = np.add.reduceat(p, first) / n[:, None]  # by class of the hidden label, (J, W)
    squares = np.add.reduceat(p**2, first) - n[:, None] * means**2
    weights = mass[ways] + 1  # a class without mass counts too

    def of_others(x: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Sums over the classes of hidden labels without class c, (J, W) or (J, 1) -> (W,)."""
        own = np.zeros(len(mass))
        own[ways] = x[np.arange(len(ways)), ways if x.shape[1] > 1 else 0]
        return np.asarray(x.sum(axis=0) - own)

    total = of_others(weights[:, None])
    freedom = np.maximum(of_others(n[:, None] - 1.0), 1)
    variance = np.maximum(of_others(squares), 0) / freedom
    error = np.sqrt(variance * of_others((weights**2 / n)[:, None])) / total
    limit = of_others(weights[:, None] * means) / total + stdtrit(freedom, 0.975) * error
    return np.asarray(np.clip(limit, 0.0, 1.0))


def find_contradictions(
    answer: Answer, labels: NDArray[np.int64], *, least: float
) -> list[Contradiction]:
    """Given labels that look wrong, the surest first.

    Args:
        answer: Of a method that hides labels; of another one, nothing is found.
        labels: Class numbers of all items, -1 where unknown, (N,).
        least: Confidence in another class from which a label is listed.
    """
    rows, held_out = hidden_probabilities(answer, labels)
    found = [
        Contradiction(int(row), int(each.argmax()), float(each.max()))
        for row, each in zip(rows, held_out, strict=True)
        if each.max() >= least and each.argmax() != labels[row]
    ]
    return sorted(found, key=lambda each: -each.confidence)


def compare_hidden(
    vectors: Rows,
    labels: NDArray[np.int64],
    methods: Sequence[str],
    settings: EstimateSettings = SETTINGS,
) -> dict[str, int]:
    """How many of the labels that `estimate_accuracy` hides other methods predict, by name.

    They see the same vectors, and the same labels are hidden at a time.
    """
    if not vectors.method.hides_labels:
        rows = _draw(labels, settings)
        vectors, labels = vectors.subset(rows), labels[rows]
    known = np.flatnonzero(labels >= 0)
    right = dict.fromkeys(methods, 0)
    n_way = int(labels.max()) + 1
    alike = labelled_alike(getattr(vectors.prepared, "alike", None), torch.as_tensor(labels >= 0))
    for group in hidden_groups(torch.as_tensor(labels[known]), n_way, alike=alike):
        hidden = known[group.numpy()]
        shown = np.setdiff1d(known, hidden)
        for name in methods:
            found = find_method(name).assign(
                vectors.x[shown][None],
                torch.as_tensor(labels[shown])[None],
                vectors.x[hidden][None],
                n_way=n_way,
            )
            right[name] += int((found.labels[0].numpy() == labels[hidden]).sum())
    return right


def _estimate(
    predicted: _Predicted, settings: EstimateSettings, *, shots: float | None = None
) -> Estimate:
    """The estimate and its interval.

    Args:
        predicted: Hidden labels.
        settings: Numbers of the estimate.
        shots: Labels per class. A prediction of hidden labels has a fifth less of them; with more
            labels errors fall by a power of their number. The upper end of the interval allows for
            that. The estimate does not: the weights by confidence allow for most of it.
    """
    weights = weigh(predicted.sure, predicted.elsewhere, settings)
    accuracy = float(weights @ predicted.right)
    n_effective = 1 / float(weights @ weights)  # effective sample size (Kish 1965)
    low, high = wilson(accuracy * n_effective, n_effective)
    if shots is not None:
        left = shots - np.ceil(shots / settings.n_groups)
        fall = float(max(left, 1) / max(shots, 1)) ** settings.learning_exponent
        high = 1 - fall * (1 - high)
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
