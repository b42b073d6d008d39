"""The labels as rows, and in the forms to carry on with: CSV, parquet, Label Studio, folders."""

import csv
import io
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from fewlabels.errors import InputError, MissingExtraError
from fewlabels.io.cache import remember_links
from fewlabels.io.files import (
    allowed_name,
    check_suffix,
    check_writable,
    copy_file,
    make_folder,
    remove_temporaries,
    unwritable,
    write_file,
)
from fewlabels.io.words import count, escape_formula, unescape_formula
from fewlabels.labeling.answer import Answer
from fewlabels.labeling.collection import Collection
from fewlabels.labeling.journal import MODEL, PERSON, GivenLabel
from fewlabels.labeling.journal import NONE as NO_CLASS
from fewlabels.labeling.subclasses import Node, Tree, check_separator, split_label
from fewlabels.labeling.suggestions import LIMITS

UNKNOWN_FOLDER = "unlabelled"  # of images that the model left without a label
NONE = "none_of_these"  # the column of the probability of belonging to no class
TEXT = "text"  # the column of the items themselves, where they are texts
TABLES = (".csv", ".parquet")
LABEL_STUDIO_PREFIX = "/data/local-files/?d="  # of files on the disk of Label Studio's server
LONGEST_NAME = 120  # bytes of UTF-8 of a folder's name; file systems allow 255


class LabelRow(NamedTuple):
    """One row of the result.

    The label is empty where it is unknown or too doubtful, and where a person said that the item
    belongs to no class; the origin is "person" then.
    """

    path: str
    label: str
    confidence: float
    runner_up: str
    margin: float
    origin: str  # person, import, confirmed, model, or empty without a label
    # Of a given label: the class that the model sees there with confidence, if it is another one.
    looks_like: str = ""
    # The model's label, kept where it is left out as too doubtful. A label that is not the guess
    # beside it was corrected by a person: `read_labels` uses it.
    guess: str = ""
    person: str = ""  # who decided, where the person has a name


def check_abstain(abstain: float, accuracy: float | None = None) -> None:
    """Refuse what is not a confidence, and an accuracy that is none or comes beside it."""
    if accuracy is not None and (not 0 < accuracy <= 1 or abstain):
        beside = f" beside abstain={abstain:g}" if abstain else ""
        raise InputError(
            "accuracy must be above 0 and up to 1, without a confidence beside it, "
            f"got {accuracy:g}{beside}. 0.95 leaves out labels until 95 % of the others are right."
        )
    if not 0 <= abstain <= 1:
        raise InputError(
            f"abstain must be a confidence from 0 to 1, got {abstain}. "
            "0.9 leaves out labels that are less than 90 % sure."
        )


def make_rows(
    names: Sequence[str],
    class_names: Sequence[str],
    answer: Answer | None,
    given: Mapping[str, GivenLabel],
    *,
    abstain: float = 0.0,
    looks_like: Mapping[str, str] | None = None,
    marks: Mapping[str, str] | None = None,
    people: Mapping[str, str] | None = None,
    sub_classes: str = "",
) -> list[LabelRow]:
    """The rows of all items, in their order.

    Args:
        names: Of the items.
        class_names: Of the columns of the answer.
        answer: None while there is none: only given labels are filled in then.
        given: The labels that a person or a file gave, by name.
        abstain: Confidence below which the model's label is left out.
        looks_like: By name, the class that the model sees where it contradicts a given label.
        marks: By name, "none" for items that a person said belong to no class: they get no label.
        people: Who decided, by name.
        sub_classes: What stands between class and sub-class. Where the sub-class is doubtful and
            the class above it is sure (0.8, or `abstain`), the label is that class.
    """
    people = people or {}
    check_abstain(abstain)
    sure_from = abstain or LIMITS.doubtful
    above: dict[int, Node] = {}
    if sub_classes and answer is not None:
        doubtful = np.flatnonzero(answer.confidences[: len(names)] < sure_from)
        tree = Tree(class_names, sub_classes)
        nodes = tree.find_rows(answer.probabilities[doubtful], sure_from)
        above = {int(doubtful[place]): node for place, node in nodes.items()}
    order, top = (None, None) if answer is None else answer.top_two
    rows = []
    for row, name in enumerate(names):
        if name in given:
            label, origin, _ = given[name]
            other = (looks_like or {}).get(name, "")
            person = people.get(name, "")
            rows.append(LabelRow(name, label, 1.0, "", 1.0, origin, other, person=person))
        elif (marks or {}).get(name) == NO_CLASS:
            person = people.get(name, "")
            rows.append(LabelRow(name, "", 1.0, "", 1.0, PERSON, person=person))
        elif order is None or top is None:
            rows.append(LabelRow(name, "", 0.0, "", 0.0, ""))
        else:
            first, second = (class_names[number] for number in order[row])
            confidence, margin = float(top[row, 0]), float(top[row, 0]) - float(top[row, 1])
            kept = confidence >= abstain
            if row in above:
                second = second if above[row].label == first else first
                first, confidence, margin = above[row]
                kept = True
            rows.append(
                LabelRow(
                    name,
                    first if kept else "",
                    round(confidence, 4),
                    second,
                    round(margin, 4),
                    MODEL if kept else "",
                    guess=first,
                )
            )
    return rows


def to_csv(
    rows: Sequence[LabelRow],
    none_of_these: Sequence[float] | None = None,
    texts: Sequence[str] | None = None,
) -> str:
    """One line per row under the names of the columns.

    Texts that a spreadsheet would compute get an apostrophe in front, which `read_labels` removes.

    Args:
        rows: Of the result.
        none_of_these: Becomes a column after those of the rows.
        texts: Of the items, where they are texts; a last column.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    more = _more_columns(none_of_these, texts)
    writer.writerow((*LabelRow._fields, *more))
    for cells in zip(rows, *more.values(), strict=True):
        row = (*cells[0], *cells[1:])
        writer.writerow([escape_formula(each) if isinstance(each, str) else each for each in row])
    return text.getvalue()


def _more_columns(
    none_of_these: Sequence[float] | None, texts: Sequence[str] | None
) -> dict[str, Sequence[float] | Sequence[str]]:
    more = {NONE: none_of_these, TEXT: texts}
    return {name: values for name, values in more.items() if values is not None}


def for_spreadsheets(text: str) -> bytes:
    r"""A table in UTF-8; with a byte-order mark, which Excel needs, if it has other letters.

    >>> for_spreadsheets("leek"), for_spreadsheets("käse")[:4]
    (b'leek', b'\xef\xbb\xbfk')
    """
    return text.encode("utf-8" if text.isascii() else "utf-8-sig")


def check_table(path: Path) -> None:
    """Refuse a path that `write_table` could not write, before any work is done."""
    check_suffix("output", path, TABLES)
    check_writable(path)
    if path.suffix.lower() == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401 - only to see whether it is there
        except ImportError:
            raise MissingExtraError(
                "pyarrow", extra="parquet", purpose="Writing .parquet files"
            ) from None


def write_table(
    path: Path,
    rows: Sequence[LabelRow],
    none_of_these: Sequence[float] | None = None,
    texts: Sequence[str] | None = None,
) -> Path | None:
    """Write a .csv or .parquet file with the columns of `to_csv`.

    A file that is there is overwritten, unless a person's labels in it would be lost: then it is
    renamed first, and its new path is returned.
    """
    check_table(path)
    kept = None
    if path.exists() and _has_more(path, rows):
        names = (f"{path.stem}.before-{number}{path.suffix}" for number in itertools.count(1))
        kept = next(each for each in map(path.with_name, names) if not each.exists())
        try:
            path.rename(kept)
        except OSError as error:
            raise unwritable(kept, error) from error
    if path.suffix.lower() == ".parquet":
        write_file(path, to_parquet(rows, none_of_these, texts))
    else:
        write_file(path, for_spreadsheets(to_csv(rows, none_of_these, texts)))
    return kept


def _has_more(path: Path, rows: Sequence[LabelRow]) -> bool:
    """Whether a file has labels of a person that `rows` lack, or was not written by fewlabels."""
    try:
        if path.suffix.lower() == ".parquet":
            from pyarrow import parquet

            table = parquet.read_table(path)
            columns, found = table.column_names, table.to_pylist()
        else:
            reader = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline=""))
            found = [{key: unescape_formula(cell) for key, cell in row.items()} for row in reader]
            columns = list(reader.fieldnames or ())
        now = {row.path: row.label for row in rows if row.origin not in (MODEL, "")}
        labels = [
            (each["path"], each["label"])
            for each in found
            if each["label"] and (each["origin"] != MODEL or each["label"] != each["guess"])
        ]
    except Exception:  # whatever it holds, it is not what fewlabels wrote
        return True
    return not set(columns) <= {*LabelRow._fields, NONE, TEXT} or any(
        now.get(name) != label for name, label in labels
    )


def to_parquet(
    rows: Sequence[LabelRow],
    none_of_these: Sequence[float] | None = None,
    texts: Sequence[str] | None = None,
) -> bytes:
    """The content of a .parquet file with the columns of `to_csv`."""
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.Table.from_pylist([row._asdict() for row in rows])
    for name, values in _more_columns(none_of_these, texts).items():
        table = table.append_column(name, [values])
    buffer = io.BytesIO()
    parquet.write_table(table, buffer, write_page_checksum=True)
    return buffer.getvalue()


def write_label_studio(path: Path, rows: Sequence[LabelRow], *, prefix: str) -> None:
    """Write `to_label_studio` to a .json file."""
    write_file(path, to_label_studio(rows, prefix=prefix))


def to_label_studio(rows: Sequence[LabelRow], *, prefix: str) -> bytes:
    """Tasks for Label Studio's import, `<Choices name="label" toName="image">`.

    Labels of the model become predictions, its guesses where it abstains too; those that a person
    or a file gave, annotations. Who decided is told beside the image: `completed_by` would have to
    be a user whom Label Studio knows.

    Args:
        rows: Rows without a label and a guess become tasks without either.
        prefix: What comes before each path, such as "/data/local-files/?d=photos/".
    """
    tasks = [_task(row, prefix) for row in rows]
    return (json.dumps(tasks, indent=1, ensure_ascii=False) + "\n").encode()


def _task(row: LabelRow, prefix: str) -> dict[str, Any]:
    about = {"person": row.person} if row.person else {}  # a column of Label Studio's table
    task: dict[str, Any] = {"data": {"image": prefix + quote(row.path), **about}}
    if label := row.label or row.guess:
        choice = {
            "from_name": "label",
            "to_name": "image",
            "type": "choices",
            "value": {"choices": [label]},
        }
        if row.origin in (MODEL, ""):
            version = f"fewlabels ({MODEL})"
            found = {"model_version": version, "score": row.confidence, "result": [choice]}
            task["predictions"] = [found]
        else:
            task["annotations"] = [{"result": [choice]}]
    return task


def file_into_folders(
    folder: Path,
    rows: Sequence[LabelRow],
    collection: Collection,
    *,
    link: bool,
    sub_classes: str = "",
) -> int:
    """Copy or link every image into a folder of its class; returns the number of other files there.

    With `sub_classes`, the folder of a sub-class is in that of its class.

    An image that is there already under the same name is left alone. Nothing is overwritten or
    removed: 'a/1.jpg' and 'b/1.jpg' become '1.jpg' and '1-2.jpg'.
    """
    check_class_folders("link_to" if link else "copy_to", folder, collection.root)
    place: Callable[[Path, Path], object] = _link if link else copy_file
    folders = folder_names({row.label for row in rows if row.label}, sub_classes)
    filed: set[Path] = set()
    for row, item in enumerate(rows):
        source = collection.path(row)
        if source is None:
            continue
        target = folder / folders.get(item.label, UNKNOWN_FOLDER) / source.name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target, there = _find_place(source, target, filed)
            if not there:
                place(source, target)
        except OSError as error:
            way_out = (
                f"The labels are written, and {count(len(filed), 'image')} are in {folder}. Run it "
                "again for the others when there is space, or choose another folder."
            )
            raise unwritable(target, error, way_out=way_out) from error
        filed.add(target)
    class_folders = [each for each in folder.rglob("*") if each.is_dir() and not each.is_symlink()]
    for each in class_folders:
        remove_temporaries(each)  # of a killed run
    if link and collection.root is not None:
        remember_links(folder, collection.root)
    inside = [path for each in class_folders for path in each.iterdir()]
    return sum(path not in filed and path not in class_folders for path in inside)


def check_class_folders(argument: str, folder: Path, root: Path | None) -> None:
    """Refuse a folder for copies that cannot be written, or that lies among the images.

    Args:
        argument: Its name in messages.
        folder: Where the copies would go.
        root: The folder of the images; None where there are only features.
    """
    if root is None:
        raise InputError(f"{argument} needs a folder of images, got features only. Leave it out.")
    if folder.resolve().is_relative_to(root.resolve()):
        raise InputError(
            f"{argument} must not lie inside the folder of images {root}, got {folder}: "
            "the copies would be taken for images next time. Choose another folder."
        )
    make_folder(folder)


def _link(source: Path, target: Path) -> None:
    target.symlink_to(source.absolute())  # a relative link would be read from the target's folder


def _find_place(source: Path, target: Path, filed: set[Path]) -> tuple[Path, bool]:
    """A path like `target` where the source is already, or where nothing is; and which of both."""
    number = 2
    candidate = target
    while candidate.exists() or candidate.is_symlink():
        if candidate not in filed and candidate.exists() and _is_same(candidate, source):
            return candidate, True
        candidate = target.with_name(f"{target.stem}-{number}{target.suffix}")
        number += 1
    return candidate, False


def _is_same(one: Path, other: Path) -> bool:
    if one.samefile(other):
        return True
    return one.stat().st_size == other.stat().st_size and one.read_bytes() == other.read_bytes()


def folder_names(labels: set[str], sub_classes: str = "") -> dict[str, str]:
    """A folder name for each label: allowed on every system, and unique even without case.

    Args:
        labels: Of the items.
        sub_classes: What stands between class and sub-class: the folder of a sub-class is in that
            of its class.

    >>> folder_names({"a/b", "A_B"})
    {'A_B': 'A_B', 'a/b': 'a_b-2'}
    >>> folder_names({"pet: dog", "pet", "car"}, ":")
    {'car': 'car', 'pet': 'pet', 'pet: dog': 'pet/dog'}
    """
    if sub_classes:
        return _nested_names(labels, sub_classes)
    names: dict[str, str] = {}
    taken = {UNKNOWN_FOLDER}
    for label in sorted(labels):
        short = allowed_name(label).encode()[:LONGEST_NAME].decode(errors="ignore")
        plain = allowed_name(short)
        name, number = plain, 2
        while name.lower() in taken:
            name, number = f"{plain}-{number}", number + 1
        taken.add(name.lower())
        names[label] = name
    return names


def _nested_names(labels: set[str], separator: str) -> dict[str, str]:
    check_separator(separator)
    levels = {label: tuple(split_label(label, separator)) for label in sorted(labels)}
    paths = {path[:depth] for path in levels.values() for depth in range(1, len(path) + 1)}
    names: dict[tuple[str, ...], str] = {(): ""}
    for path in sorted(paths, key=lambda each: (len(each), each)):
        if path not in names:
            beside = {each for each in paths if each[:-1] == path[:-1]}
            for last, name in folder_names({each[-1] for each in beside}).items():
                names[(*path[:-1], last)] = f"{names[path[:-1]]}/{name}".lstrip("/")
    return {label: names[path] for label, path in levels.items()}
