"""Near-duplicates: rows of copies, bursts and frames, which show almost the same thing.

Two rows are near-duplicates if the cosine of their features is at least a threshold. Groups are the
connected components of such pairs.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

# Cosine of near-duplicates. Of changed copies of 60 photographs of groceries, with the default
# backbone, 0.9 finds all that are mirrored or brighter, 98 % of those cropped by 5 %, 83 % of those
# compressed again with quality 50, and 12 % of those of half the size. It makes 516 groups of the
# 700 photographs themselves, the largest of 26.
NEAR = 0.9
# The same of preprocessed rows, which are centered. Of copies of 40 photographs, 0.8 finds all that
# are mirrored or brighter, 90 % of those cropped by 5 %, 95 % of those with quality 50, and 48 % of
# those of half the size. It makes 557 groups of the 700, the largest of 29.
NEAR_CENTERED = 0.8
MOST_IN_GROUP = 0.2  # of all rows: with a larger group, features do not tell near-duplicates
PAIRS_AT_ONCE = 8192  # whose rows are held at a time; memory


def connect(pairs: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """The number of the group of each of n rows, from pairs (2, m) -> (n,).

    >>> connect(np.array([[0, 3], [2, 2]]), 4).tolist()
    [0, 1, 0, 0]
    """
    rows, columns = pairs
    graph = coo_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=(n, n))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def join_groups(*groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Groups whose rows are together in any of these groups, or through others, (N,) each -> (N,).

    >>> join_groups(np.array([5, 5, 7, 8]), np.array([0, 1, 1, 2])).tolist()
    [0, 0, 0, 1]
    """
    n, pairs = len(groups[0]), []
    for each in groups:
        _, first, unit = np.unique(each, return_index=True, return_inverse=True)
        pairs.append(np.stack([np.arange(n), first[unit]]))
    return connect(np.concatenate(pairs, axis=1), n)


def near_groups(
    x: NDArray[np.floating[Any]], candidates: NDArray[np.int64], *, near: float
) -> NDArray[np.int64]:
    """The number of the group of each row, (N, D) and pairs (2, m) -> (N,).

    Where one group has more than a fifth of all rows, the features of the rows are alike for
    another reason, and each row is a group by itself.

    Args:
        x: Features, or rows after the preprocessing.
        candidates: Pairs to compare, such as the edges of a graph of neighbors.
        near: Cosine from which two rows are in one group.
    """
    norms = np.maximum(np.linalg.norm(x, axis=1), np.finfo(np.float32).tiny)
    ordered = candidates[:, candidates[0] < candidates[1]]
    kept = np.zeros(ordered.shape[1], dtype=bool)
    for start in range(0, len(kept), PAIRS_AT_ONCE):
        one, other = ordered[:, start : start + PAIRS_AT_ONCE]
        products = np.einsum("nd,nd->n", x[one], x[other])
        kept[start : start + PAIRS_AT_ONCE] = products >= near * norms[one] * norms[other]
    groups = connect(ordered[:, kept], len(x))
    if np.bincount(groups).max() > max(2, MOST_IN_GROUP * len(x)):
        return np.arange(len(x))
    return groups
