"""The labels a person gave: read from a CSV file or from folder names, and checked against what is there."""

import codecs
import csv
import io
import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from fewlabels.errors import FileFormatError, InputError
from fewlabels.labeling.table import MODEL

NAME_COLUMNS = ("path", "file_name", "filename", "file", "image", "name")
LABEL_COLUMNS = ("label", "class", "category")
ORIGIN = "origin"  # the column of files that fewlabels wrote
SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")
UNLABELLED_FOLDERS = ("unlabelled", "unlabeled")  # sub-folders that are no class
SHOWN = 8  # lines of a kind of problem that a message lists
LONGEST_SHOWN = 40  # characters of a label in a message
LONGEST_LABEL = (
    200  # characters: class names become folder names, and most file systems stop at 255 bytes
)


class Given(NamedTuple):
    """Labels by item number, and what should be said about them."""

    labels: dict[int, str]
    remarks: tuple[str, ...] = ()


def read_labels(path: Path, names: Sequence[str], *, root: Path | None = None) -> Given:
    """Labels of a CSV file with a column of paths and a column of labels; an empty label means none, and so does the origin "model".

    Unknown paths and contradictions are refused together, each with its line number; a label given
    twice alike is remarked on and counts once.

    Args:
        path: The file: comma, semicolon or tab between the columns, UTF-8.
        names: The names of the items, in order.
        root: The folder of the items: paths may also be absolute, or relative to the file or to the current folder.
    """
    lookup = _Lookup(names, root, beside=path.parent)
    first: dict[int, tuple[int, str]] = {}  # item: line and label
    unknown, contrary, again, guessed = [], [], [], []
    for line, name, label, origin in _rows(path):
        if (
            origin == MODEL
        ):  # a file that fewlabels wrote: what the model thought must not become what the person said
            guessed.append(line)
            continue
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
            contrary.append(
                f"lines {first[item][0]} and {line}: {name} is '{_short(first[item][1])}' and '{_short(label)}'"
            )
    problems = []
    if unknown:
        problems.append(
            f"{_count(unknown, 'path')} not found among the {len(names):,} items:\n"
            + _listed(unknown)
        )
    if contrary:
        problems.append(f"{_count(contrary, 'contradictory label')}:\n" + _listed(contrary))
    if problems:
        raise InputError(
            f"{path}: "
            + "\n".join(problems)
            + "\nCorrect or delete these lines. Paths are relative to the folder of images."
        )
    remarks = []
    if guessed:
        were = (
            "is a guess of fewlabels, not a label, and was"
            if len(guessed) == 1
            else "are guesses of fewlabels, not labels, and were"
        )
        remarks.append(
            f"{path}: {_count(guessed, 'row')} of origin '{MODEL}' {were} left out. Clear the origin of those that you vouch for."
        )
    if again:
        remarks.append(
            f"{path}: {_count(again, 'label')} given twice alike (line {', '.join(map(str, again[:SHOWN]))})."
        )
    return Given({item: label for item, (_, label) in first.items()}, tuple(remarks))


def labels_of_folders(names: Iterable[str]) -> Given:
    """Labels from the first folder of each path: 'leek/1.jpg' is a leek, '1.jpg' and 'unlabelled/1.jpg' are not labelled.

    >>> labels_of_folders(["leek/1.jpg", "2.jpg"]).labels
    {0: 'leek'}
    """
    parts = ((item, PurePosixPath(name).parts) for item, name in enumerate(names))
    labels = {
        item: folders[0]
        for item, folders in parts
        if len(folders) > 1 and folders[0].lower() not in UNLABELLED_FOLDERS
    }
    return Given(labels)


def check_label(label: str, *, where: str = "") -> str:
    """A label without blanks around it, in composed Unicode; refused where no folder could have its name.

    >>> check_label(" leek ")
    'leek'
    """
    label = unicodedata.normalize("NFC", label.strip())
    if len(label) > LONGEST_LABEL:
        raise InputError(
            f"{where}a label must have at most {LONGEST_LABEL} characters, got {len(label)}: '{label[:40]}…'."
        )
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in label):
        raise InputError(f"{where}a label must be one line of plain text, got {label[:40]!r}.")
    return label


def check_enough(
    labels: Mapping[int, str], n_items: int, *, because: Sequence[str] = ()
) -> tuple[str, ...]:
    """Refuse labels that nothing can be learned from; remarks about what is thin.

    Args:
        labels: By item number.
        n_items: Of which these are labels.
        because: What was said about the labels already, and may be why there are too few.
    """
    counts: dict[str, int] = {}
    for label in labels.values():
        counts[label] = counts.get(label, 0) + 1
    if not counts:
        words = (
            "there are no labels to learn from. Give --labels FILE.csv with columns path and label, or sort a few images into one "
            "sub-folder per class."
        )
        raise InputError(" ".join([words, *because]))
    if len(counts) == 1:
        words = f"labels must name at least two classes, got only '{_short(next(iter(counts)))}'. Label a few images of another class."
        raise InputError(" ".join([words, *because]))
    remarks = []
    alike: dict[str, list[str]] = {}
    for name in sorted(counts):
        alike.setdefault(name.casefold(), []).append(name)
    if twins := [names for names in alike.values() if len(names) > 1]:
        words = "; ".join(
            " and ".join(f"'{_short(name)}'" for name in names) for names in twins[:SHOWN]
        )
        remarks.append(f"Classes that differ in capital letters only count as different: {words}.")
    if single := sorted(name for name, count in counts.items() if count == 1):
        words = ", ".join(f"'{_short(name)}'" for name in single[:SHOWN])
        words += f" and {len(single) - SHOWN} more" if len(single) > SHOWN else ""
        remarks.append(
            f"One label only: {words}. Two or more let fewlabels estimate its accuracy, and make it higher."
        )
    if len(labels) == n_items:
        remarks.append(
            f"All {n_items:,} images have a label already: there is nothing left to label."
        )
    return tuple(remarks)


class _Lookup:
    """Finds an item by the path a person wrote: from the folder or from here, absolute, with back slashes, or one file's bare name."""

    def __init__(self, names: Sequence[str], root: Path | None, *, beside: Path) -> None:
        self.root = root
        self.starts = (beside, Path())  # where relative paths may begin, besides the folder itself
        self.items = {_plain(name): item for item, name in enumerate(names)}
        bare: dict[str, list[int]] = {}
        for name, item in self.items.items():
            bare.setdefault(PurePosixPath(name).name, []).append(item)
        self.bare = {name: found[0] for name, found in bare.items() if len(found) == 1}

    def find(self, written: str) -> int | None:
        name = _plain(written)
        found = self.items.get(name, self.bare.get(name))
        if found is not None or self.root is None:
            return found
        for root in (self.root.absolute(), self.root.resolve()):
            for start in self.starts:
                path = Path(
                    os.path.normpath(start.absolute() / name)
                )  # an absolute name stays what it is
                if (
                    path.is_relative_to(root)
                    and (item := self.items.get(_plain(path.relative_to(root).as_posix())))
                    is not None
                ):
                    return item
        return None


def _plain(name: str) -> str:
    # Macs write file names decomposed (NFD), most editors composed (NFC): the same to a person.
    return unicodedata.normalize("NFC", name.strip().replace("\\", "/").removeprefix("./"))


def _rows(path: Path) -> Iterable[tuple[int, str, str, str]]:
    """(line number, name, label, origin) of each row that is not blank."""
    if not path.is_file():
        raise FileFormatError(
            f"{path} is not a file of labels. Check the path for a slip of the pen."
        )
    text = _text(path)
    first = text.partition("\n")[0].strip("\r")
    if not first:
        raise FileFormatError(
            f"{path} must begin with a line 'path,label', got {'an empty file' if not text else 'an empty line'}."
        )
    separator = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    header = [word.strip().lower() for word in first.replace('"', "").split(separator)]
    name_at = next((header.index(word) for word in NAME_COLUMNS if word in header), None)
    label_at = next((header.index(word) for word in LABEL_COLUMNS if word in header), None)
    if name_at is None or label_at is None:
        way = "Rename them, or add the line 'path,label' where there is none."
        if name_at is not None:
            way = "Rename the column of labels to label."
        elif label_at is not None:
            way = "Rename the column of paths to path."
        raise FileFormatError(
            f"{path} must begin with the names of its columns, path (or {_words(NAME_COLUMNS)}) and label (or {_words(LABEL_COLUMNS)}), "
            f"got '{first[:80]}'. {way}"
        )
    origin_at = header.index(ORIGIN) if ORIGIN in header else None
    line = 1
    try:
        for row in reader:
            if line > 1 and any(word.strip() for word in row):
                row = [*row, *[""] * (len(header) - len(row))]
                yield (
                    line,
                    row[name_at],
                    row[label_at],
                    "" if origin_at is None else row[origin_at].strip().lower(),
                )
            line = reader.line_num + 1
    except csv.Error as error:
        raise FileFormatError(
            f"{path}, line {line}: {error}. Is a quotation mark left open? Save the file as CSV anew."
        ) from error


def _words(columns: Sequence[str]) -> str:
    return ", ".join(columns[1:])


def _text(path: Path) -> str:
    """The text of a file, as UTF-8 or as what Excel calls Unicode text."""
    content = path.read_bytes()
    if path.suffix.lower() in SPREADSHEETS or content.startswith(b"PK\x03\x04"):
        raise FileFormatError(
            f"{path} is a spreadsheet. Open it and save it as 'CSV UTF-8', then give that file."
        )
    try:
        return content.decode(
            "utf-16"
            if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            else "utf-8-sig"
        )
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FileFormatError(
            f"{path}, line {line}: the file must be text in UTF-8, got other letters. Save it as 'CSV UTF-8'."
        ) from None


def _short(label: str) -> str:
    return label if len(label) <= LONGEST_SHOWN else f"{label[:LONGEST_SHOWN]}…"


def _count(things: Sequence[object], word: str) -> str:
    return f"{len(things):,} {word}{'' if len(things) == 1 else 's'}"


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"  {line}" for line in lines[:SHOWN]) + (
        f"\n  and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    )
