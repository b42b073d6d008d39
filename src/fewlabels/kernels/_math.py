"""Compiled building blocks: an exponential that vectorizes, Gram matrices, small linear solves.

The compiler may reorder sums, so that they run in vector registers. The order is fixed at compile
time: an episode's bits depend on nothing but the episode. NaN and infinity keep their meaning: the
flags "nnan" and "ninf" of LLVM, which remove all checks for them, are not set.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from fewlabels.kernels.compilation import jit

Array = NDArray[Any]
FAST = {"reassoc", "contract", "nsz", "arcp", "afn"}  # all of "fast" but "nnan" and "ninf"
fast_jit = jit(fastmath=FAST, error_model="numpy", inline="never")

_LOG2E = np.float32(1.44269504)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)  # ln 2 to 40 bits
STRIP = 1024  # features per strip: 320 kB for 80 rows in float32, which fits the cache of a core
GROUP = 5  # classes whose sums are formed together; papers have 5, 10 or 20 classes
# e^-40 = 4e-18 is nothing next to 1, and products of two such numbers are not yet subnormal (slow).
_LOWEST_EXPONENT = np.float32(-40.0)


@intrinsic
def _float_from_bits(_: Any, bits: Any) -> Any:  # noqa: ARG001 - its name is the signature
    """The float32 whose bits are the given int32."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), generate


def exp(x: float) -> float:
    """The exponential of x <= 0, in the precision of x."""
    return math.exp(x)


@overload(exp, jit_options={"fastmath": FAST}, inline="always")
def _compile_exp(x: Any) -> Any:
    if x == types.float32:
        return _exp32
    return _exp64


def _exp64(x: Any) -> Any:
    return math.exp(x)


def _exp32(x: Any) -> Any:
    """2^k times a polynomial on [-ln 2 / 2, ln 2 / 2]; relative error below 2e-7; no call."""
    x = max(x, _LOWEST_EXPONENT)  # in this order, which keeps NaN
    k = np.floor(x * _LOG2E + np.float32(0.5))
    r = x - k * _LN2_HIGH - k * _LN2_LOW
    p = np.float32(1 / 720)
    p = p * r + np.float32(1 / 120)
    p = p * r + np.float32(1 / 24)
    p = p * r + np.float32(1 / 6)
    p = p * r + np.float32(0.5)
    p = p * r + np.float32(1.0)
    p = p * r + np.float32(1.0)
    return p * _float_from_bits((np.int32(k) + np.int32(127)) << np.int32(23))  # type: ignore[call-arg]


@fast_jit
def gram(x: Array, rows: Array, g: Array) -> None:
    """Inner products of some rows, (N, D) and (n,) -> (n', n'), in place; zeros beyond n.

    n' must be a multiple of 4. The features are cut into strips that fit the cache. Blocks of 4 by
    4 rows keep 16 sums in registers. The upper half is mirrored.
    """
    n, dim = len(g), x.shape[1]
    padded = np.empty(n, np.int64)
    for i in range(n):
        padded[i] = rows[min(i, len(rows) - 1)]
    g.fill(0)
    for first in range(0, dim, STRIP):
        last = min(first + STRIP, dim)
        for i in range(0, n, 4):
            a0, a1, a2, a3 = (
                x[padded[i], first:last],
                x[padded[i + 1], first:last],
                x[padded[i + 2], first:last],
                x[padded[i + 3], first:last],
            )
            for j in range(0, i + 4, 4):
                b0, b1, b2, b3 = (
                    x[padded[j], first:last],
                    x[padded[j + 1], first:last],
                    x[padded[j + 2], first:last],
                    x[padded[j + 3], first:last],
                )
                zero = x.dtype.type(0)
                s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = zero
                s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = zero
                for k in range(last - first):
                    s00 += a0[k] * b0[k]
                    s01 += a0[k] * b1[k]
                    s02 += a0[k] * b2[k]
                    s03 += a0[k] * b3[k]
                    s10 += a1[k] * b0[k]
                    s11 += a1[k] * b1[k]
                    s12 += a1[k] * b2[k]
                    s13 += a1[k] * b3[k]
                    s20 += a2[k] * b0[k]
                    s21 += a2[k] * b1[k]
                    s22 += a2[k] * b2[k]
                    s23 += a2[k] * b3[k]
                    s30 += a3[k] * b0[k]
                    s31 += a3[k] * b1[k]
                    s32 += a3[k] * b2[k]
                    s33 += a3[k] * b3[k]
                g[i, j] += s00
                g[i, j + 1] += s01
                g[i, j + 2] += s02
                g[i, j + 3] += s03
                g[i + 1, j] += s10
                g[i + 1, j + 1] += s11
                g[i + 1, j + 2] += s12
                g[i + 1, j + 3] += s13
                g[i + 2, j] += s20
                g[i + 2, j + 1] += s21
                g[i + 2, j + 2] += s22
                g[i + 2, j + 3] += s23
                g[i + 3, j] += s30
                g[i + 3, j + 1] += s31
                g[i + 3, j + 2] += s32
                g[i + 3, j + 3] += s33
    for i in range(n):
        for j in range(i + 1):
            if i >= len(rows):
                g[i, j] = 0
            g[j, i] = g[i, j]


@fast_jit
def solve_in_place(a: Array, b: Array) -> bool:
    """Solve a x = b by Cholesky; b becomes x. False where a is not positive definite, or NaN."""
    n = len(b)
    for j in range(n):
        for k in range(j):
            a[j, j] -= a[j, k] * a[j, k]
        if not a[j, j] > 0.0:
            return False
        a[j, j] = math.sqrt(a[j, j])
        for i in range(j + 1, n):
            for k in range(j):
                a[i, j] -= a[i, k] * a[j, k]
            a[i, j] /= a[j, j]
    for i in range(n):
        for k in range(i):
            b[i] -= a[i, k] * b[k]
        b[i] /= a[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            b[i] -= a[k, i] * b[k]
        b[i] /= a[i, i]
    return True


@fast_jit
def dot(a: Array, b: Array) -> float:
    """Inner product of two vectors."""
    total = a.dtype.type(0)
    for k in range(len(a)):
        total += a[k] * b[k]
    return total


@fast_jit
def accumulate(plan: Array, queries: Array, sums: Array, moved: Array) -> None:
    """Fill moved = sums + plan @ queries, (W, Q) and (Q, n) -> (W, n).

    Five classes by four queries at a time: each number loaded is used in several products. Rows are
    indexed in place: as arrays of their own they take 1.5 times as long.
    """
    n_way, n_query = plan.shape
    n = queries.shape[1]
    for j in range(n_way):
        for k in range(n):
            moved[j, k] = sums[j, k]
    grouped = n_way // GROUP * GROUP
    for j in range(0, grouped, GROUP):
        for i in range(0, n_query - 3, 4):
            a0, a1, a2, a3, a4 = (
                plan[j, i],
                plan[j + 1, i],
                plan[j + 2, i],
                plan[j + 3, i],
                plan[j + 4, i],
            )
            b0, b1, b2, b3, b4 = (
                plan[j, i + 1],
                plan[j + 1, i + 1],
                plan[j + 2, i + 1],
                plan[j + 3, i + 1],
                plan[j + 4, i + 1],
            )
            c0, c1, c2, c3, c4 = (
                plan[j, i + 2],
                plan[j + 1, i + 2],
                plan[j + 2, i + 2],
                plan[j + 3, i + 2],
                plan[j + 4, i + 2],
            )
            d0, d1, d2, d3, d4 = (
                plan[j, i + 3],
                plan[j + 1, i + 3],
                plan[j + 2, i + 3],
                plan[j + 3, i + 3],
                plan[j + 4, i + 3],
            )
            for k in range(n):
                a, b, c, d = queries[i, k], queries[i + 1, k], queries[i + 2, k], queries[i + 3, k]
                moved[j, k] += a0 * a + b0 * b + c0 * c + d0 * d
                moved[j + 1, k] += a1 * a + b1 * b + c1 * c + d1 * d
                moved[j + 2, k] += a2 * a + b2 * b + c2 * c + d2 * d
                moved[j + 3, k] += a3 * a + b3 * b + c3 * c + d3 * d
                moved[j + 4, k] += a4 * a + b4 * b + c4 * c + d4 * d
    for j in range(grouped, n_way):
        for i in range(0, n_query - 3, 4):
            pa, pb, pc, pd = plan[j, i], plan[j, i + 1], plan[j, i + 2], plan[j, i + 3]
            for k in range(n):
                moved[j, k] += (
                    pa * queries[i, k]
                    + pb * queries[i + 1, k]
                    + pc * queries[i + 2, k]
                    + pd * queries[i + 3, k]
                )
    for j in range(n_way):
        for i in range(n_query // 4 * 4, n_query):
            p = plan[j, i]
            for k in range(n):
                moved[j, k] += p * queries[i, k]
