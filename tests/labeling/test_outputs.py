"""Outputs: what goes in comes out, nothing is overwritten, no name is too odd for a folder."""

import codecs
import csv
import io
import json
import resource
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from fewlabels.data import read_images
from fewlabels.errors import InputError
from fewlabels.features import FeatureSet
from fewlabels.labeling.answer import Answer
from fewlabels.labeling.collection import Collection
from fewlabels.labeling.journal import GivenLabel
from fewlabels.labeling.outputs import (
    LabelRow,
    file_into_folders,
    folder_names,
    make_rows,
    to_csv,
    to_label_studio,
    write_label_studio,
    write_table,
)

ODD = 'größe, "早餐"\u2028=1+1'
ROWS = [
    LabelRow("a/1.jpg", ODD, 0.75, "leek", 0.5, "model"),
    LabelRow("b/2 #.jpg", "", 0.4, "leek", 0.1, ""),
]


def test_csv_comes_back_as_it_went():
    rows = list(csv.DictReader(io.StringIO(to_csv(ROWS))))
    names = "path label confidence runner_up margin origin looks_like guess person"
    assert list(rows[0]) == names.split()
    assert rows[0]["label"] == ODD
    assert rows[1] == {
        "path": "b/2 #.jpg",
        "label": "",
        "confidence": "0.4",
        "runner_up": "leek",
        "margin": "0.1",
        "origin": "",
        "looks_like": "",
        "guess": "",
        "person": "",
    }


def test_tables_by_suffix(tmp_path):
    write_table(tmp_path / "new" / "labels.csv", ROWS)
    assert (tmp_path / "new" / "labels.csv").read_text(encoding="utf-8-sig") == to_csv(ROWS)
    assert (tmp_path / "new" / "labels.csv").read_bytes().startswith(codecs.BOM_UTF8)  # for Excel
    write_table(tmp_path / "plain.csv", ROWS[1:])
    assert (tmp_path / "plain.csv").read_bytes() == to_csv(ROWS[1:]).encode()
    write_table(tmp_path / "labels.parquet", ROWS)
    assert parquet.read_table(tmp_path / "labels.parquet").to_pylist() == [
        row._asdict() for row in ROWS
    ]
    with pytest.raises(InputError, match=r"\.csv or \.parquet"):
        write_table(tmp_path / "labels.xlsx", ROWS)


def test_none_of_these_is_a_last_column(tmp_path):
    rows = list(csv.DictReader(io.StringIO(to_csv(ROWS, [0.125, 0.0]))))
    assert list(rows[0]) == [*LabelRow._fields, "none_of_these"]
    assert [row["none_of_these"] for row in rows] == ["0.125", "0.0"]
    write_table(tmp_path / "labels.parquet", ROWS, [0.125, 0.0])
    expected = [
        {**row._asdict(), "none_of_these": none}
        for row, none in zip(ROWS, [0.125, 0.0], strict=True)
    ]
    assert parquet.read_table(tmp_path / "labels.parquet").to_pylist() == expected


def test_label_studio_tasks(tmp_path):
    write_label_studio(tmp_path / "tasks.json", ROWS, prefix="/data/local-files/?d=photos/")
    first, second = json.loads((tmp_path / "tasks.json").read_text(encoding="utf-8"))
    assert first["data"] == {"image": "/data/local-files/?d=photos/a/1.jpg"}
    (prediction,) = first["predictions"]
    assert prediction["score"] == 0.75
    assert prediction["result"] == [
        {"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": [ODD]}}
    ]
    assert second == {"data": {"image": "/data/local-files/?d=photos/b/2%20%23.jpg"}}


@pytest.fixture
def collection(photos):
    images = read_images(photos)
    features = FeatureSet.from_arrays(
        np.ones((len(images), 2)), [-1] * len(images), [], names=images.names
    )
    return Collection.of_features(features).with_images(images, photos)


def as_rows(collection, label):
    return [LabelRow(name, label(name), 1.0, "", 1.0, "model") for name in collection.names]


@pytest.mark.parametrize("link", [False, True])
def test_class_folders(tmp_path, collection, link):
    rows = as_rows(collection, lambda name: name.split("-")[0].replace("plum", ""))
    for _ in range(2):  # the second time changes nothing
        assert file_into_folders(tmp_path / "sorted", rows, collection, link=link) == 0
    found = {folder.name: len(list(folder.iterdir())) for folder in (tmp_path / "sorted").iterdir()}
    assert found == {"apple": 8, "leek": 8, "unlabelled": 8}
    one = tmp_path / "sorted" / "apple" / "apple-3.png"
    assert one.is_symlink() == link
    assert one.read_bytes() == (collection.root / "apple-3.png").read_bytes()


def test_nothing_is_overwritten(tmp_path, collection):
    (tmp_path / "sorted" / "fruit").mkdir(parents=True)
    (tmp_path / "sorted" / "fruit" / "apple-0.png").write_text("mine")
    file_into_folders(
        tmp_path / "sorted", as_rows(collection, lambda _: "fruit"), collection, link=False
    )
    assert (tmp_path / "sorted" / "fruit" / "apple-0.png").read_text() == "mine"
    assert (tmp_path / "sorted" / "fruit" / "apple-0-2.png").is_file()


def test_a_full_disk_is_told_with_what_is_there(tmp_path, collection):
    """A limit on the size of files stands for the disk: the last image does not fit."""
    rows = as_rows(collection, lambda _: "fruit")
    with (collection.root / "plum-7.png").open("ab") as file:
        file.write(bytes(400_000))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        with pytest.raises(InputError, match=r"plum-7\.png cannot .* 23 images are in .*sorted"):
            file_into_folders(tmp_path / "sorted", rows, collection, link=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert len(list((tmp_path / "sorted" / "fruit").iterdir())) == 23
    assert file_into_folders(tmp_path / "sorted", rows, collection, link=False) == 0
    assert len(list((tmp_path / "sorted" / "fruit").iterdir())) == 24


def test_what_an_earlier_run_left_is_counted_and_kept(tmp_path, collection):
    file_into_folders(
        tmp_path / "sorted", as_rows(collection, lambda _: "fruit"), collection, link=False
    )
    assert (
        file_into_folders(
            tmp_path / "sorted", as_rows(collection, lambda _: "food"), collection, link=False
        )
        == 24
    )
    assert len(list((tmp_path / "sorted").rglob("*.png"))) == 48


def test_two_copies_of_one_image_are_both_filed(tmp_path, photos):
    shutil.copy(photos / "apple-0.png", photos / "again.png")
    (photos / "more").mkdir()
    shutil.copy(photos / "apple-0.png", photos / "more" / "apple-0.png")
    images = read_images(photos)
    features = FeatureSet.from_arrays(
        np.ones((len(images), 2)), [-1] * len(images), [], names=images.names
    )
    collection = Collection.of_features(features).with_images(images, photos)
    for _ in range(2):
        file_into_folders(
            tmp_path / "sorted", as_rows(collection, lambda _: "x"), collection, link=False
        )
        assert len(list((tmp_path / "sorted" / "x").iterdir())) == 26


def test_links_work_from_a_path_relative_to_here(tmp_path, photos, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images = read_images(Path("photos"))
    features = FeatureSet.from_arrays(
        np.ones((len(images), 2)), [-1] * len(images), [], names=images.names
    )
    collection = Collection.of_features(features).with_images(images, Path("photos"))
    file_into_folders(Path("linked"), as_rows(collection, lambda _: "x"), collection, link=True)
    assert all(link.exists() for link in Path("linked/x").iterdir())


def test_copies_inside_the_photos_are_refused(collection):
    with pytest.raises(InputError, match="must not lie inside"):
        file_into_folders(
            collection.root / "sorted", as_rows(collection, lambda _: "x"), collection, link=False
        )


def test_features_cannot_be_copied(tmp_path, blobs):
    with pytest.raises(InputError, match="link_to needs a folder of images"):
        file_into_folders(tmp_path / "x", [], Collection.of_features(blobs), link=True)


def test_folder_names_are_safe_and_different():
    labels = {
        "../../etc",
        "a/b",
        "a\\b",
        "A_B",
        "...",
        "x" * 190,
        "x" * 191,
        "unlabelled",
        "早" * 150,
        "con:1",
    }
    names = folder_names(labels)
    assert len({name.lower() for name in names.values()} | {"unlabelled"}) == len(labels) + 1
    assert not any(set(name) & set('/\\:"<>|?*') or name.startswith(".") for name in names.values())
    assert all(len(name.encode()) <= 130 for name in names.values())


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_labels_that_a_person_put_into_an_output_are_never_overwritten(tmp_path, suffix):
    path = tmp_path / f"labels{suffix}"
    given = LabelRow("a.jpg", "=x", 1.0, "", 1.0, "import")
    found = LabelRow("b.jpg", "leek", 0.7, "plum", 0.4, "model", guess="leek")
    doubtful = LabelRow("c.jpg", "", 0.4, "plum", 0.4, "", guess="leek")
    rows = [given, found, doubtful]
    none = [0.0, 0.1, 0.2]
    assert write_table(path, rows, none) is None
    assert write_table(path, [given, found._replace(label="plum", guess="plum")], none[:2]) is None
    for changed in (
        [given, found._replace(label="plum"), doubtful],
        [given, found, doubtful._replace(label="leek")],
        [given._replace(label="plum"), found, doubtful],
    ):
        write_table(path, changed, none)
        edited = path.read_bytes()
        kept = write_table(path, rows, none)
        assert kept.read_bytes() == edited
        # The same labels, given back, are in the new file.
        write_table(path, changed, none)
        again = [row._replace(origin="import") if row.label else row for row in changed]
        assert write_table(path, again, none) is None
        path.unlink()
    path.write_bytes(b"my diary")
    assert write_table(path, rows, none).read_bytes() == b"my diary"
    path.unlink()
    if suffix == ".csv":
        path.write_text("path,label,guess,origin,notes\nb.jpg,leek,leek,model,ask Ana\n")
        assert "Ana" in write_table(path, rows, none).read_text()


def test_abstaining_leaves_out_only_what_the_model_doubts():
    answer = Answer(np.array([[1, 0], [0.95, 0.05], [0.4, 0.6]], dtype=np.float32), None, None, 1.0)
    rows = make_rows(
        ["a", "b", "c"], ["x", "y"], answer, {"a": GivenLabel("x", "person")}, abstain=0.9
    )
    assert [(row.label, row.origin) for row in rows] == [("x", "person"), ("x", "model"), ("", "")]
    assert rows[2] == LabelRow("c", "", 0.6, "x", 0.2, "", guess="y")
    (task,) = json.loads(to_label_studio(rows[2:], prefix=""))
    assert task["predictions"][0]["result"][0]["value"] == {"choices": ["y"]}
    assert task["predictions"][0]["score"] == 0.6
    with pytest.raises(InputError, match="abstain must be"):
        make_rows(["a"], ["x", "y"], answer, {}, abstain=90)
