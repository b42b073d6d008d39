"""A form is one way in which a benchmark lies on disk."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from fewlabels.data.class_lists import Benchmark
from fewlabels.data.image_set import ALL, Problem
from fewlabels.data.listing import Entry

FILE_SPLITS = {
    "base": "train",
    "val": "val",
    "novel": "test",
}  # the splits as files of the literature call them


@dataclass(eq=False)
class Form(ABC):
    """A benchmark found in a folder; nothing is decoded, and large files are opened only when asked for their images."""

    NAME: ClassVar[str]
    WORDS: ClassVar[str]  # what is looked for, for messages and for `fewlabels data list`

    root: Path  # as the user named it; names of images are relative to it
    benchmark: Benchmark
    problems: list[Problem] = field(default_factory=list, init=False)  # what was passed over

    @classmethod
    @abstractmethod
    def find(cls, folder: Path, benchmark: Benchmark) -> Self | None:
        """The form, if the folder has it. Looks at names and small files only."""

    @abstractmethod
    def entries(self, class_name: str) -> list[Entry]:
        """The images of a class in their order; none where the class is not there."""

    def class_names(self, split: str) -> tuple[str, ...]:
        """The classes of a split as this form calls them."""
        return self.benchmark.classes[split]

    def placed(self) -> dict[str, set[str]]:
        """The classes that lie there, each with the splits in whose folders it lies, for finding out which benchmark a folder is.

        A form that is known by the names of its files alone claims all classes and no split folders.
        """
        return {name: set() for name in self.benchmark.split_classes(ALL)}

    def verify(self) -> Iterator[Problem]:
        """Checks of the form's own, beyond decoding every image."""
        yield from ()
