"""The estimate from hidden labels: honest, bounded, absent where it cannot be made."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from ptmap.labeling import model
from ptmap.labeling.accuracy import estimate_accuracy, wilson


@given(st.integers(1, 500), st.data())
def test_wilson_agrees_with_scipy(n, data):
    right = data.draw(st.integers(0, n))
    expected = binomtest(right, n).proportion_ci(method="wilson")
    assert wilson(right, n) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_it_is_near_the_true_accuracy(make_blobs, hide):
    blobs = make_blobs(spread=2.0, per_class=40)
    vectors = model.prepare(blobs.features)
    labels = hide(blobs.labels, 10)
    found = estimate_accuracy(vectors, labels, n_way=4)
    answer = model.solve(vectors, labels, n_way=4)
    truth = (answer.labels == blobs.labels)[labels < 0].mean()
    assert found.n_hidden == 40
    assert found.low <= truth <= found.high
    assert found.low < found.accuracy < found.high


def test_labels_that_mean_nothing_get_no_praise(blobs, hide):
    rng = np.random.default_rng(0)
    labels = rng.permutation(hide(blobs.labels, 10))
    found = estimate_accuracy(model.prepare(blobs.features), labels, n_way=4)
    assert found.accuracy < 0.6


def test_classes_of_one_label_cannot_be_hidden(blobs, hide):
    vectors = model.prepare(blobs.features)
    assert estimate_accuracy(vectors, hide(blobs.labels, 1), n_way=4) is None
    labels = hide(blobs.labels, 1)
    labels[1] = blobs.labels[1]
    assert estimate_accuracy(vectors, labels, n_way=4).n_hidden == 2


def test_it_can_be_called_off(blobs, hide):
    assert estimate_accuracy(model.prepare(blobs.features), hide(blobs.labels, 3), n_way=4, cancelled=lambda: True) is None
