"""What every classifier refuses, in the same words."""

import pytest
import torch

from fewlabels.errors import InputError
from fewlabels.methods.kmeans import assign_kmeans
from fewlabels.methods.map import assign_map, assign_soft_kmeans
from fewlabels.methods.nearest import assign_nearest

EVERY_CLASSIFIER = pytest.mark.parametrize(
    "classify", [assign_nearest, assign_kmeans, assign_soft_kmeans, assign_map]
)


@EVERY_CLASSIFIER
def test_a_class_without_support_is_named(draw_episodes, classify):
    support, labels, query = draw_episodes().inputs
    labels[1][labels[1] == 2] = 0
    with pytest.raises(
        InputError, match="at least one support row, got none for class 2 in episode 1"
    ):
        classify(support, labels, query, n_way=3)


@EVERY_CLASSIFIER
@pytest.mark.parametrize("side", ["query", "support"])
def test_an_empty_side_is_refused(draw_episodes, classify, side):
    support, labels, query = draw_episodes().inputs
    if side == "query":
        query = query[:, :0]
    else:
        support, labels = support[:, :0], labels[:, :0]
    with pytest.raises(InputError, match="at least one episode, row and feature, got shapes"):
        classify(support, labels, query, n_way=3)


@EVERY_CLASSIFIER
@pytest.mark.parametrize(
    ("label", "words"), [(3, r"must lie in 0..2, got 0..3"), (-1, r"must lie in 0..2, got -1..2")]
)
def test_labels_out_of_range_are_refused(draw_episodes, classify, label, words):
    support, labels, query = draw_episodes().inputs
    labels[0, 0] = label
    labels[0, 1:4] = torch.tensor([0, 1, 2])
    with pytest.raises(InputError, match=words):
        classify(support, labels, query, n_way=3)


@EVERY_CLASSIFIER
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(("side", "row"), [("support", 4), ("query", 11)])
def test_values_that_are_not_finite_are_named_by_row(draw_episodes, classify, value, side, row):
    episodes = draw_episodes()
    getattr(episodes, side)[2, row, 5] = value
    with pytest.raises(
        InputError, match=f"{side} must be finite, got NaN or infinity in row {row} of episode 2"
    ):
        classify(*episodes.inputs, n_way=3)


@EVERY_CLASSIFIER
def test_shapes_that_do_not_fit_are_refused(draw_episodes, classify):
    support, labels, query = draw_episodes().inputs
    for bad in (
        (support[0], labels[0], query[0]),
        (support[:2], labels[:2], query),
        (support[..., :4], labels, query),
    ):
        with pytest.raises(InputError, match="support and query must have shapes"):
            classify(*bad, n_way=3)
    with pytest.raises(InputError, match="support_labels must have shape"):
        classify(support, labels[:, 1:], query, n_way=3)


@EVERY_CLASSIFIER
def test_the_empty_axis_is_the_one_that_is_named(draw_episodes, classify):
    support, labels, query = draw_episodes().inputs
    with pytest.raises(InputError) as no_episodes:
        classify(support[:0], labels[:0], query[:0], n_way=3)
    with pytest.raises(InputError) as no_features:
        classify(support[..., :0], labels, query[..., :0], n_way=3)
    assert "at least one row" not in str(no_episodes.value)
    assert "at least one row" not in str(no_features.value)


@EVERY_CLASSIFIER
def test_sides_of_different_dtypes_meet_in_the_wider_one(draw_episodes, classify):
    support, labels, query = draw_episodes().inputs
    got = classify(support.float(), labels, query.double(), n_way=3)
    assert got.plan.dtype == got.prototypes.dtype == torch.float64


@EVERY_CLASSIFIER
def test_half_precision_is_answered_or_refused_in_words(draw_episodes, classify):
    """Feature files are often float16: a KeyError is no answer."""
    support, labels, query = draw_episodes(spread=0.1).inputs
    try:
        got = classify(support.half(), labels, query.half(), n_way=3)
    except InputError as error:
        assert "float16" in str(error)  # noqa: PT017
    else:
        assert torch.equal(got.labels, classify(support, labels, query, n_way=3).labels)


@EVERY_CLASSIFIER
def test_labels_between_two_classes_are_refused(draw_episodes, classify):
    support, labels, query = draw_episodes().inputs
    with pytest.raises(InputError, match="support_labels"):
        classify(support, labels + 0.5, query, n_way=3)
