"""Read an export with the library of its format, and print the label of each picture as JSON.

    python read_by_library.py FORMAT FOLDER PHOTOS CACHE

A program of its own: some of these libraries leave files open, or start threads.
"""

import csv
import json
import os
import sys
from pathlib import Path
from urllib.parse import unquote


def stem(path) -> str:
    """The name of a picture without its suffixes: some formats write IMG_0.HEIC.jpg."""
    return Path(path).name.partition(".")[0]


def own_names(folder: Path) -> dict[str, str]:
    """The class of each folder whose name differs from its class."""
    path = folder / "class_names.csv"
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {row["folder"]: row["label"] for row in csv.DictReader(file)}


def read_imagefolder(folder: Path) -> dict[str, str]:
    from torchvision.datasets import ImageFolder

    found, own = {}, own_names(folder)
    for split in sorted(each for each in folder.iterdir() if each.is_dir()):
        data = ImageFolder(split)
        assert data[0][0].size
        names = [own.get(name, name) for name in data.classes]
        found |= {stem(path): names[number] for path, number in data.samples}
    return found


def read_ultralytics(folder: Path) -> dict[str, str]:
    from ultralytics.data.utils import check_cls_dataset

    checked, own = check_cls_dataset(str(folder)), own_names(folder)
    names = set(checked["names"].values())
    pictures = [path for split in ("train", "val") for path in Path(checked[split]).glob("*/*.jpg")]
    assert {path.parent.name for path in pictures} == names
    return {stem(path): own.get(path.parent.name, path.parent.name) for path in pictures}


def read_hf(folder: Path, cache: Path) -> dict[str, str]:
    import datasets

    found = {}
    data = datasets.load_dataset(str(folder), cache_dir=str(cache))
    for split in data.class_encode_column("label").values():  # as the card says
        names = split.features["label"].names
        for row in split:
            assert min(row["image"].size) > 10
            found[stem(row["source"])] = names[row["label"]]
    return found


def read_fiftyone(folder: Path) -> dict[str, str]:
    from fiftyone.utils.data.importers import FiftyOneImageClassificationDatasetImporter

    found = {}
    for split in sorted(folder.iterdir()):
        with FiftyOneImageClassificationDatasetImporter(dataset_dir=str(split)) as importer:
            found |= {stem(path): label.label for path, _, label in importer}
    return found


def read_datumaro(folder: Path, form: str, photos: Path) -> dict[str, str]:
    from datumaro import AnnotationType, Dataset

    if form == "cvat":  # a task of CVAT has its pictures beside the labels
        (folder / "images").symlink_to(photos)
    data = Dataset.import_from(str(folder), "imagenet_txt" if form == "imagenet" else form)
    classes, found = data.categories()[AnnotationType.label], {}
    for item in data:
        (annotation,) = item.annotations
        found[stem(item.id)] = classes[annotation.label].name
    return found


def read_label_studio(folder: Path) -> dict[str, str]:
    from xml.sax.saxutils import quoteattr

    from label_studio_sdk.label_interface import LabelInterface

    tasks = json.loads((folder / "tasks.json").read_text(encoding="utf-8"))
    found = {}
    for task in tasks:
        (entry,) = task.get("annotations") or task["predictions"]
        path = unquote(task["data"]["image"].partition("?d=")[2])
        (found[stem(path)],) = entry["result"][0]["value"]["choices"]
    choices = "".join(f"<Choice value={quoteattr(name)}/>" for name in set(found.values()))
    about = LabelInterface(
        '<View><Image name="image" value="$image"/>'
        f'<Choices name="label" toName="image">{choices}</Choices></View>'
    )
    for task in tasks:
        assert all(about.validate_annotation(each) for each in task.get("annotations", ()))
        assert all(about.validate_prediction(each) for each in task.get("predictions", ()))
    return found


def read_table(folder: Path, form: str) -> dict[str, str]:
    import pandas as pd

    read = pd.read_csv if form == "csv" else pd.read_parquet
    frame = read(folder / f"labels.{form}")
    return dict(zip(map(stem, frame["path"]), frame["label"], strict=True))


def main(form: str, folder: Path, photos: Path, cache: Path) -> dict[str, str]:
    """Labels by the stem of the picture."""
    os.environ |= {"HOME": str(cache), "YOLO_CONFIG_DIR": str(cache), "YOLO_OFFLINE": "true"}
    if form == "imagefolder":
        return read_imagefolder(folder)
    if form == "ultralytics":
        return read_ultralytics(folder)
    if form == "hf":
        return read_hf(folder, cache)
    if form == "fiftyone":
        return read_fiftyone(folder)
    if form == "label-studio":
        return read_label_studio(folder)
    if form in ("csv", "parquet"):
        return read_table(folder, form)
    return read_datumaro(folder, form, photos)


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(sys.argv[1], *map(Path, sys.argv[2:]))))
