"""Changed bits and truncation in every kind of file that is read: noticed, or without effect.

On commit 7d831a6, 134 of 150 changed bits in features, 49 of 50 in a training's state, 84 of 150 in
models and 97 of 150 in backbones were used in silence; 93 of 360 damaged journals ended in a
traceback, 11 were used.
"""

import json
import os
import random
import sqlite3
import time
import warnings
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from fewlabels.backbones import load_backbone
from fewlabels.data import read_images
from fewlabels.errors import FewLabelsError, FileFormatError
from fewlabels.features import FeatureSet, read_features
from fewlabels.features.file_digests import FileDigests
from fewlabels.features.recipe import FeatureRecipe
from fewlabels.features.store import FeatureStore
from fewlabels.fitting import Fitted, fit
from fewlabels.io.cache import linked_roots, remember_links
from fewlabels.io.moves import Move, begin_moves, read_moves
from fewlabels.labeling.check import check_project
from fewlabels.labeling.collection import Extraction, Shown
from fewlabels.labeling.inputs import read_inputs
from fewlabels.labeling.names import NamePrior
from fewlabels.labeling.project import Project
from fewlabels.labeling.session import open_session
from fewlabels.labeling.thumbnails import Thumbnails
from fewlabels.paper.ledger import read_cells, write_cells
from fewlabels.training.state import read_state, write_state

ROWS = np.random.default_rng(0).gamma(1.0, size=(30, 4)).astype(np.float32)


def damage(data: bytes, rng: random.Random) -> bytes:
    """One changed bit, or one in five times a truncated file."""
    if rng.random() < 0.2:
        return data[: rng.randrange(len(data))]
    place = rng.randrange(8 * len(data))
    changed = bytearray(data)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def rehearse(drill, name, n, path: Path, read, *, noticed=FileFormatError):
    """Damage a file, read it: an error of ours, or the same content as before."""
    good, data = read(), path.read_bytes()
    for rng in drill.tries(f"damage: {name}", n, 20 * n):
        damaged = damage(data, rng)
        path.write_bytes(damaged)
        try:
            found = read()
        except noticed as error:
            drill.judge(len(str(error)) > 20, "no words")
        except Exception as error:
            drill.judge(False, f"{type(error).__name__}: {error}")
        else:
            drill.judge(found == good, f"used in silence: {sum(map(int.__ne__, damaged, data))}")
    path.write_bytes(data)


def as_texts(features: FeatureSet) -> object:
    rows = features.features.tobytes(), features.labels.tobytes()
    return rows, features.class_names, features.names, features.provenance


def test_features(drill, tmp_path):
    path = tmp_path / "f.safetensors"
    names = [f"{i}.jpg" for i in range(30)]
    FeatureSet.from_arrays(ROWS, ["a", "b", "c"] * 10, None, {"x": "y"}, names).save(path)
    rehearse(drill, "features", 60, path, lambda: as_texts(FeatureSet.load(path)))


def test_features_npz(drill, tmp_path):
    path = tmp_path / "f.npz"
    np.savez(path, features=ROWS, labels=np.repeat(["a", "b"], 15))
    rehearse(drill, "features as .npz", 60, path, lambda: as_texts(read_features(path)))


def test_features_pt(drill, tmp_path):
    path = tmp_path / "f.pt"
    torch.save({"features": torch.tensor(ROWS), "labels": ["a", "b"] * 15}, path)
    rehearse(drill, "features as .pt", 60, path, lambda: as_texts(read_features(path)))


def test_parquet_with_checksums(tmp_path):
    """Commit 7d831a6 did not look at the checksums of pages."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "f.parquet"
    how = {"write_page_checksum": True, "compression": "none", "use_dictionary": False}
    parquet.write_table(pyarrow.table({"embedding": ROWS.tolist()}), path, **how)
    read_features(path, labels_needed=False)
    data = bytearray(path.read_bytes())
    data[data.index(np.float64(ROWS[3, 2]).tobytes())] ^= 1
    path.write_bytes(data)
    with pytest.raises(FileFormatError):
        read_features(path, labels_needed=False)


def test_model(drill, tmp_path):
    path = tmp_path / "m.safetensors"
    fit("map", ROWS[:4], ["a", "b", "a", "b"], ROWS[4:]).save(path)

    def read():
        fitted, header = Fitted.load(path)
        header = {key: value for key, value in header.items() if "igest" not in key[:6]}
        return fitted.predict(ROWS).tolist(), fitted.prototypes.tolist(), fitted.class_names

    rehearse(drill, "model", 60, path, read)


def test_backbone(drill, encoder):
    def read():
        saved = load_backbone(encoder)
        weights = {name: value.sum().item() for name, value in saved.backbone.state_dict().items()}
        return weights, saved.transform, saved.options

    rehearse(drill, "backbone", 10, encoder, read)


def test_state_of_a_training(drill, tmp_path):
    path = tmp_path / "state.pt"
    weights = {"weight": torch.tensor(ROWS)}
    write_state(path, {"recipe": {"a": 1}, "images": "x", "learner": weights})

    def read():
        state = read_state(path, recipe={"a": 1}, fingerprint="x")
        return state["learner"]["weight"].tolist(), state["recipe"], state["images"]

    rehearse(drill, "state of a training", 60, path, read)


def test_cells_of_reproduce(drill, tmp_path):
    path = tmp_path / "cells.json"
    write_cells(path, {f"{i:016x}": {"accuracy": 80 + i / 7, "method": "map"} for i in range(9)})
    rehearse(drill, "cells of reproduce", 60, path, lambda: read_cells(path))


def test_store(drill, tmp_path):
    """A damaged shard is removed with a warning; its rows are computed again."""
    store = FeatureStore(tmp_path / "store")
    recipe = FeatureRecipe("conv4", "0" * 32, "crop(32)", "center", "float32", 4)
    digests = [f"{i:032x}" for i in range(30)]
    store.put(recipe, digests, ROWS)
    (shard,) = (tmp_path / "store" / recipe.key).glob("shard-*")
    data = shard.read_bytes()
    for rng in drill.tries("damage: rows of the store", 60, 10 * 60):
        shard.write_bytes(damage(data, rng))
        with pytest.warns(UserWarning, match="damaged|another recipe"):
            found = store.get(recipe, digests)
        drill.judge(not found.known.any() and not found.rows.any(), "used in silence")


def test_digests_of_files(drill, tmp_path, photos):
    """A damaged table of digests is not believed: the files are read again."""
    images, path = read_images(photos), tmp_path / "files.sqlite"
    for index in range(len(images)):  # long ago: what changed just now is not entered
        os.utime(images.path(index), ns=(1, 1))
    wanted = [each.digest for each in FileDigests(path).identify(images)]
    while not path.exists():  # nor is what was made just now
        time.sleep(0.1)
        FileDigests(path).identify(images)
    data = path.read_bytes()
    assert len(entries(path)) == len(images)
    for rng in drill.tries("damage: table of file digests", 200, 600):
        path.write_bytes(damage(data, rng))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is removed
            found = [each.digest for each in FileDigests(path).identify(images)]
        drill.judge(found == wanted, "used in silence")


def entries(path: Path) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(path)) as table:
        return table.execute("SELECT * FROM files").fetchall()


def test_links_of_the_cache(drill, tmp_path, cache):
    """What fewlabels remembers about its links: damaged, it is forgotten."""
    remember_links(tmp_path / "linked", tmp_path / "photos")
    good = linked_roots(tmp_path / "linked")
    assert len(good) == 2
    data = (cache / "links.json").read_bytes()
    for rng in drill.tries("damage: links that were written", 30, 10 * 30):
        (cache / "links.json").write_bytes(damage(data, rng))
        found = linked_roots(tmp_path / "linked")
        drill.judge(found in (good, good[:1]), str(found))


def test_journal_of_moves(drill, tmp_path):
    path = tmp_path / "sorted" / "moves-1.jsonl"
    moves = [Move(tmp_path / f"{i}.jpg", path.with_name(f"{i}.jpg")) for i in range(20)]
    begin_moves(path, moves)
    rehearse(drill, "journal of moves", 60, path, lambda: read_moves(path))


def test_texts_of_a_project(drill, tmp_path):
    """Texts, paths of pictures and of sounds that the page shows."""
    names = [f"{i}" for i in range(30)]
    features = FeatureSet.from_arrays(ROWS, [-1] * 30, [], {}, names)
    shown = Shown(tmp_path, texts=tuple(f"text number {i}" for i in range(30)))
    Project.create(tmp_path / "p", features, title="t", shown=shown).close()

    def read():
        with Project.open(tmp_path / "p") as project:
            return project.load().texts

    rehearse(drill, "texts of a project", 60, tmp_path / "p" / "shown.json", read)


def test_class_names_of_a_project(drill, tmp_path):
    path = tmp_path / "classes.json"
    NamePrior(("a", "b", "c"), ROWS[:3], 10.0).save(path)

    def read():
        found = NamePrior.load(path)
        return found.names, found.vectors.tolist(), found.scale

    rehearse(drill, "class names of a project", 60, path, read)


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_boxes_of_a_project(drill, tmp_path, photos, encoder, suffix):
    """One changed digit, and an item would be another part of its picture."""
    names = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))
    boxes = tmp_path / f"b{suffix}"
    boxes.write_text("path,x,y,width,height\n" + "".join(f"{name},1,2,20,24\n" for name in names))
    if suffix == ".json":
        found = [{"file": name, "detections": [{"bbox": [0, 0, 0.5, 0.5]}]} for name in names]
        boxes.write_text(json.dumps({"images": found}))
    how = Extraction(str(encoder), "cpu", None, 0, FeatureStore(tmp_path / "store"))
    read_inputs(photos, extraction=how, boxes=boxes).begin_project(tmp_path / "p").close()

    def read():
        with Project.open(tmp_path / "p") as project:
            images = project.list_images()
            return images.names, images.sources

    path = tmp_path / "p" / f"boxes{suffix}"
    rehearse(drill, f"boxes of a project, {suffix}", 60, path, read)


def test_journal(drill, tmp_path):
    """Commit 7d831a6: 93 of 360 tracebacks, 11 used in silence."""
    features = FeatureSet.from_arrays(ROWS, [-1] * 30, [], {}, [f"{i}.jpg" for i in range(30)])
    folder = tmp_path / "p"
    with Project.create(folder, features, title="t", labels={"0.jpg": "a"}) as project:
        for i in range(1, 25):
            project.journal.decide({f"{i}.jpg": f"class {i % 4}"}, origin="person")
        project.journal.decide({"25.jpg": None}, origin="person", mark="none")
        project.journal.undo()

    def read():
        with Project.open(folder) as project:
            journal = project.journal
            return journal.current, journal.marks, journal.to_undo, journal.to_redo

    rehearse(drill, "journal", 100, folder / "project.sqlite", read)


def test_journal_is_rebuilt(drill, tmp_path):
    """What is damaged is refused, and rebuilt from the plain-text copy with nothing missing."""
    features = FeatureSet.from_arrays(ROWS, [-1] * 30, [], {}, [f"{i}.jpg" for i in range(30)])
    folder = tmp_path / "p"
    with Project.create(folder, features, title="t", labels={"0.jpg": "a"}) as project:
        for i in range(1, 25):
            project.journal.decide({f"{i}.jpg": f"class {i % 4}"}, origin="person")
        project.journal.undo()
        wanted = project.journal.current, project.journal.to_redo, project.journal.class_names
    data = (folder / "project.sqlite").read_bytes()
    for rng in drill.tries("damage: journal, rebuilt from its copy", 10, 10 * 10):
        (folder / "project.sqlite").write_bytes(data[: rng.randrange(len(data))])
        if not all(each.right for each in check_project(folder)):
            Project.repair(folder)
        assert all(each.right for each in check_project(folder))
        with Project.open(folder, write=True) as project:
            journal = project.journal
            found = journal.current, journal.to_redo, journal.class_names
        drill.judge(found == wanted, "not as before")
        for aside in folder.glob("*.damaged-*"):
            aside.unlink()


def test_copy_of_the_journal(drill, tmp_path):
    """A damaged copy never changes a decision, and is written again."""
    features = FeatureSet.from_arrays(ROWS, [-1] * 30, [], {}, [f"{i}.jpg" for i in range(30)])
    folder = tmp_path / "p"
    with Project.create(folder, features, title="t", labels={"0.jpg": "a"}) as project:
        for i in range(1, 25):
            project.journal.decide({f"{i}.jpg": f"class {i % 4}"}, origin="person")
        wanted = project.journal.current
    copy = folder / "decisions.jsonl"
    data = copy.read_bytes()
    for rng in drill.tries("damage: plain-text copy of the journal", 40, 10 * 40):
        copy.write_bytes(damage(data, rng))
        with Project.open(folder, write=True) as project:
            found = project.journal.current
        good = found == wanted and all(each.right for each in check_project(folder))
        drill.judge(good, "not as before")


def test_features_of_a_project_are_computed_again(tmp_path, photos, encoder):
    """Commit 7d831a6 could not open a project with damaged features, though it had the images."""
    how = Extraction(str(encoder), "cpu", None, 0, FeatureStore(tmp_path / "store"))
    read_inputs(photos, extraction=how).begin_project(tmp_path / "p").close()
    path = tmp_path / "p" / "features.safetensors"
    good = path.read_bytes()
    before = FeatureSet.load(path)
    for bad in (good[:100], None):
        path.unlink()
        if bad:
            path.write_bytes(bad)
        with pytest.raises(FileFormatError, match="fewlabels serve"):
            read_inputs(tmp_path / "p")
        with Project.open(tmp_path / "p", write=True) as project:
            images = project.list_images()
            project.refresh(images, how)
            assert len(project.load(images)) == 12
        after = FeatureSet.load(path)
        assert after.names == before.names
        np.testing.assert_array_equal(after.features, before.features)


def test_a_folder_of_images_that_was_moved_is_told(tmp_path, photos, encoder):
    """Commit 7d831a6 refused the new place, and with it all decisions."""
    how = Extraction(str(encoder), "cpu", None, 0, FeatureStore(tmp_path / "store"))
    read_inputs(photos, extraction=how).begin_project(tmp_path / "p").close()
    photos.rename(tmp_path / "elsewhere")
    with pytest.raises(FileFormatError, match="tell its new place"):
        read_inputs(tmp_path / "p")
    session = open_session(
        tmp_path / "p", photos=tmp_path / "elsewhere", labels=None, extraction=how
    )
    assert len(session.state.given) == 6
    session.close()
    assert len(read_inputs(tmp_path / "p").labels) == 6


def test_thumbnails_that_are_damaged_are_made_again(tmp_path, photos, encoder):
    how = Extraction(str(encoder), "cpu", None, 0, FeatureStore(tmp_path / "store"))
    thumbnails = Thumbnails(read_inputs(photos, extraction=how).collection, tmp_path / "t")
    picture = thumbnails.get(0)
    (path,) = (file for file in (tmp_path / "t").rglob("*") if file.is_file())
    data = path.read_bytes()
    path.write_bytes(data[:-9] + b"x" + data[-8:])
    assert thumbnails.get(0) == picture
    assert path.read_bytes() == data


def test_read_only_commands_refuse_what_is_damaged_in_words(tmp_path):
    (tmp_path / "project.sqlite").write_bytes(b"SQLite format 3\0" + bytes(4000))
    with pytest.raises(FewLabelsError):
        Project.open(tmp_path)
