"""The estimate from hidden labels: honest, bounded, absent where it cannot be made."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from fewlabels.labeling.accuracy import (
    EstimateSettings,
    compare_hidden,
    estimate_accuracy,
    estimate_sizes,
    find_contradictions,
    weigh,
    wilson,
)
from fewlabels.labeling.answer import prepare, solve


@given(st.integers(1, 500), st.data())
def test_wilson_agrees_with_scipy(n, data):
    right = data.draw(st.integers(0, n))
    expected = binomtest(right, n).proportion_ci(method="wilson")
    assert wilson(right, n) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_it_is_near_the_true_accuracy(make_blobs, hide):
    blobs = make_blobs(spread=2.0, per_class=40)
    vectors = prepare(blobs.features)
    labels = hide(blobs.labels, 10)
    found = estimate_accuracy(vectors, labels, n_way=4)
    answer = solve(vectors, labels, n_way=4)
    truth = (answer.labels == blobs.labels)[labels < 0].mean()
    assert found.n_hidden == 40
    assert found.low <= truth <= found.high
    assert found.low < found.accuracy < found.high


def test_labels_that_mean_nothing_get_no_praise(blobs, hide):
    rng = np.random.default_rng(0)
    labels = rng.permutation(hide(blobs.labels, 10))
    found = estimate_accuracy(prepare(blobs.features), labels, n_way=4)
    assert found.accuracy < 0.6


def test_classes_of_one_label_cannot_be_hidden(blobs, hide):
    vectors = prepare(blobs.features)
    assert estimate_accuracy(vectors, hide(blobs.labels, 1), n_way=4) is None
    labels = hide(blobs.labels, 1)
    labels[1] = blobs.labels[1]
    assert estimate_accuracy(vectors, labels, n_way=4).n_hidden == 2


def test_hard_labels_do_not_make_the_rest_look_bad(make_blobs, hide):
    """Suggested labels are the doubtful ones: the estimate must not take the rest for as hard."""
    gaps = []
    for seed in range(6):
        blobs = make_blobs(spread=2.6, per_class=80, seed=seed)
        vectors = prepare(blobs.features, method="map-folder")
        labels = hide(blobs.labels, 4)
        for _ in range(2):
            answer = solve(vectors, labels, n_way=4)
            unknown = np.flatnonzero(labels < 0)
            doubtful = unknown[np.argsort(answer.margins[unknown])[:24]]
            labels[doubtful] = blobs.labels[doubtful]
        answer = solve(vectors, labels, n_way=4)
        truth = (answer.labels == blobs.labels)[labels < 0].mean()
        found = estimate_accuracy(vectors, labels, n_way=4)
        gaps.append((truth - found.n_right / found.n_hidden, abs(truth - found.accuracy)))
        assert found.high > truth - 0.05
    plain, ours = np.mean(gaps, axis=0)
    assert plain > 0.1
    assert ours < 0.6 * plain  # seen: 0.47


@given(
    st.lists(st.sampled_from([0.3, 0.5, 0.7, 0.9, 1.0]), min_size=1, max_size=60),
    st.lists(st.sampled_from([0.2, 0.5, 0.7, 0.95, 1.0]), max_size=60),
)
def test_weights_sum_to_one(sure, elsewhere):
    weights = weigh(np.array(sure), np.array(elsewhere))
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    if len(elsewhere) == 0 or len(set(sure)) == 1:
        assert weights == pytest.approx(np.full(len(sure), 1 / len(sure)))


def test_threads_change_nothing(blobs, hide):
    vectors, labels = prepare(blobs.features), hide(blobs.labels, 5)
    with ThreadPoolExecutor(2) as pool:
        assert estimate_accuracy(vectors, labels, n_way=4, pool=pool) == estimate_accuracy(
            vectors, labels, n_way=4
        )


def test_many_labels_cost_no_more_than_some(make_blobs):
    blobs = make_blobs(per_class=60)
    labels = blobs.labels.copy()
    labels[::3] = -1
    settings = EstimateSettings(most_labelled=40)
    vectors = prepare(blobs.features, method="map-folder")  # which hides no labels itself
    found = estimate_accuracy(vectors, labels, n_way=4, settings=settings)
    assert found.n_hidden == 40


def test_it_can_be_called_off(blobs, hide):
    assert (
        estimate_accuracy(
            prepare(blobs.features), hide(blobs.labels, 3), n_way=4, cancelled=lambda: True
        )
        is None
    )


def test_labels_that_are_wrong_are_pointed_out(make_blobs, hide):
    blobs = make_blobs(spread=0.5, per_class=40)
    labels = hide(blobs.labels, 8)
    slips = [int(np.flatnonzero(labels == way)[3]) for way in (0, 2)]
    for row in slips:
        labels[row] = (labels[row] + 1) % 4
    answer = solve(prepare(blobs.features), labels, n_way=4)
    found = find_contradictions(answer, labels, least=0.5)
    assert [each.row for each in found[:2]] == sorted(
        slips, key=lambda row: [each.row for each in found].index(row)
    )
    assert {each.row for each in found} >= set(slips)
    assert all(each.number == blobs.labels[each.row] for each in found if each.row in slips)
    assert find_contradictions(answer, labels, least=1.1) == []
    right = solve(prepare(blobs.features), hide(blobs.labels, 8), n_way=4)
    assert find_contradictions(right, hide(blobs.labels, 8), least=0.8) == []


def test_other_methods_see_the_same_hidden_labels(make_blobs, hide):
    blobs = make_blobs(spread=2.0, per_class=40)
    labels, vectors = hide(blobs.labels, 6), prepare(blobs.features)
    labels[np.flatnonzero(labels == 3)[1:]] = -1  # one label, which cannot be hidden
    answer = solve(vectors, labels, n_way=4)
    found = compare_hidden(vectors, labels, ["ncm"])
    estimate = estimate_accuracy(vectors, labels, n_way=4, answer=answer)
    assert estimate.n_hidden == 18
    assert 9 <= found["ncm"] <= 18
    one_label = hide(blobs.labels, 1)
    assert compare_hidden(vectors, one_label, ["ncm"]) == {"ncm": 0}


@pytest.mark.parametrize("method", ["ncm", "logistic", "map"])
def test_other_methods_are_compared_with_any_method(make_blobs, hide, method):
    """Methods that hide no labels themselves were told that the others predict none of them."""
    blobs = make_blobs(spread=2.0, per_class=40)
    labels, vectors = hide(blobs.labels, 6), prepare(blobs.features, method=method)
    found = compare_hidden(vectors, labels, ["ncm", "logistic"])
    estimate = estimate_accuracy(vectors, labels, n_way=4)
    assert min(found.values()) >= 12
    if method in found:
        assert found[method] == estimate.n_right


@pytest.mark.parametrize("k", [1, 3, 10])
def test_class_sizes_lie_in_their_intervals(make_blobs, hide, k):
    inside = []
    for seed in range(4):
        blobs = make_blobs(spread=2.0, per_class=40, seed=seed)
        kept = np.flatnonzero((blobs.labels > 0) | (np.arange(len(blobs)) % 4 == 0))  # uneven
        true = blobs.labels[kept]
        labels = hide(true, min(k, 10))
        answer = solve(prepare(blobs.features[kept]), labels, n_way=4)
        for way, size in enumerate(estimate_sizes(answer, labels)):
            assert (labels == way).sum() <= size.low <= size.expected <= size.high <= len(true)
            inside.append(size.low <= (true == way).sum() <= size.high)
    assert np.mean(inside) >= 0.8


@pytest.mark.parametrize("k", [1, 3, 8])
def test_a_rare_class_is_not_made_large(make_blobs, hide, k):
    """Three images of it are left; items of other classes have some of its probability."""
    inside = []
    for seed in range(6):
        blobs = make_blobs(spread=3.0, per_class=60, seed=seed)
        left_out = np.flatnonzero(blobs.labels == 0)[k + 3 :]
        kept = np.setdiff1d(np.arange(len(blobs)), left_out)
        labels = hide(blobs.labels[kept], k)
        size = estimate_sizes(solve(prepare(blobs.features[kept]), labels, n_way=4), labels)[0]
        inside.append(size.low <= k + 3 <= size.high)
    assert np.mean(inside) >= 0.8


def test_without_hidden_labels_only_the_given_ones_are_certain(blobs, hide):
    labels = hide(blobs.labels, 1)
    found = estimate_sizes(solve(prepare(blobs.features), labels, n_way=4), labels)
    assert [size.low for size in found] == [1] * 4


def test_sizes_where_all_items_left_are_of_one_class(make_blobs):
    blobs = make_blobs(spread=0.1)
    labels = np.where((blobs.labels > 0) | (np.arange(len(blobs)) < 4), blobs.labels, -1)
    answer = solve(prepare(blobs.features), labels, n_way=4)
    exact = replace(answer, probabilities=np.eye(4, dtype=np.float32)[blobs.labels])
    first, *others = estimate_sizes(exact, labels)
    assert [(size.low, size.high) for size in others] == [(30, 30)] * 3
    assert first.low <= 30 <= first.high


def test_items_of_no_class_are_not_counted(blobs, hide):
    labels = hide(blobs.labels, 4)
    answer = solve(prepare(blobs.features), labels, n_way=4)
    counted = (blobs.labels != 2) | (labels >= 0)
    found = estimate_sizes(answer, labels, counted=counted)
    assert found[2].low == 4
    assert found[2].high < found[1].high


@pytest.mark.parametrize("method", ["folder", "map-folder"])
def test_confirmed_guesses_are_no_evidence(make_blobs, hide, method):
    """Wrong guesses that a person confirms at once must not make the estimate rise."""
    blobs = make_blobs(spread=2.4, per_class=40)
    vectors = prepare(blobs.features, method=method)
    labels = hide(blobs.labels, 4)
    own = labels >= 0
    answer = solve(vectors, labels, n_way=4)
    before = estimate_accuracy(vectors, labels, n_way=4)
    labels[answer.labels == 0] = np.where(own, labels, 0)[answer.labels == 0]  # "Confirm all"
    everything = estimate_accuracy(vectors, labels, n_way=4)
    found = estimate_accuracy(vectors, labels, n_way=4, evidence=own)
    assert found.n_hidden == before.n_hidden == 16
    assert everything.n_hidden > 40
    assert estimate_accuracy(vectors, labels, n_way=4, evidence=np.zeros_like(own)) is None
