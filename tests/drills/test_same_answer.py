"""The same answer: whatever the threads, the precision, the caches, the language, the terminal.

On commit 7d831a6 a process without a folder to write compiled code to ended in a traceback, as did
one whose stdout was full or knew only ASCII; at 40 columns names of methods were hidden; `fit` in a
forked child hung after a `fit` with several threads.
"""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fewlabels import PTMAP, FewLabelsClassifier, NearestClassMean, SeededKMeans, fit
from fewlabels.cli.console import print_table
from fewlabels.evaluation.tables import Table
from fewlabels.features import FeatureSet, load_embedded
from fewlabels.preprocess.power_rule import suggest_power

ROWS = np.random.default_rng(0).gamma(1.0, size=(60, 12))
LABELS = [f"class {i % 3}" for i in range(9)]


def run(arguments, *, redirect="", **environment):
    program = f'"{sys.executable}" -m fewlabels {" ".join(map(str, arguments))} {redirect}'
    return subprocess.run(
        ["bash", "-c", program],
        capture_output=True,
        check=False,
        env={**os.environ, **environment},
        timeout=600,
    )


def accuracies(done) -> list[float]:
    assert done.returncode == 0, done.stderr
    return [each["accuracy"] for each in json.loads(done.stdout)["results"]]


def test_threads_do_not_change_the_answer(features):
    words = ["evaluate", features, "--episodes", 50, "--method", "map", "--json"]
    one, eight = (
        accuracies(run(words, OMP_NUM_THREADS=n, NUMBA_NUM_THREADS=n)) for n in ("1", "8")
    )
    assert one == eight


CPUS = [  # what libraries compute with on other processors, or with other threads
    {"ATEN_CPU_CAPABILITY": "default", "OPENBLAS_CORETYPE": "Haswell", "MKL_CBWR": "COMPATIBLE"},
    {"OMP_NUM_THREADS": "8", "NUMBA_NUM_THREADS": "8", "MKL_NUM_THREADS": "8"},
    {"ATEN_CPU_CAPABILITY": "avx2", "OPENBLAS_CORETYPE": "Zen"},
    {"OPENBLAS_CORETYPE": "SkylakeX", "MKL_CBWR": "AVX2"},
    {"MKL_DEBUG_CPU_TYPE": "5", "MKL_CBWR": "AUTO"},
    {"OPENBLAS_CORETYPE": "Prescott", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
]


def test_other_kinds_of_cpu(drill, tmp_path):
    """Real features: the same labels and accuracies, confidences as ARCHITECTURE.md promises."""
    embedded = load_embedded()
    rows = np.flatnonzero(np.isin(embedded.labels, np.unique(embedded.labels)[:5]))
    few = np.where(np.arange(len(rows)) % 20 == 0, embedded.labels[rows], -1)
    some = FeatureSet.from_arrays(embedded.features[rows], few, embedded.class_names)
    some.save(tmp_path / "some.safetensors")
    label = ["label", tmp_path / "some.safetensors", "--output", tmp_path / "labels.csv"]
    evaluate = ["evaluate", "--episodes", 200, "--json", "--method", "map"]

    def answer(environment):
        alone = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        done = run(label, **{**alone, **environment})
        assert done.returncode == 0, done.stderr
        table = list(csv.DictReader((tmp_path / "labels.csv").read_text().splitlines()))
        found = accuracies(run(evaluate, **{**alone, **environment}))
        confidences = np.array([float(row["confidence"]) for row in table])
        return [row["label"] for row in table], confidences, found

    labels, confidences, wanted = answer({})
    for number, _ in enumerate(drill.tries("other kinds of CPU", 2, len(CPUS))):
        again = answer(CPUS[number])
        far = float(abs(again[1] - confidences).max())
        changed = sum(map(str.__ne__, again[0], labels))
        good = not changed and far <= 1e-3 and again[2] == wanted
        drill.judge(good, f"{CPUS[number]}: {changed} labels, {far}, {again[2]} for {wanted}")


def test_precision_does_not_change_the_labels():
    found = [
        fit("map", rows[:9], LABELS, rows[9:]).labels.tolist()
        for rows in (ROWS.astype(np.float32), ROWS)
    ]
    assert found[0] == found[1]


def test_a_terminal_that_knows_little_changes_nothing(features, tmp_path):
    """LANG=C, ASCII, no home, no cache: the same answer. Commit 7d831a6: UnicodeEncodeError."""
    words = ["evaluate", features, "--episodes", 5, "--engine", "torch", "--json"]
    plain = accuracies(run(words))
    nowhere = tmp_path / "file"
    nowhere.touch()
    strange = {"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "HOME": str(nowhere)}
    strange |= {"XDG_CACHE_HOME": str(nowhere / "x"), "FEWLABELS_CACHE": str(nowhere / "y")}
    assert accuracies(run(words, **strange)) == plain
    done = run(words[:-1], **strange)  # the table has a plus-minus sign
    assert done.returncode == 0, done.stderr
    assert b"%" in done.stdout


@pytest.mark.parametrize(
    ("redirect", "code", "said"),
    [(">&-", 0, b""), (">/dev/full", 2, b"cannot be"), ("| head -c 1", 0, b"")],
)
def test_a_stdout_that_is_gone(features, redirect, code, said):
    """Commit 7d831a6: tracebacks."""
    if "full" in redirect and not Path("/dev/full").exists():
        pytest.skip("needs /proc")
    done = run(["evaluate", features, "--episodes", 5, "--engine", "torch"], redirect=redirect)
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    assert said in done.stderr


def test_forty_columns_hide_nothing(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    header = ["method", "shots", "accuracy", "episodes", "seconds"]
    row = ["PT+LaplacianShot", "1", "78.87 ± 6.62", "10000", "0.3"]
    print_table(Table("title", header, [[row]], "caption"))
    shown = "".join(capsys.readouterr().out.split())
    for letter in "PT+LaplacianShot":
        assert letter in shown
    assert "…" not in shown


def test_huge_numbers_and_tensors_with_gradients_are_answered():
    """Commit 7d831a6: OverflowError, and RuntimeError in four estimators."""
    assert str(suggest_power(torch.tensor(ROWS * 1e300))) == str(suggest_power(torch.tensor(ROWS)))
    labels = np.array([0, 1, 2] * 3 + [-1] * 51)
    for kind in (PTMAP, FewLabelsClassifier):
        wanted = kind().fit(ROWS, labels).predict(ROWS)
        found = kind().fit(torch.tensor(ROWS, requires_grad=True), labels).predict(ROWS)
        np.testing.assert_array_equal(found, wanted)
    for kind in (NearestClassMean, SeededKMeans):
        rows = torch.tensor(ROWS[:9], requires_grad=True)
        kind().fit(rows, labels[:9]).predict(torch.tensor(ROWS, requires_grad=True))


FORKED = """
import os, signal
import numpy as np, torch
torch.set_num_threads(4)
from fewlabels import fit
x = np.random.default_rng(0).gamma(1, size=(2000, 200)).astype("f4")
def go():
    return fit("map", x[:50], [i % 5 for i in range(50)], x[50:]).labels.tolist()
wanted = go()
child = os.fork()
if child == 0:
    signal.alarm(300)
    os._exit(0 if go() == wanted else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
def test_fit_in_a_forked_child_answers():
    """Commit 7d831a6 hung: the child waited for threads that only the parent has."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], check=False)
    assert done.returncode == 0
