"""Labels that a person gave: read from a CSV file or from folder names, keyed by item name."""

import csv
import io
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from fewlabels.errors import FileFormatError, InputError
from fewlabels.io.files import decode_text
from fewlabels.io.words import count, listing, unescape_formula
from fewlabels.labeling.agreement import check_person
from fewlabels.labeling.journal import IMPORT, MODEL, PERSON

NAME_COLUMNS = ("path", "file_name", "filename", "file", "image", "name", "id")
LABEL_COLUMNS = ("label", "class", "category")
OWN_COLUMNS = ("origin", "confidence", "none_of_these", "guess", "person")  # that fewlabels wrote
FOLDERS = "folders"  # as true labels: the names of the sub-folders
SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")
NONE_FOLDER = "none of these"  # of images that a person, or most probably the model, gave no class
DOUBTFUL_FOLDER = "doubtful"  # of images whose label is less sure than asked for
# Folders whose images have no label; the last two are made by `move`.
UNLABELLED_FOLDERS = ("unlabelled", "unlabeled", NONE_FOLDER, DOUBTFUL_FOLDER)
SPLIT_FOLDERS = ("train", "training", "val", "valid", "validation", "test")  # hold class folders
CAMERA_FOLDER = re.compile(r"dcim|[1-9]\d{2}[a-z0-9_]{5}", re.IGNORECASE)  # of the DCF standard
DEEPEST, WHOLE_PATH = "deepest", "path"  # values of class_from
EXCEL_SEPARATOR = re.compile(r"sep=[,;\t]?", re.IGNORECASE)  # first line of some CSV files
MOST_SHOWN = 8  # lines or classes that a message lists
LONGEST_SHOWN = 40  # characters of a label in a message
LONGEST_LABEL = 200  # characters: labels become folder names, which may have 255 bytes at most


class LabelsRead(NamedTuple):
    """Labels by item name, remarks for the person, and who gave them where a column tells."""

    labels: dict[str, str]
    remarks: tuple[str, ...] = ()
    people: Mapping[str, str] = {}


class WrittenLabel(NamedTuple):
    """What a row of a file tells about an item, predictions included."""

    label: str
    origin: str = IMPORT
    confidence: float = 1.0
    none_of_these: float = 0.0
    person: str = ""
    guess: str = ""  # the model's label, where it was left out as too doubtful


class LabelsWritten(NamedTuple):
    """What a file tells about items, by name; and remarks."""

    labels: dict[str, WrittenLabel]
    remarks: tuple[str, ...] = ()


def read_label_rows(path: Path, names: Sequence[str], *, root: Path | None = None) -> LabelsWritten:
    """All labels of a CSV file, predictions included; the origin is "import" where none is written.

    A row without a label is kept where a person said so, the item belongs to no class; and where a
    guess was left out as too doubtful. A prediction that a person corrected in the file has the
    origin "import".
    Rows of paths that are not among `names` are left out with a remark. Contradictions are refused.

    Args:
        path: As in `read_labels`.
        names: The names of the items.
        root: The folder of the items.
    """
    lookup = Lookup(names, root, beside=path.parent)
    found: dict[str, WrittenLabel] = {}
    unknown = []
    for row in _read_rows(path):
        where = f"{path}, line {row.line}: "
        label = check_label(unescape_formula(row.label), where=where)
        name = lookup.find(row.path)
        if name is None:
            unknown.append(row.path)
        elif row.is_corrected:
            found[name] = WrittenLabel(label)
        elif label or row.guess or row.origin == PERSON:
            if name in found and found[name].label != label:
                raise InputError(
                    f"{where}{row.path} is '{_short(found[name].label)}' and '{_short(label)}'. "
                    "Keep one of the lines."
                )
            found[name] = WrittenLabel(
                label,
                row.origin or (IMPORT if label else ""),
                _number(row.confidence or "1", where),
                _number(row.none_of_these or "0", where),
                unescape_formula(row.person),
                "" if label else check_label(unescape_formula(row.guess), where=where),
            )
    return LabelsWritten(found, _remark_unknown(path, unknown, names, refuse=not found))


def _remark_unknown(
    path: Path, unknown: Sequence[str], names: Sequence[str], *, refuse: bool
) -> tuple[str, ...]:
    """A remark about paths that are not in the folder: a file of labels may name more."""
    if not unknown:
        return ()
    shown = listing(unknown, most=MOST_SHOWN)
    if refuse:
        such = f", such as '{_short(names[0])}'" if names else ""
        if all("#" in path for path in unknown):
            such += "; or give boxes=FILE for crops, every=SECONDS for frames of videos"
        raise InputError(
            f"{path}: none of its {count(len(unknown), 'path')} is among the {len(names):,} items: "
            f"{shown}. Correct them: paths are relative to the folder of images{such}."
        )
    return (f"{path}: {count(len(unknown), 'path')} not found, left out: {shown}.",)


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{where}a confidence must be a number, got '{text}'.") from None


def read_labels(path: Path, names: Sequence[str], *, root: Path | None = None) -> LabelsRead:
    """Labels of a CSV file with a column of paths and a column of labels.

    Rows with an empty label are not labels, and rows with the origin "model" only where the label
    is not the guess beside it: a person corrected it. Paths that are not among `names` are left out
    with a remark, and refused where none is found. Contradictions are refused, each with its line
    number. The same label given twice counts once, with a remark.

    Args:
        path: The file: comma, semicolon or tab between the columns, UTF-8.
        names: The names of the items.
        root: The folder of the items. With it, paths in the file may also be absolute, or relative
            to the file or to the current folder.
    """
    lookup = Lookup(names, root, beside=path.parent)
    first: dict[str, tuple[int, str]] = {}  # item: line and label
    people: dict[str, str] = {}
    unknown, contrary, again, predicted, n_corrected = [], [], [], [], 0
    for row in _read_rows(path):
        line, written = row.line, row.path
        if row.origin == MODEL and not row.is_corrected:  # a prediction is not a person's label
            predicted.append(line)
            continue
        label = check_label(unescape_formula(row.label), where=f"{path}, line {line}: ")
        name = lookup.find(written)
        n_corrected += row.is_corrected
        if name is None:
            unknown.append(f"line {line}: {written}")
        elif not label:
            continue
        elif name not in first:
            first[name] = (line, label)
            with suppress(InputError):  # another program's column may hold anything
                people[name] = check_person(unescape_formula(row.person))
        elif first[name][1] == label:
            again.append(line)
        else:
            before, other = first[name]
            contrary.append(
                f"lines {before} and {line}: {written} is '{_short(other)}' and '{_short(label)}'"
            )
    if contrary:
        labels = count(len(contrary), "contradictory label")
        raise InputError(f"{path}: {labels}:\n{_lines(contrary)}\nCorrect or delete these lines.")
    remarks = [*_remark_unknown(path, unknown, names, refuse=not (first or predicted))]
    if n_corrected:
        them = "It counts as your label" if n_corrected == 1 else "They count as your labels"
        remarks.append(f"{path}: {count(n_corrected, 'prediction')} corrected by hand. {them}.")
    if predicted:
        words = "is a prediction" if len(predicted) == 1 else "are predictions"
        remarks.append(
            f"{path}: {count(len(predicted), 'row')} of origin '{MODEL}' {words} of fewlabels, "
            "not used as labels. Clear the origin of those that you have checked."
        )
    if again:
        remarks.append(
            f"{path}: {count(len(again), 'label')} given twice "
            f"(line {listing(again, most=MOST_SHOWN)})."
        )
    found = {name: label for name, (_, label) in first.items()}
    named = {name: person for name, person in people.items() if person}
    return LabelsRead(found, tuple(remarks), named)


def check_class_from(class_from: str) -> None:
    """Refuse what does not say which folder names the class."""
    number = class_from.isdecimal() and int(class_from) > 0
    if class_from not in (DEEPEST, WHOLE_PATH) and not number:
        raise InputError(
            f"class_from must be '{DEEPEST}' (the folder that holds the image), '{WHOLE_PATH}' "
            f"(all folders), or the number of a level, 1 for the first, got '{class_from}'."
        )


def read_folder_names(names: Iterable[str], class_from: str = DEEPEST) -> dict[str, str]:
    """Labels from the folders of each path: by default, the deepest folder names the class.

    Folders of cameras (DCIM, what is directly in it, 100CANON) and of splits (train, validation,
    test) are passed over. Images below a folder "unlabelled" have no label. What cannot be a label
    is refused, as in `check_label`.

    Args:
        names: Of the items.
        class_from: "deepest"; "path" for all folders, as in "animal/dog"; or the number of a level
            as text, "1" for the first.

    >>> names = ["Fruit/Apple/1.jpg", "2.jpg", "unlabelled/3.jpg", "train/leek/100CANON/4.jpg"]
    >>> read_folder_names(names)
    {'Fruit/Apple/1.jpg': 'Apple', 'train/leek/100CANON/4.jpg': 'leek'}
    >>> read_folder_names(names, "path")
    {'Fruit/Apple/1.jpg': 'Fruit/Apple', 'train/leek/100CANON/4.jpg': 'leek'}
    """
    check_class_from(class_from)
    found = {}
    for name in names:
        folders = named_folders(name)
        if class_from == DEEPEST:
            folders = folders[-1:]
        elif class_from != WHOLE_PATH:
            level = int(class_from)
            folders = folders[level - 1 : level]
        if label := check_label("/".join(folders), where=f"{name}: "):
            found[name] = label
    return found


def named_folders(name: str) -> list[str]:
    """The folders above an item that can name its class; none below a folder "unlabelled".

    >>> named_folders("train/leek/100CANON/4.jpg"), named_folders("DCIM/Camera/5.jpg")
    (['leek'], [])
    """
    folders = PurePosixPath(name).parts[:-1]
    if any(each.lower() in UNLABELLED_FOLDERS for each in folders):
        return []
    above = ("", *folders)
    return [
        each
        for each, parent in zip(folders, above, strict=False)
        if not CAMERA_FOLDER.fullmatch(each)
        and parent.lower() != "dcim"
        and each.lower() not in SPLIT_FOLDERS
    ]


def remark_folders(names: Iterable[str]) -> list[str]:
    """A remark about which folder named the class, where it could be another one."""
    nested = next((folders for name in names if len(folders := named_folders(name)) > 1), None)
    if nested is None:
        return []
    return [
        f"The deepest folder names the class: {'/'.join(nested)} is '{nested[-1]}'. "
        f"class_from=1 takes the first folder, class_from={WHOLE_PATH} all of them."
    ]


def check_truth(truth: str | None) -> None:
    """Refuse what `read_truth` could not read, before any work is done."""
    if truth not in (None, FOLDERS) and not Path(truth).is_file():
        raise FileFormatError(
            f"truth must be '{FOLDERS}' or a CSV file with columns path and label, got '{truth}', "
            "which is not a file. Check the path for typos."
        )


def read_truth(
    truth: str | None, names: Sequence[str], *, root: Path | None, class_from: str = DEEPEST
) -> LabelsRead:
    """True labels to compare with: a CSV file, or "folders" for the names of the sub-folders."""
    if truth is None:
        return LabelsRead({})
    if truth == FOLDERS:
        return LabelsRead(read_folder_names(names, class_from))
    return read_labels(Path(truth), names, root=root)


def check_label(label: str, *, where: str = "") -> str:
    """A label without spaces around it, in composed Unicode; refused if too long or not text.

    >>> check_label(" leek ")
    'leek'
    """
    label = unicodedata.normalize("NFC", label.strip())
    if len(label) > LONGEST_LABEL:
        raise InputError(
            f"{where}a label must have at most {LONGEST_LABEL} characters, got {len(label)}: "
            f"'{_short(label)}'. Shorten it."
        )
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in label):
        raise InputError(
            f"{where}a label must be one line of plain text, got {label[:LONGEST_SHOWN]!r}."
        )
    return label


def check_enough(
    labels: Mapping[str, str],
    n_items: int,
    *,
    because: Sequence[str] = (),
    noun: str = "image",
) -> tuple[str, ...]:
    """Refuse fewer than two classes; remarks about classes with few labels.

    Args:
        labels: By item name.
        n_items: Number of items.
        because: Remarks made already, which may be the reason why there are too few.
        noun: What a message calls an item.
    """
    counts = Counter(labels.values())
    if not counts:
        sort = "sort a few images into one sub-folder per class"
        fill = "fill the column label in a few rows of the table"
        words = (
            "there are no labels to learn from. Give labels=FILE.csv with columns path and label, "
            f"{sort if noun == 'image' else fill}, "
            "or name the first ones on a page with `fewlabels serve`."
        )
        raise InputError(" ".join([words, *because]))
    if len(counts) == 1:
        words = (
            f"there must be labels of at least two classes, got only '{_short(next(iter(counts)))}'"
            f". Label a few {noun}s of another class."
        )
        raise InputError(" ".join([words, *because]))
    remarks = []
    same: dict[str, list[str]] = {}
    for name in sorted(counts):
        same.setdefault(name.casefold(), []).append(name)
    if twins := [names for names in same.values() if len(names) > 1]:
        words = listing((" and ".join(map(_quoted, names)) for names in twins), separator="; ")
        remarks.append(f"Classes that differ only in capital letters count as different: {words}.")
    if single := sorted(name for name, n in counts.items() if n == 1):
        remarks.append(
            f"Only one label each for {listing(map(_quoted, single), most=MOST_SHOWN)}. "
            "With two or more, accuracy is higher and can be estimated."
        )
    if len(labels) == n_items:
        remarks.append(f"All {n_items:,} {noun}s have a label: there is nothing left to label.")
    return tuple(remarks)


def remark_lost(labels: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """A remark about labels of items that are not among `names`, if there are any.

    It also names the classes that have no other label.
    """
    known = set(names)
    lost = [name for name in labels if name not in known]
    if not lost:
        return []
    left = {label for name, label in labels.items() if name in known}
    gone = sorted({labels[name] for name in lost} - left)
    classes = ""
    if gone:
        which = "this class has" if len(gone) == 1 else "these classes has"
        classes = f" No other image of {which} a label: {listing(gone, separator='; ')}."
    lost_names = listing(lost, separator="; ")
    return [
        f"{count(len(lost), 'label')} lost with images that cannot be read: {lost_names}.{classes}"
    ]


class Lookup:
    """Finds the name of an item by the path that a person wrote.

    The path may be relative to the folder, to the file of labels or to the current folder; it may
    be absolute, have back slashes, or be only a file name that occurs once. A path that could mean
    two items, and is the exact name of neither, is not found.
    """

    def __init__(self, names: Sequence[str], root: Path | None, *, beside: Path) -> None:
        self.root = root
        self.starts = (beside, Path())  # where relative paths may start, besides the folder itself
        self.exact = set(names)
        similar: dict[str, list[str]] = {}
        bare: dict[str, list[str]] = {}
        for name in names:
            similar.setdefault(_normal(name), []).append(name)
            bare.setdefault(PurePosixPath(_normal(name)).name, []).append(name)
        # What may mean two items means none: ' a.jpg' and 'a.jpg' must be written exactly.
        self.names = {normal: found[0] for normal, found in similar.items() if len(found) == 1}
        self.bare = {file: found[0] for file, found in bare.items() if len(found) == 1}

    def find(self, written: str) -> str | None:
        """The name of an item; None where the path means none, or could mean two."""
        for name in (written, unescape_formula(written)):
            if name in self.exact:
                return name
        return self._find(unescape_formula(written))

    def _find(self, written: str) -> str | None:
        wanted = _normal(written)
        found = self.names.get(wanted, self.bare.get(wanted))
        if found is not None or self.root is None:
            return found
        for root in (self.root.absolute(), self.root.resolve()):
            for start in self.starts:
                # Joined with an absolute path, the result is that path.
                path = Path(os.path.normpath(start.absolute() / wanted))
                if path.is_relative_to(root):
                    found = self.names.get(_normal(path.relative_to(root).as_posix()))
                    if found is not None:
                        return found
        return None


def _normal(name: str) -> str:
    # Macs write file names decomposed (NFD), most editors composed (NFC).
    return unicodedata.normalize("NFC", name.strip().replace("\\", "/").removeprefix("./"))


class _Row(NamedTuple):
    line: int
    path: str
    label: str
    origin: str
    confidence: str
    none_of_these: str
    guess: str
    person: str

    @property
    def is_corrected(self) -> bool:
        """Whether a person replaced the model's label, which is kept as the guess."""
        given = bool(self.label.strip() and self.guess)
        return self.origin == MODEL and given and self.label.strip() != self.guess


def _read_rows(path: Path) -> Iterable[_Row]:
    """Each row that is not blank."""
    if not path.is_file():
        raise FileFormatError(f"{path} is not a file of labels. Check the path for typos.")
    text = _read_text(path)
    first, _, after = text.partition("\n")
    told = EXCEL_SEPARATOR.fullmatch(first.strip())  # for Excel: what stands between columns
    if told:
        text, first = after, after.partition("\n")[0]
    first = first.strip("\r")
    if not first:
        raise FileFormatError(
            f"{path} must begin with a line 'path,label', "
            f"got {'an empty line' if text else 'an empty file'}."
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
            f"{path} must begin with the names of its columns, "
            f"path (or {', '.join(NAME_COLUMNS[1:])}) and label (or {', '.join(LABEL_COLUMNS[1:])})"
            f", got '{first[:80]}'. {way}"
        )
    others = [header.index(word) if word in header else None for word in OWN_COLUMNS]
    skipped = 1 if told else 0
    begin = line = 1 + skipped
    try:
        for row in reader:
            if line > begin and any(word.strip() for word in row):
                row = [*row, *[""] * (len(header) - len(row))]
                origin, *rest = ("" if at is None else row[at].strip() for at in others)
                yield _Row(line, row[name_at], row[label_at], origin.lower(), *rest)
            line = reader.line_num + 1 + skipped
    except csv.Error as error:
        raise FileFormatError(
            f"{path}, line {line}: {error}. "
            "Close the quotation mark that may be open there, and save the file as CSV again."
        ) from error


def _read_text(path: Path) -> str:
    """The text of a file, in UTF-8 or in UTF-16, which Excel calls Unicode text."""
    content = path.read_bytes()
    if path.suffix.lower() in SPREADSHEETS or content.startswith(b"PK\x03\x04"):
        raise FileFormatError(
            f"{path} is a spreadsheet. Open it and save it as 'CSV UTF-8', then give that file."
        )
    return decode_text(path, content)


def _short(label: str) -> str:
    return label if len(label) <= LONGEST_SHOWN else f"{label[:LONGEST_SHOWN]}…"


def _quoted(label: str) -> str:
    return f"'{_short(label)}'"


def _lines(lines: Sequence[str]) -> str:
    return "  " + listing(lines, most=MOST_SHOWN, separator="\n  ")
