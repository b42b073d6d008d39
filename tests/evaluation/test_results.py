"""Means, intervals, and results as JSON."""

import json

import numpy as np
import pytest
from scipy import stats

from fewlabels import AtLeast
from fewlabels.evaluation.results import EvaluationResult, mean_and_ci95

PROMISED = {"method", "n_way", "n_shot", "n_query", "accuracy", "ci95", "n_episodes", "seconds"}


def result(accuracies, **changed):
    fields = {
        "method": "map",
        "title": "PT+MAP",
        "pipeline": "unit",
        "settings": {"lam": 10.0, "n_steps": 20, "prior": "uniform"},
    }
    fields |= {
        "n_way": 5,
        "n_shot": 1,
        "queries": "15",
        "n_query": 15,
        "seconds": 1.25,
        "provenance": {"seed": 0, "draws": "own"},
    }
    return EvaluationResult(**(fields | changed), accuracies=np.array(accuracies, dtype=float))


@pytest.mark.parametrize("n", [2, 3, 50, 1000])
def test_mean_and_interval_are_those_of_scipy(n):
    values = np.random.default_rng(n).beta(8, 2, size=n)
    mean, half = mean_and_ci95(values)
    assert mean == pytest.approx(np.mean(values))
    oracle = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (mean - half, mean + half) == pytest.approx((oracle.low, oracle.high))


@pytest.mark.parametrize("n", [3, 10, 20, 200])
def test_about_95_of_100_intervals_hold_the_true_mean(n):
    rng = np.random.default_rng(0)
    intervals = [mean_and_ci95(rng.binomial(75, 0.8, size=n) / 75) for _ in range(2000)]
    assert np.mean([abs(mean - 0.8) <= half for mean, half in intervals]) == pytest.approx(
        0.95, abs=0.015
    )


def test_of_many_episodes_it_is_the_authors_interval():
    values = np.random.default_rng(0).binomial(75, 0.8, size=10_000) / 75
    assert mean_and_ci95(values)[1] == pytest.approx(1.96 * stats.sem(values), rel=2e-4)


def test_percent_and_counts():
    found = result([0.5, 0.75, 1.0])
    assert found.n_episodes == 3
    assert found.accuracy == pytest.approx(75)
    assert found.ci95 == pytest.approx(100 * stats.t.ppf(0.975, 2) * stats.sem([0.5, 0.75, 1.0]))


@pytest.mark.parametrize("prior", ["uniform", [0.5, 0.5], AtLeast([3, 3]), np.array([1.0, 2.0])])
def test_to_dict_survives_json_and_keeps_its_promises(prior):
    found = result([0.5, 0.75, 1.0], settings={"lam": 10.0, "prior": prior})
    read = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert read.keys() >= PROMISED | {
        "title",
        "queries",
        "interrupted",
        "pipeline",
        "settings",
        "seed",
        "draws",
    }
    assert read["accuracy"] == 75
    assert read["ci95"] == round(found.ci95, 4)
    assert (read["method"], read["n_way"], read["n_shot"], read["n_query"], read["n_episodes"]) == (
        "map",
        5,
        1,
        15,
        3,
    )


def test_one_episode_has_no_interval():
    found = result([0.8])
    assert np.isnan(found.ci95)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["ci95"] is None
