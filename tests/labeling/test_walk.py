"""The whole way of a folder of real photographs: in, labelled, corrected, out, moved and back.

One test, in the order in which a person goes. Exports are read twice: by a few lines here, and by
the library of each format; only the reading by a library that is not installed is skipped.
"""

import csv
import hashlib
import html
import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
from PIL import Image
from pyarrow import parquet

from fewlabels import export_labels, label_folder
from fewlabels.data import read_images
from fewlabels.features.store import FeatureStore
from fewlabels.io.moves import undo_moves
from fewlabels.labeling.collection import Extraction
from fewlabels.labeling.exports import format_names
from fewlabels.labeling.merging import merge_projects
from fewlabels.labeling.session import open_session
from fewlabels.labeling.sorting import move_photos

GROCERY = Path(__file__).parents[2] / "examples" / "grocery"
CLASSES = ("Cabbage", "Floury-Potato", "Arla-Sour-Milk")
PER_CLASS = 6
LIBRARIES = {  # what each format is read by
    "imagefolder": "torchvision",
    "ultralytics": "ultralytics",
    "hf": "datasets",
    "fiftyone": "fiftyone",
    "coco": "datumaro",
    "cvat": "datumaro",
    "imagenet": "datumaro",
    "label-studio": "label_studio_sdk",
    "csv": "pandas",
    "parquet": "pandas",
}


def take_photos(tmp_path: Path) -> Path:
    """Real photographs in nested folders of two cameras, one of them HEIC, with two duplicates."""
    for number, name in enumerate(CLASSES):
        for i, path in enumerate(sorted((GROCERY / name).glob("*.jpg"))[:PER_CLASS]):
            folder = tmp_path / "photos" / ("DCIM/100CANON" if i % 2 else "phone/2024 früh")
            folder.mkdir(parents=True, exist_ok=True)
            if (number, i) == (0, 0):
                Image.open(path).save(folder / "IMG_0.HEIC", quality=90)
            else:
                shutil.copy(path, folder / f"{number}{i}.jpg")
    for copied in ("DCIM/100CANON/01.jpg", "DCIM/100CANON/11.jpg"):
        shutil.copy(tmp_path / "photos" / copied, tmp_path / "photos" / f"copy {Path(copied).name}")
    return tmp_path / "photos"


def true_label(name: str) -> str:
    stem = Path(name).stem.removeprefix("copy ")
    return CLASSES[0] if stem == "IMG_0" else CLASSES[int(stem[0])]


def tree(folder: Path) -> dict[str, str]:
    """The digest of every file below a folder, by path."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def by_stem(folder: Path, pattern: str) -> dict[str, str]:
    """Labels of SPLIT/LABEL/PICTURE by the stem of the picture."""
    return {path.stem: path.parent.name for path in folder.glob(pattern)}


def read_back(form: str, folder: Path) -> dict[str, str]:
    """Labels by the stem of the picture, read as the format's own program does."""
    if form in ("imagefolder", "ultralytics"):
        return by_stem(folder, "*/*/*.jpg")
    if form == "hf":
        found = {}
        for path in folder.glob("*/metadata.csv"):
            frame = pd.read_csv(path)
            stems = frame["file_name"].map(lambda name: Path(name).stem)
            found |= dict(zip(stems, frame["label"], strict=True))
        return found
    if form == "csv":
        frame = pd.read_csv(folder / "labels.csv")
        return {
            Path(path).stem: label
            for path, label in zip(frame["path"], frame["label"], strict=True)
        }
    if form == "parquet":
        rows = parquet.read_table(folder / "labels.parquet").to_pylist()
        return {Path(row["path"]).stem: row["label"] for row in rows}
    if form == "coco":
        found = {}
        for path in folder.glob("annotations/*.json"):
            content = json.loads(path.read_text(encoding="utf-8"))
            names = {each["id"]: each["name"] for each in content["categories"]}
            files = {each["id"]: each["file_name"] for each in content["images"]}
            for each in content["annotations"]:
                stem = Path(files[each["image_id"]].removesuffix(".HEIC.jpg")).stem
                found[stem] = names[each["category_id"]]
        return found
    if form == "cvat":
        images = ElementTree.parse(folder / "annotations.xml").getroot().findall("image")
        return {Path(each.get("name")).stem: each.find("tag").get("label") for each in images}
    if form == "imagenet":
        classes = (folder / "synsets.txt").read_text(encoding="utf-8").splitlines()
        lines = [
            line.replace('"', "").rsplit(" ", 1)
            for path in folder.glob("*.txt")
            if path.name != "synsets.txt"
            for line in path.read_text(encoding="utf-8").splitlines()
        ]
        return {Path(name).stem: classes[int(number)] for name, number in lines}
    if form == "fiftyone":
        found = {}
        for path in folder.glob("*/labels.json"):
            content = json.loads(path.read_text(encoding="utf-8"))
            found |= {stem: content["classes"][n] for stem, n in content["labels"].items()}
        return found
    assert form == "label-studio"
    found = {}
    for task in json.loads((folder / "tasks.json").read_text(encoding="utf-8")):
        (entry,) = task.get("annotations") or task["predictions"]
        stem = Path(task["data"]["image"].partition("?d=")[2]).stem.replace("%20", " ")
        found[stem] = entry["result"][0]["value"]["choices"][0]
    return found


def test_photographs_go_in_and_out_and_are_moved_and_moved_back(tmp_path, monkeypatch, subtests):
    """HEIC, duplicates, nested folders and two annotators, through everything, in this order."""
    monkeypatch.setenv("FEWLABELS_CACHE", str(tmp_path / "cache"))
    pytest.importorskip("pillow_heif").register_heif_opener()
    photos = take_photos(tmp_path)
    before, expected = tree(photos), true_labels(photos)
    assert len(expected) == len(before) == len(CLASSES) * PER_CLASS + 2

    project = label_and_merge(photos, tmp_path)
    for form in format_names():
        done = export_labels(project, to=form, output=tmp_path / form, split=(0.5, 0.5), near=0.95)
        assert sum(done.counts.values()) == len(expected), form
        assert read_back(form, tmp_path / form) == expected, form
    assert tree(photos) == before
    for form in format_names():
        with subtests.test(f"{form} is read by {LIBRARIES[form]}"):
            assert read_by_library(form, tmp_path, photos) == expected

    moved = move_photos(project, tmp_path / "sorted")
    assert by_stem(tmp_path / "sorted", "*/*.*") == expected
    journal = {moved.journal.name}
    arrived = {
        name: each for name, each in tree(tmp_path / "sorted").items() if name not in journal
    }
    assert sorted(arrived.values()) == sorted(before.values())
    assert tree(photos) == {}
    undo_moves(moved.journal)
    assert tree(photos) == before
    assert not (tmp_path / "sorted").exists()


def read_by_library(form: str, folder: Path, photos: Path) -> dict[str, str]:
    """Labels by the stem of the picture, read by the library of a format, in a process of its own.

    Skipped where the library is not installed.
    """
    if find_spec(LIBRARIES[form]) is None:
        pytest.skip(f"could not import '{LIBRARIES[form]}'")
    (cache := folder / f"home of {form}").mkdir()
    script = Path(__file__).with_name("read_by_library.py")
    words = [sys.executable, str(script), form, *map(str, (folder / form, photos, cache))]
    ended = subprocess.run(words, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def label_and_merge(photos: Path, tmp_path: Path) -> Path:
    """All labels of the photographs, by a file, by two people and by the model."""
    before, names = tree(photos), read_images(photos).names
    assert len(names) == len(CLASSES) * PER_CLASS + 2
    # The first annotator gives a file of labels, with one mistake and a photograph that is gone.
    few = [name for name in names if Path(name).stem[-1] in "12" and "copy" not in name]
    labels = {name: true_label(name) for name in few}
    wrong = few[0]
    labels[wrong] = next(each for each in CLASSES if each != labels[wrong])
    with (tmp_path / "first.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("path", "label"), *labels.items(), ("gone.jpg", "Cabbage")])
    outcome = label_folder(photos, tmp_path / "first.csv", output=tmp_path / "labels.csv")
    assert len(outcome.rows) == len(names)
    assert any("near-duplicates" in each for each in outcome.remarks)
    groups = [set(each) for each in outcome.summary()["similar"]]
    for copied in ("01.jpg", "11.jpg"):
        assert any({f"copy {copied}", f"DCIM/100CANON/{copied}"} <= group for group in groups)
    # The second annotator, Ben, decides in a project of his own, where all files have other names.
    shutil.copytree(photos, tmp_path / "ben" / "photos")
    for path in [path for path in (tmp_path / "ben").rglob("*") if path.is_file()]:
        path.rename(path.with_name(f"{path.stem} of ben{path.suffix}"))
    renamed = [
        name for name in read_images(tmp_path / "ben" / "photos").names if "copy" not in name
    ]
    mistaken = next(name for name in renamed if "21" in name)
    (tmp_path / "ben.csv").write_text("path,label\n", encoding="utf-8")  # or folders name classes
    session = open_session(
        tmp_path / "ben" / "photos",
        labels=tmp_path / "ben.csv",
        extraction=Extraction(n_workers=0, store=FeatureStore()),
        person="ben",
    )
    try:
        project_of_ben = session.project.folder
        for row, name in enumerate(session.collection.names):
            if name in renamed and Path(name).stem[-8] in "13":
                label = true_label(name.replace(" of ben", ""))
                label = CLASSES[0] if name == mistaken else label
                session.decide([row], label)
    finally:
        session.close()
    # Anna corrects the mistake of the file and all else on the page, after Ben's were merged.
    session = open_session(
        photos,
        labels=tmp_path / "first.csv",
        extraction=Extraction(n_workers=0, store=FeatureStore()),
        person="anna",
    )
    project = session.project.folder
    contested = mistaken.replace(" of ben", "")
    session.decide([session.collection.rows[contested]], true_label(contested))
    session.close()
    merged = merge_projects(project, project_of_ben)
    assert merged.n_matched == len(names)
    assert merged.conflicts == [contested]
    assert merge_projects(project, project_of_ben).n_decisions == 0
    session = open_session(project, person="anna")
    try:
        for row, name in enumerate(session.collection.names):
            given = session.state.given.get(name)
            if given is None or given.label != true_label(name):
                session.decide([row], true_label(name))
        found = {row.path: (row.origin, row.person) for row in session.rows()}
    finally:
        session.close()
    bens = [name for name in names if Path(name).stem[-1] in "13" and "copy" not in name]
    assert {name for name in names if found[name] == ("person", "ben")} == {*bens} - {contested}
    # Of Anna's labels in the file, those that Ben decided too are a person's now.
    assert sum(each == ("import", "") for each in found.values()) == len(few) - len(CLASSES)
    assert found[contested] == ("person", "anna")
    label_folder(project, output=tmp_path / "again.csv", report=tmp_path / "report.html")
    told = html.unescape((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "Cohen's kappa" in told
    similar = told.partition("Near-duplicates and bursts")[2].partition("</section>")[0]
    assert "copy 01.jpg" in similar
    assert "copy 11.jpg" in similar
    assert tree(photos) == before
    return project


def true_labels(photos: Path) -> dict[str, str]:
    """By the stem of the picture."""
    return {Path(name).stem: true_label(name) for name in read_images(photos).names}
