"""Places on the plane: groups of similar items lie together."""

import numpy as np
import pytest
from sklearn.manifold import trustworthiness

from fewlabels.labeling.answer import prepare
from fewlabels.labeling.places import place


@pytest.fixture
def groups():
    """Eight groups of forty rows in forty dimensions, and the number of each row's group."""
    rng = np.random.default_rng(3)
    truth = np.repeat(np.arange(8), 40)
    centers = rng.gamma(1.0, size=(8, 40))
    return (centers[truth] + rng.gamma(0.3, size=(320, 40))).astype(np.float32), truth


def test_similar_items_lie_together(groups):
    x, truth = groups
    vectors = prepare(x)
    places = place(vectors)
    assert places.shape == (320, 2)
    assert places.min() >= 0
    assert places.max() <= 1
    distances = np.square(places[:, None] - places[None]).sum(axis=2)
    np.fill_diagonal(distances, np.inf)
    assert (truth[distances.argmin(axis=1)] == truth).mean() > 0.95
    whitened = vectors.prepared.whitened.numpy()
    centered = whitened - whitened.mean(axis=0)
    components = centered @ np.linalg.svd(centered, full_matrices=False)[2][:2].T
    # Better than principal components at keeping neighbors, by scikit-learn's measure.
    assert trustworthiness(whitened, places) > trustworthiness(whitened, components) + 0.05


def test_the_same_rows_get_the_same_places(groups):
    x, _ = groups
    assert np.array_equal(place(prepare(x)), place(prepare(x)))


@pytest.mark.parametrize("method", ["folder", "ncm"])
@pytest.mark.parametrize("n", [2, 3, 7])
def test_few_or_equal_rows_have_a_place_too(n, method):
    rng = np.random.default_rng(0)
    for x in (rng.gamma(1.0, size=(n, 5)), np.ones((n, 5))):
        places = place(prepare(x.astype(np.float32), method=method))
        assert places.shape == (n, 2)
        assert np.isfinite(places).all()
        assert (places >= 0).all()
        assert (places <= 1).all()
