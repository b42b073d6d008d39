"""`preprocess.smoothing` of one episode, compiled, in Gram space: rows 0..n-1 of the matrices, zeros beyond."""

import math

import numpy as np

from fewlabels.kernels._math import Array, fast_jit, gram
from fewlabels.kernels.codes import (
    CLOSEST,
    HOPS,
    NEARLY_ANOTHER,
    NEARLY_ANOTHER_SHORTENED,
    OWN_WEIGHT,
    SAME,
    WITHIN,
)

NO_COSINE = -2.0
HALVINGS = 40  # of the range of cosines: then two that are not yet told apart are taken for equal


@fast_jit
def beside_neighbors(
    g: Array, n: int, dim: int, neighbors: int, weight: float, wide: Array
) -> float:
    """Gram matrix of the shortened vectors beside their smoothed copies, in place.

    Returns how nearly a neighbour was another: 1 where the roundings of float32 just cannot make it one.

    Args:
        g: Inner products of unit vectors, (n', n').
        n: How many rows there are.
        dim: Features of the vectors.
        neighbors: Of a row.
        weight: Of the smoothed copies.
        wide: Out, (n', n').
    """
    closest = _shorten_within(g, n, dim, neighbors, wide) / NEARLY_ANOTHER
    near = np.zeros((n, n), g.dtype)
    zero = g.dtype.type(0)
    for i in range(n):
        last, beyond = _find_last(wide, i, n, neighbors)
        if last > 0:
            closest = min(closest, (last - max(beyond, zero)) / NEARLY_ANOTHER_SHORTENED)
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
                near[i, counts[i]] = (
                    near[i, j] * scale[i] * scale[j]
                )  # packed to the left; counts[i] <= j
                columns[i, counts[i]] = j
                counts[i] += 1
    smoothed, spare = np.empty((n, n), g.dtype), np.empty((n, n), g.dtype)
    for i in range(n):
        for j in range(n):
            smoothed[i, j] = wide[i, j]
    for _ in range(2):  # from both sides
        for _ in range(HOPS):
            _apply(near, columns, counts, smoothed, spare)
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
    return closest


@fast_jit
def _find_last(g: Array, i: int, n: int, k: int) -> tuple[float, float]:
    """The k-th largest product of row i with others, and the one after it: by halving the range, which needs no sorting."""
    low, high = g.dtype.type(NO_COSINE), g.dtype.type(-NO_COSINE)
    zero, one = (
        g.dtype.type(0),
        g.dtype.type(1),
    )  # a count in the type of what is counted runs in vector registers
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
    last, beyond, count = high, g.dtype.type(NO_COSINE), zero
    for j in range(n):
        if g[i, j] > low:
            last = min(last, g[i, j])
            count += one
        else:
            beyond = max(beyond, g[i, j])
    g[i, i] = own
    return last, last if count > k else beyond


@fast_jit
def _shorten_within(g: Array, n: int, dim: int, neighbors: int, out: Array) -> float:
    """Products of the unit vectors that were shortened where nearest rows differ, in place; returns the closest choice of a neighbour."""
    limit = np.empty(n, g.dtype)  # of the closest rows' products
    chosen_by = np.zeros(n, g.dtype)
    closest = np.inf
    for i in range(n):
        last, beyond = _find_last(g, i, n, neighbors)
        limit[i], beyond_limit = _find_last(g, i, n, CLOSEST)
        closest = min(closest, last - beyond, limit[i] - beyond_limit)
        for j in range(n):
            if j != i and g[i, j] >= last:
                chosen_by[j] += 1
    turned = np.zeros((n, n), g.dtype)  # rows in coordinates of their own
    _factor(g, n, turned)
    differences = np.zeros(
        (n, n), g.dtype
    )  # Laplacian of the graph of closest rows, times the coordinates
    for i in range(n):
        edge = g.dtype.type(math.sqrt(min(chosen_by[i] / neighbors, 1.0)) / 2)
        for j in range(n):
            if j != i and g[i, j] >= limit[i]:
                for k in range(n):
                    difference = edge * (turned[i, k] - turned[j, k])
                    differences[i, k] += difference
                    differences[j, k] -= difference
    zero = g.dtype.type(0)
    total = zero
    for i in range(n):
        for k in range(i + 1):
            total += turned[i, k] * differences[i, k]
    scale = g.dtype.type(WITHIN * min(n, dim) / total) if total > SAME else zero
    spread = np.zeros((n, n), g.dtype)
    for first in range(0, n, 4):  # four rows at a time: what is loaded once is used four times
        i, j, k, m = first, min(first + 1, n - 1), min(first + 2, n - 1), min(first + 3, n - 1)
        for row in range(min(first + 4, n)):
            a = scale * turned[i, row]
            b = scale * turned[j, row] if first + 1 < n else zero
            c = scale * turned[k, row] if first + 2 < n else zero
            d = scale * turned[m, row] if first + 3 < n else zero
            for column in range(row + 1):
                spread[row, column] += (
                    a * differences[i, column]
                    + b * differences[j, column]
                    + c * differences[k, column]
                    + d * differences[m, column]
                )
    for k in range(n):
        spread[k, k] += 1
    root = differences
    root.fill(0)
    _factor(spread, n, root)
    _divide(root, turned)
    rows = np.empty(n, np.int64)
    for i in range(n):
        rows[i] = i
        squared = zero
        for k in range(n):
            squared += turned[i, k] * turned[i, k]
        inverse = g.dtype.type(1 / math.sqrt(squared)) if squared > 0 else zero
        for k in range(n):
            turned[i, k] *= inverse
    gram(turned, rows, out)
    return closest


@fast_jit
def _factor(a: Array, n: int, root: Array) -> None:
    """Cholesky factor of a positive semi-definite matrix into a matrix of zeros; a row that depends on those before adds no coordinate."""
    least = a.dtype.type(1e-6 if a.itemsize == 4 else 1e-12)
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


@fast_jit
def _divide(root: Array, x: Array) -> None:
    """Solve y root^T = x for a lower triangular root, in place, (n, n) each; four rows at a time."""
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
def _apply(entries: Array, columns: Array, counts: Array, x: Array, out: Array) -> None:
    """Fill out = (W + 1/2) x for a W of few entries a row."""
    n = len(counts)
    own = x.dtype.type(OWN_WEIGHT)
    for i in range(n):
        for k in range(n):
            out[i, k] = own * x[i, k]
        for entry in range(counts[i]):
            factor, j = entries[i, entry], columns[i, entry]
            for k in range(n):
                out[i, k] += factor * x[j, k]
