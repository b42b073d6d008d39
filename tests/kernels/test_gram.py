"""Preprocessing of inner products equals inner products of preprocessed vectors."""

import pytest
import torch

from fewlabels.evaluation.fused import grams
from fewlabels.kernels import gram
from fewlabels.preprocess import Pipeline
from fewlabels.preprocess.smoothing import append_neighbor_means


@pytest.mark.parametrize(
    "line", ["none", "unit", "center | unit", "center(joint) | unit", "unit | center | unit"]
)
@pytest.mark.parametrize(("n_support", "n_query"), [(5, 12), (1, 9), (4, 1), (1, 1)])
def test_gram_space_follows_the_pipeline(line, n_support, n_query):
    x = torch.rand(
        3, n_support + n_query, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    pipeline = Pipeline.parse(line)
    vectors = torch.cat(pipeline.apply(x[:, :n_support], x[:, n_support:]), dim=1)
    found = grams(pipeline, pipeline.transform(x), n_support)
    torch.testing.assert_close(found, vectors @ vectors.mT, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("n_support", "n_query", "n_way"), [(5, 40, 5), (12, 30, 3), (1, 2, 1)], ids=str
)
def test_neighborhood_features_of_products_are_those_of_the_vectors(n_support, n_query, n_way):
    n, generator = n_support + n_query, torch.Generator().manual_seed(0)
    x = torch.randn(3, n, n + 4, generator=generator, dtype=torch.float64)
    x += 3 * torch.eye(n + 4, dtype=torch.float64)[torch.arange(n) % n_way]
    x = x / x.norm(dim=-1, keepdim=True)
    wide = append_neighbor_means(x[:, :n_support], x[:, n_support:], n_way=n_way)
    rows = torch.cat(wide, dim=1)
    products = x @ x.mT
    found = gram.append_neighbor_means(products, n_support=n_support, n_way=n_way)
    torch.testing.assert_close(found, rows @ rows.mT, rtol=0, atol=1e-8)
    assert torch.equal(products, x @ x.mT)
