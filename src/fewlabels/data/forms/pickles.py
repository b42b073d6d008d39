"""The pickles in which miniImageNet and tieredImageNet are shared; no code in them is run."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fewlabels.data.class_lists import Benchmark
from fewlabels.data.forms.form import FILE_SPLITS, Form
from fewlabels.data.listing import ListedImage
from fewlabels.data.sources import ArrayRow, EncodedImage
from fewlabels.errors import FileFormatError
from fewlabels.unpickle import load_plain


def _load(path: Path, *, holds: str) -> Any:
    if not path.is_file():
        raise FileFormatError(f"{path} does not exist. It must hold {holds}; copy it there.")
    return load_plain(path.read_bytes(), where=str(path), holds=holds)


@dataclass(eq=False)
class MiniPickles(Form):
    """mini-imagenet-cache-{train,val,test}.pkl: image_data (N, 84, 84, 3) and class_dict."""

    NAME: ClassVar[str] = "cache pickles"
    WORDS: ClassVar[str] = "mini-imagenet-cache-{train,val,test}.pkl"
    HOLDS: ClassVar[str] = "a dict of image_data (N, H, W, 3) and class_dict (class -> rows)"

    _caches: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)

    @classmethod
    def find(cls, folder: Path, benchmark: Benchmark) -> Self | None:
        """The form, if the file of at least one split exists."""
        found = any((folder / cls._file(split)).is_file() for split in FILE_SPLITS)
        return cls(folder, benchmark) if found else None

    def list_class(self, class_name: str) -> list[ListedImage]:
        """The images of a class in the order of the file."""
        split = self.benchmark.split_of(class_name)
        cache, file = self._cache(split), self._file(split)
        rows = cache["class_dict"].get(class_name, [])
        images = cache["image_data"]
        return [ListedImage(f"{file}#{row}", ArrayRow(images, int(row))) for row in rows]

    def _cache(self, split: str) -> dict[str, Any]:
        if split not in self._caches:
            path = self.root / self._file(split)
            content = _load(path, holds=self.HOLDS)
            if not _is_mini_cache(content):
                raise FileFormatError(f"{path} must hold {self.HOLDS}. Copy it again.")
            self._caches[split] = content
        return self._caches[split]

    @staticmethod
    def _file(split: str) -> str:
        return f"mini-imagenet-cache-{FILE_SPLITS[split]}.pkl"


def _is_mini_cache(content: Any) -> bool:
    if not isinstance(content, dict) or not isinstance(content.get("class_dict"), dict):
        return False
    images = content.get("image_data")
    if not isinstance(images, np.ndarray):
        return False
    if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8:
        return False
    rows = [row for each in content["class_dict"].values() for row in each]
    return all(isinstance(row, int | np.integer) and 0 <= row < len(images) for row in rows)


@dataclass(eq=False)
class TieredPickles(Form):
    """{train,val,test}_images_png.pkl, a list of PNGs, and {train,val,test}_labels.pkl beside it.

    Their classes have English names ("Yorkshire terrier"), not WordNet ids, so only the number of
    classes can be checked.
    """

    NAME: ClassVar[str] = "PNG pickles"
    WORDS: ClassVar[str] = "{train,val,test}_images_png.pkl with {train,val,test}_labels.pkl"

    _lists: dict[str, list[Any]] = field(default_factory=dict, init=False)

    @classmethod
    def find(cls, folder: Path, benchmark: Benchmark) -> Self | None:
        """The form, if the images of at least one split exist."""
        found = any((folder / _images_file(split)).is_file() for split in FILE_SPLITS)
        return cls(folder, benchmark) if found else None

    def class_names(self, split: str) -> tuple[str, ...]:
        """The names in the labels file of the split."""
        if split not in self._labels:
            raise FileFormatError(
                f"{self.root / _labels_file(split)} does not exist. "
                "Copy it there; it is published with the images."
            )
        return tuple(self._labels[split])

    def list_class(self, class_name: str) -> list[ListedImage]:
        """The images of a class in the order of the file."""
        split = next(split for split, classes in self._labels.items() if class_name in classes)
        images, file = self._images(split), _images_file(split)
        rows = self._labels[split][class_name]
        if rows.size and rows[-1] >= len(images):
            raise FileFormatError(
                f"{self.root / file} must hold an image per label, got {len(images)}. "
                "Copy both files again."
            )
        return [
            ListedImage(f"{file}#{row}", EncodedImage(images[row], f"{self.root / file}#{row}"))
            for row in rows.tolist()
        ]

    def _images(self, split: str) -> list[Any]:
        if split not in self._lists:
            holds = "a list of PNG images, each an array of bytes"
            images = _load(self.root / _images_file(split), holds=holds)
            if not isinstance(images, list) or not all(
                isinstance(each, np.ndarray | bytes) for each in images
            ):
                raise FileFormatError(
                    f"{self.root / _images_file(split)} must hold {holds}. Copy it again."
                )
            self._lists[split] = images
        return self._lists[split]

    @cached_property
    def _labels(self) -> dict[str, dict[str, NDArray[np.int64]]]:
        """Split -> class -> rows, for the splits whose labels exist."""
        words: dict[str, list[str]] = {}
        labels: dict[str, NDArray[np.int64]] = {}
        for split in FILE_SPLITS:
            path = self.root / _labels_file(split)
            holds = "a dict of label_specific (N,) and label_specific_str (names)"
            if not path.is_file():
                continue
            content = _load(path, holds=holds)
            try:
                labels[split] = np.asarray(content["label_specific"], np.int64)
                words[split] = [str(word) for word in content["label_specific_str"]]
            except (KeyError, TypeError, ValueError) as error:
                raise FileFormatError(f"{path} must hold {holds}. Copy it again.") from error
        # Some names occur twice: "crane" is a bird and a machine.
        times = Counter(word for each in words.values() for word in each)

        def name(split: str, number: int) -> str:
            word = words[split][number]
            return word if times[word] == 1 else f"{word} ({split} {number})"

        return {
            split: {
                name(split, number): np.flatnonzero(labels[split] == number)
                for number in range(len(words[split]))
            }
            for split in words
        }


def _images_file(split: str) -> str:
    return f"{FILE_SPLITS[split]}_images_png.pkl"


def _labels_file(split: str) -> str:
    return f"{FILE_SPLITS[split]}_labels.pkl"
