"""Small episodes for the compiled code, without an engine around it."""

import numpy as np
import pytest

from fewlabels.kernels import cpu
from fewlabels.kernels.codes import ESTIMATE, MINIMUM

N_WAY, N_SUPPORT, N_QUERY = 3, 6, 12


def _draw(dtype, n_episodes=3, dim=20):
    """Rows of their own for each episode, and the numbers of the episodes' rows."""
    rng = np.random.default_rng(0)
    n = N_SUPPORT + N_QUERY
    ways = np.concatenate([np.arange(N_SUPPORT), np.arange(N_QUERY)]) % N_WAY
    x = rng.normal(size=(n_episodes, n, dim)) + 2 * np.eye(dim)[ways]
    rows = np.arange(n_episodes * n).reshape(n_episodes, n)
    labels = np.tile(ways[:N_SUPPORT], (n_episodes, 1))
    support, query = rows[:, :N_SUPPORT].copy(), rows[:, N_SUPPORT:].copy()
    return x.reshape(-1, dim).astype(dtype), support, labels, query


def _classify(
    x, support, labels, query, *, classifier, in_gram_space, steps=(), n_steps=3, growths=None
):
    found = np.full(query.shape, -7)
    margins = np.full(len(query), np.nan)
    n = cpu.pad(N_SUPPORT + N_QUERY)
    estimating = classifier == ESTIMATE
    target = np.full((1, N_WAY), N_QUERY / N_WAY / (2 if classifier == MINIMUM else 1))
    cpu.classify_episodes(
        x,
        np.empty((0, n, n), x.dtype),
        False,
        support,
        labels,
        query,
        N_WAY,
        in_gram_space,
        np.array(steps, np.int64),
        classifier,
        0.0 if estimating else 10.0,
        0.3,
        n_steps,
        target,
        1e-6 if x.dtype == np.float32 else 1e-10,
        (4, 0.5) if estimating else None,
        None,
        found,
        margins,
        np.empty(len(query)) if growths is None else growths,
    )
    return found, margins


@pytest.fixture
def draw():
    return _draw


@pytest.fixture
def classify():
    return _classify
