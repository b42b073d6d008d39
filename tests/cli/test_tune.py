"""`fewlabels tune`, and `fewlabels evaluate` with what it wrote."""

import json
import tomllib

import numpy as np
import pytest

from fewlabels.evaluation.settings import read_settings

FEW = ["--ways", 3, "--queries", 4, "--episodes", 15]
SMALL = ["--beta", 0.25, "--beta", 1, "--lam", 5, "--lam", 10, "--alpha", 0.4]


def test_the_installed_program_tunes_and_evaluate_reads_it(program, make_file, tmp_path):
    file, novel, out = make_file("val.npz"), make_file("novel.npz", seed=3), tmp_path / "tuned"
    done = program("tune", file, "--novel", novel, *FEW, *SMALL, "--output", out)
    assert done.code == 0, done.stderr
    names = ["curves-1-shot.png", "curves-1-shot.svg", "settings.toml", "tuning.json"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert all(name in done.stderr for name in names)
    assert done.stdout.count("chosen") == 3
    text = (out / "settings.toml").read_text(encoding="utf-8")
    found = json.loads((out / "tuning.json").read_text())
    (tuning,) = found["tunings"]
    assert tomllib.loads(text) == {"map": {"1-shot": tuning["chosen"]}}
    for word in (
        "# Written by: fewlabels tune",
        found["fingerprint"],
        "15 episodes",
        f"{tuning['result']['accuracy']:.2f} ± ",
    ):
        assert word in text
    evaluated = program("evaluate", file, *FEW, "--settings", out / "settings.toml", "--json")
    (result,) = json.loads(evaluated.stdout)["results"]
    assert (
        result["accuracy"] == tuning["result"]["accuracy"]
    )  # same classes, same episodes, same settings
    assert result["episode_hash"] == tuning["result"]["episode_hash"]


def test_novel_features_change_neither_choice_nor_settings(here, make_file, tmp_path):
    words = ["tune", make_file("val.npz"), *FEW, *SMALL, "--no-plot", "--grid"]
    tables = []
    for number, more in enumerate(
        ([], ["--novel", make_file("a.npz", seed=1)], ["--novel", make_file("b.npz", seed=2)])
    ):
        assert here(*words, *more, "--output", tmp_path / str(number)).code == 0
        tables.append(
            (tmp_path / str(number) / "settings.toml").read_text(encoding="utf-8").split("\n", 1)[1]
        )  # less the command
    assert tables[0] == tables[1] == tables[2]


def test_several_shots_in_one_file_and_given_options_win(here, make_file, tmp_path):
    file, out = make_file(), tmp_path / "tuned"
    assert (
        here(
            "tune", file, "--shots", 1, "--shots", 3, *FEW, *SMALL, "--no-plot", "--output", out
        ).code
        == 0
    )
    tuned = tomllib.loads((out / "settings.toml").read_text(encoding="utf-8"))["map"]
    assert set(tuned) == {"1-shot", "3-shot"}
    words = ["evaluate", file, *FEW, "--settings", out / "settings.toml", "--json"]
    done = here(*words, "--shots", 1, "--shots", 3, "--lam", 7)
    for result in json.loads(done.stdout)["results"]:
        expected = tuned[f"{result['n_shot']}-shot"]
        assert result["settings"] == {
            "lam": 7.0,
            "alpha": expected["alpha"],
            "n_steps": expected["n_steps"],
            "prior": "uniform",
        }
        assert result["pipeline"].startswith(f"power({expected['beta']:g})")
    refused = here(*words, "--shots", 2)
    assert refused.code == 2
    assert "--settings holds map for 1, 3 shots, got 2" in refused.stderr


@pytest.mark.parametrize("bare", ["val.npz", "novel.npz"])
def test_per_class_is_for_the_file_without_labels(here, make_file, tmp_path, bare):
    files = {name: make_file(name, seed=seed) for seed, name in enumerate(["val.npz", "novel.npz"])}
    given = ["tune", files["val.npz"], "--novel", files["novel.npz"], *FEW, *SMALL]
    words = [*given, "--no-plot", "--json", "--output", tmp_path / "tuned"]
    expected = here(*words)
    refused = here(*words, "--per-class", 20)
    assert refused.code == 2
    assert "--per-class must be left out where all features have labels, got 20" in refused.stderr
    with np.load(files[bare]) as stored:
        np.savez(files[bare], features=stored["features"])
    done = here(*words, "--per-class", 20)
    assert done.code == 0, done.stderr
    assert (
        json.loads(done.stdout)["tunings"][0]["curves"]
        == json.loads(expected.stdout)["tunings"][0]["curves"]
    )


def test_only_the_knobs_of_a_method_are_chosen(here, make_file, tmp_path):
    words = ["--method", "map-auto", "--alpha", 0.2, "--alpha", 0.6, *FEW, "--no-plot"]
    done = here("tune", make_file(), *words, "--output", tmp_path / "o")
    assert done.code == 0, done.stderr
    (tuning,) = json.loads((tmp_path / "o" / "tuning.json").read_text())["tunings"]
    assert tuning["chosen"].keys() == {"alpha", "n_steps"}
    assert tomllib.loads((tmp_path / "o" / "settings.toml").read_text(encoding="utf-8")) == {
        "map-auto": {"1-shot": tuning["chosen"]}
    }
    assert "beta" not in done.stdout


def test_knobs_that_are_not_tuned_keep_what_set_gives_them(here, make_file, tmp_path):
    file, out = make_file(), tmp_path / "tuned"
    fixed = ["--set", "n_steps=2", "--set", "prior=free", "--beta", "auto"]
    words = [*fixed, "--set", "lam=5", "--set", "lam=10", "--alpha", 0.4, *FEW, "--no-plot"]
    done = here("tune", file, *words, "--output", out)
    assert done.code == 0, done.stderr
    tuned = tomllib.loads((out / "settings.toml").read_text(encoding="utf-8"))["map"]["1-shot"]
    assert tuned.pop("lam") in (5, 10)
    assert tuned == {"beta": "auto", "alpha": 0.4, "n_steps": 2, "prior": "free"}
    again = here("evaluate", file, *FEW, "--settings", out / "settings.toml", "--json")
    (result,) = json.loads(again.stdout)["results"]
    (tuning,) = json.loads((out / "tuning.json").read_text())["tunings"]
    assert result["accuracy"] == tuning["result"]["accuracy"]


def test_json_is_all_of_stdout(here, make_file, tmp_path):
    done = here(
        "tune", make_file(), *FEW, *SMALL, "--json", "--no-plot", "--output", tmp_path / "tuned"
    )
    (tuning,) = json.loads(done.stdout)["tunings"]
    assert [curve["knob"] for curve in tuning["curves"]] == ["beta", "lam", "alpha"]
    assert len(tuning["tried"]) == 3
    assert not tuning["interrupted"]


def test_the_embedded_set_is_called_a_demonstration(here, tmp_path):
    words = ["--method", "ncm", "--beta", 0.5, "--episodes", 5, "--no-plot"]
    done = here("tune", *words, "--output", tmp_path / "tuned")
    assert done.code == 0, done.stderr
    assert "novel classes, not validation classes: a demonstration only" in done.stderr
    assert "demonstration" in done.stdout
    assert "demonstration" in (tmp_path / "tuned" / "settings.toml").read_text(encoding="utf-8")


def test_settings_of_other_methods_are_kept_unless_forced(here, make_file, tmp_path):
    folder = tmp_path / "tuned"
    words = [make_file(), *FEW, "--no-plot", "--output", folder]
    assert here("tune", *words, "--method", "ncm", "--beta", 0.5).code == 0
    again = here("tune", *words, "--set", "lam=5")
    assert (again.code, again.stderr.count("are kept")) == (0, 1)
    assert list(read_settings(folder)) == ["map", "ncm"]
    assert here("tune", *words, "--set", "lam=5", "--force").code == 0
    assert list(read_settings(folder)) == ["map"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--method", "ncm-raw"], "no knob to tune"),
        (["--method", "kmeans", "--alpha", 1], "--alpha has no effect on kmeans"),
        (["--method", "knn"], "'knn'"),
        (["--method", "map", "--method", "ncm"], "--method must be given once, got map, ncm"),
        (["--lam", -3], "--lam must be a number above 0, got -3"),
        (["--set", "n_steps=4", "--set", "n_steps=5"], "--set n_steps must be given once"),
        (["--set", "lamda=4"], "lamda has no effect on map, which takes beta, lam, alpha"),
        (["--set", "lam"], "--set must be KNOB=VALUE such as 'lam=5', got 'lam'"),
        (["--ways", 9], "--ways must be at most 6"),
        (["--queries", 0], "with N at least 1 (in a list"),
        (["--shots", 0], "--shots must be at least 1"),
        (["--novel", "nowhere.npz"], "nowhere.npz does not exist"),
        (["--output", "/dev/null/x"], "cannot be written"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_bad_input_ends_in_one_line(here, make_file, tmp_path, words, expected):
    done = here("tune", make_file(), *FEW, "--output", tmp_path / "tuned", "--no-plot", *words)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith("fewlabels: ")
    assert done.stderr.count("\n") == 1
    assert expected in done.stderr


def test_ctrl_c_reports_what_was_done_and_writes_no_settings(
    here, make_file, tmp_path, monkeypatch
):
    from fewlabels.evaluation import tuning

    calls = []

    def stop_in_the_third(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 3:  # start, rest of beta, rest of lam
            raise KeyboardInterrupt
        return evaluate(*arguments, **options)

    evaluate = tuning.evaluate
    monkeypatch.setattr(tuning, "evaluate", stop_in_the_third)
    done = here("tune", make_file(), *FEW, *SMALL, "--output", tmp_path / "tuned")
    assert done.code == 130
    assert "beta" in done.stdout
    assert "Interrupted" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "tuned").iterdir())
    calls[:] = [None] * 2
    at_once = here("tune", make_file(), *FEW, *SMALL, "--output", tmp_path / "tuned")
    assert (at_once.code, at_once.stdout, at_once.stderr) == (130, "", "fewlabels: interrupted.\n")
