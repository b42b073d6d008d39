"""Projects and models written when the program was called ptmap (old_project/README.md)."""

import csv
import gzip
import shutil
from pathlib import Path

import numpy as np
import pytest

from fewlabels.labeling.predict import predict_images
from fewlabels.labeling.project import Project
from fewlabels.labeling.session import Session

HERE = Path(__file__).parent / "old_project"


@pytest.fixture
def old_project(tmp_path) -> Path:
    folder = tmp_path / "groceries.ptmap"
    folder.mkdir()
    shutil.copy(HERE / "features.safetensors", folder)
    (folder / "project.sqlite").write_bytes(
        gzip.decompress((HERE / "project.sqlite.gz").read_bytes())
    )
    return folder


DECIDED = {
    "row 0": ("Granny Smith", "person"),
    "row 1": ("apple", "import"),
    "row 8": ("leek", "import"),
    "row 9": ("leek", "import"),
    "row 12": ("leek", "person"),
    "row 13": ("leek", "person"),
    "row 17": ("plum", "import"),
}


def test_an_old_project_opens_with_all_its_decisions(old_project):
    with Project.open(old_project) as project:
        assert project.title == "rows"
        assert project.root is None
        current = project.journal.current
        assert {name: decided[:2] for name, decided in current.items()} == DECIDED
        assert current["row 0"].time == "2026-11-16T02:16:29.145+00:00"
        assert [entry["undone"] for entry in project.journal.history("row 20")] == [
            "2026-11-16T02:16:29.292+00:00"
        ]
        assert len(project.journal.model_labels) == 17
        np.testing.assert_array_equal(project.load().features, np.load(HERE / "rows.npy"))


def test_work_on_an_old_project_goes_on(old_project):
    session = Session(Project.open(old_project, write=True))
    try:
        assert session.state.class_names == ("apple", "leek", "plum", "Granny Smith")
        session.decide([20], "plum")
        assert session.undo()[1] == [20]
        assert session.undo()[1] == [16]  # what was done before the program got its new name
        rows = {row.path: (row.label, row.origin) for row in session.rows()}
    finally:
        session.close()
    assert rows["row 16"] == ("plum", "import")
    assert {name: rows[name] for name in DECIDED} == DECIDED


def test_an_old_model_predicts_as_before():
    rows, _ = predict_images(HERE / "model.safetensors", [HERE / "rows.npy"])
    with (HERE / "predictions.csv").open(newline="") as file:
        expected = list(csv.DictReader(file))
    assert [(row.path, row.label, row.runner_up) for row in rows] == [
        (row["path"], row["label"], row["runner_up"]) for row in expected
    ]
    assert [row.confidence for row in rows] == pytest.approx(
        [float(row["confidence"]) for row in expected], abs=2e-4
    )
