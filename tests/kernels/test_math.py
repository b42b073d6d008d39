"""The compiled building blocks against numpy."""

import numba
import numpy as np
import pytest

from fewlabels.kernels._math import exp, gram, solve_in_place

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@numba.njit
def exponentials(x, out):
    for i in range(len(x)):
        out[i] = exp(x[i])


@DTYPES
def test_exponential_is_numpys_to_a_millionth(dtype):
    x = np.linspace(-40, 0, 200_001).astype(dtype)
    out = np.empty_like(x)
    exponentials(x, out)
    np.testing.assert_allclose(
        out, np.exp(x.astype(np.float64)), rtol=1e-6 if dtype == np.float32 else 1e-14
    )


@DTYPES
def test_exponential_of_very_little_is_next_to_nothing(dtype):
    x = np.array([-1e30, -1e4, -100.0, -41.0], dtype=dtype)
    out = np.empty_like(x)
    exponentials(x, out)
    assert (out >= 0).all()
    assert (out <= np.exp(-40) * 1.001).all()


@DTYPES
def test_exponential_of_nan_is_nan(dtype):
    x = np.array([-1.0, np.nan, -3.0, -4.0] * 5, dtype=dtype)
    out = np.empty_like(x)
    exponentials(x, out)
    np.testing.assert_array_equal(np.isnan(out), np.isnan(x))


@DTYPES
@pytest.mark.parametrize(("n", "dim"), [(8, 1), (8, 5), (16, 640), (80, 33)])
def test_gram_is_the_product_with_the_transpose(n, dim, dtype):
    x = np.random.default_rng(n).normal(size=(n, dim)).astype(dtype)
    g = np.full((n, n), np.nan, dtype)
    rows = np.random.default_rng(dim).permutation(n)[: n - 3]
    gram(x, rows, g)
    wide = np.concatenate([x[rows], np.zeros((3, dim))]).astype(np.float64)
    np.testing.assert_allclose(g, wide @ wide.T, atol=1e-4 if dtype == np.float32 else 1e-12)
    np.testing.assert_array_equal(g, g.T)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 20, 64])
def test_solve_is_that_of_numpy(n):
    rng = np.random.default_rng(n)
    root = rng.normal(size=(n, n + 2))
    a, b = root @ root.T, rng.normal(size=n)
    x, lower = b.copy(), np.tril(a)  # only the lower half is read
    assert solve_in_place(lower, x)
    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "a", [[[0.0]], [[-1.0]], [[1.0, 2.0], [2.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]]
)
def test_solve_says_when_a_matrix_is_not_positive_definite(a):
    assert not solve_in_place(np.array(a), np.ones(len(a)))
