"""The growth of errors from step to step, against the moves of the readable method."""

import itertools

import numpy as np
import pytest
import torch

from fewlabels.kernels.codes import FREE, MASS, NEAREST
from fewlabels.methods.map import assign_map, assign_soft_kmeans

N_WAY, LAM, ALPHA = 3, 10.0, 0.3  # as in conftest.py


def _literal_growths(x, support, labels, query, assign, n_steps):
    episode = [torch.as_tensor(a) for a in (x[support], labels, x[query])]
    places = [
        assign(*episode, n_way=N_WAY, lam=LAM, alpha=ALPHA, n_steps=n).prototypes.numpy()
        for n in range(n_steps + 1)
    ]
    growths, last = np.ones(len(query)), np.full(len(query), np.inf)
    for before, after in itertools.pairwise(places):
        length = np.sqrt(((after - before) ** 2).sum(axis=(1, 2)))
        growths, last = growths * length / last + 1, length
    return growths


@pytest.mark.parametrize("n_steps", [0, 1, 2, 7])
@pytest.mark.parametrize("classifier", [FREE, MASS])
def test_growth_follows_the_moves_of_the_prototypes(draw, classify, classifier, n_steps):
    x, support, labels, query = draw(np.float64)
    growths = np.empty(len(query))
    classify(
        x,
        support,
        labels,
        query,
        classifier=classifier,
        in_gram_space=False,
        n_steps=n_steps,
        growths=growths,
    )
    assign = assign_map if classifier == MASS else assign_soft_kmeans
    expected = _literal_growths(x, support, labels, query, assign, n_steps)
    np.testing.assert_allclose(growths, expected, rtol=1e-6)


def test_methods_without_steps_have_no_growth(draw, classify):
    x, support, labels, query = draw(np.float32)
    growths = np.empty(len(query))
    classify(x, support, labels, query, classifier=NEAREST, in_gram_space=True, growths=growths)
    assert (growths == 1).all()
