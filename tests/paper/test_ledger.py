"""Cells are measured once, kept by all they depend on, and survive an interruption."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fewlabels.errors import FileFormatError
from fewlabels.evaluation import evaluate
from fewlabels.paper.ledger import CELLS, Ledger, make_entry
from fewlabels.paper.library import Library, Source

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "features" / "cifar-fs-wrn28-10"
NOVEL, VAL = Source("cifar-fs", "wrn28-10"), Source("cifar-fs", "wrn28-10", "val")


def test_a_cell_is_what_evaluate_finds(ledger):
    entry = make_entry(NOVEL, "map", n_shot=5)
    ledger.measure([entry])
    (direct,) = evaluate(
        ledger.library.load(NOVEL), [entry.method], n_shot=5, n_episodes=12, draws="authors"
    )
    cell = ledger.find(entry)
    assert cell["accuracy"] == round(direct.accuracy, 4)
    assert cell["settings"]["alpha"] == 0.2
    assert cell["features"]["fingerprint"] == ledger.library.load(NOVEL).fingerprint
    assert "cores" in cell["machine"]


def test_the_papers_settings_of_the_dataset_are_used():
    assert make_entry(NOVEL, "map").method.settings["alpha"] == 0.3
    assert make_entry(Source("cub", "wrn28-10"), "map").method.settings["alpha"] == 0.4
    assert str(make_entry(NOVEL, "map-without-pt").method.pipeline) == "center | unit"


def test_known_cells_are_not_measured_again(ledger, artifacts):
    entries = [make_entry(NOVEL, recipe) for recipe in ("ncm", "map")]
    ledger.measure(entries[:1])
    written = (ledger.folder / CELLS).read_bytes()
    done = []
    later = Ledger(ledger.folder, Library(artifacts), n_episodes=12, on_progress=done.append)
    later.measure(entries[:1])
    assert done == []
    assert (ledger.folder / CELLS).read_bytes() == written
    later.measure([*entries, *entries])
    assert sum(done) == 12


def test_the_key_names_all_that_a_cell_depends_on(ledger):
    entry = make_entry(NOVEL, "map")
    others = [
        make_entry(VAL, "map"),
        make_entry(NOVEL, "kmeans"),
        make_entry(NOVEL, "map-without-pt"),
        make_entry(NOVEL, "map", n_shot=5),
        make_entry(NOVEL, "map", beta=0.3),
        make_entry(NOVEL, "map", lam=5.0),
        make_entry(NOVEL, "map", proportions="truth"),
        replace(entry, queries="10"),
        replace(entry, n_way=2),
        replace(entry, draws="own"),
    ]
    keys = [ledger.key(each) for each in (entry, *others)]
    keys += [
        Ledger(ledger.folder, ledger.library, n_episodes=12, seed=1).key(entry),
        Ledger(ledger.folder, ledger.library).key(entry),
    ]
    assert len(set(keys)) == len(keys)
    assert (
        ledger.key(make_entry(NOVEL, "map", beta=0.5, lam=10.0, alpha=0.3)) == keys[0]
    )  # the paper's own values


def test_an_interruption_keeps_what_is_done(ledger, artifacts):
    entries = [make_entry(NOVEL, "ncm", n_shot=n_shot) for n_shot in (1, 5)]
    calls = []

    def interrupt(_):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    ledger.on_progress = interrupt
    with pytest.raises(KeyboardInterrupt):
        ledger.measure(entries)
    again = Ledger(ledger.folder, Library(artifacts), n_episodes=12)
    assert len(again.to_measure(entries)) == 1
    assert again.find(entries[0])["n_episodes"] == 12


def test_features_that_are_not_here_are_not_measured(ledger):
    entry = make_entry(Source("cub", "wrn28-10"), "map")
    ledger.measure([entry])
    assert ledger.find(entry) is None
    assert not (ledger.folder / CELLS).exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 1}'])
def test_a_damaged_file_of_cells_is_said(ledger, artifacts, content):
    (ledger.folder / CELLS).write_text(content)
    with pytest.raises(FileFormatError, match="Delete it to measure anew"):
        Ledger(ledger.folder, Library(artifacts))


def test_cells_are_plain_json(ledger):
    ledger.measure([make_entry(NOVEL, "ncm")])
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
    ledger.measure([make_entry(NOVEL, "map", n_shot=n_shot)])
    (cell,) = ledger.cells.values()
    assert cell["n_episodes"] == 10_000
    assert cell["accuracy"] == pytest.approx(
        scale * mean, abs=0.02
    )  # its float32 stops early in a few plans of 10,000
    assert cell["ci95"] == pytest.approx(scale * half, abs=0.01)


def test_entries_that_share_their_preprocessing_are_measured_together(ledger, monkeypatch):
    groups = []
    evaluate_group = Ledger._evaluate
    monkeypatch.setattr(
        Ledger, "_evaluate", lambda self, group: groups.append(group) or evaluate_group(self, group)
    )
    recipes = ("ncm-raw", "ncm", "kmeans", "map", "map-without-pt")
    entries = [make_entry(NOVEL, recipe) for recipe in recipes] + [
        make_entry(NOVEL, "map", alpha=alpha) for alpha in (0.1, 0.5)
    ]
    ledger.measure([*entries, make_entry(NOVEL, "map", beta=0.3)])
    assert [len(group) for group in groups] == [2, 1, 5]
    assert all(len({entry.method.pipeline.rowwise for entry in group}) == 1 for group in groups)
    assert all(group[0].method.classifier == "map" for group in groups)
    assert groups[-1][0] == make_entry(
        NOVEL, "map"
    )  # pays for what the others share, so that its time is the time of a run
