"""`preprocess.smoothing` of one episode, compiled, in Gram space; matrices have zeros beyond n."""

import math

import numpy as np

from fewlabels.kernels._math import Array, fast_jit, gram
from fewlabels.kernels.codes import KERNELS
from fewlabels.methods.refinement import TIE
from fewlabels.preprocess.smoothing import SMOOTHING

OWN_WEIGHT, HOPS = SMOOTHING.own_weight, SMOOTHING.hops
WHITENING_NEIGHBORS = SMOOTHING.whitening_neighbors
WHITENING_VARIANCE, VARIANCE_FLOOR = SMOOTHING.whitening_variance, SMOOTHING.variance_floor
NEIGHBOR_GAP, WHITENED_NEIGHBOR_GAP = KERNELS.neighbor_gap, KERNELS.whitened_neighbor_gap
FLOAT32_PIVOT, FLOAT64_PIVOT = KERNELS.float32_pivot, KERNELS.float64_pivot
SMALLEST_SQUARE = float(np.finfo(np.float64).tiny)  # squared norm; a divisor of zero rows
COSINE_BOUND = 2.0  # outside the range of cosines
HALVINGS = 40  # of the range of cosines; two that still are not separated are taken for equal


@fast_jit
def append_neighbor_means(
    g: Array, n: int, dim: int, neighbors: int, weight: float, wide: Array
) -> float:
    """Gram matrix of `smoothing.append_neighbor_means`, in place.

    Returns how clear the choices were: below 1, rounding in float32 may lead to others.

    Args:
        g: Inner products of unit vectors, (n', n').
        n: Number of rows.
        dim: Features of the vectors.
        neighbors: Per row.
        weight: Of the neighbor means.
        wide: Out, (n', n').
    """
    smallest, growth = _whiten_within(g, n, dim, neighbors, wide)
    gap = smallest / NEIGHBOR_GAP
    needed = WHITENED_NEIGHBOR_GAP * max(growth * growth, 1.0)
    near = np.zeros((n, n), g.dtype)
    zero = g.dtype.type(0)
    for i in range(n):
        last, beyond = _find_kth(wide, i, n, neighbors)
        if last > 0:
            gap = min(gap, (last - max(beyond, zero)) / needed)
        for j in range(n):
            if j != i and wide[i, j] >= last and wide[i, j] > 0:
                near[i, j] += wide[i, j] / 2
                near[j, i] += wide[i, j] / 2
    scale = np.empty(n, g.dtype)
    for i in range(n):
        total = zero
        for j in range(n):
            total += near[i, j]
        scale[i] = 1 / math.sqrt(total) if total > 0 else 0.0
    columns = np.empty((n, n), np.int64)
    counts = np.zeros(n, np.int64)
    for i in range(n):
        for j in range(n):
            if near[i, j] > 0:
                # Packed to the left: counts[i] <= j.
                near[i, counts[i]] = near[i, j] * scale[i] * scale[j]
                columns[i, counts[i]] = j
                counts[i] += 1
    smoothed, spare = np.empty((n, n), g.dtype), np.empty((n, n), g.dtype)
    for i in range(n):
        for j in range(n):
            smoothed[i, j] = wide[i, j]
    for _ in range(2):  # rows, then columns
        for _ in range(HOPS):
            _apply_graph(near, columns, counts, smoothed, spare)
            smoothed, spare = spare, smoothed
        for i in range(n):
            for j in range(n):
                spare[j, i] = smoothed[i, j]
        smoothed, spare = spare, smoothed
    for i in range(n):
        scale[i] = 1 / math.sqrt(smoothed[i, i]) if smoothed[i, i] > 0 else 0.0
    factor, total_weight = g.dtype.type(weight), g.dtype.type(1 / (1 + weight))
    for i in range(n):
        for j in range(n):
            wide[i, j] = (wide[i, j] + factor * smoothed[i, j] * scale[i] * scale[j]) * total_weight
    return gap


@fast_jit
def count_votes(g: Array, n_support: int, n: int, n_nearest: int, votes: Array) -> None:
    """`methods.refinement.nearest_votes` of one episode, (n', n') -> (Q, n), in place."""
    cosines, scale = np.empty((n, n), g.dtype), np.empty(n, g.dtype)
    for i in range(n):
        scale[i] = 1 / math.sqrt(max(g[i, i], SMALLEST_SQUARE))
    for i in range(n):
        for j in range(n):
            cosines[i, j] = g[i, j] * scale[i] * scale[j]
    for i in range(n_support, n):
        last, _ = _find_kth(cosines, i, n, min(n_nearest, n - 1))
        cosines[i, i] = -COSINE_BOUND
        count = 0
        for j in range(n):
            count += cosines[i, j] >= last - TIE
        for j in range(n):
            votes[i - n_support, j] = 1 / count if cosines[i, j] >= last - TIE else 0.0


@fast_jit
def _find_kth(g: Array, i: int, n: int, k: int) -> tuple[float, float]:
    """The k-th largest product of row i with other rows, and the next one, by bisection."""
    low, high = g.dtype.type(-COSINE_BOUND), g.dtype.type(COSINE_BOUND)
    zero, one = g.dtype.type(0), g.dtype.type(1)  # counts of this type run in vector registers
    own = g[i, i]
    g[i, i] = low
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        count = zero
        for j in range(n):
            count += one if g[i, j] > middle else zero
        if count >= k:
            low = middle
        else:
            high = middle
        if count == k:
            break
    last, beyond, count = high, g.dtype.type(-COSINE_BOUND), zero
    for j in range(n):
        if g[i, j] > low:
            last = min(last, g[i, j])
            count += one
        else:
            beyond = max(beyond, g[i, j])
    g[i, i] = own
    return last, last if count > k else beyond


@fast_jit
def _whiten_within(g: Array, n: int, dim: int, neighbors: int, out: Array) -> tuple[float, float]:
    """Inner products of whitened unit vectors, in place.

    Returns the smallest gap between the cosines of a neighbor and of another row, and the growth of
    rounding errors.
    """
    limit = np.empty(n, g.dtype)  # smallest product with one of the nearest rows
    in_degree = np.zeros(n, g.dtype)
    gap = np.inf
    for i in range(n):
        last, beyond = _find_kth(g, i, n, neighbors)
        limit[i], beyond_limit = _find_kth(g, i, n, WHITENING_NEIGHBORS)
        gap = min(gap, last - beyond, limit[i] - beyond_limit)
        for j in range(n):
            if j != i and g[i, j] >= last:
                in_degree[j] += 1
    rotated = np.zeros((n, n), g.dtype)  # rows in a basis of their span
    growth = _cholesky(g, n, rotated)
    differences = np.zeros((n, n), g.dtype)  # Laplacian of the graph of nearest rows, times these
    for i in range(n):
        edge = g.dtype.type(math.sqrt(min(in_degree[i] / neighbors, 1.0)) / 2)
        for j in range(n):
            if j != i and g[i, j] >= limit[i]:
                for k in range(n):
                    difference = edge * (rotated[i, k] - rotated[j, k])
                    differences[i, k] += difference
                    differences[j, k] -= difference
    zero = g.dtype.type(0)
    total = zero
    for i in range(n):
        for k in range(i + 1):
            total += rotated[i, k] * differences[i, k]
    scale = (
        g.dtype.type(WHITENING_VARIANCE * min(n, dim) / total) if total > VARIANCE_FLOOR else zero
    )
    covariance = np.zeros((n, n), g.dtype)
    for first in range(0, n, 4):  # four rows at a time: each number loaded is used four times
        i, j, k, m = first, min(first + 1, n - 1), min(first + 2, n - 1), min(first + 3, n - 1)
        for row in range(min(first + 4, n)):
            a = scale * rotated[i, row]
            b = scale * rotated[j, row] if first + 1 < n else zero
            c = scale * rotated[k, row] if first + 2 < n else zero
            d = scale * rotated[m, row] if first + 3 < n else zero
            for column in range(row + 1):
                covariance[row, column] += (
                    a * differences[i, column]
                    + b * differences[j, column]
                    + c * differences[k, column]
                    + d * differences[m, column]
                )
    for k in range(n):
        covariance[k, k] += 1
    root = differences
    root.fill(0)
    _cholesky(covariance, n, root)
    _solve_rows(root, rotated)
    rows = np.empty(n, np.int64)
    for i in range(n):
        rows[i] = i
        squared = zero
        for k in range(n):
            squared += rotated[i, k] * rotated[i, k]
        inverse = g.dtype.type(1 / math.sqrt(squared)) if squared > 0 else zero
        for k in range(n):
            rotated[i, k] *= inverse
    gram(rotated, rows, out)
    return gap, growth


@fast_jit
def _cholesky(a: Array, n: int, root: Array) -> float:
    """Cholesky factor of a positive semi-definite matrix, into zeros; skips dependent rows.

    Returns the growth: the largest ratio of an entry to the diagonal above it. Rounding errors
    grow by it.
    """
    least = a.dtype.type(FLOAT32_PIVOT if a.itemsize == 4 else FLOAT64_PIVOT)
    growth = a.dtype.type(0)
    for j in range(n):
        pivot = a[j, j]
        for k in range(j):
            pivot -= root[j, k] * root[j, k]
        if pivot <= least:
            continue
        root[j, j] = math.sqrt(pivot)
        inverse = 1 / root[j, j]
        last = j + 1 + (n - j - 1) // 4 * 4
        for i in range(j + 1, last, 4):
            r0, r1, r2, r3 = a[i, j], a[i + 1, j], a[i + 2, j], a[i + 3, j]
            for k in range(j):
                r0 -= root[i, k] * root[j, k]
                r1 -= root[i + 1, k] * root[j, k]
                r2 -= root[i + 2, k] * root[j, k]
                r3 -= root[i + 3, k] * root[j, k]
            root[i, j], root[i + 1, j], root[i + 2, j], root[i + 3, j] = (
                r0 * inverse,
                r1 * inverse,
                r2 * inverse,
                r3 * inverse,
            )
        for i in range(last, n):
            rest = a[i, j]
            for k in range(j):
                rest -= root[i, k] * root[j, k]
            root[i, j] = rest * inverse
        for i in range(j + 1, n):
            growth = max(growth, abs(root[i, j]) * inverse)
    return growth


@fast_jit
def _solve_rows(root: Array, x: Array) -> None:
    """Solve y root^T = x for a lower triangular root, (n, n) each, in place, by four rows."""
    n = len(root)
    last = n // 4 * 4
    for i in range(0, last, 4):
        for k in range(n):
            r0, r1, r2, r3 = x[i, k], x[i + 1, k], x[i + 2, k], x[i + 3, k]
            for j in range(k):
                r0 -= root[k, j] * x[i, j]
                r1 -= root[k, j] * x[i + 1, j]
                r2 -= root[k, j] * x[i + 2, j]
                r3 -= root[k, j] * x[i + 3, j]
            inverse = 1 / root[k, k]
            x[i, k], x[i + 1, k], x[i + 2, k], x[i + 3, k] = (
                r0 * inverse,
                r1 * inverse,
                r2 * inverse,
                r3 * inverse,
            )
    for i in range(last, n):
        for k in range(n):
            rest = x[i, k]
            for j in range(k):
                rest -= root[k, j] * x[i, j]
            x[i, k] = rest / root[k, k]


@fast_jit
def _apply_graph(entries: Array, columns: Array, counts: Array, x: Array, out: Array) -> None:
    """Fill out = (W + 1/2) x for a sparse W, given by its entries and their columns."""
    n = len(counts)
    own = x.dtype.type(OWN_WEIGHT)
    for i in range(n):
        for k in range(n):
            out[i, k] = own * x[i, k]
        for entry in range(counts[i]):
            factor, j = entries[i, entry], columns[i, entry]
            for k in range(n):
                out[i, k] += factor * x[j, k]
