"""Cells are measured once, kept under a key of all they depend on, also when interrupted."""

import ast
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fewlabels.errors import FileFormatError
from fewlabels.evaluation import evaluate
from fewlabels.paper.ledger import (
    CELLS,
    PACKAGE,
    Ledger,
    code_files,
    digest_code,
    group_experiments,
    make_experiment,
)
from fewlabels.paper.library import FeatureSource, Library

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "features" / "cifar-fs-wrn28-10"
NOVEL, VAL = FeatureSource("cifar-fs", "wrn28-10"), FeatureSource("cifar-fs", "wrn28-10", "val")


def test_a_cell_is_what_evaluate_finds(ledger):
    experiment = make_experiment(NOVEL, "map", n_shot=5)
    ledger.measure([experiment])
    (direct,) = evaluate(
        [experiment.method], ledger.library.load(NOVEL), n_shot=5, n_episodes=12, draws="authors"
    )
    cell = ledger.find(experiment)
    assert cell["accuracy"] == round(direct.accuracy, 4)
    assert cell["settings"]["alpha"] == 0.2
    assert cell["features"]["fingerprint"] == ledger.library.load(NOVEL).fingerprint
    assert "cores" in cell["machine"]


def test_the_papers_settings_of_the_dataset_are_used():
    assert make_experiment(NOVEL, "map").method.settings["alpha"] == 0.3
    assert make_experiment(FeatureSource("cub", "wrn28-10"), "map").method.settings["alpha"] == 0.4
    assert str(make_experiment(NOVEL, "map-without-pt").method.pipeline) == "center | unit"


def test_known_cells_are_not_measured_again(ledger, artifacts):
    experiments = [make_experiment(NOVEL, variant) for variant in ("ncm", "map")]
    ledger.measure(experiments[:1])
    written = (ledger.folder / CELLS).read_bytes()
    done = []
    later = Ledger(ledger.folder, Library(artifacts), n_episodes=12, on_progress=done.append)
    later.measure(experiments[:1])
    assert done == []
    assert (ledger.folder / CELLS).read_bytes() == written
    later.measure([*experiments, *experiments])
    assert sum(done) == 12


def test_the_key_names_all_that_a_cell_depends_on(ledger):
    experiment = make_experiment(NOVEL, "map")
    others = [
        make_experiment(VAL, "map"),
        make_experiment(NOVEL, "kmeans"),
        make_experiment(NOVEL, "map-without-pt"),
        make_experiment(NOVEL, "map", n_shot=5),
        make_experiment(NOVEL, "map", beta=0.3),
        make_experiment(NOVEL, "map", lam=5.0),
        make_experiment(NOVEL, "map", prior="truth"),
        replace(experiment, queries="10"),
        replace(experiment, n_way=2),
        replace(experiment, draws="own"),
    ]
    keys = [ledger.key(each) for each in (experiment, *others)]
    keys += [
        Ledger(ledger.folder, ledger.library, n_episodes=12, seed=1).key(experiment),
        Ledger(ledger.folder, ledger.library).key(experiment),
    ]
    assert len(set(keys)) == len(keys)
    assert (
        ledger.key(make_experiment(NOVEL, "map", beta=0.5, lam=10.0, alpha=0.3)) == keys[0]
    )  # the paper's own values


def test_the_key_names_the_code_that_computed_a_cell(ledger):
    experiment = make_experiment(NOVEL, "map")
    before = ledger.key(experiment)
    assert ledger.code == digest_code()
    ledger.code = "another"
    assert ledger.key(experiment) != before


def test_cells_of_other_code_are_taken_only_if_asked_for_and_replaced(ledger, artifacts):
    experiments = [make_experiment(NOVEL, variant) for variant in ("ncm", "map")]
    ledger.code = "another"
    ledger.measure(experiments)
    known = json.loads((ledger.folder / CELLS).read_text())
    stored = Ledger(ledger.folder, Library(artifacts), n_episodes=12, stored=True)
    assert stored.to_measure(experiments) == []
    assert [stored.find(each) for each in experiments] == [*map(ledger.find, experiments)]
    now = Ledger(ledger.folder, Library(artifacts), n_episodes=12)
    assert now.to_measure(experiments) == experiments
    now.measure(experiments[:1])
    written = json.loads((ledger.folder / CELLS).read_text())
    assert len(written) == 2
    assert len(written.keys() & known.keys()) == 1


@pytest.fixture
def package(tmp_path):
    """A copy of the source of the package."""
    return shutil.copytree(PACKAGE, tmp_path / "copy", ignore=lambda *_: ["__pycache__"])


@pytest.mark.parametrize(
    "name",
    [
        "methods/map.py",
        "fitting.py",
        "evaluation/sampling.py",
        "kernels/cpu.py",
        "transport/new.py",
    ],
)
def test_a_change_of_the_code_that_computes_changes_the_digest(package, name):
    assert digest_code(package) == digest_code()
    with (package / name).open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert digest_code(package) != digest_code()


def test_a_file_of_another_name_changes_the_digest(package):
    (package / "methods" / "map.py").rename(package / "methods" / "zap.py")
    assert digest_code(package) != digest_code()


@pytest.mark.parametrize("name", ["paper/page.py", "cli/reproduce.py", "evaluation/tables.py"])
def test_a_change_of_other_code_does_not(package, name):
    (package / name).write_text("# changed", encoding="utf-8")
    assert digest_code(package) == digest_code()


def test_all_that_an_evaluation_imports_is_in_the_digest():
    parts = ("evaluation", "methods", "transport", "preprocess", "kernels", "fitting.py")
    found, waiting = set(), [PACKAGE / "evaluation" / "run.py", PACKAGE / "evaluation" / "fused.py"]
    while waiting:
        path = waiting.pop()
        relative = path.relative_to(PACKAGE)
        if path in found or relative.parts[0] not in parts or path.name == "__init__.py":
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("fewlabels."):
                folder = PACKAGE.joinpath(*str(node.module).split(".")[1:])
                names = [alias.name for alias in node.names]
                candidates = [folder.with_suffix(".py"), *(folder / f"{name}.py" for name in names)]
                waiting += [each for each in candidates if each.is_file()]
    assert len(found) > 20
    assert found <= set(code_files())


def test_an_interruption_keeps_what_is_done(ledger, artifacts):
    experiments = [make_experiment(NOVEL, "ncm", n_shot=n_shot) for n_shot in (1, 5)]
    calls = []

    def interrupt(_):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    ledger.on_progress = interrupt
    with pytest.raises(KeyboardInterrupt):
        ledger.measure(experiments)
    again = Ledger(ledger.folder, Library(artifacts), n_episodes=12)
    assert len(again.to_measure(experiments)) == 1
    assert again.find(experiments[0])["n_episodes"] == 12


def test_features_that_are_not_here_are_not_measured(ledger):
    experiment = make_experiment(FeatureSource("cub", "wrn28-10"), "map")
    ledger.measure([experiment])
    assert ledger.find(experiment) is None
    assert not (ledger.folder / CELLS).exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 1}'])
def test_a_damaged_file_of_cells_is_said(ledger, artifacts, content):
    (ledger.folder / CELLS).write_text(content)
    with pytest.raises(FileFormatError, match="Delete it to measure again"):
        Ledger(ledger.folder, Library(artifacts))


def test_cells_are_plain_json(ledger):
    ledger.measure([make_experiment(NOVEL, "ncm")])
    (cell,) = json.loads((ledger.folder / CELLS).read_text()).values()
    assert {
        "accuracy",
        "ci95",
        "draws",
        "seed",
        "episode_hash",
        "pipeline",
        "settings",
        "versions",
        "engine",
        "machine",
    } <= cell.keys()


@pytest.mark.skipif(not SHARED.is_dir(), reason="the answers of the authors' script are not here")
@pytest.mark.parametrize(("setting", "n_shot"), [("s1_a0.3", 1), ("s5_a0.2", 5)])
def test_map_agrees_with_the_authors_script_on_all_its_episodes(tmp_path, setting, n_shot):
    mean, half = np.ravel(np.load(SHARED / "golden.npz")[f"{setting}_mean_ci"])
    scale = 100 if mean <= 1 else 1
    ledger = Ledger(tmp_path, Library(tmp_path, {NOVEL: SHARED / "novel.npy"}, per_class=600))
    ledger.measure([make_experiment(NOVEL, "map", n_shot=n_shot)])
    (cell,) = ledger.cells.values()
    assert cell["n_episodes"] == 10_000
    assert cell["accuracy"] == pytest.approx(
        scale * mean, abs=0.02
    )  # its float32 stops early in a few plans of 10,000
    assert cell["ci95"] == pytest.approx(scale * half, abs=0.01)


def test_experiments_that_share_their_preprocessing_are_measured_together():
    own = ("ncm-raw", "ncm", "kmeans", "map", "map-without-pt")
    experiments = [make_experiment(NOVEL, variant) for variant in own] + [
        make_experiment(NOVEL, "map", alpha=alpha) for alpha in (0.1, 0.5)
    ]
    groups = group_experiments([*experiments, make_experiment(NOVEL, "map", beta=0.3)])
    assert [len(group) for group in groups] == [2, 1, 5]
    assert all(len({each.method.pipeline.rowwise for each in group}) == 1 for group in groups)
    assert all(group[0].method.name == "map" for group in groups)
    # the first computes what the others share, so that its time is the time of a run
    assert groups[-1][0] == make_experiment(NOVEL, "map")
    many = [make_experiment(NOVEL, "map", lam=float(lam)) for lam in range(1, 24)]
    assert [len(group) for group in group_experiments(many)] == [10, 10, 3]
