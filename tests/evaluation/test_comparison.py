"""Paired differences against scipy, and the refusal of what cannot be paired."""

import json

import numpy as np
import pytest
from scipy import stats

from fewlabels.errors import InputError
from fewlabels.evaluation import EvaluationResult, evaluate
from fewlabels.evaluation.comparison import compare_pair, compare_results, paired_difference
from fewlabels.methods import configure


def result(accuracies, method="map", episode_hash="abc", n_shot=1, queries="15"):
    return EvaluationResult(
        method=method,
        title=method.upper(),
        pipeline="power(0.5) | unit",
        settings={},
        n_way=5,
        n_shot=n_shot,
        queries=queries,
        n_query=15,
        accuracies=np.array(accuracies, dtype=float),
        seconds=1.0,
        provenance={"episode_hash": episode_hash, "draws": "own", "seed": 0},
    )


@pytest.mark.parametrize("n", [2, 5, 30, 1000])
def test_difference_and_interval_are_those_of_scipys_paired_t_test(n):
    rng = np.random.default_rng(n)
    a, b = rng.beta(9, 2, size=n), rng.beta(8, 2, size=n)
    oracle = stats.ttest_rel(a, b).confidence_interval(0.95)
    difference, half = paired_difference(a, b)
    assert difference - half == pytest.approx(oracle.low)
    assert difference + half == pytest.approx(oracle.high)


def test_one_episode_has_no_interval():
    difference, half = paired_difference(np.array([0.9]), np.array([0.7]))
    assert difference == pytest.approx(0.2)
    assert np.isnan(half)
    assert compare_pair(result([0.9]), result([0.7])).to_dict()["comparison"]["ci95"] is None


def test_wins_ties_and_losses_by_hand():
    # 0.1 + 0.2 is not 0.3 in floating point, and yet a tie
    found = compare_pair(result([0.9, 0.5, 0.1 + 0.2, 0.8]), result([0.8, 0.6, 0.3, 0.7]))
    assert (found.win, found.tie, found.loss) == (0.5, 0.25, 0.25)
    assert found.difference == pytest.approx(100 * (0.1 - 0.1 + 0 + 0.1) / 4)


def test_pairing_takes_the_spread_of_the_episodes_out():
    rng = np.random.default_rng(0)
    hard = rng.uniform(0.3, 1, size=500)
    a, b = result(hard), result(hard - 0.01 + 0.001 * rng.normal(size=500))
    assert compare_pair(a, b).ci95 < min(a.ci95, b.ci95) / 50


@pytest.mark.parametrize("other", [{"episode_hash": "xyz"}, {"accuracies": [0.5, 0.5, 0.5]}])
def test_other_episodes_are_refused(other):
    baseline = result(**({"accuracies": [0.5, 0.5], "method": "ncm"} | other))
    with pytest.raises(InputError, match=r"same episodes.*MAP.*abc.*NCM.*same draws, seed"):
        compare_pair(result([0.5, 0.7]), baseline)


def test_the_first_method_is_the_baseline_of_each_kind_unless_another_is_named():
    kinds = [
        {"n_shot": 1},
        {"n_shot": 5, "episode_hash": "five"},
        {"queries": "dirichlet:2:75", "episode_hash": "skewed"},
    ]
    results = [
        result([0.5, 0.6], method=name, **kind)
        for kind in kinds
        for name in ("ncm", "kmeans", "map")
    ]
    assert [each.baseline for each in compare_results(results)] == [results[0]] * 3 + [
        results[3]
    ] * 3 + [results[6]] * 3
    named = compare_results(results, baseline="map")
    assert [each.baseline for each in named[:3]] == [results[2]] * 3
    assert [each.is_baseline for each in named[:3]] == [False, False, True]


def test_what_cannot_be_compared_is_said():
    with pytest.raises(InputError, match="at least two results"):
        compare_results([result([0.5])])
    with pytest.raises(
        InputError, match=r"must be one of the methods map, got 'ncm'\. Name it as a method too"
    ):
        compare_results([result([0.5]), result([0.6])], baseline="ncm")


def test_real_results_pair_and_are_json(make_features):
    features = make_features([30] * 6)
    methods = [configure(name, n_shot=1) for name in ("ncm", "map")]
    results = evaluate(methods, features, n_way=4, queries=5, n_episodes=20)
    ncm, found = compare_results(results)
    oracle = stats.ttest_rel(results[1].accuracies, results[0].accuracies).confidence_interval(0.95)
    assert 2 * found.ci95 == pytest.approx(100 * (oracle.high - oracle.low))
    assert json.loads(json.dumps(ncm.to_dict()))["comparison"] is None
    assert json.loads(json.dumps(found.to_dict()))["comparison"]["baseline"] == "ncm"
    elsewhere = evaluate(methods, features, n_way=4, queries=5, n_episodes=20, seed=1)
    with pytest.raises(InputError, match="same episodes"):
        compare_pair(results[1], elsewhere[0])
