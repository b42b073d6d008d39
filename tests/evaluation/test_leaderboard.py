"""The leaderboard: every method beside PT+MAP on the same episodes."""

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from fewlabels import FeatureSet, load_embedded
from fewlabels.cli import app
from fewlabels.errors import InputError
from fewlabels.evaluation import leaderboard as boards
from fewlabels.evaluation.leaderboard import (
    Leaderboard,
    choose_methods,
    make_leaderboard,
    recorded_settings,
    tabulate_leaderboard,
)
from fewlabels.evaluation.leaderboard_page import (
    draw_scatter,
    find_best,
    find_frontier,
    place_names,
)
from fewlabels.methods import find_method, method_names

KINDS = {"shots": [1], "queries": ["15", "dirichlet:2:75"]}


@pytest.fixture(scope="module")
def board() -> Leaderboard:
    names = ["ncm", "map", "svm", "map-truth"]
    return make_leaderboard(load_embedded(), names, n_episodes=20, engine="torch", **KINDS)


def test_every_standing_is_paired_with_the_baseline_on_its_own_episodes(board):
    assert board.kinds == ((1, "15"), (1, "dirichlet:2:75"))
    for standings in board.standings.values():
        for each in standings:
            compared = each.comparison
            gained = each.result.accuracies - compared.baseline.accuracies
            assert compared.baseline.method == "map"
            np.testing.assert_allclose(compared.difference, 100 * gained.mean())


def test_the_best_mean_gain_comes_first(board):
    gains = [board.gain(name) for name in board.standings]
    assert gains == sorted(gains, reverse=True)
    assert next(iter(board.standings)) == "map-truth"
    assert board.gain("map") == 0


def test_slow_methods_label_fewer_episodes(monkeypatch):
    monkeypatch.setattr(boards, "SLOW", 0.0)  # milliseconds: all are slow but the baseline
    found = make_leaderboard(
        load_embedded(), ["ncm"], n_episodes=30, shots=[1], queries=["15"], engine="torch"
    )
    [slow], [baseline] = found.standings["ncm"], found.standings["map"]
    assert (slow.result.n_episodes, baseline.result.n_episodes) == (10, 30)
    assert slow.comparison.baseline.n_episodes == 10
    np.testing.assert_array_equal(
        slow.comparison.baseline.accuracies, baseline.result.accuracies[:10]
    )
    assert "methods above 0 ms on fewer episodes" in tabulate_leaderboard(found).caption


def test_a_method_that_is_slow_only_in_its_first_call_labels_all_episodes(monkeypatch):
    measure, calls = boards.evaluate, []

    def slow_first(methods, *args, **options):  # as where a method is compiled or imported
        calls.append([method.name for method in methods])
        found = measure(methods, *args, **options)
        return [replace(each, seconds=1e3 if len(calls) == 1 else 0.0) for each in found]

    monkeypatch.setattr(boards, "evaluate", slow_first)
    kind = {"shots": [1], "queries": ["15"], "engine": "torch"}
    found = make_leaderboard(load_embedded(), ["ncm"], n_episodes=30, **kind)
    assert [each.result.n_episodes for each in found.standings["ncm"]] == [30]
    assert calls == [["ncm"], ["ncm"], ["map", "ncm"]]


def test_negative_features_need_a_power_that_keeps_the_signs():
    embedded = load_embedded()
    x = embedded.features - embedded.features.mean(axis=0)
    signed = FeatureSet.from_arrays(x, embedded.labels)
    how = {"n_episodes": 20, "engine": "torch", **KINDS}
    with pytest.raises(InputError, match="beta=auto"):
        make_leaderboard(signed, ["ncm"], **how)
    assert make_leaderboard(signed, ["ncm"], beta="auto", **how).gain("ncm") != 0


def test_methods_that_need_base_classes_are_left_out_with_a_reason():
    names, left_out = choose_methods(None, with_mean=False)
    needing = ("map-auto-mean", "simpleshot-cl2n")
    assert left_out == dict.fromkeys(needing, "needs features of the base classes")
    assert names[0] == "map"
    assert {*names, *left_out, *boards.FOR_FOLDERS} == set(method_names())
    assert set(needing) < {*choose_methods(None, with_mean=True)[0]}


def test_too_few_episodes_are_refused():
    with pytest.raises(InputError, match="n_episodes must be at least 10, got 5"):
        make_leaderboard(load_embedded(), ["ncm"], n_episodes=5)


def test_the_recorded_settings_are_knobs_of_their_methods():
    for name, by_shots in recorded_settings().items():
        for n_shot, knobs in by_shots.items():
            find_method(name).configure(n_shot=n_shot, **knobs)  # refuses what does not fit


def test_settings_are_used():
    tuned = {"map": {1: {"lam": 1.0}}}
    kinds = {"shots": [1, 5], "queries": ["15"]}
    found = make_leaderboard(
        load_embedded(), ["map"], n_episodes=10, tuned=tuned, engine="torch", **kinds
    )
    one, five = found.standings["map"]
    assert one.result.settings["lam"] == 1.0
    assert five.result.settings["lam"] == 10.0  # not in the settings: the method's own


def test_what_fits_no_features_is_refused_before_the_work():
    features = load_embedded()
    done = []
    few = int(features.class_sizes.min()) - 3
    kinds = {"shots": [1], "queries": ["5", f"present:1:{few + 10}"]}
    with pytest.raises(InputError, match=r"must have at least .*queries \('present:1"):
        make_leaderboard(
            features, ["ncm"], n_episodes=20, on_progress=done.append, engine="torch", **kinds
        )
    assert done == []


def test_the_frontier_has_no_faster_and_better_method(board):
    points = [rows[1] for rows in board.standings.values()]
    front = find_frontier(points)
    told = {i for i, each in enumerate(points) if each.result.method == "map-truth"}
    assert front
    assert not front & told  # it knows what no method can know
    for i in front:
        for k in set(range(len(points))) - told:
            faster = points[k].milliseconds < points[i].milliseconds
            assert not (faster and points[k].result.accuracy >= points[i].result.accuracy)


def test_the_largest_gain_of_each_kind_is_found(board):
    names = list(board.standings)
    for row, column in find_best(board):
        gains = {
            name: rows[column - 1].comparison.difference for name, rows in board.standings.items()
        }
        del gains["map-truth"]  # it knows what no method can know
        assert gains[names[row]] == max(gains.values())
    assert {column for _, column in find_best(board)} == {1, 2}


def test_the_plot_has_a_point_per_method(board):
    picture = ElementTree.fromstring(draw_scatter(board, 0))
    titles = [circle.find("title").text for circle in picture.iter("circle")]
    assert len(titles) == len(board.standings)
    for words in titles:
        assert words.endswith("ms")
    for circle in picture.iter("circle"):
        assert 0 < float(circle.get("cx")) < 520
        assert 0 < float(circle.get("cy")) < 330


def test_names_in_the_plot_do_not_cover_each_other():
    named = [(100 + 3 * i, 100 + 2 * i, f"method {i}" + "!" * i) for i in range(30)]
    placed = place_names(named, [(x, y) for x, y, _ in named])
    boxes = [(x, y - 10, x + 6.9 * len(title), y + 3) for x, y, title in placed]
    assert 1 < len(placed) < 30  # not all have room
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            wide, tall = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
            assert max(wide, 0) * max(tall, 0) <= 20
    assert place_names([(100, 100, "long" * 40)], []) == []


def test_the_command_writes_all_three_files(tmp_path):
    options = ["--method", "ncm", "--shots", "1", "--queries", "15", "--episodes", "10"]
    ran = CliRunner().invoke(
        app, ["leaderboard", *options, "--engine", "torch", "--output", str(tmp_path / "board")]
    )
    assert ran.exit_code == 0, ran.output
    assert "PT+NCM" in ran.output
    found = json.loads((tmp_path / "board" / "leaderboard.json").read_text())
    assert set(found["standings"]) == {"ncm", "map"}
    assert found["standings"]["ncm"][0]["comparison"]["baseline"] == "map"
    assert found["standings"]["ncm"][0]["ms_per_episode"] > 0
    assert "| PT+NCM |" in (tmp_path / "board" / "leaderboard.md").read_text()
    page = (tmp_path / "board" / "leaderboard.html").read_text()
    assert "<svg" in page
    assert "prefers-color-scheme: dark" in page
    assert "src=" not in page  # nothing is loaded
    assert "<link" not in page
    assert f'href="{find_method("ncm").reference.link}"' in page


def test_results_of_other_features_are_overwritten_only_by_force(tmp_path):
    board = tmp_path / "board"
    board.mkdir()
    (board / "leaderboard.json").write_text('{"fingerprint": "of other features"}')
    options = ["--method", "ncm", "--shots", "1", "--queries", "15", "--episodes", "10"]
    command = ["leaderboard", *options, "--engine", "torch", "--output", str(board)]
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 2
    assert "holds results of other features" in ran.output
    assert CliRunner().invoke(app, [*command, "--force"]).exit_code == 0
    assert "ncm" in (board / "leaderboard.json").read_text()


def test_the_help_lists_knobs_only_where_they_can_be_set():
    has = {
        name: "--set KNOB=VALUE" in CliRunner().invoke(app, [name, "--help"]).output
        for name in ("evaluate", "leaderboard")
    }
    assert has == {"evaluate": True, "leaderboard": False}


def test_one_form_of_output_at_a_time():
    ran = CliRunner().invoke(app, ["leaderboard", "--markdown", "--json"])
    assert ran.exit_code == 2
    assert "one of --markdown and --json" in ran.output
