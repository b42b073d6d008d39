"""Traps that users of easyfsl's PTMAP fell into; each must not exist here."""

import numpy as np
import pytest
import torch

from fewlabels.errors import InputError
from fewlabels.methods.kmeans import assign_kmeans
from fewlabels.methods.map import assign_map, assign_soft_kmeans
from fewlabels.methods.nearest import assign_nearest
from fewlabels.preprocess import PAPER, Pipeline

EVERY_CLASSIFIER = pytest.mark.parametrize(
    "classify", [assign_nearest, assign_kmeans, assign_soft_kmeans, assign_map]
)
LINES = pytest.mark.parametrize("line", [PAPER, "unit | center(joint) | unit", "unit", "none"])
N_WAY = 5


@pytest.fixture
def prototypes() -> torch.Tensor:
    """(W, D) one vector per class, as of a backbone with a ReLU."""
    return (
        torch.rand(N_WAY, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 3
    )


def near(prototypes: torch.Tensor, ways: list[int]) -> torch.Tensor:
    noise = torch.rand(
        len(ways),
        prototypes.shape[1],
        generator=torch.Generator().manual_seed(1),
        dtype=torch.float64,
    )
    return (prototypes[ways] + 0.05 * noise)[None]


@EVERY_CLASSIFIER
@LINES
@pytest.mark.parametrize("way", range(N_WAY))
def test_one_query_goes_where_it_belongs(prototypes, classify, line, way):
    support, query = Pipeline.parse(line)(prototypes[None], near(prototypes, [way]))
    got = classify(support, torch.arange(N_WAY)[None], query, n_way=N_WAY)
    assert got.labels.tolist() == [[way]]
    assert got.plan[0, 0, way] > 1.5 / N_WAY


@EVERY_CLASSIFIER
@pytest.mark.parametrize("ways", [[3, 1], [4, 4], [2, 0, 2], [4, 3, 2, 1]])
def test_fewer_queries_than_classes_go_where_they_belong(prototypes, classify, ways):
    support, query = Pipeline.parse("unit | center(joint) | unit")(
        prototypes[None], near(prototypes, ways)
    )
    assert classify(support, torch.arange(N_WAY)[None], query, n_way=N_WAY).labels.tolist() == [
        ways
    ]


@pytest.mark.parametrize("ways", [[3, 1], [2, 0, 4], [4, 3, 2, 1]])
def test_fewer_queries_than_classes_survive_the_papers_pipeline(prototypes, ways):
    support, query = Pipeline.parse(PAPER)(prototypes[None], near(prototypes, ways))
    assert assign_map(support, torch.arange(N_WAY)[None], query, n_way=N_WAY).labels.tolist() == [
        ways
    ]


@EVERY_CLASSIFIER
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-6, 1e-2, 1e2, 1e5, 1e10, 1e25])
def test_features_of_any_scale_give_an_answer_or_an_error_but_never_class_0_for_all(
    prototypes, classify, dtype, scale
):
    ways = [way for way in range(N_WAY) for _ in range(4)]
    support, query = (
        (prototypes[None] * scale).to(dtype),
        (near(prototypes, ways) * scale).to(dtype),
    )
    try:
        got = classify(support, torch.arange(N_WAY)[None], query, n_way=N_WAY)
    except InputError:
        return
    assert got.plan.isfinite().all()
    assert got.prototypes.isfinite().all()
    assert got.labels.tolist() == [ways]


@EVERY_CLASSIFIER
def test_a_second_call_gives_the_same_answer_and_inputs_stay_as_they_were(prototypes, classify):
    ways = [0, 1, 2, 3, 4, 4, 4, 0, 1, 2]
    support, query = Pipeline.parse(PAPER)(prototypes[None], near(prototypes, ways))
    labels = torch.arange(N_WAY)[None]
    before = [x.clone() for x in (support, labels, query)]
    first = classify(support, labels, query, n_way=N_WAY)
    second = classify(support, labels, query, n_way=N_WAY)
    for field in first._fields[:-1]:  # no labels were hidden
        assert torch.equal(getattr(first, field), getattr(second, field)), field
    assert all(torch.equal(x, y) for x, y in zip((support, labels, query), before, strict=True))


@pytest.mark.parametrize("counts", [[10, 0, 0, 0, 0], [6, 1, 1, 1, 1], [0, 0, 3, 7, 0]])
def test_balance_is_a_default_and_not_forced(prototypes, counts):
    ways = np.repeat(np.arange(N_WAY), counts).tolist()
    support, query = Pipeline.parse("unit | center(joint) | unit")(
        prototypes[None], near(prototypes, ways)
    )
    labels = torch.arange(N_WAY)[None]
    given, free, balanced = (
        assign_map(support, labels, query, n_way=N_WAY, prior=p)
        for p in (counts, "free", "uniform")
    )
    assert given.labels.tolist() == [ways]
    assert free.labels.tolist() == [ways]
    np.testing.assert_allclose(balanced.proportions.numpy(), [[0.2] * N_WAY], atol=1e-9)


def test_support_labels_need_no_order_and_no_equal_shots(prototypes):
    order = [4, 2, 0, 3, 1, 1, 4, 4]
    support, query = Pipeline.parse("unit | center(joint) | unit")(
        near(prototypes, order), near(prototypes, [0, 1, 2, 3, 4])
    )
    assert assign_map(support, torch.tensor([order]), query, n_way=N_WAY).labels.tolist() == [
        [0, 1, 2, 3, 4]
    ]
