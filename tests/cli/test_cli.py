"""The program as a user runs it: data on stdout, messages on stderr, errors in one line."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer.main
from scipy import stats

from fewlabels.cli import app
from fewlabels.cli.arguments import option_names, to_options

PROGRAM = Path(sys.executable).with_name("fewlabels")
SHARED = Path(__file__).resolve().parents[3] / "shared" / "features" / "cifar-fs-wrn28-10"
PROMISED = {"method", "n_way", "n_shot", "n_query", "accuracy", "ci95", "n_episodes", "seconds"}
COLOR = re.compile(r"\x1b\[[0-9;]*\b(3[0-8]|4[0-8]|9[0-7])[0-9;]*m")
AS_ON_A_TERMINAL = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "100"}


def environment(**changed):
    return {
        key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")
    } | changed


def run(*arguments, **changed):
    command = [str(PROGRAM), *map(str, arguments)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=600,
        env=environment(**changed),
        check=False,
    )


def assert_one_line(stderr, *words):
    assert stderr.startswith("fewlabels: ")
    assert stderr.count("\n") == 1
    for word in words:
        assert word in stderr


@pytest.fixture
def feature_file(tmp_path):
    """Four classes of ten non-negative vectors."""
    path = tmp_path / "features.npz"
    rng = np.random.default_rng(0)
    np.savez(
        path,
        features=rng.gamma(1.0, size=(40, 6)).astype(np.float32),
        labels=np.repeat(["ant", "bee", "cow", "dog"], 10),
    )
    return path


# Help


def test_help_names_the_commands():
    done = run("--help")
    assert done.returncode == 0
    assert "evaluate" in done.stdout
    assert done.stderr == ""


def test_help_of_every_command():
    commands = re.findall(r"^  ([a-z]+)  ", run("--help").stdout, flags=re.MULTILINE)
    assert "evaluate" in commands
    for command in commands:
        done = run(command, "--help")
        assert done.returncode == 0
        assert f"fewlabels {command}" in done.stdout
        assert not re.search(r"<\w+", done.stdout)  # no types of Python


@pytest.mark.parametrize("command", ["label", "next", "serve", "predict"])
def test_help_has_groups_and_names_of_values(command):
    shown = run(command, "--help").stdout
    heads = re.findall(r"^(\w[\w ]*):$", shown, flags=re.MULTILINE)
    assert heads[0] == "Arguments"
    assert {"Labels and method", "Computing", "Options"} < set(heads)
    assert not re.search(r"<\w+|\{", shown)  # no types of Python
    assert shown.rstrip().endswith("-h, --help  Show this message and exit.")


def test_completion_of_commands_and_options():
    def complete(words, place):
        asked = {"_FEWLABELS_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": place}
        done = run(**asked)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    assert complete("fewlabels la", "1") == ["label"]
    assert "--label-studio" in complete("fewlabels label --la", "2")


def test_help_imports_nothing_heavy():
    script = """
import sys
from fewlabels.cli import app
for words in (["--help"], ["doctor", "--help"], ["extract", "--help"]):
    app(words, standalone_mode=False)
heavy = {"torch", "numpy", "numba", "sklearn", "scipy"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("n_shot must be at least 1, got 0.", "--shots must be at least 1, got 0."),
        ("lam must be a number, got 'x'.", "--lam must be a number, got 'x'."),
        ("prior must sum to 75, got 3.", "--set prior must sum to 75, got 3."),
        ("per_class must be 3.", "--per-class must be 3."),
        (
            "class 'a' must have 3 images. Lower n_shot.",
            "class 'a' must have 3 images. Lower --shots.",
        ),
        ("a knob must be one of lam, n_steps.", "a knob must be one of lam, n_steps."),
        ("features must be finite.", "FEATURES must be finite."),  # an argument, no option
        ("x holds y. Overwrite with force=True.", "x holds y. Overwrite with --force."),
        ("n_workers must be 1.", "n_workers must be 1."),  # evaluate has no such option
    ],
)
def test_arguments_of_the_core_are_shown_as_options_of_the_command(message, shown):
    command = typer.main.get_command(app).commands["evaluate"]
    assert to_options(message, option_names(command)) == shown


def test_version():
    import fewlabels

    assert run("--version").stdout == f"fewlabels {fewlabels.__version__}\n"


# Results


def test_json_is_all_of_stdout_and_progress_is_on_stderr():
    shots, methods = ["--shots", 1, "--shots", 5], ["--method", "ncm", "--method", "map"]
    done = run("evaluate", *methods, *shots, "--episodes", 30, "--json", **AS_ON_A_TERMINAL)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    assert {(r["method"], r["n_shot"]) for r in results} == {
        ("ncm", 1),
        ("map", 1),
        ("ncm", 5),
        ("map", 5),
    }
    for result in results:
        assert result.keys() >= PROMISED
        assert (result["n_way"], result["n_query"], result["n_episodes"]) == (5, 15, 30)
        assert 50 < result["accuracy"] < 100
        assert 0 < result["ci95"] < 10
        assert result["seconds"] >= 0
    assert "episodes" in done.stderr
    assert COLOR.search(done.stderr)  # what NO_COLOR below must take away


def test_table_holds_the_methods_and_no_color_is_honoured():
    methods = [
        word
        for name in ("ncm-raw", "ncm", "kmeans", "soft-kmeans", "map")
        for word in ("--method", name)
    ]
    done = run("evaluate", *methods, "--episodes", 20, **AS_ON_A_TERMINAL, NO_COLOR="1")
    assert done.returncode == 0, done.stderr
    for title in ("NCM", "PT+NCM", "PT+K-Means", "PT+soft K-Means", "PT+MAP"):
        assert re.search(rf"{re.escape(title)} .*\d\d\.\d\d ± \d+\.\d\d", done.stdout)
    assert "95 %" in done.stdout
    assert not COLOR.search(done.stdout + done.stderr)


def test_output_in_a_pipe_is_plain():
    done = run("evaluate", "--method", "ncm", "--episodes", 20)
    assert done.returncode == 0
    assert "PT+NCM" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.skipif(not SHARED.exists(), reason=f"needs {SHARED}")
@pytest.mark.parametrize(("key", "n_shot", "alpha"), [("s1_a0.3", 1, 0.3), ("s5_a0.2", 5, 0.2)])
def test_the_authors_200_tasks_come_out_as_in_the_golden_file(here, key, n_shot, alpha):
    words = ["--draws", "authors", "--per-class", 600, "--episodes", 200, "--json"]
    kind = ["--shots", n_shot, "--alpha", alpha]
    code, stdout, stderr = here("evaluate", SHARED / "novel.npy", *words, *kind)
    assert code == 0, stderr
    with np.load(SHARED / "golden.npz") as golden:
        right = golden[f"{key}_pred"] == np.arange(75) % 5  # query j belongs to way j % 5
    result = json.loads(stdout)["results"][0]
    assert result["n_episodes"] == 200
    assert result["accuracy"] == pytest.approx(100 * right.mean(), abs=1e-4)
    assert result["ci95"] == pytest.approx(
        100 * stats.t.ppf(0.975, 199) * stats.sem(right.mean(axis=1)), abs=1e-4
    )


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to a child on Windows")
def test_ctrl_c_reports_what_was_done_so_far():
    words = ["evaluate", "--method", "ncm", "--episodes", "100000000"]
    words += ["--engine", "torch", "--json"]
    pipes = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        "encoding": "utf-8",
    }
    with subprocess.Popen(
        [str(PROGRAM), *words],
        env=environment(**AS_ON_A_TERMINAL),
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # background jobs ignore it
        **pipes,
    ) as process:
        try:
            seen = ""
            while not re.search(r"[1-9]\d*/", seen):  # the bar counts finished episodes
                seen = seen[-2000:] + process.stderr.read(100)
                assert process.poll() is None, seen
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=600)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "nterrupted" in stderr
    assert "Traceback" not in stderr
    result = json.loads(stdout)["results"][0]
    assert result["interrupted"] is True
    assert 0 < result["n_episodes"] < 100_000_000


# Errors


def test_a_missing_file_ends_the_real_program_with_code_2_and_one_line():
    done = run("evaluate", "nowhere.npz")
    assert done.returncode == 2
    assert done.stdout == ""
    assert_one_line(done.stderr, "nowhere.npz", "does not exist")


def test_a_truncated_file(here, feature_file):
    cut = feature_file.with_name("cut.npz")
    cut.write_bytes(feature_file.read_bytes()[:300])
    code, stdout, stderr = here("evaluate", cut)
    assert (code, stdout) == (2, "")
    assert_one_line(stderr, "cut.npz")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--method", "knn"], ["ncm-raw, ncm, kmeans, soft-kmeans, map", "'knn'"]),
        (["--ways", 5], ["--ways must be at most 4", "got 5"]),
        (["--ways", 3, "--shots", 6, "--queries", 5], ["'ant'", "11 images, got 10"]),
        (["--ways", 3, "--queries", "dirichlet:2"], ["--queries must be", "'dirichlet:2'"]),
        (
            ["--ways", 3, "--queries", 2, "--episodes", 0],
            ["fewlabels: --episodes must be at least 1"],
        ),
        (["--ways", 3, "--queries", 2, "--draws", "theirs"], ["own, authors", "'theirs'"]),
        (["--ways", 3, "--queries", "1,2,3", "--draws", "authors"], ["authors' draws"]),
        (["--ways", 3, "--queries", 2, "--draws", "authors", "--seed", -1], ["seed"]),
        (["--ways", 3, "--queries", 2, "--engine", "jax"], ["auto, torch, numba", "'jax'"]),
        (["--ways", 3, "--queries", 2, "--device", "tpu"], ["auto, cpu", "'tpu'"]),
        (
            ["--ways", 3, "--queries", 2, "--beta", 0.3, "--pipeline", "unit"],
            ["beta", "pipeline", "not both"],
        ),
        (
            ["--ways", 3, "--queries", 2, "--pipeline", "whiten"],
            ["a step must be one of", "'whiten'"],
        ),
        (["--ways", 3, "--queries", 2, "--pipeline", "center(mean)"], ["--mean-of must be given"]),
        (["--ways", 3, "--queries", 2, "--beta", 11], ["--beta must be"]),
        (["--ways", 3, "--queries", 2, "--lam", -1], ["--lam must be"]),
        (["--ways", 3, "--queries", 2, "--alpha", 2], ["--alpha must be", "up to 1"]),
        (["--ways", 3, "--queries", 2, "--set", "n_steps=-1"], ["--set n_steps must be"]),
        (
            ["--per-class", 10],
            ["--per-class must be left out", "the features have labels", "got 10"],
        ),
        (
            ["--ways", 3, "--queries", 2, "--dtype", "banana"],
            ["--dtype must be one of float32, float64", "'banana'"],
        ),
        (
            ["--ways", 3, "--queries", 2, "--dtype", "float64"],
            ["--dtype has no effect", "Leave it out"],
        ),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_a_wrong_option_ends_in_one_line(here, feature_file, words, expected):
    code, stdout, stderr = here("evaluate", feature_file, *words)
    assert (code, stdout) == (2, "")
    assert_one_line(stderr, *expected)


def test_one_class_is_refused(here):
    code, stdout, stderr = here("evaluate", "--ways", 1)
    assert (code, stdout) == (2, "")
    assert "'--ways'" in stderr
    assert "equal to 2" in stderr


@pytest.mark.parametrize(
    ("row", "expected"),
    [(-1.0, ["must not be negative", "unit | center | unit"]), (0.0, ["only zeros in row 7"])],
)
def test_features_that_the_pipeline_cannot_use(here, feature_file, row, expected):
    with np.load(feature_file) as stored:
        features, labels = stored["features"], stored["labels"]
    features[7] = row
    np.savez(feature_file, features=features, labels=labels)
    code, stdout, stderr = here("evaluate", feature_file, "--ways", 3, "--queries", 2)
    assert (code, stdout) == (2, "")
    assert_one_line(stderr, *expected)


def test_a_word_that_is_no_number_ends_with_code_2():
    done = run("evaluate", "--episodes", "many")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "'--episodes'" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_command_with_a_result_has_json():
    group = typer.main.get_command(app)
    found = dict(group.commands)
    found |= {f"data {name}": each for name, each in found.pop("data").commands.items()}
    without = {
        name
        for name, command in found.items()
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert without == {"serve"}  # it runs until it is stopped
