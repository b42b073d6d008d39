"""CUB-200-2011 as published: images/ with a folder per class, and lists beside it."""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import ClassVar, Self

from fewlabels.data.class_lists import Benchmark
from fewlabels.data.forms.form import Form
from fewlabels.data.image_set import Problem
from fewlabels.data.listing import ListedImage, list_images, relative_name
from fewlabels.errors import FileFormatError

FOLDER = "CUB_200_2011"
LIST = "images.txt"  # "1 001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg"


@dataclass(eq=False)
class CubArchive(Form):
    """The unpacked archive; its own list names its images."""

    NAME: ClassVar[str] = "CUB archive"
    WORDS: ClassVar[str] = f"{FOLDER}/ with images/ and {LIST}"

    place: Path  # the folder of images.txt

    @classmethod
    def find(cls, folder: Path, benchmark: Benchmark) -> Self | None:
        """The form, if the folder is or holds the unpacked archive."""
        for place in (folder, folder / FOLDER):
            if (place / LIST).is_file() and (place / "images").is_dir():
                return cls(folder, benchmark, place)
        return None

    def list_class(self, class_name: str) -> list[ListedImage]:
        """The images of a class that the list names, sorted by name."""
        folder = self.place / "images" / class_name
        found = []
        if folder.is_dir():
            found = list_images(folder, root=self.root, problems=self.problems)
        listed = {relative_name(folder / file, self.root) for file in self._listed[class_name]}
        skipped = {problem.name for problem in self.problems}
        missing = sorted(listed - {image.name for image in found} - skipped)
        absent = f"{LIST} names it, but it does not exist"
        self.problems += [Problem(name, absent) for name in missing]
        return [image for image in found if image.name in listed]

    @cached_property
    def _listed(self) -> dict[str, list[str]]:
        """The file names of each class."""
        listed = defaultdict(list)
        lines = (self.place / LIST).read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines, start=1):
            _, _, name = line.strip().partition(" ")
            parts = PurePosixPath(name).parts
            if len(parts) != 2 or ".." in parts or name.startswith("/"):
                raise FileFormatError(
                    f"{self.place / LIST}: line {number} must be 'NUMBER CLASS/FILE', "
                    f"got {line!r:.80}. Copy the file again."
                )
            listed[parts[0]].append(parts[1])
        return listed
