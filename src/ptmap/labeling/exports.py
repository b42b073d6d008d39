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

from ptmap.errors import InputError, MissingExtraError
from ptmap.evaluation.folder import make_folder, write_file
from ptmap.labeling.collection import Collection
from ptmap.labeling.table import LabelRow

UNKNOWN_FOLDER = "unlabelled"  # of images that the model left without a label
FORBIDDEN = re.compile(r'[<>:"/\\|?*\x00-\x1f]')  # what Windows, the strictest, does not allow in file names
TABLES = (".csv", ".parquet")
LONGEST_NAME = 120  # bytes of UTF-8 of a folder's name; file systems stop at 255


def to_csv(rows: Sequence[LabelRow]) -> str:
    """One line a row under the names of the columns."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(LabelRow._fields)
    writer.writerows(rows)
    return text.getvalue()


def check_table(path: Path) -> None:
    """Refuse a path that `write_table` could not write, before any work is done."""
    if path.suffix.lower() not in TABLES:
        raise InputError(f"--output must end in {' or '.join(TABLES)}, got '{path.name}'.")
    make_folder(path.parent)


def write_table(path: Path, rows: Sequence[LabelRow]) -> None:
    """Write a .csv or .parquet file, all or nothing."""
    check_table(path)
    write_file(path, _to_parquet(rows) if path.suffix.lower() == ".parquet" else to_csv(rows).encode())


def write_label_studio(path: Path, rows: Sequence[LabelRow], *, prefix: str) -> None:
    """Tasks with predictions for Label Studio's import, `<Choices name="label" toName="image">`.

    Args:
        path: The .json file.
        rows: The outcome; rows without a label become tasks without a prediction.
        prefix: What comes before each path, such as "/data/local-files/?d=photos/".
    """
    make_folder(path.parent)
    write_file(path, (json.dumps([_task(row, prefix) for row in rows], indent=1, ensure_ascii=False) + "\n").encode())


def _task(row: LabelRow, prefix: str) -> dict[str, Any]:
    task: dict[str, Any] = {"data": {"image": prefix + quote(row.path)}}
    if row.label:
        choice = {"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": [row.label]}}
        task["predictions"] = [{"model_version": f"ptmap ({row.origin})", "score": row.confidence, "result": [choice]}]
    return task


def file_into_folders(folder: Path, rows: Sequence[LabelRow], collection: Collection, *, link: bool) -> int:
    """Copy (or link) every image into a folder of its class; how many there are now.

    An image that is there already under the same name is left alone; another file in its place gets
    company: 'a/1.jpg' and 'b/1.jpg' become '1.jpg' and '1-2.jpg'. Nothing is ever overwritten.
    """
    if collection.root is None:
        raise InputError("--copy-to and --link-to need a folder of images, got features only.")
    inside = folder.resolve().is_relative_to(collection.root.resolve())
    if inside:
        raise InputError(
            f"{folder} must not lie inside the folder of images {collection.root}: the copies would be images of their own next time."
        )
    place: Callable[[Path, Path], object] = _link if link else shutil.copy2
    folders = _folder_names({row.label for row in rows if row.label})
    n_filed = 0
    for item, row in enumerate(rows):
        source = collection.path(item)
        if source is None:
            continue
        target = make_folder(folder / folders.get(row.label, UNKNOWN_FOLDER)) / Path(row.path).name
        free = _free_name(source, target)
        if free is not None:
            place(source, free)
        n_filed += 1
    return n_filed


def _link(source: Path, target: Path) -> None:
    target.symlink_to(source)


def _free_name(source: Path, target: Path) -> Path | None:
    """A path beside `target` where nothing is; None where the source itself is there already."""
    number = 2
    candidate = target
    while candidate.exists() or candidate.is_symlink():
        if candidate.exists() and (candidate.samefile(source) or candidate.read_bytes() == source.read_bytes()):
            return None
        candidate = target.with_name(f"{target.stem}-{number}{target.suffix}")
        number += 1
    return candidate


def _folder_names(labels: set[str]) -> dict[str, str]:
    """A folder name for each label, safe on every system and different from all others even where case does not count."""
    names: dict[str, str] = {}
    taken = {UNKNOWN_FOLDER}
    for label in sorted(labels):
        plain = FORBIDDEN.sub("_", label).strip(". ") or "_"
        plain = plain.encode()[:LONGEST_NAME].decode(errors="ignore")
        name, number = plain, 2
        while name.lower() in taken:
            name, number = f"{plain}-{number}", number + 1
        taken.add(name.lower())
        names[label] = name
    return names


def _to_parquet(rows: Sequence[LabelRow]) -> bytes:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError("pyarrow", extra="parquet", purpose="Writing .parquet files") from None
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist([row._asdict() for row in rows]), buffer)
    return buffer.getvalue()
