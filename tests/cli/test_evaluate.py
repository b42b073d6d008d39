"""`fewlabels evaluate`: several methods, paired differences, knobs by --set, files."""

import json
import re

import numpy as np
import pytest
from scipy import stats

from fewlabels.methods import find_method, method_names

FEW = ["--ways", 3, "--queries", 4, "--episodes", 15]


def methods(*names):
    return [word for name in names for word in ("--method", name)]


# Help


@pytest.mark.parametrize("command", ["evaluate", "tune"])
def test_the_help_lists_every_method_and_every_knob(here, command):
    done = here(command, "--help")
    assert done.code == 0
    text = " ".join(done.stdout.split())  # lines are broken at the width of the terminal
    listed, knobs = text.split("Methods (--method)")[1].split("Knobs (--set KNOB=VALUE)")
    for name in method_names():
        method = find_method(name)
        taken = ", ".join(method.knobs_for())
        assert f" {name} {method.title}" + (f"; knobs: {taken}" if taken else "") in listed
        for knob in method.knobs_for().values():
            assert f" {knob.name} {knob.words}" in knobs


# Paired differences


def test_the_installed_program_prints_paired_differences(program):
    kinds = ["--shots", 1, "--shots", 5, "--queries", 15, "--queries", "dirichlet:2:75"]
    names = methods("ncm", "kmeans", "map")
    done = program("evaluate", *names, "--baseline", "ncm", *kinds, "--episodes", 20)
    assert done.code == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.count("baseline") == 4
    paired = r"PT\+MAP +\d\d\.\d\d ± \d+\.\d\d +[+-]\d+\.\d\d ± \d+\.\d\d +\d+ +\d+ +\d+"
    assert len(re.findall(paired, done.stdout)) == 4
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_json_agrees_with_scipy_on_the_accuracies_that_are_kept(here, make_file, tmp_path):
    words = ["evaluate", make_file(), *methods("ncm", "map"), *FEW]
    done = here(*words, "--baseline", "ncm", "--json", "--output", tmp_path / "out")
    assert done.code == 0, done.stderr
    with np.load(tmp_path / "out" / "accuracies.npz") as single:
        ncm, found = single["0"], single["1"]
    oracle = stats.ttest_rel(found, ncm).confidence_interval(0.95)
    first, second = json.loads(done.stdout)["results"]
    assert first["comparison"] is None
    paired = second["comparison"]
    assert paired["difference"] == pytest.approx(100 * (found - ncm).mean(), abs=1e-3)
    assert 2 * paired["ci95"] == pytest.approx(100 * (oracle.high - oracle.low), abs=1e-3)
    assert paired["win"] == pytest.approx((found > ncm).mean(), abs=1e-3)
    plain = json.loads(here(*words, "--json").stdout)["results"]
    assert [each["accuracy"] for each in plain] == [first["accuracy"], second["accuracy"]]
    assert "comparison" not in plain[1]


def test_markdown_and_latex_are_all_of_stdout(here, make_file):
    file = make_file()
    words = [*methods("ncm", "map"), "--baseline", "ncm"]
    markdown = here("evaluate", file, *words, *FEW, "--markdown")
    assert (markdown.code, markdown.stderr) == (0, "")
    assert markdown.stdout.startswith("**3-way")
    latex = here("evaluate", file, "--lam", 5, "--lam", 10, "--baseline", "map", *FEW, "--latex")
    assert latex.code == 0, latex.stderr
    assert latex.stdout.startswith("%")
    assert latex.stdout.rstrip().endswith(r"\end{tabular}")
    assert " & lam & " in latex.stdout
    plain = here("evaluate", file, *methods("ncm"), *FEW, "--markdown")
    assert "difference" in markdown.stdout
    assert "difference" not in plain.stdout


def test_another_baseline(here, make_file):
    words = [*methods("ncm", "map"), "--baseline", "map"]
    done = here("evaluate", make_file(), *words, *FEW, "--json")
    first, second = json.loads(done.stdout)["results"]
    assert first["comparison"]["baseline"] == "map"
    assert second["comparison"] is None


# Knobs


def test_set_and_the_short_forms_mean_the_same(here, make_file):
    file = make_file()
    long = ["--set", "beta=0.3", "--set", "lam=5", "--set", "lam=auto", "--set", "alpha=0.2"]
    short = ["--beta", 0.3, "--lam", 5, "--lam", "auto", "--alpha", 0.2]
    found = [
        json.loads(here("evaluate", file, *words, *FEW, "--json").stdout)["results"]
        for words in (long, short)
    ]
    for one, other in zip(*found, strict=True):
        assert one["pipeline"] == other["pipeline"] == "power(0.3) | unit | center | unit"
        assert one["settings"] == other["settings"]
        assert one["accuracy"] == other["accuracy"]
    assert [each["settings"]["lam"] for each in found[0]] == [5, "auto"]


@pytest.mark.parametrize("form", ["n_steps=2", "n-steps=2", " n_steps = 2 "])
def test_a_knob_may_be_written_with_hyphens_and_spaces(here, make_file, form):
    done = here("evaluate", make_file(), "--set", form, *FEW, "--json")
    assert json.loads(done.stdout)["results"][0]["settings"]["n_steps"] == 2


def test_priors_and_auto_are_columns_where_they_vary(here, make_file):
    words = ["--lam", "auto", "--lam", 10, "--beta", "auto"]
    words += ["--set", "prior=estimate", "--set", "prior=0.5,0.25,0.25"]
    done = here("evaluate", make_file(), *words, "--baseline", "map", *FEW, "--json")
    assert done.code == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    assert [result["settings"]["lam"] for result in results] == ["auto", "auto", 10, 10]
    assert [result["settings"]["prior"] for result in results[:2]] == ["estimate", "0.5,0.25,0.25"]
    assert results[1]["comparison"]["baseline_settings"]["lam"] == "auto"
    assert results[1]["comparison"]["baseline_settings"]["prior"] == "estimate"
    shown = here("evaluate", make_file(), *words, *FEW)
    header = next(line for line in shown.stdout.splitlines() if line.startswith("method")).split()
    assert header == ["method", "lam", "prior", "shots", "accuracy", "episodes", "seconds"]
    assert shown.stdout.count("0.5,0.25,0.25") == 2


def test_knobs_that_a_method_has_of_its_own_are_named(here, make_file):
    words = ["--beta", 1, "--set", "prior=free", *FEW]
    names = methods("ncm", "map", "map-auto", "map-truth")
    done = here("evaluate", make_file(), *names, *words)
    assert done.code == 0, done.stderr
    assert done.stderr.splitlines() == [
        "knob beta has no effect on map-auto, which has its own.",
        "knob prior has no effect on map-auto, which has its own.",
        "knob prior has no effect on map-truth, which has its own.",
    ]


def test_a_sweep_shows_what_varies(here, make_file):
    words = ["--lam", 5, "--lam", 10, "--queries", "2,3,4", *FEW]
    done = here("evaluate", make_file(), *methods("ncm", "map"), *words)
    assert done.code == 0, done.stderr
    header = next(line for line in done.stdout.splitlines() if line.startswith("method")).split()
    assert header == ["method", "lam", "shots", "queries", "accuracy", "episodes", "seconds"]
    assert done.stdout.count("PT+MAP") == 4


# Files


def test_a_folder_gets_a_figure_where_queries_vary(here, make_file, tmp_path):
    few = ["--ways", 3, "--episodes", 5, "--queries", 4]
    names = methods("ncm", "map", "map-auto", "map-truth")
    several = [*few, "--queries", "present:2:12", "--output", tmp_path / "out"]
    done = here("evaluate", make_file(), *names, *several)
    assert done.code == 0, done.stderr
    kept = ["accuracies.npz", "result.json"]
    figures = ["imbalance.png", "imbalance.svg"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(kept + figures)
    assert "imbalance.png" in done.stderr
    alone = here("evaluate", make_file(), *names, *few, "--output", tmp_path / "alone")
    assert alone.code == 0, alone.stderr
    assert sorted(path.name for path in (tmp_path / "alone").iterdir()) == kept


def test_per_class_is_for_files_without_labels_and_a_mean_needs_none(here, make_file, tmp_path):
    labelled, bare = make_file(), tmp_path / "bare.npy"
    with np.load(labelled) as stored:
        np.save(bare, stored["features"])
    words = ["--pipeline", "unit | center(mean) | unit", *FEW, "--json"]
    expected = here("evaluate", labelled, "--mean-of", labelled, *words)
    assert expected.code == 0, expected.stderr
    (wanted,) = json.loads(expected.stdout)["results"]
    for of in (labelled, bare):
        done = here("evaluate", bare, "--per-class", 20, "--mean-of", of, *words)
        assert done.code == 0, done.stderr
        assert json.loads(done.stdout)["results"][0]["accuracy"] == wanted["accuracy"]


def test_a_changed_features_file_is_noticed(here, make_file, tmp_path):
    words = ["evaluate", make_file(), "--method", "ncm", *FEW, "--output", tmp_path / "out"]
    result = tmp_path / "out" / "result.json"
    assert here(*words).code == 0
    assert here(*words).code == 0
    before = json.loads(result.read_text())
    make_file(seed=1)
    refused = here(*words)
    assert refused.code == 2
    assert before["fingerprint"] in refused.stderr
    assert json.loads(result.read_text()) == before
    assert here(*words, "--force").code == 0
    assert json.loads(result.read_text())["fingerprint"] != before["fingerprint"]


# Errors


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--baseline", "map"], "--baseline needs another method to compare with, got only map"),
        ([*methods("map", "map"), "--baseline", "map"], "--baseline needs another method"),
        (methods("map", "knn"), "--method must be one of ncm-raw, ncm,"),
        (
            [*methods("map", "ncm"), "--baseline", "kmeans"],
            "--baseline must be one of the methods map, ncm, got 'kmeans'",
        ),
        (["--json", "--latex"], "one of --markdown, --latex and --json"),
        ([*methods("ncm", "kmeans"), "--lam", 5], "--lam has no effect on ncm, kmeans."),
        (["nowhere.npz"], "nowhere.npz does not exist"),
        (["ncm"], "'ncm', which is a method: write --method ncm."),
        ([*methods("ncm"), "--alpha", 0.3], "--alpha has no effect on ncm"),
        ([*methods("ncm"), "--set", "n_steps=3"], "--set n_steps has no effect on ncm"),
        (["--beta", 0.3, "--pipeline", "unit"], "not both"),
        (["--lam", "sharp"], "--lam must be a number or 'auto', got 'sharp'"),
        (["--set", "n_steps=2.5"], "--set n_steps must be a whole number, got 2.5"),
        (["--set", "prior=equal"], "--set prior must be one of uniform, estimate, free, truth"),
        (["--set", "prior=0.5,0.5"], "--set prior must hold one number for each of the 5 classes"),
        (["--set", "prior=10,10,10,10,10"], "--set prior must sum to 75"),
        (
            [*methods("map-auto", "ncm"), "--set", "prior=free"],
            "--set prior has no effect on map-auto, ncm.",
        ),
        (["--set", "lam"], "--set must be KNOB=VALUE such as 'lam=5', got 'lam'"),
        (["--set", "=5"], "--set must be KNOB=VALUE such as 'lam=5', got '=5'"),
        (["--set", "lam="], "--set must be KNOB=VALUE such as 'lam=5', got 'lam='"),
        (["--set", ""], "--set must be KNOB=VALUE such as 'lam=5', got ''"),
        (
            ["--set", "lamda=5"],
            "a knob must be one of beta, max_iterations, lam, alpha, n_steps, prior, sharpness, "
            "n_updates, rate, penalty, smoothness, n_neighbors, label_weight, entropy_weight, "
            "order, size_weight, anchor, pull, n_dims, propagation, spread, n_epochs, balance, "
            "gamma, max_dims, self_weight, n_hops, got 'lamda'",
        ),
        (["--per-class", 17], "--per-class must be left out where the features have labels"),
        (["--settings", "nowhere.toml"], "nowhere.toml does not exist"),
        (["--output", "/dev/null/results", "--episodes", 3], "cannot be written"),
        (
            ["--shots", 1, "--shots", 300, "--queries", 1],
            "20 of 20 classes have too few. Lower --shots or",
        ),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_bad_input_ends_in_one_line(here, words, expected):
    done = here("evaluate", *words)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith("fewlabels: ")
    assert done.stderr.count("\n") == 1
    assert expected in done.stderr
