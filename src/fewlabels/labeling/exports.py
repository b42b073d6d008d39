"""The outcome in the forms that people carry on with: CSV, parquet, Label Studio, class folders."""

import csv
import io
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fewlabels.errors import InputError, MissingExtraError
from fewlabels.labeling.collection import Collection
from fewlabels.labeling.table import LabelRow
from fewlabels.labeling.writing import (
    check_suffix,
    check_writable,
    make_folder,
    unwritable,
    write_file,
)

UNKNOWN_FOLDER = "unlabelled"  # of images that the model left without a label
FORBIDDEN = re.compile(
    r'[<>:"/\\|?*\x00-\x1f]'
)  # what Windows, the strictest, does not allow in file names
NONE = "none_of_these"  # the column of images of no known class
TABLES = (".csv", ".parquet")
LONGEST_NAME = 120  # bytes of UTF-8 of a folder's name; file systems stop at 255


def to_csv(rows: Sequence[LabelRow], none_of_these: Sequence[float] | None = None) -> str:
    """One line a row under the names of the columns; `none_of_these`, one number a row, is a last column of that name."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if none_of_these is None:
        writer.writerow(LabelRow._fields)
        writer.writerows(rows)
    else:
        writer.writerow((*LabelRow._fields, NONE))
        writer.writerows((*row, share) for row, share in zip(rows, none_of_these, strict=True))
    return text.getvalue()


def check_table(path: Path) -> None:
    """Refuse a path that `write_table` could not write, before any work is done."""
    check_suffix("--output", path, TABLES)
    check_writable(path)
    if path.suffix.lower() == ".parquet":
        _require_pyarrow()


def write_table(
    path: Path, rows: Sequence[LabelRow], none_of_these: Sequence[float] | None = None
) -> None:
    """Write a .csv or .parquet file, all or nothing; `none_of_these` as in `to_csv`."""
    check_table(path)
    parquet = path.suffix.lower() == ".parquet"
    write_file(
        path, _to_parquet(rows, none_of_these) if parquet else to_csv(rows, none_of_these).encode()
    )


def write_label_studio(path: Path, rows: Sequence[LabelRow], *, prefix: str) -> None:
    """Tasks with predictions for Label Studio's import, `<Choices name="label" toName="image">`.

    Args:
        path: The .json file.
        rows: The outcome; rows without a label become tasks without a prediction.
        prefix: What comes before each path, such as "/data/local-files/?d=photos/".
    """
    write_file(
        path,
        (
            json.dumps([_task(row, prefix) for row in rows], indent=1, ensure_ascii=False) + "\n"
        ).encode(),
    )


def _task(row: LabelRow, prefix: str) -> dict[str, Any]:
    task: dict[str, Any] = {"data": {"image": prefix + quote(row.path)}}
    if row.label:
        choice = {
            "from_name": "label",
            "to_name": "image",
            "type": "choices",
            "value": {"choices": [row.label]},
        }
        task["predictions"] = [
            {
                "model_version": f"fewlabels ({row.origin})",
                "score": row.confidence,
                "result": [choice],
            }
        ]
    return task


def file_into_folders(
    folder: Path, rows: Sequence[LabelRow], collection: Collection, *, link: bool
) -> int:
    """Copy (or link) every image into a folder of its class; how many other files lie in the class folders.

    An image that is there already under the same name is left alone; another file in its place gets
    company: 'a/1.jpg' and 'b/1.jpg' become '1.jpg' and '1-2.jpg'. Nothing is ever overwritten or removed.
    """
    check_class_folders(folder, collection.root)
    place: Callable[[Path, Path], object] = _link if link else shutil.copy2
    folders = _folder_names({row.label for row in rows if row.label})
    filed: set[Path] = set()
    for item, row in enumerate(rows):
        source = collection.path(item)
        if source is None:
            continue
        target = folder / folders.get(row.label, UNKNOWN_FOLDER) / Path(row.path).name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target, there = _find_place(source, target, filed)
            if not there:
                place(source, target)
        except OSError as error:
            raise unwritable(target, error) from error
        filed.add(target)
    return (
        sum(
            path not in filed
            for each in folder.iterdir()
            if each.is_dir()
            for path in each.iterdir()
        )
        if folder.is_dir()
        else 0
    )


def check_class_folders(folder: Path, root: Path | None) -> None:
    """Refuse a folder for copies that cannot be written, or where they would be taken for images of their own next time.

    Args:
        folder: Where the copies would go.
        root: The folder of the images; None where there are features only.
    """
    if root is None:
        raise InputError(
            "--copy-to and --link-to need a folder of images, got features only. Leave them out."
        )
    if folder.resolve().is_relative_to(root.resolve()):
        raise InputError(
            f"{folder} must not lie inside the folder of images {root}: the copies would be images of their own next time."
        )
    make_folder(folder)


def _link(source: Path, target: Path) -> None:
    target.symlink_to(source.absolute())  # a path from here leads nowhere from there


def _find_place(source: Path, target: Path, filed: set[Path]) -> tuple[Path, bool]:
    """A path beside `target` for a source: where it is already, or where nothing is; and which of the two."""
    number = 2
    candidate = target
    while candidate.exists() or candidate.is_symlink():
        if candidate not in filed and candidate.exists() and _same(candidate, source):
            return candidate, True
        candidate = target.with_name(f"{target.stem}-{number}{target.suffix}")
        number += 1
    return candidate, False


def _same(one: Path, other: Path) -> bool:
    if one.samefile(other):
        return True
    return one.stat().st_size == other.stat().st_size and one.read_bytes() == other.read_bytes()


def _folder_names(labels: set[str]) -> dict[str, str]:
    """A folder name for each label, safe on every system and different from all others even where case does not count."""
    names: dict[str, str] = {}
    taken = {UNKNOWN_FOLDER}
    for label in sorted(labels):
        plain = (
            FORBIDDEN.sub("_", label)
            .strip(". ")
            .encode()[:LONGEST_NAME]
            .decode(errors="ignore")
            .rstrip(". ")
            or "_"
        )
        name, number = plain, 2
        while name.lower() in taken:
            name, number = f"{plain}-{number}", number + 1
        taken.add(name.lower())
        names[label] = name
    return names


def _require_pyarrow() -> None:
    try:
        import pyarrow.parquet  # noqa: F401 - only to see whether it is there
    except ImportError:
        raise MissingExtraError(
            "pyarrow", extra="parquet", purpose="Writing .parquet files"
        ) from None


def _to_parquet(rows: Sequence[LabelRow], none_of_these: Sequence[float] | None) -> bytes:
    import pyarrow
    from pyarrow import parquet

    buffer = io.BytesIO()
    table = pyarrow.Table.from_pylist([row._asdict() for row in rows])
    parquet.write_table(
        table if none_of_these is None else table.append_column(NONE, [none_of_these]), buffer
    )
    return buffer.getvalue()
