"""Format: a way to write labelled images for another program, declared once; and the registry.

A format's file declares it and registers it. The choices of `export_labels`, of `fewlabels export`
and of messages are derived from the registry.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from fewlabels.data.decoding import UnreadableImageError, decode, upright_size
from fewlabels.data.listing import AVIF, HEIC, SUFFIXES, VIDEO
from fewlabels.data.sources import ImageSource
from fewlabels.errors import InputError, unknown_choice
from fewlabels.io.files import allowed_name

TRAIN, VALIDATION, TEST = "train", "validation", "test"
JPEG_QUALITY = 95  # of pictures that few programs read, written as JPEG
SHORT_SPLITS = {TRAIN: "train", VALIDATION: "val", TEST: "test"}


class Item(NamedTuple):
    """One item to write."""

    path: str  # below the folder of the images, with forward slashes
    label: str  # "" without one
    origin: str  # person, import, confirmed, model, or "" without a label
    confidence: float
    file: Path | None = None  # where the picture is; None without one
    none_of_these: float = 0.0  # probability of belonging to no class, where it is known
    split: str = ""  # train, validation, test, or "" where there are no splits
    guess: str = ""  # the model's label, kept where it is left out as too doubtful
    person: str = ""  # who decided, where the person has a name
    part: ImageSource | None = None  # the picture, where it is a crop or a frame of a file

    @property
    def has_picture(self) -> bool:
        """Whether there is a picture to write."""
        return self.file is not None or self.part is not None

    @property
    def is_of_no_class(self) -> bool:
        """Whether a person said that it belongs to no class."""
        return not self.label and self.origin == "person"

    @property
    def is_predicted(self) -> bool:
        """Whether the label is the model's."""
        return self.origin == "model"


@dataclass(frozen=True, eq=False)
class Dataset:
    """What a writer gets: the items, the classes, and how the target calls both."""

    title: str
    items: tuple[Item, ...]
    class_names: tuple[str, ...]  # of the labels, sorted
    target_names: dict[str, str]  # what the target calls each class
    link: bool = False  # pictures are linked, not copied
    prefix: str = ""  # before each path, for programs that open the pictures where they are

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each class, from 0 in the order of `class_names`."""
        return {name: number for number, name in enumerate(self.class_names)}

    @property
    def targets(self) -> list[str]:
        """What the target calls the classes, in the order of their numbers."""
        return [self.target_names[name] for name in self.class_names]

    @property
    def splits(self) -> list[str]:
        """The splits that have items, in the order train, validation, test; "" for no split."""
        used = {item.split for item in self.items}
        return [split for split in ("", TRAIN, VALIDATION, TEST) if split in used]

    def of(self, split: str) -> list[Item]:
        """The items of one split."""
        return [item for item in self.items if item.split == split]

    def place(self, item: Item, target: Path) -> None:
        """Copy or link a picture to `target`, a path where there is nothing."""
        target.parent.mkdir(parents=True, exist_ok=True)
        if item.part is not None:
            item.part.read().save(target, quality=JPEG_QUALITY)
            return
        assert item.file is not None, "`export_labels` gives such formats only items with a file"
        if is_rare(item.path):
            decode(item.file, where=item.path).save(target, quality=JPEG_QUALITY)
        elif self.link:
            target.symlink_to(item.file.absolute())
        else:
            shutil.copy2(item.file, target)


def is_rare(path: str) -> bool:
    """Whether few programs read a picture, by its name: it is written as JPEG then.

    Crops and frames are named FILE#PART.
    """
    whole = PurePosixPath(path.lower()).name.rpartition("#")[0]
    return path.lower().endswith((*HEIC, *AVIF)) or whole.endswith((*SUFFIXES, *VIDEO))


def file_name(path: str, *, keep_suffix: bool = False) -> str:
    """The name under which a picture is written, which every system allows.

    Args:
        path: Of an item, with forward slashes.
        keep_suffix: Put .jpg after the suffix of a picture that is written as JPEG.

    >>> file_name("a/IMG_1.HEIC"), file_name("a/12:30.png"), file_name("a/1.mov#0.5")
    ('a/IMG_1.jpg', 'a/12_30.png', 'a/1.mov-0.5.jpg')
    >>> file_name("a/IMG_1.HEIC", keep_suffix=True)
    'a/IMG_1.HEIC.jpg'
    """
    allowed = "/".join(map(allowed_name, path.split("/")))
    if not is_rare(path):
        return allowed
    if path.lower().endswith((*HEIC, *AVIF)) and not keep_suffix:
        return str(PurePosixPath(allowed).with_suffix(".jpg"))
    return allowed.replace("#", "-") + ".jpg"


def keep_names(labels: set[str]) -> dict[str, str]:
    """Every class under its own name: for targets that allow any text."""
    return {label: label for label in labels}


@dataclass(frozen=True)
class Format:
    """How one program wants labelled images."""

    name: str
    words: str  # what is written, in one line
    write: Callable[[Path, Dataset], None] = field(repr=False)
    needs_pictures: bool = False
    names_pictures: bool = False  # they stay where they are: a path names each of them
    lists_unlabelled: bool = False  # items without a label are written too
    nests: bool = False  # the folder of a sub-class may be in that of its class
    always_split: bool = False  # without a split all items are in "train"
    rename: Callable[[set[str]], dict[str, str]] = field(default=keep_names, repr=False)


_FORMATS: dict[str, Format] = {}


def register(*formats: Format) -> None:
    """Make formats known by name; a name that is taken is refused."""
    for each in formats:
        if each.name in _FORMATS:
            raise InputError(f"format '{each.name}' is registered already. Choose another name.")
        _FORMATS[each.name] = each


def format_names() -> tuple[str, ...]:
    """The names of all formats, in the order of registration."""
    return tuple(_FORMATS)


def find_format(name: str) -> Format:
    """A format by its name."""
    if name not in _FORMATS:
        raise unknown_choice("to", name, _FORMATS)
    return _FORMATS[name]


def unique_names(paths: Iterable[str], *, stems: bool = False, folders: bool = False) -> list[str]:
    """A file name for each path, all different, even where capital letters do not count.

    Args:
        paths: With forward slashes.
        stems: Make the names different even without their suffixes.
        folders: Keep the folders above each, and all suffixes.

    >>> unique_names(["a/1.jpg", "b/1.JPG", "c/1.png"])
    ['1.jpg', '1-2.JPG', '1.png']
    >>> unique_names(["a/1.jpg", "c/1.png"], stems=True)
    ['1.jpg', '1-2.png']
    >>> unique_names(["a/1:2.jpg", "a/1_2.jpg"], folders=True)
    ['a/1_2.jpg', 'a/1_2-2.jpg']
    """
    names, taken = [], set[str]()
    for each in (PurePosixPath(file_name(path, keep_suffix=folders)) for path in paths):
        above = f"{each.parent}/" if folders and each.parent.name else ""
        number, stem = 2, each.stem
        while (key := (above + stem + ("" if stems else each.suffix)).lower()) in taken:
            stem, number = f"{each.stem}-{number}", number + 1
        taken.add(key)
        names.append(above + stem + each.suffix)
    return names


def picture_size(item: Item) -> tuple[int, int]:
    """Width and height of a picture in pixels, upright by its EXIF tag."""
    if item.part is not None:
        return item.part.read().size
    try:
        return upright_size(item.file or Path())
    except Exception as error:  # damaged bytes raise errors of any class
        raise UnreadableImageError(item.path, "it is damaged") from error


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file in UTF-8."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write a text file in UTF-8, one line each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
