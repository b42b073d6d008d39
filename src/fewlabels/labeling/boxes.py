"""Boxes in images: each crop is an item, called IMAGE#BOX.

.csv    columns path and x, y, width, height (or x1, y1, x2, y2) in pixels; perhaps id and label
.json   COCO: images and annotations with bbox in pixels; the categories are labels
        MegaDetector: images with detections; bbox in fractions of the image, without labels

Pixels and fractions are those of the upright image, from its upper left corner.
"""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fewlabels.data import ImageSet
from fewlabels.data.decoding import upright_size
from fewlabels.data.image_set import Problem
from fewlabels.data.sources import Crop
from fewlabels.errors import FileFormatError, InputError
from fewlabels.io.files import check_suffix, reading
from fewlabels.io.words import count, listing
from fewlabels.labeling.labels_file import NAME_COLUMNS, Lookup, check_label

HOLDS = "boxes: CSV with path, x, y, width, height; JSON of COCO or of MegaDetector"
CORNERS = {  # columns of a CSV file: whether the last two are a size
    ("x", "y", "width", "height"): True,
    ("left", "top", "width", "height"): True,
    ("x", "y", "w", "h"): True,
    ("x1", "y1", "x2", "y2"): False,
    ("xmin", "ymin", "xmax", "ymax"): False,
}
KEY = re.compile(r"[^/\\#\x00-\x1f]{1,100}")  # of a box: it becomes a part of file names
FARTHEST = 1e9  # pixels: what lies beyond is cut there, before numbers become whole
LEAST_CONFIDENCE = 0.2  # of a detection; what MegaDetector's authors advise for version 5


class Box(NamedTuple):
    """One box as written in a file."""

    file: str
    key: str  # tells it from the other boxes of its image
    corners: tuple[float, float, float, float]  # left, top, right, bottom
    label: str = ""
    relative: bool = False  # corners are fractions of the image


class Cropped(NamedTuple):
    """The crops as images, the labels that the boxes have, and remarks."""

    images: ImageSet
    labels: dict[str, str]
    remarks: tuple[str, ...]


def read_boxes(path: Path) -> tuple[list[Box], list[str]]:
    """The boxes of a file, and remarks."""
    check_suffix("boxes", path, (".csv", ".json"))
    with reading(path, holds=HOLDS):
        if path.suffix.lower() == ".csv":
            return _read_csv(path.read_text(encoding="utf-8-sig")), []
        content = json.loads(path.read_text(encoding="utf-8-sig"))
        if not isinstance(content, dict) or not isinstance(content.get("images"), list):
            raise InputError("the file must be an object with a list 'images'.")
        if "annotations" in content:
            return _read_coco(content), []
        return _read_detections(content)


def _read_csv(text: str) -> list[Box]:
    separator = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    columns = [name.strip().lower() for name in reader.fieldnames or ()]
    reader.fieldnames = columns
    name = next((each for each in NAME_COLUMNS if each in columns), None)
    corners = next((each for each in CORNERS if set(each) <= set(columns)), None)
    if name is None or corners is None:
        raise InputError(
            "the columns must be path and x, y, width, height (or x1, y1, x2, y2), "
            f"got {listing(columns, most=12)}."
        )
    boxes, seen = [], dict[str, int]()
    for row in reader:
        a, b, c, d = (_number(row[each], f"line {reader.line_num}: {each}") for each in corners)
        file = row[name] or ""
        key = _key((row.get("id") or "").strip() or seen.get(file, 0))
        seen[file] = seen.get(file, 0) + 1
        where = (a, b, a + c, b + d) if CORNERS[corners] else (a, b, c, d)
        boxes.append(Box(file, key, where, check_label(row.get("label") or "")))
    return boxes


def _key(value: Any) -> str:
    key = str(value)
    if not KEY.fullmatch(key):
        raise InputError(
            f"id of a box must have 1 to 100 characters, none of them / \\ or #, got {key[:100]!r}."
        )
    return key


def _path(value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"the path of an image must be text, got {value!r:.100}.")
    return value


def _number(value: Any, what: str) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = float("nan")
    if not isfinite(found):
        raise InputError(f"{what} must be a number, got {value!r}.")
    return found


def _of_size(bbox: Any, what: str) -> tuple[float, float, float, float]:
    if not isinstance(bbox, list) or len(bbox) != 4:
        raise InputError(f"bbox of {what} must be [x, y, width, height], got {bbox!r}.")
    x, y, width, height = (_number(each, f"bbox of {what}") for each in bbox)
    return x, y, x + width, y + height


def _read_coco(content: Mapping[str, Any]) -> list[Box]:
    files = {each["id"]: _path(each["file_name"]) for each in content["images"]}
    categories = {each["id"]: each["name"] for each in content.get("categories", [])}
    return [
        Box(
            files[each["image_id"]],
            _key(each["id"]),
            _of_size(each["bbox"], f"annotation {each['id']}"),
            check_label(str(categories.get(each.get("category_id"), ""))),
        )
        for each in content["annotations"]
    ]


def _read_detections(content: Mapping[str, Any]) -> tuple[list[Box], list[str]]:
    boxes, n_doubtful = [], 0
    for image in content["images"]:
        file = _path(image["file"])
        for number, each in enumerate(image.get("detections") or ()):
            if each.get("conf", 1.0) < LEAST_CONFIDENCE:
                n_doubtful += 1
                continue
            where = _of_size(each["bbox"], f"{file}, detection {number}")
            boxes.append(Box(file, str(number), where, relative=True))
    words = f"{count(n_doubtful, 'detection')} with confidence below {LEAST_CONFIDENCE} left out."
    return boxes, [words] if n_doubtful else []


def crop_images(images: ImageSet, boxes: Path) -> Cropped:
    """The crops of images, in the order of the images and of the boxes in the file.

    A box that reaches over the edge is cut there; one that lies outside, or has no area, is a
    problem and left out, as are boxes of images that are not there.
    """
    found, remarks = read_boxes(boxes)
    lookup = Lookup(images.names, None, beside=boxes.parent)
    index = {name: row for row, name in enumerate(images.names)}
    of_image: dict[str, list[Box]] = {}
    unknown = list[str]()
    for box in found:
        name = lookup.find(box.file)
        if name is None:
            unknown.append(box.file)
        else:
            of_image.setdefault(name, []).append(box)
    names, sources, problems, labels, n_cut = list[str](), list[Crop](), list[Problem](), {}, 0
    seen = set[str]()
    for name in sorted(of_image, key=index.__getitem__):
        path = images.path(index[name])
        assert path is not None, "a folder has files only"
        size = _find_size(path)
        for box in of_image[name]:
            item = f"{name}#{box.key}"
            inside, is_cut = _inside(box, size)
            if inside is None:
                problems.append(Problem(item, f"the box lies outside the image, {box.corners}"))
                continue
            if item in seen:
                raise InputError(
                    f"{boxes} must give the boxes of an image different ids, got '{box.key}' more "
                    f"than once for {name}. Change them, or leave out the column id."
                )
            seen.add(item)
            n_cut += is_cut
            names.append(item)
            sources.append(Crop(path, *inside))
            if box.label:
                labels[item] = box.label
    if not names:
        shown = listing(dict.fromkeys(unknown)) or "images"
        raise FileFormatError(
            f"{boxes} must hold boxes inside images of the folder, got "
            f"{count(len(found), 'box', 'boxes')} of {shown}. Paths are relative to the folder."
        )
    if unknown:
        shown = listing(dict.fromkeys(unknown))
        boxes_of = count(len(unknown), "box", "boxes")
        remarks.append(f"{boxes}: {boxes_of} of images that are not there left out: {shown}.")
    if n_cut:
        remarks.append(f"{count(n_cut, 'box', 'boxes')} cut at the edge of the image.")
    if n_without := len(images) - len(of_image):
        remarks.append(f"{count(n_without, 'image')} without a box left out.")
    cropped = replace(
        images,
        class_names=(),
        labels=np.full(len(names), -1),
        names=tuple(names),
        sources=tuple(sources),
        problems=(*images.problems, *problems),
    )
    return Cropped(cropped, labels, tuple(remarks))


def _find_size(path: Path) -> tuple[int, int] | None:
    """Width and height of an image by its header; None where it cannot be read."""
    try:
        return upright_size(path)
    except Exception:  # damaged: reading the crop reports it
        return None


def _inside(
    box: Box, size: tuple[int, int] | None
) -> tuple[tuple[int, int, int, int] | None, bool]:
    """Whole pixels of a box inside the image, None if there are none; and whether it was cut.

    >>> _inside(Box("a.jpg", "0", (-5.0, 2.0, 10.0, 8.0)), (20, 20))
    ((0, 2, 10, 8), True)
    """
    corners: Sequence[float] = box.corners
    if size is None:
        return (0, 0, 1, 1), False
    if box.relative:
        corners = [each * size[number % 2] for number, each in enumerate(corners)]
    left, top, right, bottom = (round(max(-FARTHEST, min(each, FARTHEST))) for each in corners)
    kept = max(left, 0), max(top, 0), min(right, size[0]), min(bottom, size[1])
    if kept[0] >= kept[2] or kept[1] >= kept[3]:
        return None, False
    return kept, kept != (left, top, right, bottom)
