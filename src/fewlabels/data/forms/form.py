"""Form: one way in which a benchmark is stored on disk."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from fewlabels.data.class_lists import Benchmark
from fewlabels.data.image_set import ALL, Problem
from fewlabels.data.listing import ListedImage

FILE_SPLITS = {"base": "train", "val": "val", "novel": "test"}  # names of splits in file names


@dataclass(eq=False)
class Form(ABC):
    """A benchmark found in a folder; images are not decoded, large files are opened when needed."""

    NAME: ClassVar[str]
    WORDS: ClassVar[str]  # what is looked for, for messages and for `fewlabels data list`

    root: Path  # as given; names of images are relative to it
    benchmark: Benchmark
    problems: list[Problem] = field(default_factory=list, init=False)  # what was skipped

    @classmethod
    @abstractmethod
    def find(cls, folder: Path, benchmark: Benchmark) -> Self | None:
        """The form, if the folder has it. Reads only names and small files."""

    @abstractmethod
    def list_class(self, class_name: str) -> list[ListedImage]:
        """The images of a class in order; an empty list if the class is missing."""

    def class_names(self, split: str) -> tuple[str, ...]:
        """The names of the classes of a split in this form."""
        return self.benchmark.classes[split]

    def placed(self) -> dict[str, set[str]]:
        """The classes found, each with the splits in whose folders it is, to guess the benchmark.

        A form that is recognized by file names alone returns all classes without split folders.
        """
        return {name: set() for name in self.benchmark.split_classes(ALL)}

    def verify(self) -> Iterator[Problem]:
        """Checks of this form, besides decoding every image."""
        yield from ()
