"""`fewlabels compare`, and the options of `fewlabels evaluate` that it shares."""

import json
import re

import numpy as np
import pytest
from scipy import stats

FEW = ["--ways", 3, "--queries", 4, "--episodes", 15]


def test_the_installed_program_prints_paired_differences(program):
    kinds = ["--shots", 1, "--shots", 5, "--queries", 15, "--queries", "dirichlet:2:75"]
    done = program("compare", "ncm", "kmeans", "map", *kinds, "--episodes", 20)
    assert done.code == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.count("baseline") == 4
    assert (
        len(
            re.findall(
                r"PT\+MAP +\d\d\.\d\d ± \d+\.\d\d +[+-]\d+\.\d\d ± \d+\.\d\d +\d+ +\d+ +\d+",
                done.stdout,
            )
        )
        == 4
    )
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_json_agrees_with_scipy_on_the_accuracies_that_evaluate_keeps(here, make_file, tmp_path):
    file = make_file()
    compared = here("compare", "ncm", "map", "--features", file, *FEW, "--json")
    assert compared.code == 0, compared.stderr
    kept = here(
        "evaluate", file, "--method", "ncm", "--method", "map", *FEW, "--output", tmp_path / "out"
    )
    assert kept.code == 0, kept.stderr
    with np.load(tmp_path / "out" / "accuracies.npz") as single:
        ncm, found = single["0"], single["1"]
    oracle = stats.ttest_rel(found, ncm).confidence_interval(0.95)
    first, second = json.loads(compared.stdout)["results"]
    assert first["comparison"] is None
    assert second["comparison"]["difference"] == pytest.approx(100 * (found - ncm).mean(), abs=1e-3)
    assert 2 * second["comparison"]["ci95"] == pytest.approx(
        100 * (oracle.high - oracle.low), abs=1e-3
    )
    assert second["comparison"]["win"] == pytest.approx((found > ncm).mean(), abs=1e-3)


def test_markdown_and_latex_are_all_of_stdout(here, make_file):
    file = make_file()
    markdown = here("compare", "ncm", "map", "--features", file, *FEW, "--markdown")
    assert (markdown.code, markdown.stderr) == (0, "")
    assert markdown.stdout.startswith("**3-way")
    latex = here("compare", "map", "--lam", 5, "--lam", 10, "--features", file, *FEW, "--latex")
    assert latex.code == 0
    assert latex.stdout.startswith("%")
    assert latex.stdout.rstrip().endswith(r"\end{tabular}")
    assert " & lam & " in latex.stdout


def test_another_baseline(here, make_file):
    done = here(
        "compare", "ncm", "map", "--baseline", "map", "--features", make_file(), *FEW, "--json"
    )
    first, second = json.loads(done.stdout)["results"]
    assert first["comparison"]["baseline"] == "map"
    assert second["comparison"] is None


def test_a_folder_gets_a_figure_where_queries_vary(here, make_file, tmp_path):
    few = ["--ways", 3, "--episodes", 5, "--features", make_file()]
    done = here(
        "compare",
        "ncm",
        "map",
        "map-auto",
        "map-truth",
        *few,
        "--queries",
        4,
        "--queries",
        "present:2:12",
        "--output",
        tmp_path / "out",
    )
    assert done.code == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "accuracies.npz",
        "imbalance.png",
        "imbalance.svg",
        "result.json",
    ]
    assert "imbalance.png" in done.stderr
    alone = here("compare", "ncm", "map", *few, "--queries", 4, "--output", tmp_path / "alone")
    assert alone.code == 0, alone.stderr
    assert sorted(path.name for path in (tmp_path / "alone").iterdir()) == [
        "accuracies.npz",
        "result.json",
    ]


def test_proportions_and_auto_are_columns_where_they_vary(here, make_file):
    words = [
        "--lam",
        "auto",
        "--lam",
        10,
        "--beta",
        "auto",
        "--proportions",
        "estimate",
        "--proportions",
        "0.5,0.25,0.25",
    ]
    done = here("compare", "map", *words, "--features", make_file(), *FEW, "--json")
    assert done.code == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    assert [result["settings"]["lam"] for result in results] == ["auto", "auto", 10, 10]
    assert results[1]["comparison"]["baseline_settings"]["lam"] == "auto"
    assert results[1]["comparison"]["baseline_settings"]["proportions"] == "estimate"
    shown = here("evaluate", make_file(), *words, *FEW)
    header = next(line for line in shown.stdout.splitlines() if line.startswith("method")).split()
    assert header == ["method", "lam", "proportions", "shots", "accuracy", "episodes", "seconds"]
    assert shown.stdout.count("0.5,0.25,0.25") == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["compare", "map"], "at least two methods"),
        (["compare", "map", "map"], "at least two methods"),
        (["compare", "map", "knn"], "'knn'"),
        (
            ["compare", "map", "ncm", "--baseline", "kmeans"],
            "--baseline must be one of the compared methods, map, ncm",
        ),
        (["compare", "map", "ncm", "--json", "--latex"], "one of --markdown, --latex and --json"),
        (["compare", "ncm", "kmeans", "--lam", 5], "--lam has no effect on ncm, kmeans"),
        (["compare", "ncm", "map", "--features", "nowhere.npz"], "does not exist"),
        (["evaluate", "--method", "ncm", "--alpha", 0.3], "--alpha has no effect on ncm"),
        (["evaluate", "--beta", 0.3, "--pipeline", "unit"], "not both"),
        (["evaluate", "--lam", "sharp"], "--lam must be a number or auto, got 'sharp'"),
        (["evaluate", "--proportions", "equal"], "uniform, estimate, free, truth"),
        (["evaluate", "--proportions", "0.5,0.5"], "one number for each of the 5 classes"),
        (["evaluate", "--proportions", "10,10,10,10,10"], "must sum to 75"),
        (
            ["compare", "map-auto", "ncm", "--proportions", "free"],
            "--proportions has no effect on map-auto, ncm",
        ),
        (
            ["evaluate", "--per-class", 17],
            "--per-class must be left out where the features have labels, got 17",
        ),
        (["evaluate", "--settings", "nowhere.toml"], "nowhere.toml does not exist"),
        (["evaluate", "--output", "/dev/null/results", "--episodes", 3], "cannot be written"),
        (["evaluate", "--shots", 1, "--shots", 300], "301 images, got 200"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_bad_input_ends_in_one_line(here, words, expected):
    words = [*words, "--queries", 1] if words[:2] == ["evaluate", "--shots"] else words
    done = here(*words)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith("fewlabels: ")
    assert done.stderr.count("\n") == 1
    assert expected in done.stderr


def test_knobs_that_a_variant_has_of_its_own_are_named(here, make_file):
    words = ["--beta", 1, "--proportions", "free", "--features", make_file(), *FEW]
    done = here("compare", "ncm", "map", "map-auto", "map-truth", *words)
    assert done.code == 0, done.stderr
    assert done.stderr.splitlines() == [
        "--beta has no effect on map-auto, which has its own.",
        "--proportions has no effect on map-auto, which has its own.",
        "--proportions has no effect on map-truth, which has its own.",
    ]


def test_per_class_is_for_files_without_labels_and_a_mean_needs_none(here, make_file, tmp_path):
    labelled = make_file()
    with np.load(labelled) as stored:
        np.save(tmp_path / "bare.npy", stored["features"])
    words = ["--pipeline", "unit | center(mean) | unit", *FEW, "--json"]
    expected = here("evaluate", labelled, "--mean-of", labelled, *words)
    assert expected.code == 0, expected.stderr
    for of in (labelled, tmp_path / "bare.npy"):
        done = here("evaluate", tmp_path / "bare.npy", "--per-class", 20, "--mean-of", of, *words)
        assert done.code == 0, done.stderr
        assert (
            json.loads(done.stdout)["results"][0]["accuracy"]
            == json.loads(expected.stdout)["results"][0]["accuracy"]
        )


def test_a_sweep_of_evaluate_shows_what_varies(here, make_file):
    done = here(
        "evaluate",
        make_file(),
        "--method",
        "ncm",
        "--method",
        "map",
        "--lam",
        5,
        "--lam",
        10,
        "--queries",
        "2,3,4",
        *FEW,
    )
    assert done.code == 0, done.stderr
    header = next(line for line in done.stdout.splitlines() if line.startswith("method")).split()
    assert header == ["method", "lam", "shots", "queries", "accuracy", "episodes", "seconds"]
    assert done.stdout.count("PT+MAP") == 4


def test_a_changed_features_file_is_noticed(here, make_file, tmp_path):
    words = ["evaluate", make_file(), "--method", "ncm", *FEW, "--output", tmp_path / "out"]
    assert here(*words).code == 0
    assert here(*words).code == 0
    before = json.loads((tmp_path / "out" / "result.json").read_text())
    make_file(seed=1)
    refused = here(*words)
    assert refused.code == 2
    assert before["fingerprint"] in refused.stderr
    assert json.loads((tmp_path / "out" / "result.json").read_text()) == before
    assert here(*words, "--force").code == 0
    assert (
        json.loads((tmp_path / "out" / "result.json").read_text())["fingerprint"]
        != before["fingerprint"]
    )
