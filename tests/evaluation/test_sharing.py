"""Methods share inner products of the same episodes, and float32 is used where it is safe.

Neither changes a label.
"""

import numpy as np
import pytest
import torch

from fewlabels.evaluation import evaluate
from fewlabels.evaluation.fused import (
    ESTIMATE_DOUBT,
    EVEN,
    HARD_DOUBT,
    SOFT_DOUBT,
    NumbaEngine,
    doubt,
)
from fewlabels.evaluation.sampling import sample_episodes
from fewlabels.features import FeatureSet
from fewlabels.methods import configure

METHODS = [
    configure("map", n_shot=1),
    configure("map", n_shot=1, alpha=0.7),
    configure("kmeans", n_shot=1),
    configure("ncm", n_shot=1),
    configure("map", n_shot=1, pipeline="center | unit"),
    configure("map", n_shot=1, lam=2.0),
    configure("ncm-raw", n_shot=1),
    configure("kmeans", n_shot=1, pipeline="center"),
]


@pytest.fixture(scope="module")
def features():
    """Seven classes that are hard to tell apart."""
    rng = np.random.default_rng(0)
    labels = np.arange(280) % 7
    vectors = rng.gamma(1.0, size=(7, 60))[labels] + 3 * rng.gamma(1.0, size=(280, 60))
    return FeatureSet.from_arrays(vectors.astype(np.float32), labels)


@pytest.mark.parametrize("order", [METHODS, METHODS[::-1]])
def test_a_method_gives_the_same_labels_alone_as_among_others(features, order):
    together = evaluate(order, features, queries=8, n_episodes=60, engine="numba")
    for method, among in zip(order, together, strict=True):
        (alone,) = evaluate([method], features, queries=8, n_episodes=60, engine="numba")
        (readable,) = evaluate(
            [method], features, queries=8, n_episodes=60, engine="torch", dtype="float64"
        )
        assert np.array_equal(among.accuracies, alone.accuracies)
        assert np.array_equal(among.accuracies, readable.accuracies)


def test_inner_products_are_formed_once_for_a_chunk(features):
    engine = NumbaEngine(features, n_methods=2)
    first, second = (
        sample_episodes(features, n_episodes=9, n_way=5, queries=8, seed=seed) for seed in (0, 1)
    )
    engine.predict(METHODS[0], first)
    kept = engine.products
    assert kept[1] is first
    engine.predict(METHODS[1], first)
    assert engine.products is kept
    engine.predict(METHODS[0], second)
    assert engine.products[1] is second
    assert engine.products[2] is kept[2]  # the same memory
    alone = NumbaEngine(features)
    alone.predict(METHODS[0], first)
    assert alone.products is None


def test_products_left_by_one_method_are_what_the_next_one_uses(features):
    engine = NumbaEngine(features, n_methods=2)
    episodes = sample_episodes(features, n_episodes=9, n_way=5, queries=8)
    expected = engine.predict(METHODS[0], episodes)
    rows, _, products = engine.products
    members = rows[torch.as_tensor(np.concatenate([episodes.support, episodes.query], axis=1))]
    n = members.shape[1]
    np.testing.assert_allclose(products[:, :n, :n], (members @ members.mT).numpy(), atol=1e-6)
    products[:] = products[::-1].copy()  # another episode's
    assert not np.array_equal(engine.predict(METHODS[0], episodes), expected)


def test_vectors_that_dwarf_the_others_are_left_to_float64(features):
    long = features.features.copy()
    long[3] *= 3 * EVEN
    assert doubt(METHODS[4], torch.as_tensor(features.features), SOFT_DOUBT) is not None
    assert doubt(METHODS[4], torch.as_tensor(long), SOFT_DOUBT) is None
    uneven = FeatureSet(long, features.labels, features.class_names, {})
    (fused,) = evaluate([METHODS[4]], uneven, queries=8, n_episodes=60, engine="numba")
    (readable,) = evaluate(
        [METHODS[4]], uneven, queries=8, n_episodes=60, engine="torch", dtype="float64"
    )
    assert np.array_equal(fused.accuracies, readable.accuracies)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (configure("ncm", n_shot=1), HARD_DOUBT),
        (configure("map", n_shot=1), SOFT_DOUBT),
        (configure("map", n_shot=1, lam=30.0), 3 * SOFT_DOUBT),
        (configure("map", n_shot=1, lam=0.01), SOFT_DOUBT / 10),
        (configure("map", n_shot=1, lam="auto"), ESTIMATE_DOUBT),
    ],
)
def test_doubt_grows_with_the_sharpness(method, expected):
    assert doubt(method, torch.eye(3), SOFT_DOUBT) == pytest.approx(expected)


def test_doubt_grows_with_the_square_of_lengths_that_stay():
    rows = 3 * torch.eye(4)
    assert doubt(configure("ncm-raw", n_shot=1), rows, SOFT_DOUBT) == pytest.approx(9 * HARD_DOUBT)
    assert (
        doubt(configure("map", n_shot=1, pipeline="center | unit"), rows, SOFT_DOUBT) == SOFT_DOUBT
    )
    assert doubt(configure("map", n_shot=1, pipeline="center"), rows, SOFT_DOUBT) is None
