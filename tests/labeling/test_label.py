"""label_folder, and how often a command lists the folder."""

import csv
import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fewlabels.data import read_images
from fewlabels.errors import FileFormatError, InputError
from fewlabels.features import FeatureSet
from fewlabels.labeling import label_folder, predict_images
from fewlabels.labeling.inputs import read_inputs
from fewlabels.labeling.outcome import label_inputs, suggest_next
from fewlabels.labeling.outputs import LabelRow
from fewlabels.labeling.session import Session, open_session

CPU = {"device": "cpu", "n_workers": 0}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEWLABELS_CACHE", str(tmp_path / "cache"))


def test_it_writes_what_it_returns(photos, few, encoder, tmp_path):
    outcome = label_folder(
        str(photos),
        str(few),
        output=tmp_path / "labels.csv",
        model=tmp_path / "m.safetensors",
        report=tmp_path / "r.html",
        copy_to=tmp_path / "sorted",
        truth=few,
        backbone=encoder,
        **CPU,
    )
    with (tmp_path / "labels.csv").open(newline="") as file:
        written = [(row["path"], row["label"]) for row in csv.DictReader(file)]
    assert written == [(row.path, row.label) for row in outcome.rows]
    assert len(written) == 24
    assert len(list((tmp_path / "sorted").rglob("*.png"))) == 24
    assert outcome.inputs.truth == outcome.inputs.labels
    assert (tmp_path / "r.html").is_file()
    rows, _ = predict_images(tmp_path / "m.safetensors", [photos / "leek-6.png"], device="cpu")
    assert rows[0].label == "leek"
    again = label_folder(photos, few, copy_to=tmp_path / "sorted", backbone=encoder, **CPU)
    assert not any("other files" in remark for remark in again.remarks)
    (tmp_path / "sorted" / "leek" / "mine.txt").touch()
    again = label_folder(photos, few, copy_to=tmp_path / "sorted", backbone=encoder, **CPU)
    assert again.remarks[-1].startswith(f"{tmp_path / 'sorted'} holds 1 other files")


def test_every_photograph_has_a_row_even_if_it_cannot_be_read(photos, few, encoder, tmp_path):
    (photos / "bad.jpg").write_text("no image")
    (photos / "empty.png").touch()
    table = tmp_path / "labels.csv"
    outcome = label_folder(photos, few, output=table, backbone=encoder, **CPU)
    with table.open(newline="") as file:
        rows = {row["path"]: row for row in csv.DictReader(file)}
    assert len(rows) == 26
    for name in ("bad.jpg", "empty.png"):
        assert (rows[name]["label"], rows[name]["guess"], rows[name]["origin"]) == ("", "", "")
    assert len(outcome.rows) == 24
    # It is overwritten without a question, as no person wrote in it; and it can be given back.
    label_folder(photos, few, output=table, backbone=encoder, **CPU)
    assert not list(tmp_path.glob("labels.before*"))
    again = label_folder(photos, table, backbone=encoder, **CPU)
    assert [row.label for row in again.rows] == [row.label for row in outcome.rows]


def test_errors_name_the_argument(photos, few, tmp_path):
    for arguments, words in (
        ({"output": few}, "output must not be .*, which is labels already"),
        ({"output": "x.txt"}, "^output must end in .csv or .parquet"),
        ({"abstain": 90}, "^abstain must be a confidence"),
        ({"link_to": photos / "x"}, "^link_to must not lie inside"),
        ({"method": "laplacian"}, "^method must be one of"),
        ({"method": "map-auto-mean"}, "must not need the mean of images of other classes.*Use"),
        (
            {"method": "map-truth"},
            "must not need the true class sizes.*'map-truth'. Use 'map-auto'",
        ),
        ({"truth": "nowhere.csv"}, "^truth must be 'folders' or a CSV file"),
    ):
        with pytest.raises((InputError, FileFormatError), match=words):
            label_folder(photos, few, backbone="never-reached", **arguments)
    with pytest.raises(FileFormatError, match="does not exist"):
        label_folder(tmp_path / "nowhere", copy_to=tmp_path / "sorted")
    assert not (tmp_path / "sorted").exists()


@pytest.fixture
def features(tmp_path, blobs, hide) -> Path:
    path = tmp_path / "f.npz"
    names = np.array(blobs.class_names)
    np.savez(path, features=blobs.features, labels=hide(blobs.labels, 2), class_names=names)
    return path


def test_settings_reach_the_method(features, tmp_path):
    default = label_folder(features, method="map-folder")
    settings = {"method": "map-folder", "settings": {"lam": "30"}}
    sharp = label_folder(features, model=tmp_path / "m.safetensors", **settings)
    assert default.summary()["method"] == sharp.summary()["method"]
    assert sharp.answer.fitted.lam == 30
    assert default.answer.fitted.lam != 30
    session = open_session(tmp_path / "p", photos=features, **settings)
    try:
        np.testing.assert_array_equal(
            session.state.answer.probabilities, sharp.answer.probabilities
        )
    finally:
        session.close()


def test_an_accuracy_chooses_the_confidence(features, tmp_path):
    def right(outcome):
        kept = [row for row in outcome.rows if row.origin == "model"]
        return len(kept), float(np.mean([row.confidence for row in kept]))

    n_all, _ = right(label_folder(features))
    outcome = label_folder(features, accuracy=0.97, output=tmp_path / "x.csv")
    n, expected = right(outcome)
    assert 0 < n < n_all
    assert expected >= 0.97 - 1e-4  # of rounding
    left_out = [row for row in outcome.rows if not row.origin]
    assert all(row.guess and not row.label for row in left_out)
    assert max(row.confidence for row in left_out) <= min(
        row.confidence for row in outcome.rows if row.origin == "model"
    )
    assert any("expected accuracy of 97%" in remark for remark in outcome.remarks)
    for wrong in ({"accuracy": 95}, {"accuracy": 0.9, "abstain": 0.5}):
        with pytest.raises(InputError, match="accuracy must be above 0"):
            label_folder(features, **wrong)


def test_an_accuracy_needs_a_label_to_hide(tmp_path):
    FeatureSet.from_arrays(np.eye(4), ["a", "b", None, None]).save(tmp_path / "f.safetensors")
    with pytest.raises(InputError, match=r"accuracy=0\.9 needs two labels of a class"):
        label_folder(tmp_path / "f.safetensors", accuracy=0.9)


def test_unknown_methods_and_knobs_are_refused(features, tmp_path):
    inputs = read_inputs(features)
    for use in (
        lambda **chosen: label_folder(features, **chosen),
        lambda **chosen: label_inputs(inputs, **chosen),
        lambda **chosen: suggest_next(inputs, n=3, **chosen),
        lambda **chosen: open_session(tmp_path / "p", photos=features, **chosen),
    ):
        with pytest.raises(InputError, match=r"method must be one of .*, got 'laplacian'"):
            use(method="laplacian")
        with pytest.raises(InputError, match="'folder' has no knobs, got 'gamma'"):
            use(settings={"gamma": "1"})
    assert not (tmp_path / "p").exists()


LISTED: Counter[str] | None = None  # by folder, while somebody counts


def count_listings(use: Callable[[], object]) -> Counter[str]:
    global LISTED
    LISTED = Counter()
    try:
        use()
        return LISTED
    finally:
        LISTED = None


@sys.addaudithook
def count_listing(event, arguments):
    if LISTED is not None and event in ("os.scandir", "os.listdir"):
        LISTED[str(arguments[0])] += 1


def test_a_project_lists_its_folder_once_per_command(photos, few, tmp_path, extraction):
    (photos / "leek").mkdir()
    (photos / "leek-5.png").rename(photos / "leek" / "leek-5.png")
    once = count_listings(lambda: read_images(photos))
    assert once[str(photos / "leek")] == 1
    serve = {"labels": few, "extraction": extraction}
    begun = count_listings(lambda: open_session(tmp_path / "p", photos=photos, **serve).close())
    assert begun[str(photos / "leek")] == 1
    shutil.copy(photos / "apple-0.png", photos / "new.png")
    for use in (
        lambda: open_session(tmp_path / "p", labels=few).close(),
        lambda: label_folder(tmp_path / "p"),
    ):
        listed = count_listings(use)
        assert {folder: listed[folder] for folder in once} == once


def test_images_that_a_person_marked_as_of_no_class_have_no_label(make_project, tmp_path):
    project = make_project()
    session = Session(project)
    none, skipped = 50, 51
    session.decide([none], None, mark="none")
    session.decide([skipped], None, mark="skip")
    downloaded = session.rows()
    session.close()
    names = session.collection.names
    outcome = label_folder(
        project.folder,
        output=tmp_path / "labels.csv",
        label_studio=tmp_path / "tasks.json",
        report=tmp_path / "r.html",
        **CPU,
    )
    marked = LabelRow(names[none], "", 1.0, "", 1.0, "person")
    assert outcome.rows[none] == downloaded[none] == marked
    assert [row.label for row in outcome.rows] == [row.label for row in downloaded]
    assert outcome.rows[skipped].origin == "model"
    with (tmp_path / "labels.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    assert (written[none]["label"], written[none]["none_of_these"]) == ("", "1.0")
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert [row for row, task in enumerate(tasks) if task.keys() == {"data"}] == [none]
    given = [row for row, task in enumerate(tasks) if "annotations" in task]
    assert given == [row for row, each in enumerate(outcome.rows) if each.origin == "import"]
    assert none not in outcome.outliers
    assert not {names[none], names[skipped]} & set(outcome.suggest(len(names)))
    assert not {names[none], names[skipped]} & set(suggest_next(outcome.inputs, n=len(names))[0])
    found = outcome.summary()
    assert (found["given"], found["of_no_class"], found["left_out"]) == (8, 1, 0)
    assert found["labelled"] == sum(found["classes"].values()) - 8 == len(names) - 9
    assert sum(size["expected"] for size in found["class_sizes"].values()) == pytest.approx(
        len(names) - 1, abs=0.3
    )
    assert "1 of no class as you said" in outcome.describe()
    assert "of no class, as you said" in (tmp_path / "r.html").read_text()
    truth = dict.fromkeys(names, "c0")
    assert outcome.score(truth).n == len(names) - 9
    assert outcome.unscored(truth) == (0, {})
