"""Small made-up feature sets, quick to draw from and to classify."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fewlabels.features import FeatureSet


def _make_features(
    sizes: Sequence[int], *, n_unlabelled: int = 0, dim: int = 4, seed: int = 0
) -> FeatureSet:
    """Classes c0, c1, ... of the given sizes around random centers, rows in random order."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(
        np.concatenate([np.repeat(np.arange(len(sizes)), sizes), np.full(n_unlabelled, -1)])
    )
    centers = rng.gamma(1.0, size=(len(sizes) + 1, dim))
    features = np.abs(centers[labels] + 0.4 * rng.normal(size=(len(labels), dim)))
    return FeatureSet.from_arrays(
        features.astype(np.float32),
        labels,
        [f"c{i}" for i in range(len(sizes))],
        {"dataset": "made-up"},
    )


@pytest.fixture(scope="session")
def make_features() -> Callable[..., FeatureSet]:
    return _make_features
