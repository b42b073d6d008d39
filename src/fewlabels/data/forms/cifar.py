"""CIFAR-100 as published: three pickles in cifar-100-python/, or the .tar.gz that holds them."""

import tarfile
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fewlabels.data.class_lists import Benchmark
from fewlabels.data.forms.form import Form
from fewlabels.data.listing import ListedImage
from fewlabels.data.sources import ArrayRow
from fewlabels.errors import FileFormatError
from fewlabels.unpickle import load_plain

FOLDER = "cifar-100-python"
ARCHIVE = f"{FOLDER}.tar.gz"
PARTS = ("train", "test")  # 500 and 100 images of each class
SIDE = 32  # pixels
HOLDS = "a part of CIFAR-100 for Python"


class Part(NamedTuple):
    """The images of one pickle."""

    images: NDArray[np.uint8]  # (N, 32, 32, 3)
    labels: NDArray[np.int64]  # (N,)
    file_names: NDArray[np.str_]  # (N,)


@dataclass(eq=False)
class CifarArchive(Form):
    """CIFAR-100's archive; each class is its train images, then its test images, by file name."""

    NAME: ClassVar[str] = "CIFAR-100 archive"
    WORDS: ClassVar[str] = f"{FOLDER}/ with train, test and meta, or {ARCHIVE}"

    place: Path  # the folder of the pickles, or the archive

    @classmethod
    def find(cls, folder: Path, benchmark: Benchmark) -> Self | None:
        """The form, if the folder is or holds the archive, packed or unpacked."""
        for place in (folder, folder / FOLDER):
            if all((place / part).is_file() for part in (*PARTS, "meta")):
                return cls(folder, benchmark, place)
        for place in (folder, folder / ARCHIVE):
            packed = place.name.startswith("cifar") and place.name.endswith((".tar.gz", ".tgz"))
            if packed and place.is_file():
                return cls(folder, benchmark, place)
        return None

    def list_class(self, class_name: str) -> list[ListedImage]:
        """The images of a class: train images by file name, then test images by file name."""
        if class_name not in self._class_numbers:
            return []
        found: list[ListedImage] = []
        for name, part in self._parts.items():
            rows = np.flatnonzero(part.labels == self._class_numbers[class_name])
            rows = rows[np.argsort(part.file_names[rows], kind="stable")]
            found += [ListedImage(f"{name}#{row}", ArrayRow(part.images, int(row))) for row in rows]
        return found

    @cached_property
    def _pickles(self) -> dict[str, bytes]:
        names = (*PARTS, "meta")
        try:
            if self.place.is_dir():
                return {name: (self.place / name).read_bytes() for name in names}
            with tarfile.open(self.place) as archive:
                members = {name: archive.extractfile(f"{FOLDER}/{name}") for name in names}
                return {name: member.read() for name, member in members.items() if member}
        except (OSError, EOFError, KeyError, tarfile.TarError, zlib.error) as error:
            raise FileFormatError(
                f"{self.place} must hold {FOLDER}/train, test and meta, "
                f"but cannot be read ({error}). Copy it again."
            ) from error

    def _load(self, name: str) -> Any:
        return load_plain(self._pickles.get(name, b""), where=f"{self.place}: {name}", holds=HOLDS)

    @cached_property
    def _class_numbers(self) -> dict[str, int]:
        try:
            names = self._load("meta")["fine_label_names"]
            return {name: number for number, name in enumerate(names)}
        except (KeyError, TypeError) as error:
            raise FileFormatError(
                f"{self.place}: meta must have fine_label_names. It is {HOLDS}; copy it again."
            ) from error

    @cached_property
    def _parts(self) -> dict[str, Part]:
        parts = {name: self._read_part(name) for name in PARTS}
        del self._pickles  # 185 MB that are not needed again
        return parts

    def _read_part(self, name: str) -> Part:
        try:
            content = self._load(name)
            planes = content["data"].reshape(-1, 3, SIDE, SIDE)  # red, green, blue
            names = np.asarray(content["filenames"], dtype=np.str_)
            images, labels = planes.transpose(0, 2, 3, 1), np.asarray(content["fine_labels"])
            if planes.dtype != np.uint8 or not len(images) == len(labels) == len(names):
                raise ValueError(
                    "data, fine_labels and filenames must have equal lengths, and data be uint8"
                )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, FileFormatError):
                raise
            raise FileFormatError(
                f"{self.place}: {name} must be {HOLDS}, but cannot be read ({error}). "
                "Copy it again."
            ) from error
        return Part(images, labels, names)
