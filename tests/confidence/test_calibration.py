"""Calibrated probabilities: confidence equals accuracy."""

import numpy as np
import pytest
import torch

from fewlabels.confidence.calibration import (
    calibrate,
    coverage_at_accuracy,
    expected_calibration_error,
    leave_one_out_temperature,
)
from fewlabels.methods.map import assign_map
from fewlabels.preprocess import Pipeline
from fewlabels.transport.prior import Sizes


@pytest.fixture
def solved(draw_episodes):
    episodes = draw_episodes(
        n_episodes=20, n_shot=(5, 5, 5), n_query=(20, 20, 20), spread=1.6, dim=24
    )
    support, query = Pipeline.parse("unit | center(support) | unit")(
        episodes.support, episodes.query
    )
    found = assign_map(support, episodes.support_labels, query, n_way=3, lam=40.0, prior="estimate")
    return (
        episodes,
        found,
        leave_one_out_temperature(support, episodes.support_labels, query, found),
    )


def test_calibration_brings_confidence_nearer_to_accuracy_and_changes_no_label(solved):
    episodes, found, temperature = solved
    probabilities = calibrate(found, temperature)
    assert torch.equal(probabilities.argmax(dim=-1), found.labels)
    np.testing.assert_allclose(probabilities.sum(dim=-1).numpy(), 1, rtol=1e-9)
    before, after = (
        expected_calibration_error(x, found.labels, episodes.query_labels)
        for x in (found.plan, probabilities)
    )
    assert after < 0.8 * before


def test_a_classifier_that_is_too_sure_gets_a_higher_temperature(draw_episodes):
    episodes = draw_episodes(
        n_episodes=10, n_shot=(8, 8, 8), n_query=(10, 10, 10), spread=1.6, dim=24
    )
    support, query = Pipeline.parse("unit | center(support) | unit")(
        episodes.support, episodes.query
    )
    timid, bold = (
        leave_one_out_temperature(
            support,
            episodes.support_labels,
            query,
            assign_map(support, episodes.support_labels, query, n_way=3, lam=lam),
        ).mean()
        for lam in (3.0, 60.0)
    )
    assert bold > 1.3 * timid


def test_one_label_a_class_leaves_the_usual_temperature(draw_episodes):
    episodes = draw_episodes(n_shot=(1, 1, 1))
    found = assign_map(*episodes.inputs, n_way=3)
    temperature = leave_one_out_temperature(*episodes.inputs, found)
    np.testing.assert_allclose(temperature.numpy(), 1.7, rtol=0.03)


def test_a_class_of_no_queries_with_one_label_changes_no_temperature(draw_episodes):
    episodes = draw_episodes(
        n_episodes=10, n_shot=(8, 8, 8), n_query=(10, 10, 10), spread=1.6, dim=24
    )
    x, y, q = episodes.inputs
    far = torch.zeros_like(x[:, :1])
    far[..., 0] = 50.0
    both = torch.cat([x, far], dim=1), torch.cat([y, torch.full_like(y[:, :1], 3)], dim=1), q
    three = assign_map(x, y, q, n_way=3, lam=60.0, prior=Sizes([10, 10, 10]))
    four = assign_map(*both, n_way=4, lam=60.0, prior=Sizes([10, 10, 10, 0]))
    expected = leave_one_out_temperature(x, y, q, three)
    assert (expected > 1.8).any()  # the usual one is 1.7
    np.testing.assert_allclose(leave_one_out_temperature(*both, four), expected, rtol=1e-6)


def test_the_error_of_perfect_and_of_boastful_confidence():
    probabilities = torch.tensor([[[0.9, 0.1]] * 10])
    labels = torch.zeros(1, 10).long()
    right = torch.tensor([[0] * 9 + [1]])
    assert expected_calibration_error(probabilities, labels, right) == pytest.approx(0, abs=1e-6)
    assert expected_calibration_error(probabilities, labels, 1 - labels) == pytest.approx(0.9)


def test_abstaining_keeps_the_sure_ones():
    probabilities = torch.tensor([[[1.0, 0.0], [0.9, 0.1], [0.6, 0.4], [0.5, 0.5]]])
    assert coverage_at_accuracy(probabilities, wanted=0.94) == pytest.approx((0.9, 0.5))
    assert coverage_at_accuracy(probabilities, wanted=0.74) == pytest.approx((0.5, 1.0))
    assert coverage_at_accuracy(probabilities[:, 2:], wanted=0.9)[1] == 0
