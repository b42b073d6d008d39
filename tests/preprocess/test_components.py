"""Principal components against a singular value decomposition."""

import numpy as np
import pytest
import torch

from fewlabels.preprocess.components import principal_components


@pytest.mark.parametrize("n_rows", [12, 300])
def test_components_are_those_of_the_decomposition(n_rows):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n_rows, 60)) * np.geomspace(10, 0.01, 60) + 3
    centered = x - x.mean(axis=0)
    rotated, sizes, _ = np.linalg.svd(centered, full_matrices=False)
    n = min(8, n_rows)
    found = principal_components(torch.tensor(x), 8).numpy()
    expected = rotated[:, :n] * sizes[:n]
    signs = np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(found * signs, expected, atol=1e-2 * sizes[n - 1])


def test_few_columns_are_only_centered():
    x = torch.arange(12.0).reshape(4, 3)
    torch.testing.assert_close(principal_components(x, 2), x - x.mean(dim=0))
