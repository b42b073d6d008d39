"""ImageSet: references to images with their class numbers, the result of stage 1."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fewlabels.data.geometry import crop_center, resize_short_side
from fewlabels.data.sources import ArrayRow, ImageSource
from fewlabels.errors import FileFormatError, InputError, unknown_choice
from fewlabels.io.words import name_rows

UNLABELLED = -1
SPLITS = ("base", "val", "novel")
ALL = "all"  # the split of a set that is not one of the three
CHUNK = 64  # images per task of a thread: enough to make the cost of a task negligible


class Problem(NamedTuple):
    """Something in a folder that was skipped, and why."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


@dataclass(frozen=True, eq=False)
class ImageSet:
    """References to N images, the class number of each, and a stable name of each.

    Images are decoded only when they are read. Several threads may read at once.

    >>> import numpy as np
    >>> pixels = np.zeros((3, 8, 8, 3), np.uint8)
    >>> pets = ImageSet.from_array(pixels, [0, 1, -1], ["cat", "dog"], name="pets")
    >>> len(pets), pets.names[2], pets.read(0).size, pets.of_classes(["dog"]).labels.tolist()
    (3, 'pets#2', (8, 8), [0])
    """

    name: str  # of the dataset: "cifar-fs", or the folder's name
    split: str  # "base", "val", "novel" or "all"
    class_names: tuple[str, ...]
    labels: NDArray[np.int64]  # (N,), -1 where unlabelled
    names: tuple[str, ...]  # "leek/1.jpg"; "novel/bed.webp#17" (tile); "train.pkl#17" (array row)
    sources: tuple[ImageSource, ...] = field(repr=False)
    problems: tuple[Problem, ...] = ()  # what was skipped when the images were listed
    others: tuple[str, ...] = ()  # names of files there in formats that are not read

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # because the dataclass is frozen
        for name in ("class_names", "names", "sources", "problems", "others"):
            set_field(self, name, tuple(getattr(self, name)))
        set_field(self, "labels", np.ascontiguousarray(self.labels, dtype=np.int64))
        if self.split not in (*SPLITS, ALL):
            raise unknown_choice("split", self.split, (*SPLITS, ALL))
        _refuse_twice("class_names", self.class_names)
        _refuse_twice("names", self.names)
        if not len(self.labels) == len(self.names) == len(self.sources):
            raise InputError(
                "labels, names and sources must have one entry per image, "
                f"got {len(self.labels)}, {len(self.names)} and {len(self.sources)}."
            )
        known = (self.labels >= UNLABELLED) & (self.labels < len(self.class_names))
        outside = np.flatnonzero(~known)
        if outside.size:
            raise InputError(
                f"labels must be from -1 (unlabelled) to {len(self.class_names) - 1}, "
                f"as there are {len(self.class_names)} class_names, "
                f"got {self.labels[outside[0]]} in {name_rows(outside)}."
            )

    @classmethod
    def from_array(
        cls,
        pixels: NDArray[np.uint8],
        labels: Any,
        class_names: Sequence[str] = (),
        *,
        name: str = "images",
        split: str = ALL,
    ) -> Self:
        """Wrap decoded images.

        Args:
            pixels: (N, H, W, 3) RGB; held, not copied.
            labels: Class numbers, -1 where unlabelled.
        """
        if pixels.ndim != 4 or pixels.shape[-1] != 3 or pixels.dtype != np.uint8:
            raise InputError(
                "pixels must be uint8 of shape (N, H, W, 3), "
                f"got {pixels.dtype} of shape {pixels.shape}."
            )
        names = tuple(f"{name}#{row}" for row in range(len(pixels)))
        sources = tuple(ArrayRow(pixels, row) for row in range(len(pixels)))
        return cls(name, split, tuple(class_names), labels, names, sources)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def class_sizes(self) -> NDArray[np.int64]:
        """The number of images of each class, (W,)."""
        labelled = self.labels[self.labels != UNLABELLED]
        return np.bincount(labelled, minlength=len(self.class_names)).astype(np.int64)

    def read(self, index: int) -> Image.Image:
        """Decode one image: RGB, upright by its EXIF tag, transparency blended with white."""
        return self.sources[index].read()

    def digest(self, index: int) -> str:
        """32 hex digits that name the content of one image, independent of its path."""
        return self.sources[index].digest()

    def path(self, index: int) -> Path | None:
        """The file of one image; None for tiles and arrays."""
        return self.sources[index].path

    def file(self, index: int) -> Path | None:
        """As `path`, but also the file that a crop or a frame is a part of."""
        source = self.sources[index]
        found: Path | None = source.path or getattr(source, "file", None)
        return found

    @property
    def paths(self) -> list[Path | None]:
        """The file of each image."""
        return [source.path for source in self.sources]

    def stack(self, size: int) -> NDArray[np.uint8]:
        """All images, short side resized to `size`, center crop -> (N, size, size, 3)."""
        if size < 1:
            raise InputError(f"stack: size must be at least 1 pixel, got {size}.")
        stacked = np.empty((len(self), size, size, 3), np.uint8)

        def fill(start: int) -> None:
            for index in range(start, min(start + CHUNK, len(self))):
                image = self.read(index)
                try:
                    stacked[index] = np.asarray(crop_center(resize_short_side(image, size), size))
                except InputError as error:
                    raise FileFormatError(f"{self.names[index]}: {error}") from error

        # Pillow releases the GIL while it decodes and resizes.
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for _ in pool.map(fill, range(0, len(self), CHUNK)):
                pass
        return stacked

    def subset(self, indices: Any) -> Self:
        """The given images (numbers, a mask or a slice) in this order; all class names stay."""
        rows = np.arange(len(self))[indices]
        return self._with(rows, self.class_names, self.labels[rows])

    def of_classes(self, names: Iterable[str]) -> Self:
        """Only the images of these classes, with class numbers in the given order."""
        chosen = tuple(names)
        for unknown in (name for name in chosen if name not in self.class_names):
            raise unknown_choice(f"of_classes: a class of {self.name}", unknown, self.class_names)
        # The last entry is for label -1.
        renumbered = np.full(len(self.class_names) + 1, UNLABELLED)
        renumbered[[self.class_names.index(name) for name in chosen]] = np.arange(len(chosen))
        labels = renumbered[self.labels]
        rows = np.flatnonzero(labels != UNLABELLED)
        return self._with(rows, chosen, labels[rows])

    def _with(
        self, rows: NDArray[np.int64], class_names: tuple[str, ...], labels: NDArray[np.int64]
    ) -> Self:
        names = tuple(self.names[row] for row in rows)
        sources = tuple(self.sources[row] for row in rows)
        return type(self)(self.name, self.split, class_names, labels, names, sources, self.problems)


def _refuse_twice(what: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name, times in Counter(names).items() if times > 1)
        raise InputError(
            f"{what} must be different from one another, got {twice!r} more than once."
        )
