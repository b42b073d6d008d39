"""One folder per class: torchvision's ImageFolder and Ultralytics' layout for classification.

imagefolder   [train|val|test]/CLASS/picture
ultralytics   train|val|test/CLASS/picture
"""

import csv
import io
from pathlib import Path

from fewlabels.io.words import escape_formula
from fewlabels.labeling.exports.base import (
    SHORT_SPLITS,
    Dataset,
    Format,
    Item,
    register,
    unique_names,
)
from fewlabels.labeling.outputs import folder_names

NAMES_FILE = "class_names.csv"  # where folders could not have the names of the classes


def place_in_folders(folder: Path, data: Dataset, items: list[Item]) -> list[str]:
    """Copy or link pictures into a folder per class; returns their paths below `folder`."""
    placed = [""] * len(items)
    for label in data.class_names:
        rows = [row for row, item in enumerate(items) if item.label == label]
        for row, name in zip(rows, unique_names(items[row].path for row in rows), strict=True):
            placed[row] = f"{data.target_names[label]}/{name}"
            data.place(items[row], folder / placed[row])
    return placed


def write_folders(folder: Path, data: Dataset) -> None:
    """Write the pictures, and `class_names.csv` where a folder has another name than its class."""
    for split in data.splits:
        place_in_folders(folder / SHORT_SPLITS.get(split, ""), data, data.of(split))
    write_class_names(folder, data)


def write_class_names(folder: Path, data: Dataset) -> None:
    """Write which folder is which class, where they differ."""
    if data.targets != list(data.class_names):
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("folder", "label"))
        for name in data.class_names:
            writer.writerow((escape_formula(data.target_names[name]), escape_formula(name)))
        (folder / NAMES_FILE).write_bytes(text.getvalue().encode())


register(
    Format(
        "imagefolder",
        "one folder per class, as torchvision's ImageFolder and many others read it",
        write_folders,
        needs_pictures=True,
        nests=True,
        rename=folder_names,
    ),
    Format(
        "ultralytics",
        "train, val and test with one folder per class, as Ultralytics trains from (YOLO)",
        write_folders,
        needs_pictures=True,
        always_split=True,
        rename=folder_names,
    ),
)
