"""Projects whose photographs were moved, renamed or copied: labels follow the content."""

import shutil
import time

import pytest

from fewlabels import export_labels, label_folder
from fewlabels.data import read_images
from fewlabels.errors import InputError
from fewlabels.io.cache import linked_roots
from fewlabels.labeling.exports.export import find_items
from fewlabels.labeling.inputs import read_inputs
from fewlabels.labeling.moved import file_stamp
from fewlabels.labeling.project import Project
from fewlabels.labeling.session import open_session


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEWLABELS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def project(photos, few, extraction, tmp_path):
    """A project with six labels of a file, two decisions and a mark, whose images are then moved.

    All are in another folder, most with another name, two with each other's, and one is gone.
    """
    with read_inputs(photos, labels=few, extraction=extraction).begin_project(tmp_path / "p") as it:
        it.journal.decide({"apple-7.png": "apple", "plum-7.png": "plum"}, origin="person")
        it.journal.decide({"leek-7.png": None}, origin="person", mark="none")
    new = tmp_path / "disk 2" / "2024"
    (new / "sorted").mkdir(parents=True)
    for path in sorted(photos.iterdir()):
        if path.name.startswith("apple"):
            shutil.copy(path, new / path.name)  # with another time
        else:
            shutil.copy2(path, new / "sorted" / f"IMG_{path.name}")
    (new / "apple-0.png").rename(new / "x.png")
    (new / "apple-7.png").rename(new / "apple-0.png")
    (new / "x.png").rename(new / "apple-7.png")
    (new / "sorted" / "IMG_leek-0.png").unlink()
    shutil.rmtree(photos)
    return tmp_path / "p"


EXPECTED = {  # label and origin by the names that the images have now
    "apple-7.png": ("apple", "import"),  # was apple-0.png
    "apple-1.png": ("apple", "import"),
    "apple-0.png": ("apple", "person"),  # was apple-7.png
    "sorted/IMG_leek-1.png": ("leek", "import"),
    "sorted/IMG_plum-0.png": ("plum", "import"),
    "sorted/IMG_plum-1.png": ("plum", "import"),
    "sorted/IMG_plum-7.png": ("plum", "person"),
    "leek-0.png": ("leek", "import"),  # its image is gone
}


def test_decisions_follow_the_content(project, extraction, tmp_path):
    said = []
    new = tmp_path / "disk 2" / "2024"
    with Project.open(project) as before:
        features = before._load_features()
    rows = dict(zip(features.names, features.features, strict=True))
    session = open_session(project, photos=new, extraction=extraction, on_remark=said.append)
    try:
        current = session.project.journal.current
        assert {name: each[:2] for name, each in current.items()} == EXPECTED
        assert session.project.journal.marks == {"sorted/IMG_leek-7.png": "none"}
        assert set(session.collection.names) == set(read_images(new).names)
        moved = session.collection.rows["apple-0.png"]
        assert (session.collection.features[moved] == rows["apple-7.png"]).all()
        assert any(f"23 of 24 images found in {new}." in each for each in said)
        assert any("17 images moved or renamed since" in each for each in said)
    finally:
        session.close()
    # Nothing is left to do the next time, and the plain-text copy tells the same.
    said.clear()
    open_session(project, extraction=extraction, on_remark=said.append).close()
    assert not any("renamed" in each for each in said)
    (project / "project.sqlite").unlink()
    Project.repair(project)
    with Project.open(project) as again:
        assert {name: each[:2] for name, each in again.journal.current.items()} == EXPECTED


def test_projects_of_before_are_matched_by_size_and_time(project, extraction, tmp_path):
    with Project.open(project, write=True) as it:
        stamps = it.journal.stamps
        assert all(len(each.split()) == 3 for each in stamps.values())
        it.journal.add_items({name: file_stamp(stamp) for name, stamp in stamps.items()})
    new = tmp_path / "disk 2" / "2024"
    session = open_session(project, photos=new, extraction=extraction)
    try:
        current = session.project.journal.current
    finally:
        session.close()
    # Copies with another time are known by their names only.
    assert {name: each.label for name, each in current.items()} == {
        name: label for name, (label, _) in EXPECTED.items()
    }
    assert current["apple-7.png"].origin == "person"


def test_exports_follow_without_changing_the_project(project, extraction, tmp_path):
    new = tmp_path / "disk 2" / "2024"
    digest = (project / "decisions.jsonl").read_bytes()
    for form in ("csv", "imagefolder"):
        done = export_labels(project, to=form, output=tmp_path / form, photos=new)
    assert done.counts == {"": 7}
    assert (tmp_path / "imagefolder" / "plum" / "IMG_plum-7.png").is_file()
    assert (project / "decisions.jsonl").read_bytes() == digest
    items = {item.path: (item.label, item.origin) for item in find_items(project, photos=new).items}
    assert {name: each for name, each in items.items() if each[0]} == EXPECTED
    assert export_labels(project, to="csv", output=tmp_path / "labels only").counts == {"": 24}


def test_a_name_that_another_image_has_now(photos, few, extraction, tmp_path):
    with read_inputs(photos, labels=few, extraction=extraction).begin_project(tmp_path / "p"):
        pass
    (photos / "apple-0.png").replace(photos / "plum-0.png")
    session = open_session(tmp_path / "p", extraction=extraction)
    try:
        current = {name: each.label for name, each in session.project.journal.current.items()}
        assert current["plum-0.png"] == "apple"
        assert current["plum-0.png (gone)"] == "plum"
        assert "apple-0.png" not in current
    finally:
        session.close()


def test_another_folder_is_refused(project, extraction, tmp_path):
    (tmp_path / "other").mkdir()
    shutil.copy(tmp_path / "disk 2" / "2024" / "apple-1.png", tmp_path / "other" / "other.png")
    with (tmp_path / "other" / "other.png").open("ab") as file:
        file.write(b"!")
    with pytest.raises(InputError, match="photos must hold images of"):
        open_session(project, photos=tmp_path / "other", extraction=extraction)


def test_what_link_to_wrote_is_read_again(photos, few, encoder, tmp_path, monkeypatch):
    how = {"backbone": encoder, "device": "cpu", "n_workers": 0}
    label_folder(photos, few, link_to=tmp_path / "linked", **how)
    images = read_images(tmp_path / "linked")
    assert (len(images), images.problems) == (24, ())
    outcome = label_folder(tmp_path / "linked", copy_to=tmp_path / "copied", **how)
    assert len(outcome.rows) == 24
    assert len(list((tmp_path / "copied").rglob("*.png"))) == 24
    export_labels(tmp_path / "linked", to="imagefolder", output=tmp_path / "again", link=True)
    assert len(read_images(tmp_path / "again")) == 24
    # Links of anybody else still show nothing.
    (tmp_path / "private").mkdir()
    (photos / "apple-0.png").rename(tmp_path / "private" / "secret.png")
    (tmp_path / "linked" / "apple" / "x.png").symlink_to(tmp_path / "private" / "secret.png")
    assert "apple/x.png" not in read_images(tmp_path / "linked").names
    monkeypatch.setenv("FEWLABELS_CACHE", str(tmp_path / f"cache {time.time_ns()}"))
    assert linked_roots(tmp_path / "linked") == ((tmp_path / "linked").resolve(),)
