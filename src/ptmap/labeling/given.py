"""The labels a person gave: read from a CSV file or from folder names, and checked against what is there."""

import csv
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ptmap.errors import FileFormatError, InputError

NAME_COLUMNS = ("path", "file_name", "filename", "file", "image", "name")
LABEL_COLUMNS = ("label", "class", "category")
UNLABELLED_FOLDERS = ("unlabelled", "unlabeled")  # sub-folders that are no class
SHOWN = 8  # lines of a kind of problem that a message lists
LONGEST_LABEL = 200  # characters: class names become folder names, and most file systems stop at 255 bytes


class Given(NamedTuple):
    """Labels by item number, and what should be said about them."""

    labels: dict[int, str]
    remarks: tuple[str, ...] = ()


def read_labels(path: Path, names: Sequence[str], *, root: Path | None = None) -> Given:
    """Labels of a CSV file with a column of paths and a column of labels; an empty label means none.

    Unknown paths and contradictions are refused together, each with its line number; a label given
    twice alike is remarked on and counts once.

    Args:
        path: The file: comma, semicolon or tab between the columns, UTF-8.
        names: The names of the items, in order.
        root: The folder that absolute paths may lie in.
    """
    lookup = _Lookup(names, root)
    first: dict[int, tuple[int, str]] = {}  # item: line and label
    unknown, contrary, again = [], [], []
    for line, name, label in _rows(path):
        label = check_label(label, where=f"{path}, line {line}: ")
        item = lookup.find(name)
        if item is None:
            unknown.append(f"line {line}: {name}")
        elif not label:
            continue
        elif item not in first:
            first[item] = (line, label)
        elif first[item][1] == label:
            again.append(line)
        else:
            contrary.append(f"lines {first[item][0]} and {line}: {name} is '{first[item][1]}' and '{label}'")
    problems = []
    if unknown:
        problems.append(f"{_count(unknown, 'path')} not found among the {len(names):,} items:\n" + _listed(unknown))
    if contrary:
        problems.append(f"{_count(contrary, 'contradictory label')}:\n" + _listed(contrary))
    if problems:
        raise InputError(f"{path}: " + "\n".join(problems) + "\nCorrect or delete these lines. Paths are relative to the folder of images.")
    remarks = (f"{path}: {_count(again, 'label')} given twice alike (line {', '.join(map(str, again[:SHOWN]))}).",) if again else ()
    return Given({item: label for item, (_, label) in first.items()}, remarks)


def labels_of_folders(names: Iterable[str]) -> Given:
    """Labels from the first folder of each path: 'leek/1.jpg' is a leek, '1.jpg' and 'unlabelled/1.jpg' are not labelled.

    >>> labels_of_folders(["leek/1.jpg", "2.jpg"]).labels
    {0: 'leek'}
    """
    parts = ((item, PurePosixPath(name).parts) for item, name in enumerate(names))
    labels = {item: folders[0] for item, folders in parts if len(folders) > 1 and folders[0].lower() not in UNLABELLED_FOLDERS}
    return Given(labels)


def check_label(label: str, *, where: str = "") -> str:
    """A label without blanks around it, in composed Unicode; refused where no folder could have its name.

    >>> check_label(" leek ")
    'leek'
    """
    label = unicodedata.normalize("NFC", label.strip())
    if len(label) > LONGEST_LABEL:
        raise InputError(f"{where}a label must have at most {LONGEST_LABEL} characters, got {len(label)}: '{label[:40]}…'.")
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in label):
        raise InputError(f"{where}a label must be one line of plain text, got {label[:40]!r}.")
    return label


def check_enough(labels: Mapping[int, str], n_items: int) -> tuple[str, ...]:
    """Refuse labels that nothing can be learned from; remarks about what is thin."""
    counts: dict[str, int] = {}
    for label in labels.values():
        counts[label] = counts.get(label, 0) + 1
    if not counts:
        raise InputError(
            "there are no labels to learn from. Give --labels FILE.csv with columns path and label, or sort a few images into one "
            "sub-folder per class."
        )
    if len(counts) == 1:
        raise InputError(f"labels must name at least two classes, got only '{next(iter(counts))}'. Label a few images of another class.")
    remarks = []
    if single := sorted(name for name, count in counts.items() if count == 1):
        words = ", ".join(f"'{name}'" for name in single[:SHOWN]) + (f" and {len(single) - SHOWN} more" if len(single) > SHOWN else "")
        remarks.append(f"One label only: {words}. Two or more let ptmap estimate its accuracy, and make it higher.")
    if len(labels) == n_items:
        remarks.append(f"All {n_items:,} images have a label already: there is nothing left to label.")
    return tuple(remarks)


class _Lookup:
    """Finds an item by the path a person wrote: relative, with back slashes, absolute, or the bare name of one file."""

    def __init__(self, names: Sequence[str], root: Path | None) -> None:
        self.root = root
        self.items = {_plain(name): item for item, name in enumerate(names)}
        bare: dict[str, list[int]] = {}
        for name, item in self.items.items():
            bare.setdefault(PurePosixPath(name).name, []).append(item)
        self.bare = {name: found[0] for name, found in bare.items() if len(found) == 1}

    def find(self, written: str) -> int | None:
        name = _plain(written)
        if self.root is not None and Path(written).is_absolute():
            for root in (self.root, self.root.resolve()):
                if Path(written).is_relative_to(root):
                    name = _plain(Path(written).relative_to(root).as_posix())
        return self.items.get(name, self.bare.get(name))


def _plain(name: str) -> str:
    # Macs write file names decomposed (NFD), most editors composed (NFC): the same to a person.
    return unicodedata.normalize("NFC", name.strip().replace("\\", "/").removeprefix("./"))


def _rows(path: Path) -> Iterable[tuple[int, str, str]]:
    """(line number, name, label) of each row that is not blank."""
    if not path.is_file():
        raise FileFormatError(f"{path} is not a file of labels. Check the path for a slip of the pen.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path} must be text in UTF-8, got other bytes at {error.start}. Save it as 'CSV UTF-8'.") from None
    lines = text.splitlines()
    if not lines:
        raise FileFormatError(f"{path} must hold columns path and label, got an empty file.")
    separator = max(",;\t", key=lines[0].count)
    reader = csv.reader(lines, delimiter=separator)
    header = [word.strip().lower() for word in next(reader)]
    name_at = next((header.index(word) for word in NAME_COLUMNS if word in header), None)
    label_at = next((header.index(word) for word in LABEL_COLUMNS if word in header), None)
    if name_at is None or label_at is None:
        raise FileFormatError(
            f"{path} must begin with the names of its columns, path (or file_name) and label, "
            f"got '{lines[0][:80]}'. Add the line 'path,label'."
        )
    try:
        for row in reader:
            if any(word.strip() for word in row):
                if len(row) <= max(name_at, label_at):
                    row = [*row, *[""] * (max(name_at, label_at) + 1 - len(row))]
                yield reader.line_num, row[name_at], row[label_at]
    except csv.Error as error:
        raise FileFormatError(f"{path}, line {reader.line_num}: {error}. Save the file as CSV anew.") from error


def _count(things: Sequence[object], word: str) -> str:
    return f"{len(things):,} {word}{'' if len(things) == 1 else 's'}"


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"  {line}" for line in lines[:SHOWN]) + (f"\n  and {len(lines) - SHOWN} more" if len(lines) > SHOWN else "")
