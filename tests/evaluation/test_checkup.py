"""What the check-up finds in features whose ills are known."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from ptmap.cli import app
from ptmap.evaluation.checkup import check_up, draw_histogram
from ptmap.features import FeatureSet


def test_known_ills_are_found(make_features):
    healthy = make_features([20, 20, 20], dim=6)
    x = healthy.features.copy()
    x[0], x[1] = x[2], 0.0
    found = check_up(FeatureSet.from_arrays(x, healthy.labels), n_episodes=5)
    assert (found.rows, found.dim, found.classes, found.duplicates, found.zero_rows) == (60, 6, 3, 1, 1)
    assert found.zeros == pytest.approx((x == 0).mean())
    assert found.negatives == 0
    assert found.norms[0] == 0
    assert found.norms[2] == pytest.approx(np.linalg.norm(x, axis=1).max())
    assert found.power == "power(0.5)"


def test_the_trial_tells_sharpness_and_gain(make_features):
    found = check_up(make_features([20, 20, 20], dim=6), n_episodes=20)
    assert found.lam is not None
    assert found.lam > 1
    assert found.inductive is not None
    assert found.transductive is not None
    assert found.trial == "20 episodes, 3-way 1-shot, 15 queries a class"


def test_features_without_labels_have_no_trial():
    x = np.random.default_rng(0).normal(size=(10, 4))
    found = check_up(FeatureSet.from_arrays(x, [-1] * 10, class_names=["a"]))
    assert found.lam is None
    assert found.negatives == pytest.approx((x < 0).mean())
    assert found.power == "power(1)"


def test_a_histogram_is_as_wide_as_its_bins():
    assert len(draw_histogram(np.random.default_rng(0).normal(size=100).tolist())) == 40
    assert draw_histogram([1.0, 1.0], bins=3).strip() == "█"


def test_the_command_prints_it(make_features, tmp_path):
    path = tmp_path / "features.safetensors"
    make_features([20, 20, 20], dim=6).save(path)
    shown = CliRunner().invoke(app, ["doctor", str(path), "--episodes", "5"])
    assert shown.exit_code == 0
    assert "points by transduction" in shown.output
    printed = CliRunner().invoke(app, ["doctor", str(path), "--episodes", "5", "--json"])
    assert json.loads(printed.output)["rows"] == 60
