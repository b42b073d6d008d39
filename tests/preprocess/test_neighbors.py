"""The graph of nearest rows, beside scikit-learn's."""

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors

from fewlabels import load_embedded
from fewlabels.preprocess import neighbors
from fewlabels.preprocess.neighbors import find_nearest, join_nearest


def unit_rows(*shape, seed=0):
    return torch.nn.functional.normalize(
        torch.as_tensor(np.random.default_rng(seed).normal(size=shape)), dim=-1
    )


def test_nearest_rows_are_those_of_scikit_learn(monkeypatch):
    monkeypatch.setattr(neighbors, "BLOCK_ROWS", 7)
    x = unit_rows(2, 30, 5)
    found = find_nearest(x, 4)
    for episode in range(2):
        distances, rows = (
            NearestNeighbors(n_neighbors=4, metric="cosine", algorithm="brute")
            .fit(x[episode])
            .kneighbors()
        )
        np.testing.assert_array_equal(found.rows[episode].numpy(), rows)
        np.testing.assert_allclose(found.cosines[episode].numpy(), 1 - distances, atol=1e-12)
    asked = torch.tensor([[3, 0, 29], [8, 1, 4]])
    few = find_nearest(x, 4, of=asked)
    for episode in range(2):
        np.testing.assert_array_equal(
            few.rows[episode].numpy(), found.rows[episode, asked[episode]].numpy()
        )


def test_the_graph_is_the_normalised_symmetrised_one():
    x = unit_rows(2, 20, 3, seed=1)
    graph = join_nearest(find_nearest(x, 3)).to_dense().numpy()
    assert not graph[:20, 20:].any()
    for episode, block in enumerate((graph[:20, :20], graph[20:, 20:])):
        of_sklearn = (
            NearestNeighbors(n_neighbors=3, metric="cosine", algorithm="brute")
            .fit(x[episode])
            .kneighbors_graph(mode="distance")
            .toarray()
        )
        weights = np.where(of_sklearn > 0, (1 - of_sklearn).clip(min=0), 0)
        weights = (weights + weights.T) / 2
        scale = weights.sum(axis=1) ** -0.5
        np.testing.assert_allclose(block, scale[:, None] * weights * scale, atol=1e-9)


def test_the_search_by_cells_finds_most_neighbors(monkeypatch):
    x = load_embedded().features
    x = torch.nn.functional.normalize(torch.tensor(x).sqrt(), dim=1)[None]
    exact = find_nearest(x, 10)
    monkeypatch.setattr(neighbors, "EXACT_ROWS", 100)
    monkeypatch.setattr(neighbors, "CELL_ROWS", 25)
    found = find_nearest(x, 10)
    same = [
        len(set(mine) & set(theirs)) / 10
        for mine, theirs in zip(found.rows[0].tolist(), exact.rows[0].tolist(), strict=True)
    ]
    assert np.mean(same) > 0.85
    own = torch.arange(x.shape[1])[:, None]
    assert not (found.rows[0] == own).any()
    products = (x[0][:, None] * x[0][found.rows[0]]).sum(dim=-1)
    np.testing.assert_allclose(found.cosines[0], products, atol=1e-5)


def test_the_search_by_cells_takes_rows_that_are_all_alike(monkeypatch):
    monkeypatch.setattr(neighbors, "EXACT_ROWS", 10)
    monkeypatch.setattr(neighbors, "CELL_ROWS", 5)
    found = find_nearest(torch.nn.functional.normalize(torch.ones(1, 40, 3), dim=-1), 20)
    assert found.rows.shape == (1, 40, 20)
    np.testing.assert_allclose(found.cosines, 1, atol=1e-6)
