"""Plain folders of images: each sub-folder is a class, other images are unlabelled."""

from pathlib import Path

from fewlabels.data import listing
from fewlabels.data.image_set import ALL, ImageSet, Problem
from fewlabels.data.listing import (
    SUFFIXES,
    ListedImage,
    list_images,
    relative_name,
    remark_unreadable,
)
from fewlabels.errors import FileFormatError

CLASSLESS = "the folder holds no images and is not a class"


def read_images(folder: str | Path, *, strict: bool = False) -> ImageSet:
    """Read a folder of images, without decoding them.

    Each sub-folder is a class, with all images below it at any depth; images directly in the
    folder are unlabelled. Classes and images are sorted by name. Hidden files and folders, and
    files without a suffix of an image format, are left out.

    Args:
        folder: The folder.
        strict: Raise on an image that cannot be used (empty file, broken link, link out of the
            folder), instead of skipping it; skipped files are in `problems` of the result.
    """
    folder = Path(folder)
    listing.require_folder(folder)
    problems: list[Problem] = []
    others: list[str] = []
    unlabelled = list_images(folder, root=folder, problems=problems, others=others, recursive=False)
    classes: dict[str, list[ListedImage]] = {}
    for class_folder in listing.list_folders(folder, root=folder, problems=problems):
        name, n_before = relative_name(class_folder, folder), len(problems)
        if listed := list_images(class_folder, root=folder, problems=problems, others=others):
            classes[name] = listed
        elif len(problems) == n_before:  # otherwise a problem says why
            problems.append(Problem(name, CLASSLESS))
    if not classes and not unlabelled:
        raise FileFormatError(
            f"{folder} must hold images ({', '.join(SUFFIXES)}), in a sub-folder per class or "
            f"all in one folder, got none{_first_of(problems)}. "
            + " ".join(["Check the path, or unpack the images there.", *remark_unreadable(others)])
        )
    if strict and problems:
        raise FileFormatError(
            f"{folder} must hold only images that can be used, "
            f"got {len(problems)} that cannot{_first_of(problems)}. "
            "Repair or remove them, or read without strict to skip them."
        )
    return listing.collect(folder.resolve().name, ALL, classes, problems, unlabelled, others)


def _first_of(problems: list[Problem]) -> str:
    return f" (the first: {problems[0]})" if problems else ""
