"""NaN and infinity in compiled code: never an answer, always a margin of -1."""

import numpy as np
import pytest

from fewlabels.kernels import cpu
from fewlabels.kernels._estimate import estimate_lam, weigh_plans
from fewlabels.kernels._math import gram, solve_in_place
from fewlabels.kernels._transport import solve_biases
from fewlabels.kernels.codes import CENTER, ESTIMATE, FREE, KMEANS, MASS, MINIMUM, NEAREST, UNIT
from fewlabels.methods.estimation import ESTIMATION

BAD = pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
N_WAY, N_SUPPORT, N_QUERY = 3, 6, 12  # of the fixtures


@BAD
@DTYPES
@pytest.mark.parametrize("row", [1, N_SUPPORT + 2], ids=["support", "query"])
@pytest.mark.parametrize("steps", [(), (UNIT,), (CENTER, UNIT)], ids=str)
@pytest.mark.parametrize(
    ("classifier", "in_gram_space", "n_steps"),
    [
        *((kind, space, 3) for kind in (KMEANS, FREE, MASS, MINIMUM) for space in (True, False)),
        (NEAREST, True, 0),
        (NEAREST, False, 0),
        (FREE, False, 0),
        (ESTIMATE, True, 3),
    ],
)
def test_an_episode_with_a_number_that_is_not_finite_has_margin_minus_one(
    draw, classify, classifier, in_gram_space, n_steps, steps, row, dtype, bad
):
    x, *episodes = draw(dtype)
    if classifier == ESTIMATE:  # its neighbors are chosen by cosines
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    settings = {"classifier": classifier, "in_gram_space": in_gram_space, "steps": steps}
    labels, margins = classify(x, *episodes, n_steps=n_steps, **settings)
    assert (margins >= 0).all()
    x[N_SUPPORT + N_QUERY + row, 3] = bad  # in the second of three episodes
    new_labels, new_margins = classify(x, *episodes, n_steps=n_steps, **settings)
    assert new_margins[1] == -1
    np.testing.assert_array_equal(new_labels[[0, 2]], labels[[0, 2]])
    np.testing.assert_array_equal(new_margins[[0, 2]], margins[[0, 2]])


@pytest.mark.parametrize("classifier", [NEAREST, KMEANS, FREE, MASS, MINIMUM, ESTIMATE])
def test_products_that_overflow_float32_have_margin_minus_one(draw, classify, classifier):
    x, *episodes = draw(np.float32)
    x[0] *= np.float32(1e25)
    _, margins = classify(x, *episodes, classifier=classifier, in_gram_space=True)
    assert margins[0] == -1
    assert (margins[1:] >= 0).all()


@DTYPES
def test_copies_of_a_row_are_left_to_the_readable_code(draw, classify, dtype):
    x, *episodes = draw(dtype)
    x[7] = x[6]  # in the first of three episodes: which of both is a neighbor is chance
    settings = {"classifier": ESTIMATE, "in_gram_space": True, "steps": (CENTER, UNIT)}
    _, margins = classify(x, *episodes, **settings)
    assert margins[0] == (0 if dtype is np.float32 else -1)
    assert (margins[1:] > 0).all()


@pytest.fixture
def make_gram(draw):
    def make(dtype):
        x, support, labels, query = draw(dtype, n_episodes=1)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        g = np.empty((cpu.pad(N_SUPPORT + N_QUERY),) * 2, dtype)
        gram(x, np.concatenate([support[0], query[0]]), g)
        return g, labels[0]

    return make


@BAD
@DTYPES
def test_the_weight_of_free_class_sizes_is_minus_one_where_the_evidence_is_not_a_number(
    make_gram, dtype, bad
):
    g, labels = make_gram(dtype)
    plan = np.full((N_WAY, N_QUERY), 1 / N_WAY, dtype)
    free, without_prior = np.empty_like(plan), np.empty_like(plan)
    _, weight = weigh_plans(g, labels, plan, 10.0, 0.3, 1e-6, free, without_prior)
    assert 0 <= weight <= 1
    g[N_SUPPORT + 1, :] = g[:, N_SUPPORT + 1] = bad
    _, weight = weigh_plans(g, labels, plan, 10.0, 0.3, 1e-6, free, without_prior)
    assert weight == -1


@BAD
@DTYPES
def test_lam_is_the_papers_where_the_features_are_not_finite(make_gram, dtype, bad):
    g, labels = make_gram(dtype)
    assert estimate_lam(g, labels, N_WAY, N_QUERY, 0.3) != ESTIMATION.lam_target
    g[N_SUPPORT + 1, :] = g[:, N_SUPPORT + 1] = bad
    assert estimate_lam(g, labels, N_WAY, N_QUERY, 0.3) == ESTIMATION.lam_target


@BAD
@DTYPES
@pytest.mark.parametrize("minimum", [True, False])
def test_scores_that_are_not_finite_are_not_solved(minimum, dtype, bad):
    scores = np.random.default_rng(0).normal(size=(N_WAY, N_QUERY)).astype(dtype)
    target = np.array([6.0, 4.0, 2.0]) * (0.5 if minimum else 1)
    solver, mass = np.empty((N_WAY + 4, N_WAY)), np.empty(N_WAY)
    plan, largest = np.empty_like(scores), np.empty((2, N_QUERY), dtype)

    def solve():
        biases = np.zeros(N_WAY)
        return solve_biases(scores, target, minimum, 1e-6, biases, plan, mass, solver, largest)

    assert solve()
    scores[:, 1] = bad
    assert not solve()


@pytest.mark.parametrize("at", [(0, 0), (1, 0), (1, 1)])
def test_a_matrix_with_nan_is_not_solved(at):
    a = np.array([[2.0, 0.0], [1.0, 2.0]])
    a[at] = np.nan
    assert not solve_in_place(a, np.ones(2))
