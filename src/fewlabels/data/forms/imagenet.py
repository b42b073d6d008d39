"""miniImageNet and tieredImageNet from ILSVRC-2012's training images; miniImageNet as one folder.

miniImageNet is 600 images of each of 100 ILSVRC classes. Ravi and Larochelle's lists have names
like n0153282900000005.jpg: the fifth image of class n01532829, counted from 1 in the order of the
numbers in ILSVRC's own file names (n01532829_36.JPEG). The chosen numbers are part of this package.
"""

import base64
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from fewlabels.data import class_lists
from fewlabels.data.class_lists import Benchmark
from fewlabels.data.forms.form import Form
from fewlabels.data.image_set import SPLITS
from fewlabels.data.listing import ListedImage, list_folders, list_images, relative_name
from fewlabels.data.sources import ImageFile
from fewlabels.errors import FileFormatError

MINI = "mini-imagenet"
ILSVRC_NAME = re.compile(r"(n\d{8})_(\d+)\.jpe?g", re.IGNORECASE)
# Where the class folders may be below the named folder.
PLACES = ("", "train", "images", "ILSVRC/Data/CLS-LOC/train", "Data/CLS-LOC/train")


@cache
def mini_choice(class_name: str) -> tuple[int, ...]:
    """The numbers of the images of an ILSVRC class that are in miniImageNet, counted from 1.

    >>> mini_choice("n01532829")[:3], len(mini_choice("n01532829"))
    ((5, 6, 7), 600)
    """
    bits = np.frombuffer(base64.b64decode(_mini_bits()[class_name]), np.uint8)
    return tuple(int(place) + 1 for place in np.flatnonzero(np.unpackbits(bits)))


@cache
def _mini_bits() -> dict[str, str]:
    path = class_lists.FOLDER / "mini-imagenet-images.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


@dataclass(eq=False)
class IlsvrcFolders(Form):
    """The training folders of ILSVRC-2012, of all its classes or of some of each split."""

    NAME: ClassVar[str] = "ILSVRC folders"
    WORDS: ClassVar[str] = (
        "the training folders of ILSVRC-2012, n01440764/*.JPEG; no lists of images are needed"
    )

    place: Path  # the folder of the class folders

    @classmethod
    def find(cls, folder: Path, benchmark: Benchmark) -> Self | None:
        """The form, if one folder has classes of all three splits, with ILSVRC's file names."""
        for place in (folder / each for each in PLACES):
            present = [
                [name for name in benchmark.classes[split] if (place / name).is_dir()]
                for split in SPLITS
            ]
            if all(present) and any(
                ILSVRC_NAME.fullmatch(file.name) for file in (place / present[0][0]).iterdir()
            ):
                return cls(folder, benchmark, place)
        return None

    def placed(self) -> dict[str, set[str]]:
        """The class folders, of the benchmark or not."""
        return {path.name: set() for path in list_folders(self.place, root=self.root, problems=[])}

    def list_class(self, class_name: str) -> list[ListedImage]:
        """The images of a class by number; for miniImageNet only those in its lists."""
        folder = self.place / class_name
        if not folder.is_dir():
            return []
        found = list_images(folder, root=self.root, problems=self.problems)
        found.sort(key=lambda image: list(map(int, re.findall(r"\d+", image.name.split("/")[-1]))))
        # A class of exactly 600 images already has miniImageNet's choice.
        if self.benchmark.name != MINI or len(found) == self.benchmark.per_class:
            return found
        choice = mini_choice(class_name)
        if choice[-1] > len(found):
            raise FileFormatError(
                f"{folder} must be a complete class of ILSVRC-2012, because miniImageNet has its "
                f"image number {choice[-1]}, got {len(found)} images. Unpack the class again."
            )
        return [found[number - 1] for number in choice]


@dataclass(eq=False)
class FlatImages(Form):
    """All images of miniImageNet in one folder, with the names of Ravi and Larochelle's lists."""

    NAME: ClassVar[str] = "flat images"
    WORDS: ClassVar[str] = (
        "images/ with n0153282900000005.jpg and so on, the names of Ravi and Larochelle's lists"
    )

    place: Path  # the folder of the images

    @classmethod
    def find(cls, folder: Path, benchmark: Benchmark) -> Self | None:
        """The form, if the first image of at least one class exists under its listed name."""
        for place in (folder, folder / "images"):
            if any(
                (place / _listed_name(name, mini_choice(name)[0])).is_file()
                for name in benchmark.split_classes("all")
            ):
                return cls(folder, benchmark, place)
        return None

    def list_class(self, class_name: str) -> list[ListedImage]:
        """The existing images of a class, in the order of the list."""
        listed = (_listed_name(class_name, number) for number in mini_choice(class_name))
        paths = [path for path in (self.place / name for name in listed) if path.is_file()]
        return [ListedImage(relative_name(path, self.root), ImageFile(path)) for path in paths]


def _listed_name(class_name: str, number: int) -> str:
    return f"{class_name}{number:08d}.jpg"
