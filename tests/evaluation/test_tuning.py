"""Tuning: a small grid by hand, the paper's procedure, and novel classes without influence."""

from itertools import product

import numpy as np
import pytest

from fewlabels.errors import InputError
from fewlabels.evaluation import evaluate
from fewlabels.evaluation.settings import format_settings, read_settings
from fewlabels.evaluation.sweep import plan_cells
from fewlabels.evaluation.tuning import (
    check_ranges,
    choose,
    count_settings,
    split_knobs,
    tune,
    tuning_grids,
)
from fewlabels.features import FeatureSet
from fewlabels.methods import configure
from fewlabels.transport import Sizes

OPTIONS = {"n_way": 4, "queries": 5, "n_episodes": 25}
SMALL = {"beta": (0.25, 0.5, 1.0), "lam": (2.0, 10.0), "alpha": (0.2, 0.4, 1.0)}


@pytest.fixture(scope="module")
def features(make_features):
    return make_features([25] * 6, dim=6)


def accuracy(features, beta, lam, alpha):
    """By way of `evaluate` alone."""
    return evaluate(
        [configure("map", n_shot=1, beta=beta, lam=lam, alpha=alpha)], features, **OPTIONS
    )[0].accuracy


def test_the_ranges_hold_those_of_figure_4():
    ranges = tuning_grids("map")
    assert set(ranges["beta"]) >= {-2, -1, -0.5, 0, 0.5, 1, 2}
    assert set(ranges["lam"]) >= {1, 3, 5, 10, 15, 20, 30}
    assert ranges["alpha"] == tuple(tenth / 10 for tenth in range(1, 11))


def test_choice_of_a_grid_by_hand():
    ranges = {"beta": (0.0, 0.5, 1.0), "lam": (5.0, 10.0, 30.0)}
    accuracies = dict(
        zip(product(*ranges.values()), [70, 71, 72, 75, 79, 80, 80, 74, 60], strict=True)
    )
    # 80 twice: (0.5, 30) is 20/25 = 0.8 widths away from the paper, (1, 5) is 0.5/1 + 5/25 = 0.7
    assert choose(accuracies, paper=(0.5, 10.0), ranges=ranges) == (1.0, 5.0)
    assert choose({**accuracies, (1.0, 10.0): 80}, paper=(0.5, 10.0), ranges=ranges) == (1.0, 10.0)
    assert choose({**accuracies, (0.0, 5.0): 80.01}, paper=(0.5, 10.0), ranges=ranges) == (0.0, 5.0)
    assert choose(dict.fromkeys(accuracies, 50.0), paper=(0.5, 10.0), ranges=ranges) == (0.5, 10.0)


def test_grid_finds_the_best_of_all_and_measures_each_once(features):
    done = []
    tuning = tune(features, ranges=SMALL, grid=True, on_progress=done.append, **OPTIONS)
    by_hand = {setting: accuracy(features, *setting) for setting in product(*SMALL.values())}
    assert len(tuning.tried) == 18
    assert (
        sum(done)
        == 18 * OPTIONS["n_episodes"]
        == count_settings(SMALL, grid=True) * OPTIONS["n_episodes"]
    )
    assert tuning.result.accuracy == pytest.approx(max(by_hand.values()))
    chosen = tuple(tuning.chosen[knob] for knob in SMALL)
    assert by_hand[chosen] == pytest.approx(max(by_hand.values()))
    for axis, curve in enumerate(tuning.curves):  # lines through the choice
        along = [by_hand[(*chosen[:axis], value, *chosen[axis + 1 :])] for value in curve.values]
        assert [result.accuracy for result in curve.validation] == pytest.approx(along)


def test_curves_one_after_the_other_each_at_the_choice_so_far(features):
    done = []
    tuning = tune(features, ranges=SMALL, on_progress=done.append, **OPTIONS)
    assert (
        sum(done)
        == count_settings(SMALL) * OPTIONS["n_episodes"]
        == (3 + 2 + 3 - 2) * OPTIONS["n_episodes"]
    )
    standing = {"beta": 0.5, "lam": 10.0, "alpha": 0.4}  # the paper's
    for curve in tuning.curves:
        assert curve.others == {
            knob: value for knob, value in standing.items() if knob != curve.knob
        }
        along = [accuracy(features, **{**standing, curve.knob: value}) for value in curve.values]
        assert [result.accuracy for result in curve.validation] == pytest.approx(along)
        assert along[curve.values.index(curve.choice)] == pytest.approx(max(along))
        standing[curve.knob] = curve.choice
    assert tuning.chosen == {**standing, "n_steps": 30}
    assert tuning.result.accuracy == pytest.approx(max(result.accuracy for result in tuning.tried))
    assert len({result.provenance["episode_hash"] for result in tuning.tried}) == 1
    assert tuning.gain.difference == pytest.approx(
        tuning.result.accuracy - accuracy(features, 0.5, 10.0, 0.4)
    )


@pytest.mark.parametrize("grid", [False, True])
def test_novel_classes_have_no_say_in_the_choice(features, make_features, grid):
    alone = tune(features, ranges=SMALL, grid=grid, **OPTIONS)
    wishes = set()
    for seed in (5, 6, 7, 8):
        novel = make_features([25] * 6, dim=6, seed=seed)
        beside = tune(features, ranges=SMALL, grid=grid, novel=novel, **OPTIONS)
        assert beside.chosen == alone.chosen
        assert [result.accuracy for result in beside.tried] == [
            result.accuracy for result in alone.tried
        ]
        assert [len(curve.novel) for curve in beside.curves] == [3, 2, 3]
        one = beside.curves[0]
        expected = accuracy(novel, one.values[0], one.others["lam"], one.others["alpha"])
        assert one.novel[0].accuracy == pytest.approx(expected)
        wishes.add(tuple(tune(novel, ranges=SMALL, grid=grid, **OPTIONS).chosen.items()))
    assert wishes - {tuple(alone.chosen.items())}, (
        "some novel set must prefer another setting, else this test shows nothing"
    )


def test_a_start_outside_the_ranges_moves_to_the_nearest_value(features):
    tuning = tune(features, ranges={"beta": [0.9, 0.6], "lam": [20], "alpha": [1]}, **OPTIONS)
    assert tuning.start.pipeline.startswith("power(0.6)")
    assert len(tuning.tried) == 2
    assert [curve.values for curve in tuning.curves] == [(0.6, 0.9), (20.0,), (1.0,)]


def test_methods_are_tuned_by_the_knobs_they_take(features):
    tuning = tune(features, method="kmeans", ranges={"beta": [0.5, 1]}, **OPTIONS)
    assert list(tuning.chosen) == ["beta", "max_iterations"]
    assert list(check_ranges("soft-kmeans", None)) == ["beta", "lam", "alpha"]
    with pytest.raises(InputError, match="no knob to tune"):
        check_ranges("ncm-raw", None)
    with pytest.raises(InputError, match="lam has no effect on ncm, which takes beta"):
        check_ranges("ncm", {"lam": [1]})


@pytest.mark.parametrize(
    ("ranges", "said"),
    [
        ({"lam": [10, -1]}, "lam must be"),
        ({"alpha": [0.4, 2]}, "alpha must"),
        ({"beta": [99]}, "beta must"),
    ],
)
def test_bad_values_are_refused_before_anything_is_run(features, ranges, said):
    done = []
    with pytest.raises(InputError, match=said):
        tune(features, ranges=ranges, on_progress=done.append, **OPTIONS)
    assert not done


def test_novel_features_that_do_not_fit_are_refused_before_anything_is_run(features, make_features):
    done = []
    with pytest.raises(InputError, match="n_way must be at most 3"):
        tune(
            features,
            novel=make_features([25] * 3),
            ranges=SMALL,
            on_progress=done.append,
            **OPTIONS,
        )
    assert not done


def test_ctrl_c_leaves_the_finished_curves(features):
    done = []

    def stop(n):
        done.append(n)
        if len(done) == 5:  # start, two more of beta, one of lam, and in the middle of alpha
            raise KeyboardInterrupt

    tuning = tune(features, ranges=SMALL, on_progress=stop, **OPTIONS)
    assert tuning.interrupted
    assert [curve.knob for curve in tuning.curves] == ["beta", "lam"]
    assert tuning.result.accuracy == max(result.accuracy for result in tuning.tried)

    def stop_at_once(n):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(features, ranges=SMALL, on_progress=stop_at_once, **OPTIONS)


def test_features_without_a_dataset_name_start_from_miniimagenets_alpha():
    rng = np.random.default_rng(0)
    arrays = rng.gamma(1.0, size=(60, 4)), np.repeat(np.arange(3), 20)
    starts = [
        tune(
            FeatureSet.from_arrays(*arrays, provenance=about),
            ranges={"beta": [0.5], "lam": [10]},
            n_way=2,
            queries=3,
            n_episodes=5,
        ).start
        for about in ({}, {"dataset": "cifar-fs"})
    ]
    assert [start.settings["alpha"] for start in starts] == [0.4, 0.3]


def test_values_of_knobs_are_ranges_to_try_or_fixed_settings():
    ranges, settings = split_knobs("map", {"lam": ["5", 10], "n_steps": ["4"], "beta": ["auto"]})
    assert ranges == {"lam": [5.0, 10]}
    assert settings == {"n_steps": 4, "beta": "auto"}
    with pytest.raises(InputError, match="n_steps must be given once, because it is not tuned"):
        split_knobs("map", {"n_steps": [4, 5]})
    with pytest.raises(
        InputError, match="lamda has no effect on map, which takes beta, lam, alpha"
    ):
        split_knobs("map", {"lamda": [4]})
    with pytest.raises(InputError, match="beta has no effect on ncm-raw, which takes none"):
        split_knobs("ncm-raw", {"beta": [4]})


def test_a_knob_that_is_not_tuned_keeps_the_given_value(features):
    few, paper = (
        tune(features, ranges={"beta": [0.5], "lam": [10]}, settings=settings, **OPTIONS)
        for settings in ({"n_steps": 2}, None)
    )
    assert [tuning.chosen["n_steps"] for tuning in (few, paper)] == [2, 30]
    assert {result.settings["n_steps"] for result in few.tried} == {2}
    assert few.result.accuracies.tolist() != paper.result.accuracies.tolist()
    with pytest.raises(InputError, match="a knob of method 'map' must be one of"):
        tune(features, settings={"max_iterations": 3}, **OPTIONS)


def test_a_tuned_knob_can_be_fixed_to_a_word(features):
    ranges, settings = split_knobs("map", {"beta": ["auto"], "lam": [5, 10], "alpha": [0.4]})
    tuning = tune(features, ranges=ranges, settings=settings, **OPTIONS)
    assert [curve.knob for curve in tuning.curves] == ["lam", "alpha"]
    assert tuning.result.pipeline.startswith("power(0.5)")  # chosen by the features
    assert len(tuning.tried) == count_settings(check_ranges("map", ranges, fixed=settings))
    with pytest.raises(InputError, match="method 'ncm' has no knob to tune"):
        tune(features, method="ncm", settings={"beta": "auto"}, **OPTIONS)


def test_what_was_fixed_is_part_of_the_settings_file(features, tmp_path):
    given = {"beta": "auto", "lam": "auto", "prior": Sizes([5, 5, 5, 5]), "n_steps": 3}
    tuning = tune(features, ranges={"alpha": [0.4, 0.9]}, settings=given, **OPTIONS)
    assert dict(tuning.chosen) == {**given, "prior": "5,5,5,5", "alpha": tuning.chosen["alpha"]}
    assert "lam auto" in tuning.describe()
    path = tmp_path / "settings.toml"
    path.write_text(format_settings({"map": {1: dict(tuning.chosen)}}), encoding="utf-8")
    (cell,) = plan_cells(["map"], queries=["5"], tuned=read_settings(path))
    (again,) = evaluate(cell.methods, features, **OPTIONS)
    assert again.accuracies.tolist() == tuning.result.accuracies.tolist()
