"""Preprocessing of inner products equals inner products of preprocessed vectors."""

import pytest
import torch

from fewlabels.evaluation.fused import grams
from fewlabels.preprocess import Pipeline


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
