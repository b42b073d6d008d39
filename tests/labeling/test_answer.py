"""Answers: repeatable, independent of order, and the quick ones close to the thorough ones."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.neighbors import NearestCentroid

from fewlabels.errors import InputError
from fewlabels.features.embedded import load_embedded
from fewlabels.labeling.answer import Answer, find_outliers, prepare, solve, solve_again


@pytest.fixture(scope="module")
def vectors(blobs):
    return prepare(blobs.features)


def test_most_labels_are_right_and_given_ones_stay(blobs, vectors, hide):
    labels = hide(blobs.labels, 3)
    answer = solve(vectors, labels, n_way=4)
    assert (answer.labels == blobs.labels).mean() > 0.9
    assert (answer.labels[labels >= 0] == labels[labels >= 0]).all()
    np.testing.assert_allclose(answer.probabilities.sum(axis=1), 1, atol=1e-5)


def test_no_worse_than_nearest_centroid_of_scikit_learn(blobs, vectors, hide):
    labels = hide(blobs.labels, 2)
    known = labels >= 0
    plain = (
        NearestCentroid().fit(vectors.x[known].numpy(), labels[known]).predict(vectors.x.numpy())
    )
    answer = solve(vectors, labels, n_way=4)
    assert (answer.labels == blobs.labels).sum() >= (plain == blobs.labels).sum()


def test_the_same_labels_give_the_same_answer(blobs, vectors, hide):
    labels = hide(blobs.labels, 2)
    np.testing.assert_array_equal(
        solve(vectors, labels, n_way=4).probabilities, solve(vectors, labels, n_way=4).probabilities
    )


def test_order_of_the_items_does_not_matter(blobs, hide):
    labels = hide(blobs.labels, 2)
    order = np.random.default_rng(0).permutation(len(labels))
    one = solve(prepare(blobs.features), labels, n_way=4)
    other = solve(prepare(blobs.features[order]), labels[order], n_way=4)
    # which labels are hidden together depends on their order
    np.testing.assert_allclose(one.probabilities[order], other.probabilities, atol=2e-2)


def test_the_neighbourhood_of_many_items_is_found_once(make_blobs, hide):
    blobs = make_blobs(per_class=300, spread=1.2)
    vectors, labels = prepare(blobs.features), hide(blobs.labels, 2)
    assert vectors.prepared is not None
    kept = solve(vectors, labels, n_way=4)
    anew = solve(replace(vectors, prepared=None), labels, n_way=4)  # with the labelled ones first
    assert (kept.labels == anew.labels).mean() > 0.99
    some = vectors.subset(np.arange(0, len(labels), 2))
    assert (solve(some, labels[::2], n_way=4).labels == kept.labels[::2]).mean() > 0.95
    assert prepare(blobs.features[:1000], method="map-folder").prepared is None


def test_confidences_on_real_features_mean_what_they_say(hide):
    known = load_embedded()
    features, truth = known.features[::5], known.labels[::5]  # 20 classes of 40
    labels = hide(truth, 5)
    answer = solve(prepare(features), labels, n_way=20)
    sure, right = answer.probabilities[labels < 0].max(axis=1), (answer.labels == truth)[labels < 0]
    assert abs(sure.mean() - right.mean()) < 0.08  # without calibration it is 0.2 too sure
    assert right[sure >= 0.9].mean() > 0.85


def test_a_quick_answer_is_close_to_the_thorough_one(blobs, vectors, hide):
    labels = hide(blobs.labels, 2)
    start = solve(vectors, labels, n_way=4)
    labels[40:43] = blobs.labels[40:43]
    quick = solve_again(vectors, labels, start=start, columns=[0, 1, 2, 3])
    thorough = solve(vectors, labels, n_way=4)
    assert (quick.labels == thorough.labels).mean() > 0.97
    assert (quick.labels[40:43] == blobs.labels[40:43]).all()


def test_a_quick_answer_with_a_new_class_in_front(blobs, vectors, hide):
    labels = hide(blobs.labels, 2)
    three = np.where(labels == 0, -1, labels - 1)
    start = solve(vectors, three, n_way=3)
    quick = solve_again(vectors, labels, start=start, columns=[-1, 0, 1, 2])
    assert (quick.labels[labels == 0] == 0).all()
    assert (quick.labels == 0).sum() > 2  # it takes others along


def test_when_all_are_labelled_the_answer_is_what_was_given(blobs, vectors):
    answer = solve(vectors, blobs.labels, n_way=4)
    assert (answer.labels == blobs.labels).all()
    again = solve_again(vectors, blobs.labels, start=answer, columns=[0, 1, 2, 3])
    assert (again.labels == blobs.labels).all()


def test_what_nobody_named_is_told_from_the_rest(blobs, vectors, hide):
    labels = np.where(blobs.labels == 3, -1, hide(blobs.labels, 4))
    plain, asked = (
        solve(vectors, labels, n_way=3, none_of_these=wanted) for wanted in (False, True)
    )
    assert plain.none_of_these is None
    np.testing.assert_array_equal(asked.probabilities, plain.probabilities)
    np.testing.assert_array_equal(asked.none_of_these[labels >= 0], 0)
    outlier = blobs.labels == 3
    assert asked.none_of_these[outlier].mean() > asked.none_of_these[~outlier].mean() + 0.5
    everything = solve(vectors, blobs.labels, n_way=4, none_of_these=True)
    np.testing.assert_array_equal(everything.none_of_these, 0)


def test_the_search_for_outliers_can_be_called_off(blobs, vectors, hide):
    labels = np.where(blobs.labels == 3, -1, hide(blobs.labels, 4))
    answer = solve(vectors, labels, n_way=3)
    found = find_outliers(vectors, labels, answer)
    np.testing.assert_array_equal(
        found, solve(vectors, labels, n_way=3, none_of_these=True).none_of_these
    )
    asked = []
    assert (
        find_outliers(
            vectors, labels, answer, cancelled=lambda: len(asked) == 9 or asked.append(None)
        )
        is None
    )
    assert len(asked) == 9  # often enough, and not once more


def test_the_power_suits_the_features_and_keeps_signs(blobs):
    assert str(prepare(blobs.features - 1).pipeline).startswith("signed_power(0.5)")
    assert str(prepare(blobs.features).pipeline).startswith("power(0.5)")
    flat = np.random.default_rng(0).normal(size=(50, 40))  # signed, without a heavy tail
    assert str(prepare(flat).pipeline).startswith("power(1)")


def test_margins_are_the_lead_of_the_first_class():
    probabilities = np.array([[0.7, 0.2, 0.1], [0.1, 0.45, 0.45]], dtype=np.float32)
    answer = Answer(probabilities)
    np.testing.assert_allclose(answer.margins, [0.5, 0.0], atol=1e-6)


def test_classes_without_a_label_are_refused(blobs, vectors, hide):
    labels = hide(blobs.labels, 1)
    with pytest.raises(InputError, match="at least two classes"):
        solve(vectors, np.where(labels == 0, 0, -1), n_way=1)
    with pytest.raises(InputError, match="got counts"):
        solve(vectors, np.where(labels == 2, -1, labels), n_way=4)
    with pytest.raises(InputError, match="one for each of the 120"):
        solve(vectors, labels[:-1], n_way=4)


@pytest.mark.parametrize("n_way", [1, 2, 7])
def test_the_two_most_probable_classes_are_the_first_two_of_a_stable_sort(n_way):
    shares = np.random.default_rng(0).integers(0, 3, (50, n_way)).astype(np.float32)  # with ties
    order, found = Answer(shares).top_two
    wanted = np.argsort(-shares, axis=1, kind="stable")[:, :2]
    np.testing.assert_array_equal(order, wanted)
    np.testing.assert_array_equal(found, np.take_along_axis(shares, wanted, axis=1))
