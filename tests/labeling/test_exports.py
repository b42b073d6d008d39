"""Exports: each format, read back as its documentation says, gives the labels that went in."""

import csv
import json
import resource
import shutil
import signal
from collections import Counter
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from pyarrow import parquet

from fewlabels import export_labels
from fewlabels.errors import FileFormatError, InputError
from fewlabels.features import FeatureSet
from fewlabels.io.locks import locked_folder
from fewlabels.labeling.exports import find_format, format_names
from fewlabels.labeling.exports.base import Format, register
from fewlabels.labeling.exports.cvat import shorten_names
from fewlabels.labeling.exports.splits import check_fractions, find_groups, split_groups
from fewlabels.labeling.journal import ModelLabel
from fewlabels.labeling.labels_file import read_labels
from fewlabels.labeling.project import Project

CLASSES = {"leek": 6, "a/b: größe": 5, "con": 4}
SPLITS = {"train": "train", "val": "validation", "test": "test"}


@pytest.fixture
def photos(tmp_path) -> Path:
    """Fifteen pictures in two folders with equal file names, one of them turned by its EXIF tag."""
    number = 0
    for n in CLASSES.values():
        for _ in range(n):
            path = tmp_path / "photos" / f"day {number % 2}" / f"{number // 2}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            exif = Image.Exif()
            exif[0x0112] = 6 if number == 0 else 1
            Image.new("RGB", (16, 8), (17 * number, 90, 40)).save(path, exif=exif)
            number += 1
    return tmp_path / "photos"


@pytest.fixture
def labels(photos) -> dict[str, str]:
    classes = [name for name, n in CLASSES.items() for _ in range(n)]
    return {f"day {i % 2}/{i // 2}.jpg": label for i, label in enumerate(classes)}


@pytest.fixture
def project(photos, labels, tmp_path) -> Path:
    """Decisions for the first picture of each class, the model's labels for the others."""
    names = sorted(labels)
    features = FeatureSet.from_arrays(np.eye(len(names)), [-1] * len(names), [], names=names)
    with Project.create(tmp_path / "p", features, title="kitchen", root=photos) as made:
        given = {labels[name]: name for name in reversed(names)}
        made.journal.decide({name: label for label, name in given.items()}, origin="person")
        rest = [name for name in names if name not in given.values()]
        made.journal.keep_model_labels((each, ModelLabel(labels[each], 0.75, 0.5)) for each in rest)
    return tmp_path / "p"


def read_tree(folder: Path) -> dict[bytes, tuple[str, str]]:
    """Split and folder by the content of each picture: SPLIT/FOLDER/picture."""
    return {
        path.read_bytes(): path.relative_to(folder).parts[:2]
        for path in folder.glob("*/*/*")
        if path.suffix == ".jpg"
    }


def contents(photos: Path, labels: dict[str, str]) -> dict[bytes, str]:
    return {(photos / name).read_bytes(): label for name, label in labels.items()}


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def read_hf(folder, photos, labels):
    found = {}
    for split in ("train", "validation", "test"):
        for row in read_csv(folder / split / "metadata.csv"):
            assert (folder / split / row["file_name"]).is_file()
            assert row["origin"] == ("person" if float(row["confidence"]) == 1 else "model")
            found[row["source"]] = (split, row["label"])
    assert (folder / "README.md").read_text(encoding="utf-8").startswith("---\n")
    return found


def read_folders(folder, photos, labels):
    names = {row["folder"]: row["label"] for row in read_csv(folder / "class_names.csv")}
    assert names == {"leek": "leek", "a_b_ größe": "a/b: größe", "_con": "con"}
    by_content = {(photos / name).read_bytes(): name for name in labels}
    return {
        by_content[content]: (SPLITS[split], names[name])
        for content, (split, name) in read_tree(folder).items()
    }


def read_fiftyone(folder, photos, labels):
    by_content, found = {(photos / name).read_bytes(): name for name in labels}, {}
    for split in ("train", "validation", "test"):
        content = json.loads((folder / split / "labels.json").read_text(encoding="utf-8"))
        pictures = {path.stem: path for path in (folder / split / "data").iterdir()}
        assert pictures.keys() == content["labels"].keys()
        for stem, number in content["labels"].items():
            found[by_content[pictures[stem].read_bytes()]] = (split, content["classes"][number])
    return found


def read_coco(folder, photos, labels):
    found = {}
    for short, split in SPLITS.items():
        content = json.loads((folder / "annotations" / f"labels_{short}.json").read_text("utf-8"))
        classes = {each["id"]: each["name"] for each in content["categories"]}
        images = {each["id"]: each for each in content["images"]}
        assert len(images) == len(content["annotations"])
        for each in content["annotations"]:
            image = images[each["image_id"]]
            name = image["file_name"]
            assert (folder / "images" / short / name).read_bytes() == (photos / name).read_bytes()
            size = (8, 16) if name == "day 0/0.jpg" else (16, 8)  # upright
            assert (image["width"], image["height"]) == size
            found[name] = (split, classes[each["category_id"]])
    return found


def read_cvat(folder, photos, labels):
    root = ElementTree.parse(folder / "annotations.xml").getroot()
    assert root.findtext("version") == "1.1"
    assert {each.findtext("name") for each in root.iter("label")} == set(CLASSES)
    assert [each.text for each in root.find("meta/project").iter("subset")] == [*SPLITS.values()]
    images = root.findall("image")
    assert [int(each.get("id")) for each in images] == list(range(len(labels)))
    sources = Counter(each.find("tag").get("source") for each in images)
    assert sources == {"manual": 3, "auto": 12}
    return {
        each.get("name"): (each.get("subset"), each.find("tag").get("label")) for each in images
    }


def read_imagenet(folder, photos, labels):
    classes = (folder / "synsets.txt").read_text(encoding="utf-8").splitlines()
    found = {}
    for short, split in SPLITS.items():
        for line in (folder / f"{short}.txt").read_text(encoding="utf-8").splitlines():
            _, stem, rest = line.split('"')  # these paths have spaces
            suffix, number = rest.split()
            found[stem + suffix] = (split, classes[int(number)])
    return found


def read_table(folder, photos, labels):
    return {row["path"]: (row["split"], row["label"]) for row in read_csv(folder / "labels.csv")}


def read_parquet(folder, photos, labels):
    rows = parquet.read_table(folder / "labels.parquet").to_pylist()
    return {row["path"]: (row["split"], row["label"]) for row in rows}


READERS = {
    "hf": read_hf,
    "imagefolder": read_folders,
    "ultralytics": read_folders,
    "fiftyone": read_fiftyone,
    "coco": read_coco,
    "cvat": read_cvat,
    "imagenet": read_imagenet,
    "csv": read_table,
    "parquet": read_parquet,
}


@pytest.mark.parametrize("name", READERS)
def test_each_format_comes_back_with_labels_and_splits(name, project, photos, labels, tmp_path):
    done = export_labels(project, to=name, output=tmp_path / "out", split=(0.6, 0.2, 0.2))
    found = READERS[name](tmp_path / "out", photos, labels)
    assert {path: label for path, (_, label) in found.items()} == labels
    assert Counter(split for split, _ in found.values()) == done.counts
    assert done.counts == {"train": 9, "validation": 3, "test": 3}
    per_class = Counter((split, label) for split, label in found.values())
    assert all(per_class["train", label] >= n // 2 for label, n in CLASSES.items())


def test_every_format_but_label_studio_is_read_back_above():
    assert {*READERS, "label-studio"} == set(format_names())


def test_similar_images_stay_together_and_are_told(photos, labels, tmp_path):
    names = sorted(labels)
    rows = np.eye(len(names))
    rows[4:9] = rows[4] + 0.1 * rows[4:9]
    features = FeatureSet.from_arrays(rows, [-1] * len(names), [], names=names)
    with Project.create(tmp_path / "q", features, title="q", root=photos) as made:
        made.journal.decide(labels, origin="person")
    done = export_labels(tmp_path / "q", to="csv", output=tmp_path / "out", split=(0.5, 0.5))
    assert done.n_similar == 5
    assert any("5 of 15 images are similar" in remark for remark in done.remarks)
    found = read_table(tmp_path / "out", photos, labels)
    assert len({found[name][0] for name in names[4:9]}) == 1
    done = export_labels(tmp_path / "q", to="csv", output=tmp_path / "b", split=(0.5, 0.5), near=1)
    assert done.n_similar == 0


def test_label_studio_gets_annotations_and_predictions(project, labels, tmp_path):
    with Project.open(project, write=True) as opened:
        opened.journal.keep_model_labels([("day 0/1.jpg", ModelLabel("leek", 0.75, 0.5))])
    export_labels(project, to="label-studio", output=tmp_path / "out", label_studio_prefix="/x/")
    tasks = json.loads((tmp_path / "out" / "tasks.json").read_text(encoding="utf-8"))
    assert len(tasks) == len(labels)
    kinds = Counter(tuple(sorted(task.keys() - {"data"})) for task in tasks)
    assert kinds == {("annotations",): 3, ("predictions",): 1, (): 11}
    by_image = {task["data"]["image"]: task for task in tasks}
    (annotation,) = by_image["/x/day%200/0.jpg"]["annotations"]
    assert annotation["result"][0]["value"] == {"choices": ["leek"]}
    (prediction,) = by_image["/x/day%200/1.jpg"]["predictions"]
    assert prediction["score"] == 0.75


def test_who_decided_goes_out_too(photos, labels, tmp_path):
    rows = [f"{path},{each},{'anna' if each == 'leek' else ''}" for path, each in labels.items()]
    (tmp_path / "l.csv").write_text("\n".join(["path,label,person", *rows]), encoding="utf-8")
    annas = {path for path, each in labels.items() if each == "leek"}
    for form in ("hf", "label-studio", "csv"):
        export_labels(photos, to=form, output=tmp_path / form, labels=tmp_path / "l.csv")
    metadata = read_csv(tmp_path / "hf" / "train" / "metadata.csv")
    assert {row["source"] for row in metadata if row["person"] == "anna"} == annas
    assert {row["person"] for row in metadata} == {"anna", ""}
    tasks = json.loads((tmp_path / "label-studio" / "tasks.json").read_text(encoding="utf-8"))
    told = [task["data"]["image"] for task in tasks if task["data"].get("person") == "anna"]
    assert {unquote(each.partition("?d=")[2]) for each in told} == annas
    table = read_csv(tmp_path / "csv" / "labels.csv")
    assert {row["path"] for row in table if row["person"] == "anna"} == annas


def test_without_a_split(project, photos, labels, tmp_path):
    export_labels(project, to="imagefolder", output=tmp_path / "a", link=True)
    found = {path.parent.name for path in (tmp_path / "a").glob("*/*.jpg") if path.is_symlink()}
    assert found == {"leek", "a_b_ größe", "_con"}
    done = export_labels(project, to="ultralytics", output=tmp_path / "b")
    assert done.counts == {"train": 15}
    assert len(read_tree(tmp_path / "b")) == 15
    assert any("'con' as '_con'" in remark for remark in done.remarks)


def test_labels_of_a_file_with_its_predictions(photos, labels, tmp_path):
    rows = [f"{path},{label},0.{7 + i % 2},model" for i, (path, label) in enumerate(labels.items())]
    (tmp_path / "l.csv").write_text(
        "\n".join(["path,label,confidence,origin", *rows, "gone.jpg,leek,1,person"])
    )
    done = export_labels(photos, to="csv", output=tmp_path / "o", labels=tmp_path / "l.csv")
    assert {p: label for p, (_, label) in read_table(tmp_path / "o", 0, 0).items()} == labels
    assert any("1 path not found, left out: gone.jpg" in remark for remark in done.remarks)
    done = export_labels(
        photos, to="imagenet", output=tmp_path / "s", labels=tmp_path / "l.csv", abstain=0.75
    )
    assert done.counts == {"": 7}
    assert "8 images without a label left out." in done.remarks


def test_guesses_that_were_left_out_go_out_as_predictions(photos, labels, tmp_path):
    """`label --abstain` leaves labels out: Label Studio is where such images are looked at."""
    first, *rest = labels
    lines = [f"{path},,0.6,,leek" for path in rest]
    (tmp_path / "l.csv").write_text(
        "\n".join(["path,label,confidence,origin,guess", f"{first},leek,1,person,", *lines])
    )
    done = {"labels": tmp_path / "l.csv"}
    export_labels(photos, to="label-studio", output=tmp_path / "ls", **done)
    tasks = json.loads((tmp_path / "ls" / "tasks.json").read_text(encoding="utf-8"))
    told = [each["predictions"][0] for each in tasks if "predictions" in each]
    assert len(told) == len(rest)
    assert {each["score"] for each in told} == {0.6}
    assert sum("annotations" in each for each in tasks) == 1
    export_labels(photos, to="csv", output=tmp_path / "o", **done)
    again = export_labels(photos, to="csv", output=tmp_path / "p", labels=tmp_path / "o/labels.csv")
    assert (tmp_path / "p/labels.csv").read_bytes() == (tmp_path / "o/labels.csv").read_bytes()
    assert again.counts == {"": len(labels)}


def test_names_of_pictures_that_a_system_does_not_allow_are_mapped_and_listed(tmp_path):
    names = ("12:30.jpg", "12_30.jpg", "aux.jpg", "wh?t.jpg")
    (tmp_path / "photos" / "a").mkdir(parents=True)
    for number, name in enumerate(names):
        Image.new("RGB", (8, 8), (60 * number, 9, 9)).save(tmp_path / "photos" / "a" / name)
    colors = {(tmp_path / "photos/a" / name).read_bytes() for name in names}
    for form in ("imagefolder", "ultralytics", "hf", "fiftyone", "coco"):
        done = export_labels(tmp_path / "photos", to=form, output=tmp_path / form)
        pictures = list((tmp_path / form).rglob("*.jpg"))
        assert {path.read_bytes() for path in pictures} == colors  # none took another's place
        assert not any(set(path.name) & set(':?"<>|*\\') for path in pictures)
        assert (
            "3 files renamed, as not every system allows the name: '12:30.jpg' as '12_30.jpg', "
            "'aux.jpg' as '_aux.jpg', 'wh?t.jpg' as 'wh_t.jpg'."
        ) in done.remarks
    done = export_labels(tmp_path / "photos", to="csv", output=tmp_path / "csv")
    assert not done.remarks  # the pictures stay where they are


def test_a_table_is_safe_in_a_spreadsheet_and_comes_back(tmp_path):
    (tmp_path / "photos").mkdir()
    for name in ("=1+1.jpg", "größe.jpg"):
        Image.new("RGB", (8, 8)).save(tmp_path / "photos" / name)
    (tmp_path / "l.csv").write_text('path,label\n=1+1.jpg,@sum\ngröße.jpg,"a, b"\n')
    done = {"to": "csv", "labels": tmp_path / "l.csv"}
    export_labels(tmp_path / "photos", output=tmp_path / "o", **done)
    content = (tmp_path / "o" / "labels.csv").read_bytes()
    assert content.startswith(b"\xef\xbb\xbf")  # for Excel
    assert b"'=1+1.jpg,'@sum," in content
    export_labels(
        tmp_path / "photos", to="csv", labels=tmp_path / "o/labels.csv", output=tmp_path / "p"
    )
    assert (tmp_path / "p" / "labels.csv").read_bytes() == content


def test_labels_go_out_without_the_photographs(project, photos, labels, tmp_path):
    photos.rename(tmp_path / "moved")
    done = export_labels(project, to="csv", output=tmp_path / "o")
    assert {p: label for p, (_, label) in read_table(tmp_path / "o", 0, 0).items()} == labels
    assert "is gone" in done.remarks[0]
    with pytest.raises(FileFormatError, match="photos=FOLDER"):
        export_labels(project, to="hf", output=tmp_path / "hf")
    assert not (tmp_path / "hf").exists()
    export_labels(project, to="ultralytics", output=tmp_path / "u", photos=tmp_path / "moved")
    assert len(read_tree(tmp_path / "u")) == len(labels)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"to": "yolo"}, "to must be one of imagefolder, ultralytics, hf"),
        ({"split": (0.8, 0.1)}, "add up to 1.*got 0.8,0.1"),
        ({"split": (1.0,)}, "fractions"),
        ({"near": 0.0}, "near must be a cosine"),
        ({"abstain": 2.0}, "abstain must be a confidence"),
        ({"labels": "x.csv"}, "labels must be left out for a project"),
    ],
)
def test_refused_before_anything_is_written(arguments, words, project, tmp_path):
    with pytest.raises(InputError, match=words):
        export_labels(project, **{"to": "csv", "output": tmp_path / "out", **arguments})
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten_and_nothing_lies_among_the_photographs(project, photos, tmp_path):
    (tmp_path / "out").mkdir()
    export_labels(project, to="csv", output=tmp_path / "out")  # an empty folder is fine
    before = (tmp_path / "out" / "labels.csv").read_bytes()
    with pytest.raises(InputError, match="nothing is overwritten"):
        export_labels(project, to="hf", output=tmp_path / "out")
    assert (tmp_path / "out" / "labels.csv").read_bytes() == before
    with pytest.raises(InputError, match="inside the folder of images"):
        export_labels(project, to="hf", output=photos / "new")


def test_a_full_disk_leaves_nothing_half_written(project, photos, tmp_path):
    """A limit on the size of files stands for the disk: the large picture does not fit."""
    (photos / "day 0" / "7.jpg").write_bytes(
        (photos / "day 0" / "7.jpg").read_bytes() + bytes(400_000)
    )
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        with pytest.raises(InputError, match="out cannot be written"):
            export_labels(project, to="imagefolder", output=tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p", "photos"]


def test_a_format_of_the_same_name_is_refused():
    with pytest.raises(InputError, match="registered already"):
        register(Format("hf", "", find_format("hf").write))


def test_long_names_stay_different_in_cvat():
    found = shorten_names({"x" * 64, "x" * 80, "x" * 70 + "y"})
    assert found["x" * 64] == "x" * 64
    assert len(set(found.values())) == 3
    assert max(map(len, found.values())) == 64


def test_equal_files_and_similar_features_are_one_group(tmp_path):
    files = [tmp_path / f"{i}.jpg" for i in range(5)]
    for file, content in zip(files, [b"one", b"two", b"one", b"three", b"four!"], strict=True):
        file.write_bytes(content)
    angles = np.radians([0, 90, 170, 100, 108])  # 90, 100 and 108: a chain
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert find_groups(files).tolist() == [0, 1, 0, 2, 3]
    assert find_groups(files, rows, near=np.cos(np.radians(11))).tolist() == [0, 1, 0, 1, 1]
    assert find_groups(files, np.zeros((5, 2))).tolist() == [0, 1, 0, 2, 3]  # like nothing


def test_many_similar_rows_are_found_across_blocks():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(400, 32))
    rows = np.repeat(centers, 3, axis=0) + 0.01 * rng.normal(size=(1200, 32))
    order = rng.permutation(1200)
    found = find_groups([None] * 1200, rows[order])
    assert len({*zip(found.tolist(), (order // 3).tolist(), strict=True)}) == 400


@pytest.mark.parametrize("seed", [0, 1])
def test_groups_are_never_divided_and_fractions_are_kept(seed):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 150, size=600)
    labels = [f"c{(group + (rng.random() < 0.1)) % 7}" for group in groups]
    names = [f"{i:03d}" for i in range(600)]
    fractions = check_fractions((0.7, 0.2, 0.1))
    found = split_groups(names, labels, groups, fractions, seed=seed)
    assert all(len({found[i] for i in np.flatnonzero(groups == each)}) == 1 for each in groups)
    counts = Counter(found)
    assert all(abs(counts[split] - 600 * each) <= 10 for split, each in fractions.items())
    order = rng.permutation(600)
    again = split_groups(
        [names[i] for i in order], [labels[i] for i in order], groups[order], fractions, seed=seed
    )
    assert again == [found[i] for i in order]
    assert split_groups(names, labels, groups, fractions, seed=9) != found


def test_small_classes_fill_every_split_and_begin_in_train():
    names = [f"{i:02d}" for i in range(60)]
    labels = [f"c{i // 3}" for i in range(60)]
    found = split_groups(names, labels, np.arange(60), check_fractions((0.8, 0.1, 0.1)))
    assert Counter(found) == {"train": 48, "validation": 6, "test": 6}
    in_train = {label for label, split in zip(labels, found, strict=True) if split == "train"}
    assert in_train == set(labels)
    single = split_groups(names, names, np.arange(60), check_fractions((0.5, 0.5)))
    assert set(single) == {"train"}


def test_a_folder_that_a_killed_export_left_is_removed(project, tmp_path):
    left = tmp_path / ".out.0123abcd.fewlabels"
    (left / "train").mkdir(parents=True)
    with locked_folder(left):  # of a living process: it stays
        export_labels(project, to="csv", output=tmp_path / "out")
        assert left.exists()
    shutil.rmtree(tmp_path / "out")
    export_labels(project, to="csv", output=tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "p", "photos"]


def test_formulas_in_an_exported_table_are_neutralized(tmp_path):
    names = ["=1+1.jpg", "plain.jpg"]
    FeatureSet.from_arrays([[9, 1], [1, 9]], ["@x", "y"], None, {}, names).save(
        tmp_path / "f.safetensors"
    )
    export_labels(tmp_path / "f.safetensors", to="csv", output=tmp_path / "out")
    path = tmp_path / "out" / "labels.csv"
    assert "\n'=1+1.jpg,'@x," in path.read_text()
    assert read_labels(path, names).labels == {"=1+1.jpg": "@x", "plain.jpg": "y"}
