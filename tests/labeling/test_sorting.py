"""move_photos: into folders by class, none of these and doubtful; a preview; and back."""

import os

import pytest

from fewlabels.errors import InputError
from fewlabels.io.moves import undo_moves
from fewlabels.labeling.collection import Extraction
from fewlabels.labeling.exports import export_labels, find_format, format_names
from fewlabels.labeling.label import label_folder
from fewlabels.labeling.project import Project
from fewlabels.labeling.session import open_session
from fewlabels.labeling.sorting import move_photos


@pytest.fixture
def labels(photos):
    """Apples are sure, leeks doubtful, plums of no class: by a person, by the model, or bare."""
    lines = ["path,label,confidence,origin,none_of_these"]
    for i in range(8):
        lines.append(f"apple-{i}.png,fruit: apple,0.95,model,0.1")
        lines.append(f"leek-{i}.png,leek,{0.5 if i else 1},{'model' if i else 'person'},0.1")
    lines += ["plum-0.png,,1,person,1.0", "plum-1.png,leek,0.99,model,0.9", "plum-2.png,,0.2,,0.1"]
    path = photos.parent / "labels.csv"
    path.write_text("\n".join(lines))
    return path


def tree(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.png")}


def test_moved_and_moved_back(photos, labels, tmp_path):
    before = tree(tmp_path)
    (photos / "link.png").symlink_to(photos / "apple-0.png")
    labels.write_text(labels.read_text() + "\nlink.png,leek,1,person,0\n")
    preview = move_photos(photos, tmp_path / "sorted", labels=labels, abstain=0.9, dry_run=True)
    assert not (tmp_path / "sorted").exists()
    moved = move_photos(photos, tmp_path / "sorted", labels=labels, abstain=0.9)
    assert moved.moves == preview.moves
    counts = {"doubtful": 7, "fruit_ apple": 8, "leek": 1, "none of these": 2}
    assert moved.counts == counts
    folders = [path for path in (tmp_path / "sorted").iterdir() if path.is_dir()]
    assert {path.name: len(list(path.iterdir())) for path in folders} == counts
    assert sorted(path.name for path in photos.iterdir()) == [
        "link.png",
        *(f"plum-{i}.png" for i in range(2, 8)),
    ]
    assert "6 images without a label stay where they are." in moved.remarks
    assert "1 link to files stay where they are." in moved.remarks
    undo_moves(moved.journal)
    (photos / "link.png").unlink()
    assert tree(tmp_path) == before
    assert not (tmp_path / "sorted").exists()


def test_labels_that_were_left_out_are_doubtful(photos, tmp_path):
    """`label --abstain` keeps them as guesses."""
    lines = [
        "path,label,confidence,origin,guess,none_of_these",
        "apple-0.png,apple,1,import,,0",
        "apple-1.png,,0.6,,apple,0.1",
        "apple-2.png,,0.6,,apple,0.9",
        "apple-3.png,,0,,,0",
    ]
    (tmp_path / "l.csv").write_text("\n".join(lines))
    moved = move_photos(photos, tmp_path / "sorted", labels=tmp_path / "l.csv", dry_run=True)
    assert moved.counts == {"apple": 1, "doubtful": 1, "none of these": 1}
    assert [move.target.name for move in moved.moves] == [f"apple-{i}.png" for i in range(3)]


def test_files_that_are_there_stay(photos, labels, tmp_path):
    (tmp_path / "sorted" / "leek").mkdir(parents=True)
    (tmp_path / "sorted" / "leek" / "LEEK-0.png").write_text("mine")
    move_photos(photos, tmp_path / "sorted", labels=labels, abstain=0.9)
    assert (tmp_path / "sorted" / "leek" / "LEEK-0.png").read_text() == "mine"
    assert (tmp_path / "sorted" / "leek" / "leek-0-2.png").is_file()


@pytest.mark.parametrize("place", ["photos/sorted", "photos", "."])
def test_a_place_in_or_around_the_photographs_is_refused(photos, labels, tmp_path, place):
    before = tree(tmp_path)
    with pytest.raises(InputError, match="must not lie inside the folder of images"):
        move_photos(photos, tmp_path / place, labels=labels)
    assert tree(tmp_path) == before


def test_interrupted_moves_come_first(photos, labels, tmp_path):
    moved = move_photos(photos, tmp_path / "sorted", labels=labels)
    moved.moves[0].target.rename(moved.moves[0].source)  # as if it had not been moved
    with pytest.raises(InputError, match="interrupted moves"):
        move_photos(photos, tmp_path / "sorted", labels=labels)


def test_names_that_are_not_utf8_go_all_the_way(photos, few, encoder, tmp_path, monkeypatch):
    """Two names that differ only in a byte that is no text, through every step, and back."""
    monkeypatch.setenv("FEWLABELS_CACHE", str(tmp_path / "cache"))
    odd = [os.fsencode(photos) + b"/gr\xfc\xdfe.png", os.fsencode(photos) + b"/gr\xfc\xdee.png"]
    (photos / "leek-6.png").rename(os.fsdecode(odd[0]))
    (photos / "plum-6.png").rename(os.fsdecode(odd[1]))
    before = {os.fsencode(path): path.read_bytes() for path in photos.iterdir()}
    table = tmp_path / "labels.csv"
    options = {"backbone": encoder, "device": "cpu", "n_workers": 0}
    outcome = label_folder(photos, few, output=table, copy_to=tmp_path / "copies", **options)
    assert len({row.path for row in outcome.rows}) == len(outcome.rows) == 24
    names = {path.rpartition(b"/")[2] for path in before}
    assert {os.fsencode(path.name) for path in (tmp_path / "copies").rglob("*.png")} == names
    for form in format_names():
        done = export_labels(photos, labels=table, to=form, output=tmp_path / form)
        told = [each for each in done.remarks if "gr\\udcfc" in each]
        assert len(told) == 1
        named = find_format(form).names_pictures
        assert ("2 files whose names are not UTF-8" if named else "2 files renamed") in told[0]
    session = open_session(
        tmp_path / "p", photos=photos, labels=table, extraction=Extraction(**options)
    )
    row = next(i for i, name in enumerate(session.collection.names) if name.startswith("gr"))
    session.decide([row], "leek", person="anna")
    session.close()
    Project.repair(tmp_path / "p")
    with Project.open(tmp_path / "p") as project:
        assert project.journal.standing.people == {session.collection.names[row]: "anna"}
    moved = move_photos(photos, tmp_path / "sorted", labels=table)
    assert not list(photos.iterdir())
    assert {os.fsencode(path.name) for path in (tmp_path / "sorted").rglob("*.png")} == names
    undo_moves(moved.journal)
    assert {os.fsencode(path): path.read_bytes() for path in photos.iterdir()} == before
