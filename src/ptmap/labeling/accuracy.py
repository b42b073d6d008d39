"""How good are the labels? Each of the person's labels is hidden once and guessed from the others."""

from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ptmap.labeling.model import Vectors, solve

GROUPS = 10  # labels are hidden in this many groups: with up to ten labels a class, one of a class at a time
MOST_UNLABELLED = 1000  # that take part: enough to learn from, and each group is solved anew
Z95 = 1.959963984540054  # 97.5 % quantile of the normal distribution


class Estimate(NamedTuple):
    """Accuracy on hidden labels, with a 95 % interval; of images like those that were labelled."""

    n_right: int
    n_hidden: int
    low: float
    high: float

    @property
    def accuracy(self) -> float:
        """Share of the hidden labels that came back right."""
        return self.n_right / self.n_hidden


def estimate_accuracy(
    vectors: Vectors, labels: NDArray[np.int64], *, n_way: int, cancelled: Callable[[], bool] = lambda: False
) -> Estimate | None:
    """Hide every label once, in groups that never take a class its last one; None where no class has two.

    Args:
        vectors: Of all items.
        labels: Class numbers of all items, -1 where unknown, (N,).
        n_way: Number of classes.
        cancelled: Asked between the groups; where it says yes, the result is None.
    """
    unknown = np.flatnonzero(labels < 0)
    if len(unknown) > MOST_UNLABELLED:
        drawn = np.random.default_rng(0).choice(unknown, MOST_UNLABELLED, replace=False)
        rows = np.sort(np.concatenate([np.flatnonzero(labels >= 0), drawn]))
        vectors, labels = replace(vectors, x=vectors.x[rows]), labels[rows]
    counts = np.bincount(labels[labels >= 0], minlength=n_way)
    place = np.zeros(len(labels), dtype=np.int64)  # of each labelled item within its class
    for way in range(n_way):
        place[labels == way] = np.arange(counts[way])
    hideable = (labels >= 0) & (counts[labels] > 1)
    if not hideable.any():
        return None
    group = (place + labels) % np.where(labels >= 0, np.minimum(np.maximum(counts[labels], 2), GROUPS), 1)
    n_right = 0
    for number in range(GROUPS):
        hidden = hideable & (group == number)
        if cancelled():
            return None
        if hidden.any():
            answer = solve(vectors, np.where(hidden, -1, labels), n_way=n_way)
            n_right += int((answer.labels[hidden] == labels[hidden]).sum())
    n_hidden = int(hideable.sum())
    return Estimate(n_right, n_hidden, *wilson(n_right, n_hidden))


def wilson(n_right: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share, which stays within 0 and 1 for small n.

    >>> [round(bound, 3) for bound in wilson(8, 10)]
    [0.49, 0.943]
    """
    share, z2 = n_right / n, Z95 * Z95
    center, spread = share + z2 / (2 * n), Z95 * sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, (center - spread) / (1 + z2 / n)), min(1.0, (center + spread) / (1 + z2 / n))
