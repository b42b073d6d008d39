"""Confidence against accuracy: by hand, against scikit-learn, and on real features."""

import io
import json

import numpy as np
import pytest
from PIL import Image
from sklearn.calibration import calibration_curve

from fewlabels.evaluation.draw_reliability import draw_reliability
from fewlabels.evaluation.reliability import Confidence, measure_reliability
from fewlabels.features import load_embedded


@pytest.fixture(scope="module")
def uneven():
    return measure_reliability(load_embedded(), queries="dirichlet:2:50", n_episodes=60)


def test_bins_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    said = rng.uniform(0.2, 1, size=500)
    right = rng.uniform(size=500) < said
    bins = Confidence(said, right).bins
    accuracy, mean = calibration_curve(right, said, n_bins=15)
    np.testing.assert_allclose(bins.accuracy, accuracy)
    np.testing.assert_allclose(bins.confidence, mean)
    assert bins.fraction.sum() == pytest.approx(1)


def test_the_error_by_hand():
    said = np.array([0.9] * 10 + [0.5] * 10)
    right = np.array([True] * 9 + [False] + [True] * 8 + [False] * 2)
    assert Confidence(said, right).error == pytest.approx(0.5 * 0.3)


def test_calibrated_confidences_of_uneven_real_episodes_mean_what_they_say(uneven):
    assert uneven.confidence.error < 0.04  # 3,000 labels: an error of about 0.01 is chance
    assert uneven.accuracy > uneven.confidence.right.mean()
    assert 0 < uneven.coverage < 1
    assert json.loads(json.dumps(uneven.to_dict()))["error"] == pytest.approx(
        uneven.confidence.error, abs=1e-4
    )


def test_plans_that_are_not_calibrated_are_calibrated_first():
    about = {"queries": "dirichlet:2:50", "n_episodes": 60, "method": "map"}
    found = measure_reliability(
        load_embedded(), settings={"prior": "estimate", "lam": "auto"}, **about
    )
    assert found.confidence.error < 0.06


def test_chunks_change_nothing(uneven):
    fewer = measure_reliability(load_embedded(), queries="dirichlet:2:50", n_episodes=3)
    np.testing.assert_allclose(
        fewer.confidence.confidence, uneven.confidence.confidence[: 3 * 50], atol=1e-5
    )


def test_the_figure(uneven):
    figure = draw_reliability([uneven, uneven], about="cifar-fs")
    with Image.open(io.BytesIO(figure["png"])) as image:
        assert image.size[0] > 1200
    text = figure["svg"].decode()
    for word in (
        "n = 60 episodes",
        f"expected calibration error {100 * uneven.confidence.error:.1f} %",
    ):
        assert word in text
    assert draw_reliability([uneven])["png"].startswith(b"\x89PNG")
