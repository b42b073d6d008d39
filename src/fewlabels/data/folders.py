"""Plain folders of images: a sub-folder is a class; images beside the sub-folders are unlabelled."""

from pathlib import Path

import numpy as np

from fewlabels.data.image_set import ALL, UNLABELLED, ImageSet, Problem
from fewlabels.data.listing import (
    SUFFIXES,
    Entry,
    list_folders,
    list_images,
    relative_name,
    require_folder,
)
from fewlabels.errors import FileFormatError

CLASSLESS = "the folder holds no images and is no class"


def read_images(folder: str | Path, *, strict: bool = False) -> ImageSet:
    """Read a folder of images, without decoding them.

    Each sub-folder is a class, with all images below it at any depth; images directly in the folder
    are unlabelled. Classes and images are in the order of their names. Hidden files and folders, and
    files that are no images by their suffix, are left out.

    Args:
        folder: The folder.
        strict: Raise on an image that cannot be used (empty file, dead link, link out of the folder),
            instead of passing over it; what was passed over is in `problems` of the result.
    """
    folder = Path(folder)
    require_folder(folder)
    problems: list[Problem] = []
    unlabelled = list_images(folder, root=folder, problems=problems, recursive=False)
    classes: dict[str, list[Entry]] = {}
    for class_folder in list_folders(folder, root=folder, problems=problems):
        name, n_before = relative_name(class_folder, folder), len(problems)
        if entries := list_images(class_folder, root=folder, problems=problems):
            classes[name] = entries
        elif len(problems) == n_before:  # else the reason is among them
            problems.append(Problem(name, CLASSLESS))
    if not classes and not unlabelled:
        raise FileFormatError(
            f"{folder} must hold images ({', '.join(SUFFIXES)}), in a sub-folder for each class or all beside one another, got none"
            f"{_first_of(problems)}. Check the path, or unpack the images there."
        )
    if strict and problems:
        raise FileFormatError(
            f"{folder} must hold only images that can be used, got {len(problems)} that cannot{_first_of(problems)}. "
            "Repair or remove them, or read without strict to pass over them."
        )
    entries = [*unlabelled, *(entry for each in classes.values() for entry in each)]
    return ImageSet(
        name=folder.resolve().name,
        split=ALL,
        class_names=tuple(classes),
        labels=np.repeat(
            np.arange(UNLABELLED, len(classes)), [len(unlabelled), *map(len, classes.values())]
        ),
        names=tuple(entry.name for entry in entries),
        sources=tuple(entry.source for entry in entries),
        problems=tuple(problems),
    )


def _first_of(problems: list[Problem]) -> str:
    return f" (the first: {problems[0]})" if problems else ""
