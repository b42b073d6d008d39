"""The compiled loop of the own sampler.

A random stream per episode, and partial Fisher-Yates shuffles of classes and images.
"""

import numpy as np

from fewlabels.evaluation.episodes import IntArray
from fewlabels.kernels.compilation import jit

EACH, DIRICHLET, PRESENT = 0, 1, 2  # how query counts are made; EACH: as given
_jit = jit()


@_jit
def _next(state: np.ndarray) -> np.uint64:
    """Next 64 random bits of a stream: SplitMix64 (Steele, Lea and Flood, 2014)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@_jit
def _uniform(state: np.ndarray) -> float:
    """A number in (0, 1]: 53 random bits, never zero, so that its log exists."""
    return ((_next(state) >> np.uint64(11)) + np.uint64(1)) * (1.0 / 9007199254740992.0)


@_jit
def _below(state: np.ndarray, n: int) -> int:
    """A whole number in 0..n-1; its bias is below n / 2**53."""
    return min(int((1.0 - _uniform(state)) * n), n - 1)


@_jit
def _gamma(state: np.ndarray, shape: float) -> float:
    """A gamma variate (Marsaglia and Tsang 2000; below shape 1 by their power of a uniform)."""
    boost = 1.0
    if shape < 1.0:
        boost = _uniform(state) ** (1.0 / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * d)
    while True:
        normal = np.sqrt(-2.0 * np.log(_uniform(state))) * np.cos(2.0 * np.pi * _uniform(state))
        v = (1.0 + c * normal) ** 3
        if v > 0.0 and np.log(_uniform(state)) < 0.5 * normal * normal + d - d * v + d * np.log(v):
            return boost * d * v


@_jit
def _choose(state: np.ndarray, pool: IntArray, n: int, k: int) -> None:
    """Move a uniformly random ordered choice of k of pool[:n] to its front."""
    for i in range(k):
        j = i + _below(state, n - i)
        pool[i], pool[j] = pool[j], pool[i]


@_jit
def _dirichlet_counts(
    state: np.ndarray, concentration: float, total: int, capacity: IntArray, counts: IntArray
) -> None:
    """Counts that sum to `total`, in Dirichlet proportions as far as the class sizes allow.

    Rounded by the largest remainder.
    """
    n_way = len(counts)
    expected = np.empty(n_way)
    for way in range(n_way):
        expected[way] = _gamma(state, concentration)
    expected *= total / max(expected.sum(), 1e-300)
    for way in range(n_way):
        counts[way] = min(int(expected[way]), capacity[way])
    for _ in range(total - counts.sum()):  # largest remainder first
        best, most = 0, -np.inf
        for way in range(n_way):
            if counts[way] < capacity[way] and expected[way] - counts[way] > most:
                best, most = way, expected[way] - counts[way]
        counts[best] += 1


@_jit
def draw_episodes(
    seed: int,
    first: int,
    rows: IntArray,
    offsets: IntArray,
    n_shot: int,
    kind: int,
    numbers: np.ndarray,
    classes: IntArray,
    support: IntArray,
    support_labels: IntArray,
    query: IntArray,
    query_labels: IntArray,
) -> None:
    """Fill the arrays of `Episodes` for episodes first, first + 1, ..., in place.

    `rows[offsets[c] : offsets[c + 1]]` are the rows of class c; `numbers` the query counts of the
    ways (EACH), or concentration and total (DIRICHLET), or ways present, total and, where the
    number of ways present varies, the most of them (PRESENT).
    """
    n_classes = len(offsets) - 1
    largest = 0
    for c in range(n_classes):
        largest = max(largest, offsets[c + 1] - offsets[c])
    n_episodes, n_way = classes.shape
    for episode in range(n_episodes):
        state = np.empty(1, np.uint64)
        state[0] = np.uint64(seed)
        state[0] = _next(state) ^ (np.uint64(first + episode) * np.uint64(0xD1342543DE82EF95))
        state[0] = _next(state)
        pool = np.arange(max(n_classes, n_way))
        _choose(state, pool, n_classes, n_way)
        for way in range(n_way):  # assigning slices would take seconds to compile
            classes[episode, way] = pool[way]
        counts = np.zeros(n_way, np.int64)
        if kind == EACH:
            for way in range(n_way):
                counts[way] = int(numbers[way])
        elif kind == DIRICHLET:
            capacity = np.empty(n_way, np.int64)
            for way in range(n_way):
                c = classes[episode, way]
                capacity[way] = offsets[c + 1] - offsets[c] - n_shot
            _dirichlet_counts(state, numbers[0], int(numbers[1]), capacity, counts)
        else:
            n_present, total, most = int(numbers[0]), int(numbers[1]), int(numbers[2])
            if most > n_present:
                n_present += _below(state, most - n_present + 1)
            ways = np.arange(n_way)
            _choose(state, ways, n_way, n_present)
            for i in range(n_present):
                counts[ways[i]] = total // n_present + (1 if i < total % n_present else 0)
        images = np.empty(largest, np.int64)
        s, q = 0, 0
        for way in range(n_way):
            c = classes[episode, way]
            size = offsets[c + 1] - offsets[c]
            for i in range(size):
                images[i] = i
            _choose(state, images, size, n_shot + counts[way])
            for i in range(n_shot + counts[way]):
                row = rows[offsets[c] + images[i]]
                if i < n_shot:
                    support[episode, s], support_labels[episode, s] = row, way
                    s += 1
                else:
                    query[episode, q], query_labels[episode, q] = row, way
                    q += 1
