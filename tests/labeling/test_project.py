"""Projects: begun from inputs, kept up with their folder, opened again."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from fewlabels.data import read_images
from fewlabels.errors import FileFormatError, InputError
from fewlabels.labeling.inputs import read_inputs
from fewlabels.labeling.outcome import label_inputs
from fewlabels.labeling.project import Project
from fewlabels.labeling.session import open_session


def test_a_project_begins_grows_and_exports(photos, few, tmp_path, extraction):
    read_inputs(photos, labels=few, extraction=extraction).begin_project(tmp_path / "p").close()
    (photos / "apple-7.png").rename(photos / "apple-8.png")
    with Project.open(tmp_path / "p", write=True) as project:
        assert project.refresh(read_images(photos), extraction) == []
        assert len(project.load()) == 24
        collection = project.load()
        assert "apple-8.png" in collection.names
        assert "apple-7.png" not in collection.names
        assert project.import_labels({"apple-0.png": "apple", collection.names[3]: "pear"}) == (
            1,
            0,
        )
        project.journal.decide({"leek-5.png": "leek"}, origin="person")
    outcome = label_inputs(read_inputs(tmp_path / "p"))
    origins = {row.path: (row.label, row.origin) for row in outcome.rows}
    assert origins["leek-5.png"] == ("leek", "person")
    assert origins[collection.names[3]] == ("pear", "import")
    with pytest.raises(InputError, match="fewlabels serve"):
        read_inputs(tmp_path / "p", labels=few)


def test_a_changed_image_gets_new_features(photos, few, tmp_path, extraction):
    project = read_inputs(photos, labels=few, extraction=extraction).begin_project(tmp_path / "p")
    before = project.load()
    shutil.copy(photos / "plum-3.png", photos / "apple-3.png")
    project.refresh(read_images(photos), extraction)
    after = project.load()
    project.close()
    row = before.names.index("apple-3.png")
    assert not np.allclose(before.features[row], after.features[row])
    np.testing.assert_array_equal(
        after.features[row], after.features[after.names.index("plum-3.png")]
    )


def test_a_project_of_features_begins_again_with_the_same_features_only(tmp_path, blobs, hide):
    def start(name):
        open_session(tmp_path / "p", photos=tmp_path / name).close()

    np.savez(
        tmp_path / "f.npz",
        features=blobs.features,
        labels=hide(blobs.labels, 2),
        class_names=np.array(blobs.class_names),
    )
    np.savez(tmp_path / "other.npz", features=blobs.features + 1, labels=blobs.labels)
    start("f.npz")
    start("f.npz")
    (tmp_path / "f.npz").rename(tmp_path / "moved.npz")
    start("moved.npz")
    for other in ("other.npz", ""):
        with pytest.raises(InputError, match="is a project of features, not of"):
            start(other)


def test_photos_that_came_since_are_said(photos, few, tmp_path, extraction):
    (photos / "broken.png").write_bytes(b"nothing")  # was there before, and still cannot be read
    read_inputs(photos, labels=few, extraction=extraction).begin_project(tmp_path / "p").close()
    assert read_inputs(tmp_path / "p").remarks == ()
    shutil.copy(photos / "plum-3.png", photos / "new.png")
    said = (
        f"1 photo was added or changed since: run `fewlabels serve {tmp_path / 'p'}` to include it."
    )
    assert read_inputs(tmp_path / "p").remarks == (said,)
    (photos / "apple-0.png").touch()
    assert "2 photos" in read_inputs(tmp_path / "p").remarks[0]
    open_session(tmp_path / "p", photos=photos, extraction=extraction).close()
    assert read_inputs(tmp_path / "p").remarks == ()
    shutil.copy(photos / "plum-3.png", photos / "broken.png")
    assert "1 photo" in read_inputs(tmp_path / "p").remarks[0]


def test_labels_imported_again_leave_what_the_person_decided(photos, few, tmp_path, extraction):
    def start():
        said = []
        session = open_session(
            tmp_path / "p", photos=photos, labels=few, extraction=extraction, on_remark=said.append
        )
        return session, said

    session, _ = start()
    place = session.collection.rows
    session.decide([place["apple-0.png"]], "pear")
    session.decide([place["leek-0.png"]], None)
    session.decide([place["plum-0.png"]], "pear")
    session.undo()
    session.close()
    (photos / "empty.png").touch()
    few.write_text(few.read_text() + "plum-2.png,plum\nempty.png,plum\n")
    session, said = start()
    given = session.state.given
    session.close()
    assert given["apple-0.png"][:2] == ("pear", "person")
    assert "leek-0.png" not in given
    assert given["plum-0.png"].label == given["plum-2.png"].label == "plum"
    assert said[-3] == "1 label lost with images that cannot be read: empty.png."
    assert said[-2] == f"1 label imported from {few}; 2 images stay as you decided."
    assert said[-1] == "Labelling 24 images ..."


@pytest.mark.parametrize("begun", [False, True])
def test_an_image_that_changes_while_features_are_computed_is_noticed(
    photos, few, tmp_path, extraction, begun
):
    def change(progress):
        if (
            progress.stage == "extract" and progress.done == progress.total
        ):  # every image was read by now
            shutil.copy(photos / "plum-3.png", photos / "apple-3.png")

    meddled = replace(extraction, on_progress=change)
    if begun:
        read_inputs(photos, labels=few, extraction=extraction).begin_project(tmp_path / "p").close()
        Image.new("RGB", (32, 32), (250, 250, 9)).save(photos / "apple-4.png")
        open_session(tmp_path / "p", photos=None, extraction=meddled).close()
    else:
        read_inputs(photos, labels=few, extraction=meddled).begin_project(tmp_path / "p").close()
    with Project.open(tmp_path / "p", write=True) as project:
        assert project.newcomers(read_images(photos)) == ["apple-3.png"]
        project.refresh(read_images(photos), extraction)
        kept = project.load()
        assert project.newcomers(read_images(photos)) == []
    np.testing.assert_array_equal(
        kept.features[kept.names.index("apple-3.png")],
        kept.features[kept.names.index("plum-3.png")],
    )


def test_projects_refuse_what_is_in_the_way(photos, few, tmp_path, extraction):
    source = read_inputs(photos, labels=few, extraction=extraction)
    with pytest.raises(InputError, match="must not lie inside"):
        source.begin_project(photos / "p")
    with pytest.raises(InputError, match="new or empty"):
        source.begin_project(few.parent)
    with pytest.raises(InputError, match="begin the project with photos=FOLDER"):
        open_session(tmp_path / "none", photos=None, extraction=extraction)
    with pytest.raises(FileFormatError, match="not a labelling project"):
        Project.open(tmp_path / "none")
    source.begin_project(tmp_path / "p").close()
    with pytest.raises(InputError, match="must not hold the project"):
        open_session(tmp_path / "p", photos=tmp_path, extraction=extraction)
    shutil.rmtree(photos)
    with Project.open(tmp_path / "p") as project, pytest.raises(FileFormatError, match="is gone"):
        project.load()


def test_photos_alone_begin_a_project_beside_them(photos, few, extraction):
    for n_labels in (6, 7):
        session = open_session(photos, labels=few, extraction=extraction)
        assert session.project.folder == photos.parent / "photos.fewlabels"
        session.decide([20], "plum")  # and the second time it goes on there
        assert len(session.state.given) == 7 >= n_labels
        session.close()


def test_photos_that_were_moved(photos, few, tmp_path, extraction):
    session = open_session(photos, labels=few, extraction=extraction)
    session.decide([20], "plum")
    project = session.project.folder
    session.close()
    elsewhere = photos.rename(tmp_path / "elsewhere")
    with pytest.raises(FileFormatError, match=r"is gone. Put it back, or tell its new place"):
        open_session(project, extraction=extraction)
    (tmp_path / "others").mkdir()
    with pytest.raises(FileFormatError, match="others"):
        open_session(project, photos=tmp_path / "others", extraction=extraction)
    shutil.copy(elsewhere / "apple-0.png", tmp_path / "others" / "apple-0.png")
    with (tmp_path / "others" / "apple-0.png").open("ab") as file:
        file.write(b"!")  # the name is known, the content is not
    with pytest.raises(InputError, match="which has none of them"):
        open_session(project, photos=tmp_path / "others", extraction=extraction)
    for photos_now in (elsewhere, None):
        session = open_session(project, photos=photos_now, extraction=extraction)
        assert session.state.given[session.collection.names[20]].label == "plum"
        assert session.collection.path(20).parent == elsewhere
        session.close()
