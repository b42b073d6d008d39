"""A folder per class, or a folder per split with a folder per class."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from fewlabels.data.class_lists import Benchmark
from fewlabels.data.forms.form import Form
from fewlabels.data.image_set import Problem
from fewlabels.data.listing import ListedImage, list_folders, list_images
from fewlabels.errors import FileFormatError

SPLIT_FOLDERS = {"base": "base", "train": "base", "val": "val", "novel": "novel", "test": "novel"}
PLACES = ("", "images", "data")  # where the class folders may be below the named folder


@dataclass(eq=False)
class ClassFolders(Form):
    """Class folders, found by the names of the classes."""

    NAME: ClassVar[str] = "class folders"
    WORDS: ClassVar[str] = (
        "a folder per class, or SPLIT/CLASS with base or train, val, novel or test for SPLIT"
    )

    folders: dict[str, dict[str, Path]]  # class -> split folder or "" -> path

    @classmethod
    def find(cls, folder: Path, benchmark: Benchmark) -> Self | None:
        """The form, if at least one class of the benchmark has a folder."""
        known = set(benchmark.split_classes("all"))
        for place in PLACES:
            if not (folder / place).is_dir():
                continue
            problems: list[Problem] = []
            folders = _class_folders(folder / place, root=folder, problems=problems)
            if known & folders.keys():
                form = cls(folder, benchmark, folders)
                form.problems += problems
                return form
        return None

    def list_class(self, class_name: str) -> list[ListedImage]:
        """The images of a class, sorted by name."""
        places = self.folders.get(class_name, {})
        if len(places) > 1:
            raise FileFormatError(
                f"{self.root}: class '{class_name}' must be in one split, "
                f"got a folder in each of {', '.join(sorted(places))}. Remove all but one."
            )
        found: list[ListedImage] = []
        for path in places.values():
            found += list_images(path, root=self.root, problems=self.problems)
        return found

    def placed(self) -> dict[str, set[str]]:
        """The class folders, of the benchmark or not."""
        return {name: {split for split in places if split} for name, places in self.folders.items()}


def _class_folders(
    folder: Path, *, root: Path, problems: list[Problem]
) -> dict[str, dict[str, Path]]:
    found: dict[str, dict[str, Path]] = {}
    for path in list_folders(folder, root=root, problems=problems):
        if path.name in SPLIT_FOLDERS:
            for class_folder in list_folders(path, root=root, problems=problems):
                found.setdefault(class_folder.name, {})[SPLIT_FOLDERS[path.name]] = class_folder
        else:
            found.setdefault(path.name, {})[""] = path
    return found
