"""`unit` and `center` of one episode, compiled, on the vectors or on their inner products."""

import math

import numpy as np

from fewlabels.kernels._math import Array, dot, fast_jit
from fewlabels.kernels.codes import (
    CENTER_BY_SUPPORT,
    CENTER_JOINTLY,
    CENTER_SHRUNK,
    CENTER_WITH_OUTSIDE,
    KERNELS,
)
from fewlabels.preprocess.steps import OUTSIDE_ROWS

SQUARED_NORM_FLOOR = KERNELS.squared_norm_floor
TINY = float(np.finfo(np.float64).tiny)


@fast_jit
def normalize_rows(x: Array) -> None:
    """Unit norm of each row; a zero vector stays zero."""
    for i in range(len(x)):
        row = x[i]
        squared = dot(row, row)
        scale = (
            x.dtype.type(1.0 / math.sqrt(squared))
            if squared > SQUARED_NORM_FLOOR
            else x.dtype.type(0)
        )
        for k in range(len(row)):
            row[k] *= scale


@fast_jit
def _averaged(
    side: int, n_support: int, n: int, step: int, shrunk: float
) -> tuple[int, int, float]:
    """First row, end and weight of each row in the mean that is subtracted from a side.

    `shrunk`: what CENTER_SHRUNK takes of the mean.
    """
    by_support = side == 0 or step in (CENTER_BY_SUPPORT, CENTER_WITH_OUTSIDE, CENTER_SHRUNK)
    first, last = (0, n_support) if by_support else (n_support, n)
    if step == CENTER_JOINTLY or last - first <= 1:
        first, last = 0, n
    part = 1.0
    if step == CENTER_WITH_OUTSIDE:
        part = n_support / (n_support + OUTSIDE_ROWS)
    elif step == CENTER_SHRUNK:
        part = shrunk
    return first, last, part / (last - first)


@fast_jit
def _shrunk_part(n_support: int, n: int, of_mean: float, squared: float) -> float:
    """As `steps.shrunk_part`."""
    within = max(squared - of_mean, 0.0) / (n_support if n_support > 1 else n)
    return of_mean / max(of_mean + within, TINY)


@fast_jit
def _shrunk_part_of_rows(x: Array, n_support: int) -> float:
    n, total, squared = len(x), np.zeros(x.shape[1]), 0.0
    for i in range(n):
        for k in range(x.shape[1]):
            total[k] += x[i, k]
            squared += float(x[i, k]) ** 2
    of_mean = 0.0
    for k in range(x.shape[1]):
        of_mean += (total[k] / n) ** 2
    return _shrunk_part(n_support, n, of_mean, squared / n)


@fast_jit
def _shrunk_part_of_gram(g: Array, n_support: int, n: int) -> float:
    of_mean, squared = 0.0, 0.0
    for i in range(n):
        squared += float(g[i, i])
        for k in range(n):
            of_mean += float(g[i, k])
    return _shrunk_part(n_support, n, of_mean / (n * n), squared / n)


@fast_jit
def center_rows(x: Array, n_support: int, n_query: int, step: int) -> None:
    """Subtract the mean of each side, of both or of the support, as `preprocess.steps` does.

    A side of one row is centered by the mean of all rows. CENTER_WITH_OUTSIDE subtracts a part of
    the mean of the support, as the mean from outside is the origin.
    """
    n = n_support + n_query
    shrunk = _shrunk_part_of_rows(x, n_support) if step == CENTER_SHRUNK else 1.0
    means = np.zeros((2, x.shape[1]), x.dtype)
    for side in range(2):
        first, last, weight = _averaged(side, n_support, n, step, shrunk)
        mean, inverse = means[side], x.dtype.type(weight)
        for i in range(first, last):
            row = x[i]
            for k in range(len(row)):
                mean[k] += row[k] * inverse
    for i in range(n):
        row, mean = x[i], means[0 if i < n_support else 1]
        for k in range(len(row)):
            row[k] -= mean[k]


@fast_jit
def normalize_gram(g: Array) -> None:
    """Unit norm in Gram space: divide by the norms of both vectors; a zero vector stays zero."""
    n = len(g)
    scale = np.empty(n, g.dtype)
    for i in range(n):
        scale[i] = 1.0 / math.sqrt(g[i, i]) if g[i, i] > SQUARED_NORM_FLOOR else 0.0
    for i in range(n):
        for j in range(n):
            g[i, j] *= scale[i] * scale[j]


@fast_jit
def center_gram(g: Array, n_support: int, n_query: int, step: int) -> None:
    """The same in Gram space."""
    n = n_support + n_query
    shrunk = _shrunk_part_of_gram(g, n_support, n) if step == CENTER_SHRUNK else 1.0
    toward = np.zeros((2, len(g)), g.dtype)  # <x_i, mean of side>
    for side in range(2):
        first, last, weight = _averaged(side, n_support, n, step, shrunk)
        means, inverse = toward[side], g.dtype.type(weight)
        for i in range(first, last):
            row = g[i]
            for k in range(n):
                means[k] += row[k] * inverse
    between = np.zeros((2, 2), g.dtype)  # <mean of side, mean of side>
    for a in range(2):
        for b in range(2):
            first, last, weight = _averaged(b, n_support, n, step, shrunk)
            for k in range(first, last):
                between[a, b] += toward[a, k] * g.dtype.type(weight)
    for i in range(n):
        a = 0 if i < n_support else 1
        row, its_side = g[i], toward[a]
        to_support, to_query = between[a, 0] - toward[0, i], between[a, 1] - toward[1, i]
        for k in range(n_support):
            row[k] += to_support - its_side[k]
        for k in range(n_support, n):
            row[k] += to_query - its_side[k]
