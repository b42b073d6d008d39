"""`fewlabels check`."""

import json

import numpy as np
import pytest

from fewlabels.features import FeatureSet
from fewlabels.labeling.project import Project


@pytest.fixture
def project(tmp_path):
    rows = np.random.default_rng(0).gamma(1.0, size=(6, 3)).astype(np.float32)
    features = FeatureSet.from_arrays(rows, [-1] * 6, [], {}, [f"{i}.jpg" for i in range(6)])
    labels = {"0.jpg": "leek", "1.jpg": "plum"}
    Project.create(tmp_path / "p", features, title="t", labels=labels).close()
    return tmp_path / "p"


def test_a_whole_project_is_right(here, project):
    done = here("check", project)
    assert done.code == 0
    assert done.stdout.splitlines() == [
        "project.sqlite: right. 2 decisions about 6 items.",
        "decisions.jsonl: right. A copy of 2 decisions.",
        "features.safetensors: right. 6 rows; the digest is right.",
    ]


def test_damage_is_named_and_repaired(here, project):
    (project / "project.sqlite").write_bytes(b"x" * 4096)
    done = here("check", project, "--json")
    found = json.loads(done.stdout)
    assert (done.code, found["right"]) == (1, False)
    assert found["found"][0]["what"] == "project.sqlite"
    assert f"fewlabels check {project} --repair" in found["found"][0]["words"]
    assert [each["right"] for each in found["found"]] == [False, True, True]
    done = here("check", project, "--repair")
    assert done.code == 0
    assert "the old one is" in done.stderr
    with Project.open(project) as opened:
        assert {name: each.label for name, each in opened.journal.current.items()} == {
            "0.jpg": "leek",
            "1.jpg": "plum",
        }


def test_damaged_features_and_a_damaged_copy_are_named(here, project):
    path = project / "features.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    (project / "decisions.jsonl").write_text("nothing\n")
    done = here("check", project)
    assert done.code == 1
    assert "decisions.jsonl: WRONG. Line 1 is damaged" in done.stdout
    assert "features.safetensors: WRONG." in done.stdout
    done = here("check", project, "--repair")
    assert done.code == 2
    assert "has nothing to rebuild the project from" in done.stderr


def test_what_is_no_project_is_refused(here, tmp_path):
    assert "is not a labelling project" in here("check", tmp_path).stderr
    assert "does not exist" in here("check", tmp_path / "nowhere").stderr
