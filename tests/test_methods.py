"""Methods by name with the paper's settings, and `classify`: arrays in, labels out."""

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestCentroid

from fewlabels import AtLeast, classify
from fewlabels.errors import InputError
from fewlabels.methods.base import METHODS, configure

EVERY_METHOD = pytest.mark.parametrize("method", METHODS)
NAMES = np.array(["rook", "ibis", "crow"])


def clusters(counts, seed=0):
    """Well separated non-negative vectors, counts[j] around corner j: x (N, 6), class numbers (N,)."""
    labels = np.repeat(np.arange(len(counts)), counts)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    return (3 * np.eye(6)[labels] + rng.uniform(0, 1, size=(len(labels), 6)))[order], labels[order]


# The paper's settings


@pytest.mark.parametrize(
    ("n_shot", "dataset", "alpha", "n_steps"),
    [
        (1, None, 0.4, 30),
        (1, "mini-imagenet", 0.4, 30),
        (1, "cub", 0.4, 30),
        (1, "cifar-fs", 0.3, 30),
        (1, "tiered-imagenet", 0.3, 30),
        (5, None, 0.2, 20),
        (5, "cifar-fs", 0.2, 20),
        (20, "tiered-imagenet", 0.2, 20),
    ],
)
def test_the_papers_table_of_settings(n_shot, dataset, alpha, n_steps):
    method = configure("map", n_shot=n_shot, dataset=dataset)
    assert method.settings == {
        "lam": 10.0,
        "alpha": alpha,
        "n_steps": n_steps,
        "proportions": "uniform",
    }
    soft = configure("soft-kmeans", n_shot=n_shot, dataset=dataset)
    assert soft.settings == {"lam": 10.0, "alpha": alpha, "n_steps": n_steps}


@pytest.mark.parametrize(
    ("name", "title", "pipeline"),
    [
        ("ncm-raw", "NCM", "none"),
        ("ncm", "PT+NCM", "power(0.5) | unit"),
        ("kmeans", "PT+K-Means", "power(0.5) | unit | center | unit"),
        ("soft-kmeans", "PT+soft K-Means", "power(0.5) | unit | center | unit"),
        ("map", "PT+MAP", "power(0.5) | unit | center | unit"),
    ],
)
def test_each_methods_title_and_pipeline(name, title, pipeline):
    method = configure(name, n_shot=1)
    assert (method.title, str(method.pipeline)) == (title, pipeline)


def test_what_is_given_wins_over_the_paper_and_none_does_not():
    method = configure("map", n_shot=1, lam=5.0, alpha=0.1, n_steps=None, proportions="free")
    assert method.settings == {"lam": 5.0, "alpha": 0.1, "n_steps": 30, "proportions": "free"}


@pytest.mark.parametrize("beta", [0, 0.3, 1, -0.5])
def test_beta_replaces_the_power_and_nothing_else(beta):
    assert (
        str(configure("map", n_shot=1, beta=beta).pipeline)
        == f"power({beta}) | unit | center | unit"
    )
    assert str(configure("ncm", n_shot=1, beta=beta).pipeline) == f"power({beta}) | unit"
    assert str(configure("ncm-raw", n_shot=1, beta=beta).pipeline) == "none"


def test_a_pipeline_replaces_the_methods_own():
    assert (
        str(configure("map", n_shot=1, pipeline="unit|center(joint)").pipeline)
        == "unit | center(joint)"
    )


def test_beta_and_pipeline_contradict_each_other():
    with pytest.raises(InputError, match="beta or pipeline, not both"):
        configure("map", n_shot=1, beta=0.3, pipeline="unit")


def test_an_unknown_method_lists_the_choices():
    with pytest.raises(
        InputError,
        match="method must be one of ncm-raw, ncm, kmeans, soft-kmeans, map, map-auto, map-truth, got 'knn'",
    ):
        configure("knn", n_shot=1)


def test_a_knob_of_another_method_is_ignored_but_a_misspelt_one_is_not():
    assert configure("ncm", n_shot=1, lam=3.0).settings == {}
    with pytest.raises((InputError, TypeError), match="lamda"):
        configure("map", n_shot=1, lamda=3.0)


# classify


@EVERY_METHOD
@pytest.mark.parametrize(
    "names",
    [NAMES, np.array([7, 30, 2]), np.array([2.5, 0.5, 1.5])],
    ids=["words", "numbers", "floats"],
)
def test_labels_come_back_in_the_words_they_were_given_in(method, names):
    support, labels = clusters([3, 3, 3])
    query, truth = clusters([6, 6, 6], seed=1)
    found = classify(support, names[labels], query, method=method)
    np.testing.assert_array_equal(found, names[truth])
    assert found.dtype == names.dtype


@EVERY_METHOD
def test_lists_and_float32_will_do(method):
    support, labels = clusters([2, 2, 2])
    query, truth = clusters([4, 4, 4], seed=1)
    assert (
        classify(support.tolist(), NAMES[labels].tolist(), query.tolist(), method=method).tolist()
        == NAMES[truth].tolist()
    )
    assert (
        classify(
            support.astype(np.float32), labels, query.astype(np.float32), method=method
        ).tolist()
        == truth.tolist()
    )
    assert (
        classify(
            (support * 100).astype(int), labels, (query * 100).astype(int), method=method
        ).tolist()
        == truth.tolist()
    )


@EVERY_METHOD
def test_classes_may_have_different_numbers_of_rows(method):
    support, labels = clusters([1, 5, 3])
    query, truth = clusters([4, 4, 4], seed=1)
    np.testing.assert_array_equal(
        classify(support, NAMES[labels], query, method=method), NAMES[truth]
    )


@EVERY_METHOD
@pytest.mark.parametrize("way", range(3))
def test_one_query_is_classified(method, way):
    support, labels = clusters([2, 2, 2])
    query, _ = clusters([int(j == way) for j in range(3)], seed=1)
    assert classify(support, NAMES[labels], query, method=method).tolist() == [NAMES[way]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_map_converges_on_the_easiest_of_problems(dtype):
    support, labels = clusters([3, 3, 3])
    query, truth = clusters([4, 4, 4], seed=1)
    method = configure("map", n_shot=3)
    x, q = method.pipeline(torch.tensor(support, dtype=dtype), torch.tensor(query, dtype=dtype))
    found = method.assign(x[None], torch.tensor(labels[None]), q[None], n_way=3)
    np.testing.assert_array_equal(found.labels[0], truth)
    assert found.converged.all()
    assert (
        found.n_iterations.max() <= 10 * 21
    )  # the solves of 20 steps and the last; a warm Newton solve takes a few iterations


def test_the_rarest_class_decides_which_of_the_papers_settings():
    rng = np.random.default_rng(3)
    support, query = rng.uniform(size=(7, 20)), rng.uniform(size=(60, 20))
    one_shot, two_shot = [0, 1, 1, 1, 2, 2, 2], [0, 0, 1, 1, 2, 2, 2]
    for labels, alpha, n_steps in ((one_shot, 0.4, 30), (two_shot, 0.2, 20)):
        np.testing.assert_array_equal(
            classify(support, labels, query),
            classify(support, labels, query, alpha=alpha, n_steps=n_steps),
        )


def test_raw_nearest_class_mean_is_nearest_centroid():
    rng = np.random.default_rng(5)
    support, labels, query = (
        rng.normal(size=(12, 8)),
        NAMES[np.arange(12) % 3],
        rng.normal(size=(40, 8)),
    )
    oracle = NearestCentroid().fit(support, labels)
    np.testing.assert_array_equal(
        classify(support, labels, query, method="ncm-raw"), oracle.predict(query)
    )


def test_given_class_sizes_are_met():
    rng = np.random.default_rng(2)
    support, query = rng.uniform(size=(3, 8)), rng.uniform(size=(30, 8))
    found = classify(
        support, NAMES, query, proportions=[5, 25, 0], lam=200.0
    )  # sharp: shares become whole; sorted: crow, ibis, rook
    assert [int((found == name).sum()) for name in ("crow", "ibis", "rook")] == [5, 25, 0]
    bounded = classify(support, NAMES, query, proportions=AtLeast([0, 0, 20]), lam=200.0)
    assert (bounded == "rook").sum() >= 20


def test_a_mean_from_outside_is_subtracted():
    support, labels = clusters([3, 3, 3])
    query, truth = clusters([6, 6, 6], seed=1)
    shift = np.full(6, 50.0)
    found = classify(
        support + shift,
        labels,
        query + shift,
        method="ncm",
        pipeline="center(mean) | unit",
        mean=shift,
    )
    np.testing.assert_array_equal(found, truth)
    with pytest.raises(InputError, match="needs a mean"):
        classify(support, labels, query, pipeline="center(mean) | unit")


@pytest.mark.parametrize(
    ("support", "labels", "query", "message"),
    [
        ([[1.0, 2], [2, 1]], ["a"], [[1.0, 1]], "one label per support row, 2, got 1"),
        ([[1.0, 2], [2, 1]], ["a", "b"], [[1.0, 1, 1]], "same number of features, got 2 and 3"),
        ([[1.0, 2], [2]], ["a", "b"], [[1.0, 1]], "rows of different lengths"),
        ([[1.0, 2], [2, 1]], ["a", "b"], [], "query must be a non-empty matrix"),
        ([[1.0, 2], [2, 1]], ["a", "b"], np.empty((0, 2)), "query must be a non-empty matrix"),
        ([], [], [[1.0, 1]], "support must be a non-empty matrix"),
        ([1.0, 2], ["a", "b"], [[1.0, 1]], "support must be a non-empty matrix"),
        ([["x", "y"], ["z", "w"]], ["a", "b"], [[1.0, 1]], "support must hold numbers"),
        (
            [[1.0, np.nan], [2, 1]],
            ["a", "b"],
            [[1.0, 1]],
            "support must be finite, got NaN or infinity in row 0",
        ),
        (
            [[1.0, 2], [2, 1]],
            ["a", "b"],
            [[1.0, 1], [1, np.inf], [np.nan, 1]],
            "query must be finite, got NaN or infinity in rows 1, 2",
        ),
        (
            [[1.0, -2], [2, 1]],
            ["a", "b"],
            [[1.0, 1]],
            "must not be negative for beta = 0.5.*unit | center | unit",
        ),
        (
            [[1.0, 2], [0, 0]],
            ["a", "b"],
            [[1.0, 1]],
            "support: every vector must have a direction, got only zeros in row 1",
        ),
        ([[1.0, 2], [2, 1]], ["a", "b"], [[0.0, 0]], "query: every vector must have a direction"),
    ],
)
def test_bad_arrays_are_refused_in_words(support, labels, query, message):
    with pytest.raises(InputError, match=message):
        classify(support, labels, query)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "knn"}, "method must be one of"),
        ({"lam": 0.0}, "lam must be"),
        ({"alpha": 2.0}, "alpha must satisfy"),
        ({"n_steps": -3}, "n_steps must be"),
        ({"lam": "sharp"}, "lam must be a number or 'auto', got 'sharp'"),
        ({"alpha": "0.2"}, "alpha must be a number, got '0.2'"),
        ({"n_steps": 2.5}, "n_steps must be a whole number, got 2.5"),
        ({"beta": 20.0}, "beta must be"),
        ({"pipeline": "power(x)"}, "power must hold a number"),
        ({"pipeline": "whiten"}, "a step must be one of"),
        ({"proportions": [9, 9, 9]}, "must sum to 6"),
    ],
)
def test_settings_out_of_range(settings, message):
    support, labels = clusters([1, 1, 1])
    with pytest.raises(InputError, match=message):
        classify(support, labels, clusters([2, 2, 2])[0], **settings)


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_label_is_refused_in_words(missing):
    labels = np.array(["a", "b", missing], dtype=object)
    with pytest.raises(InputError, match="label"):
        classify([[1.0, 2], [2, 1], [1, 1]], labels, [[1.0, 1]])


def test_a_configured_method_classifies_as_its_name_and_settings_do():
    rng = np.random.default_rng(0)
    support, query = rng.gamma(1.0, size=(6, 8)), rng.gamma(1.0, size=(20, 8))
    labels = ["a", "a", "b", "b", "c", "c"]
    configured = configure("map", n_shot=2, proportions="estimate", lam="auto", beta="auto")
    by_name = classify(support, labels, query, method="map-auto")
    assert classify(support, labels, query, method=configured).tolist() == by_name.tolist()
    with pytest.raises(InputError, match="settings must be given to configure"):
        classify(support, labels, query, method=configured, lam=5.0)


def test_estimated_proportions_bring_their_centering():
    assert (
        str(configure("map", n_shot=1, proportions="estimate").pipeline)
        == "power(0.5) | unit | center(support) | unit"
    )
    assert str(configure("ncm", n_shot=1, proportions="estimate").pipeline) == "power(0.5) | unit"
    assert (
        str(configure("map", n_shot=1, proportions="estimate", pipeline="unit | center").pipeline)
        == "unit | center"
    )


def test_signed_features_are_classified_by_map_auto():
    rng = np.random.default_rng(0)
    centers = 2 * rng.normal(size=(3, 16))
    truth = np.repeat([0, 1, 2], [20, 5, 2])
    support, query = centers + rng.normal(size=(3, 16)), centers[truth] + rng.normal(size=(27, 16))
    assert (classify(support, [0, 1, 2], query, method="map-auto") == truth).mean() > 0.9
