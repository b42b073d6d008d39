"""How good are the labels? Each of the person's labels is hidden once and guessed from the others.

The person's labels are no fair sample: those that `suggest` asks for are the hardest, those confirmed a
class at a time the easiest. So every hidden label counts by how common its kind is among the unlabelled
images, where a kind is what is guessed with about the same confidence. What confidence cannot see stays,
such as an oddity that is guessed surely: after many suggested labels the estimate errs on the low side.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fewlabels.labeling.model import Vectors, solve, trace_of

GROUPS = 5  # labels are hidden a fifth at a time; a tenth at a time costs twice as much and agrees within two points
MOST_UNLABELLED = 1000  # that take part: enough to learn from, and each group is solved anew
MOST_LABELLED = 2000  # likewise; the interval is two points wide by then
MOST_KINDS, LEAST_OF_A_KIND = 8, 5  # kinds of confidence, and hidden labels in each
Z95 = 1.959963984540054  # 97.5 % quantile of the normal distribution


class Estimate(NamedTuple):
    """Accuracy of the labels found, from hidden ones, with a 95 % interval."""

    n_right: int  # of the hidden labels, each counted once
    n_hidden: int
    accuracy: float  # each counted by how common its kind is
    low: float
    high: float


class _Guesses(NamedTuple):
    right: NDArray[np.bool_]  # of the hidden labels
    sure: NDArray[np.float32]  # confidence in them
    elsewhere: NDArray[np.float32]  # confidence in the labels of all unlabelled items


def estimate_accuracy(
    vectors: Vectors,
    labels: NDArray[np.int64],
    *,
    n_way: int,
    cancelled: Callable[[], bool] = lambda: False,
    pool: Executor | None = None,
) -> Estimate | None:
    """Hide every label once, in groups that never take a class its last one; None where no class has two.

    Args:
        vectors: Of all items.
        labels: Class numbers of all items, -1 where unknown, (N,).
        n_way: Number of classes.
        cancelled: Asked before each group; where it says yes, the result is None.
        pool: Threads that share the groups among them.
    """
    taking_part = _draw(labels)
    vectors, labels = vectors.subset(taking_part), labels[taking_part]

    def guess(hidden: NDArray[np.int64]) -> _Guesses | None:
        if cancelled():
            return None
        kept = labels.copy()
        kept[hidden] = -1
        answer = solve(vectors, kept, n_way=n_way)
        sure = (
            trace_of(answer).logits.exp().amax(dim=1).numpy()
        )  # not calibrated: temperatures of different groups differ by chance
        return _Guesses(answer.labels[hidden] == labels[hidden], sure[hidden], sure[labels < 0])

    groups = _split(labels, n_way)
    found = list(map(guess, groups) if pool is None else pool.map(guess, groups))
    guesses = [each for each in found if each is not None]
    if not guesses or len(guesses) < len(found):
        return None
    right, sure, elsewhere = (np.concatenate(parts) for parts in zip(*guesses, strict=True))
    weights = weigh(sure, elsewhere)
    accuracy, n_effective = (
        float(weights @ right),
        1 / float(weights @ weights),
    )  # Kish's effective number of labels
    return Estimate(
        int(right.sum()), len(right), accuracy, *wilson(accuracy * n_effective, n_effective)
    )


def _draw(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The items that take part, in order: of too many, some drawn at random, and two labels of each class at least."""
    rng = np.random.default_rng(0)
    unknown, known = (rng.permutation(np.flatnonzero(which)) for which in (labels < 0, labels >= 0))
    rank = np.empty(len(known), dtype=np.int64)  # of each label within its class
    for way in np.unique(labels[known]):
        mine = labels[known] == way
        rank[mine] = np.arange(mine.sum())
    known = known[np.argsort(rank >= 2, kind="stable")]
    return np.sort(
        np.concatenate(
            [known[: max(MOST_LABELLED, int((rank < 2).sum()))], unknown[:MOST_UNLABELLED]]
        )
    )


def _split(labels: NDArray[np.int64], n_way: int) -> list[NDArray[np.int64]]:
    """Labelled items in groups to hide, without those whose class has no other."""
    counts = np.bincount(labels[labels >= 0], minlength=n_way)
    hideable = np.flatnonzero((labels >= 0) & (counts[labels] > 1))
    by_class = hideable[
        np.argsort(labels[hideable], kind="stable")
    ]  # neighbours in this order fall into different groups
    return [by_class[start::GROUPS] for start in range(min(GROUPS, len(by_class)))]


def weigh(sure: NDArray[np.floating], elsewhere: NDArray[np.floating]) -> NDArray[np.float64]:
    """Weights that sum to 1, with which confidences are spread as they are elsewhere, (n,) and (m,) -> (n,).

    >>> weigh(np.repeat([0.5, 0.9], 5), np.array([0.9, 0.9, 0.9, 0.4])).round(2).tolist()
    [0.05, 0.05, 0.05, 0.05, 0.05, 0.15, 0.15, 0.15, 0.15, 0.15]
    """
    n_kinds = max(1, min(MOST_KINDS, len(sure) // LEAST_OF_A_KIND))
    edges = np.unique(np.quantile(sure, np.linspace(0, 1, n_kinds + 1)[1:-1], method="higher"))
    kind, kinds_elsewhere = (
        np.searchsorted(edges, sure, side="right"),
        np.searchsorted(edges, elsewhere, side="right"),
    )
    here = np.bincount(kind, minlength=len(edges) + 1)
    there = np.bincount(kinds_elsewhere, minlength=len(edges) + 1) if len(elsewhere) else here
    weights = there[kind] / here[kind]
    # All at once elsewhere: of kinds that nobody labelled nothing is known, and the rest stands for them.
    return (
        np.asarray(weights / weights.sum()) if weights.any() else np.full(len(sure), 1 / len(sure))
    )


def wilson(n_right: float, n: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share, which stays within 0 and 1 for small n.

    >>> [round(bound, 3) for bound in wilson(8, 10)]
    [0.49, 0.943]
    """
    share, z2 = n_right / n, Z95 * Z95
    center, spread = (
        share + z2 / (2 * n),
        Z95 * sqrt(max(0.0, share * (1 - share) / n + z2 / (4 * n * n))),
    )
    return max(0.0, (center - spread) / (1 + z2 / n)), min(1.0, (center + spread) / (1 + z2 / n))
