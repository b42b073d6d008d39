"""CVAT: annotations.xml ("CVAT for images 1.1"), and lists in the form of ImageNet.

Both name the pictures of a task by path; the pictures themselves are not copied.
"""

from pathlib import Path
from xml.etree import ElementTree

from fewlabels.errors import InputError
from fewlabels.labeling.exports.base import (
    SHORT_SPLITS,
    Dataset,
    Format,
    picture_size,
    register,
    write_lines,
)

LONGEST_LABEL = 64  # characters of a class in CVAT


def shorten_names(labels: set[str]) -> dict[str, str]:
    """A name of at most 64 characters for each class, all different."""
    names: dict[str, str] = {}
    for label in sorted(labels, key=lambda each: (len(each) > LONGEST_LABEL, each)):
        name, number = label[:LONGEST_LABEL], 2
        while name in names.values():
            end = f"-{number}"
            name, number = label[: LONGEST_LABEL - len(end)] + end, number + 1
        names[label] = name
    return names


def write_cvat(folder: Path, data: Dataset) -> None:
    """Write annotations.xml with one tag per picture."""
    root = ElementTree.Element("annotations")
    ElementTree.SubElement(root, "version").text = "1.1"
    meta = ElementTree.SubElement(root, "meta")
    # Only a project has subsets: one task each.
    splits = [split for split in data.splits if split]
    whole = ElementTree.SubElement(meta, "project" if splits else "task")
    for key, value in (("name", data.title), ("size", len(data.items)), ("mode", "annotation")):
        ElementTree.SubElement(whole, key).text = str(value)
    tasks = ElementTree.SubElement(whole, "tasks") if splits else whole
    for split in splits:
        task = ElementTree.SubElement(tasks, "task")
        ElementTree.SubElement(task, "name").text = f"{data.title} {split}"
        ElementTree.SubElement(task, "subset").text = split
    labels = ElementTree.SubElement(whole, "labels")
    for name in data.targets:
        label = ElementTree.SubElement(labels, "label")
        ElementTree.SubElement(label, "name").text = name
        ElementTree.SubElement(label, "type").text = "tag"
        ElementTree.SubElement(label, "attributes")
    for number, item in enumerate(data.items):
        width, height = picture_size(item)
        about = {"id": str(number), "name": item.path}
        if item.split:
            about["subset"] = item.split
        about |= {"width": str(width), "height": str(height)}
        image = ElementTree.SubElement(root, "image", about)
        source = "auto" if item.is_predicted else "manual"
        tag = {"label": data.target_names[item.label], "source": source}
        ElementTree.SubElement(image, "tag", tag)
    ElementTree.indent(root)
    content = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    (folder / "annotations.xml").write_bytes(content + b"\n")


def write_imagenet(folder: Path, data: Dataset) -> None:
    """Write synsets.txt, one class per line, and a list "path number" per split."""
    write_lines(folder / "synsets.txt", data.targets)
    for split in data.splits:
        lines = [f"{_listed(item.path)} {data.numbers[item.label]}" for item in data.of(split)]
        write_lines(folder / f"{SHORT_SPLITS.get(split, 'default')}.txt", lines)


def _listed(path: str) -> str:
    """A path as it stands in a list: with spaces, all but its suffix is quoted."""
    if '"' in path:
        raise InputError(
            f"imagenet lists cannot name a path with a quotation mark, got '{path}'. "
            "Rename the file, or choose another format."
        )
    if len(path.split()) == 1:
        return path
    suffix = Path(path).suffix
    return f'"{path.removesuffix(suffix)}"{suffix}'


register(
    Format(
        "cvat",
        "CVAT for images 1.1: annotations.xml with a tag per picture",
        write_cvat,
        needs_pictures=True,
        names_pictures=True,
        rename=shorten_names,
    ),
    Format(
        "imagenet",
        "lists in the form of ImageNet: synsets.txt and lines 'path number' (CVAT, Datumaro)",
        write_imagenet,
        names_pictures=True,
    ),
)
