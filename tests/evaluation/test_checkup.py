"""What the check-up finds in features with known defects."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from fewlabels.cli import app
from fewlabels.errors import InputError
from fewlabels.evaluation.checkup import check_reliability, check_up, draw_histogram
from fewlabels.features import FeatureSet


def test_known_defects_are_found(make_features):
    healthy = make_features([20, 20, 20], dim=6)
    x = healthy.features.copy()
    x[0], x[1] = x[2], 0.0
    found = check_up(FeatureSet.from_arrays(x, healthy.labels), n_episodes=5)
    assert (found.rows, found.dim, found.classes, found.duplicates, found.zero_rows) == (
        60,
        6,
        3,
        1,
        1,
    )
    assert found.zeros == pytest.approx((x == 0).mean())
    assert found.negatives == 0
    assert found.norms[0] == 0
    assert found.norms[2] == pytest.approx(np.linalg.norm(x, axis=1).max())
    assert found.power == "power(0.5)"
    empty, twice, *_ = found.diagnose()
    assert empty.startswith("1 row has only zeros")
    assert twice.startswith("1.7% of the rows equal an earlier one: remove them")


def test_the_diagnosis_says_what_to_do(make_features):
    found = replace(
        check_up(make_features([20, 20, 20], dim=6), n_episodes=5),
        **{"power": "power(0.3)", "skewness": (2.0, 0.5), "inductive": 60.0, "guessing": 33.3},
    )
    healthy, power, gain = replace(found, transductive=70.0).diagnose()
    assert healthy.startswith("Healthy")
    assert power.startswith("Use power(0.3): the values are skewed (2.0), and less so after it")
    assert "+10.0 points" in gain
    assert "ncm" in replace(found, transductive=60.5).diagnose()[-1]
    assert "Label three rows" in replace(found, transductive=None).diagnose()[-1]
    assert len(replace(found, skewness=(0.1, 0.1), transductive=70.0).diagnose()) == 2


def test_noise_is_not_healthy_and_gets_no_advice_on_methods():
    x = np.random.default_rng(0).normal(size=(160, 16))
    found = check_up(FeatureSet.from_arrays(x, np.repeat(np.arange(4), 40)), n_episodes=100)
    assert found.guessing == 25
    found = replace(found, skewness=(0.1, 0.1))
    (only,) = found.diagnose()
    assert only.startswith("The features do not tell the classes apart: 2")
    assert "25.0 % by guessing" in only
    (only,) = replace(found, inductive=24.0, transductive=26.5).diagnose()
    assert "do not tell the classes apart" in only
    healthy, gain = replace(found, transductive=40.0).diagnose()
    assert healthy.startswith("Healthy")
    assert "map-auto" in gain


def test_the_trial_gives_lam_and_the_gain(make_features):
    found = check_up(make_features([20, 20, 20], dim=6), n_episodes=20)
    assert found.lam is not None
    assert found.lam > 1
    assert found.inductive is not None
    assert found.transductive is not None
    assert found.trial == "20 episodes, 3-way 1-shot, 15 queries per class"


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
    said = shown.output.partition("Diagnosis\n")[2].splitlines()
    printed = CliRunner().invoke(app, ["doctor", str(path), "--episodes", "5", "--json"])
    found = json.loads(printed.output)
    assert found["rows"] == 60
    assert said == [f"  - {words}" for words in found["diagnosis"]]


def test_reliability_is_of_equal_and_of_uneven_classes_and_needs_labels_to_leave_out(make_features):
    equal, uneven = check_reliability(make_features([12, 20, 20], dim=6), n_episodes=3)
    assert (equal.queries, uneven.queries) == ("7", "dirichlet:2:21")
    assert (equal.n_way, equal.n_shot) == (3, 5)
    with pytest.raises(InputError, match="two classes of at least 7 labelled rows"):
        check_reliability(make_features([6, 6, 20]))


def test_the_command_draws_reliability(make_features, tmp_path):
    path = tmp_path / "features.safetensors"
    make_features([20, 20, 20], dim=6).save(path)
    words = ["doctor", str(path), "--episodes", "5", "--reliability"]
    shown = CliRunner().invoke(app, [*words, str(tmp_path / "new" / "out.svg")])
    assert shown.exit_code == 0
    assert shown.output.count("calibration") == 2
    assert b"<svg" in (tmp_path / "new" / "out.svg").read_bytes()
    printed = CliRunner().invoke(app, [*words, str(tmp_path / "out.png"), "--json"])
    assert [each["n_episodes"] for each in json.loads(printed.stdout)["reliability"]] == [5, 5]
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    refused = CliRunner().invoke(app, [*words, "out.pdf"])
    assert refused.exit_code == 2
    assert "--reliability must be a .png or .svg file, got 'out.pdf'." in refused.stderr
