"""Tables: one row per item, with columns of its name, its label, and its vector or its text.

name        the first of path, file_name, image, name, id that is there; none: rows are numbered
label       label, class or category; none: all rows are unlabelled
embedding   a column of vectors (embedding, features, vector), or else the largest set of columns of
            one beginning and the numbers after it: e0, e1, e2
text        text, body, sentence, ...: what the page shows, and where there is no vector, what the
            vectors are made of. Where it is named, columns e0, e1, ... count only if named too
image       paths of pictures, below the folder of the table: what the page shows
audio       paths of sound files, likewise

`columns` says it where a table has other names: {"name": "photo", "embedding": "e"}.
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fewlabels.blanks import CONVERTED_BLANKS
from fewlabels.errors import InputError, MissingExtraError, unknown_choice
from fewlabels.features.storage import Contents
from fewlabels.io.files import check_unpacked, decode_text
from fewlabels.io.words import listing, name_rows

ROLES = {  # of columns, and the names that they usually have
    "name": ("path", "file_name", "filename", "file", "image_path", "image", "name", "id"),
    "label": ("label", "class", "category"),
    "embedding": ("embedding", "embeddings", "features", "feature", "vector"),
    "text": ("text", "body", "sentence", "content", "question", "message"),
    "image": (),
    "audio": (),
}
DIGITS = "0123456789"
ROWS_AT_ONCE = 1024  # of a parquet file, whose size in memory is known only when they are read
MOST_SHOWN = 12  # columns that a message names
LONGEST_CELL = 1 << 28  # characters of a cell of a CSV file


class Table(NamedTuple):
    """Columns, not yet read."""

    columns: Sequence[str]
    values: Callable[[str], Sequence[Any]]  # of a column
    vectors: Callable[[str], NDArray[Any]]  # of a column of vectors, (N, D)


def check_columns(columns: Mapping[str, str] | None) -> None:
    """Refuse roles that columns cannot have."""
    for role in columns or {}:
        if role not in ROLES:
            raise unknown_choice("columns: the role of a column", role, ROLES)


class TableRows(NamedTuple):
    """What a table holds of its rows."""

    names: list[str] | None
    labels: list[Any]
    features: NDArray[Any] | None  # (N, D); None where it holds no vectors
    texts: list[str] | None = None
    images: list[str] | None = None  # paths
    audio: list[str] | None = None
    text_column: str = ""
    unlabelled_columns: tuple[str, ...] = ()  # all columns, where none of them is of labels


def read_rows(
    table: Table, columns: Mapping[str, str] | None = None, *, vectors_needed: bool = False
) -> TableRows:
    """Names, labels, vectors and what is shown of all rows.

    >>> cells = {"id": ["a", "b"], "body": ["Where is it?", "When?"]}
    >>> read_rows(Table(list(cells), cells.__getitem__, cells.__getitem__)).texts
    ['Where is it?', 'When?']
    """
    check_columns(columns)
    given = columns or {}
    chosen = {role: _find(table, role, given.get(role)) for role in ROLES}
    label, name = chosen["label"], chosen["name"]
    features = None
    if vectors_needed or _has_vectors(table, chosen["embedding"], "text" in given):
        features = _read_vectors(table, chosen["embedding"])
    elif chosen["text"] is None:
        raise _no_vectors(table, texts=True)
    shown = {
        role: None if (column := chosen[role]) is None else [*map(_to_text, table.values(column))]
        for role in ("text", "image", "audio")
    }
    n_rows = len(features) if features is not None else len(shown["text"] or [])
    labels: list[Any] = [None] * n_rows
    if label is not None:
        labels = [None if each in CONVERTED_BLANKS else each for each in table.values(label)]
    names = None
    if name is not None and _is_text(values := table.values(name)):
        names = [str(each) for each in values]
        twice = [each for each, times in Counter(names).most_common(1) if times > 1]
        if twice:
            raise InputError(
                f"column '{name}' must name each row once, got '{twice[0][:80]}' more than once. "
                "Choose another with columns={'name': COLUMN}."
            )
    return TableRows(
        names,
        labels,
        features,
        shown["text"],
        shown["image"],
        shown["audio"],
        chosen["text"] or "",
        () if label is not None else tuple(table.columns),
    )


def read_contents(table: Table, columns: Mapping[str, str] | None = None) -> Contents:
    """Vectors, labels and names of a table.

    >>> cells = {"id": ["a", "b"], "species": ["owl", ""], "e0": ["1", "2"], "e1": ["0", "1"]}
    >>> table = Table(list(cells), cells.__getitem__, cells.__getitem__)
    >>> read_contents(table, {"label": "species"}).features.tolist()
    [[1.0, 0.0], [2.0, 1.0]]
    """
    rows = read_rows(table, columns, vectors_needed=True)
    return Contents(rows.features, rows.labels, names=rows.names)


def _has_vectors(table: Table, column: str | None, is_text: bool) -> bool:
    return column is not None or (not is_text and bool(_numbered(table.columns)))


def _to_text(value: Any) -> str:
    """A cell as text; a missing one is empty."""
    if isinstance(value, str):
        return value
    return "" if (text := str(value)) in CONVERTED_BLANKS else text


def _no_vectors(table: Table, *, texts: bool = False) -> InputError:
    or_texts, or_name = (
        (", or a column of texts", " or columns={'text': COLUMN}") if texts else ("", "")
    )
    return InputError(
        f"a table must hold a column 'embedding', or columns e0, e1, ...{or_texts}, got "
        f"{describe_columns(table.columns)}. "
        f"Name it with columns={{'embedding': COLUMN}}{or_name}. "
        "Or is it a file of labels? `fewlabels label PHOTOS --labels FILE` takes it."
    )


def _find(table: Table, role: str, wanted: str | None) -> str | None:
    """The column of a role; None where there is none. Capital letters do not count."""
    if wanted is not None:
        numbered = role == "embedding" and _numbered(table.columns).get(wanted)
        if wanted not in table.columns and not numbered:
            raise InputError(
                f"columns: '{role}' must be one of {describe_columns(table.columns)}, "
                f"got {wanted!r}."
            )
        return wanted
    lower = {each.lower(): each for each in reversed(table.columns)}
    return next((lower[each] for each in ROLES[role] if each in lower), None)


def _is_text(values: Sequence[Any]) -> bool:
    """Whether values can be names: a column of pictures, such as one called image, cannot."""
    return all(isinstance(each, str | int | np.integer) for each in values)


def _read_vectors(table: Table, column: str | None) -> NDArray[Any]:
    if column is not None and column in table.columns:
        return table.vectors(column)
    groups = _numbered(table.columns)
    found = (
        groups.get(column, []) if column is not None else max(groups.values(), key=len, default=[])
    )
    if not found:
        raise _no_vectors(table)
    return np.stack([_to_numbers(table.values(each), each) for each in found], axis=1)


def _numbered(columns: Iterable[str]) -> dict[str, list[str]]:
    """Two or more columns that differ only in a number at the end, in its order, by beginning.

    >>> _numbered(["id", "e1", "e10", "e2", "x1"])
    {'e': ['e1', 'e2', 'e10']}
    """
    groups: dict[str, list[tuple[int, str]]] = {}
    for each in columns:
        start = each.rstrip(DIGITS)
        if number := each[len(start) :]:
            groups.setdefault(start, []).append((int(number), each))
    return {
        start: [each for _, each in sorted(group)]
        for start, group in groups.items()
        if len(group) > 1
    }


def describe_columns(columns: Sequence[str]) -> str:
    """The columns of a table in words; numbered ones, of which there may be hundreds, as one.

    >>> describe_columns(["id", "e0", "e1", "e2", "species", "x0", "x1"])
    'id, e0 to e2, species, x0, x1'
    """
    shown = list[str]()
    longer = [group for group in _numbered(columns).values() if len(group) > 2]
    group_of = {each: group for group in longer for each in group}
    for each in columns:
        group = group_of.get(each)
        words = each if group is None else f"{group[0]} to {group[-1]}"
        if group is None or words not in shown:
            shown.append(words)
    return listing(shown, most=MOST_SHOWN)


def _to_numbers(values: Sequence[Any], column: str) -> NDArray[np.float32]:
    try:
        return np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError):
        bad = [row for row, each in enumerate(values) if not _is_number(each)]
        raise InputError(
            f"column '{column}' must hold numbers, got {values[bad[0]]!r} in {name_rows(bad)}."
        ) from None


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def open_csv(path: Path) -> Table:
    """A .csv file; a column of vectors has cells such as [0.1, 0.2] or 0.1 0.2."""
    text = decode_text(path, path.read_bytes())
    separator = max(",;\t", key=text.partition("\n")[0].count)
    limit = csv.field_size_limit(LONGEST_CELL)  # of all readers of this process
    try:
        header, *rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    except ValueError:
        raise InputError("the file must have a first line of column names, got none.") from None
    finally:
        csv.field_size_limit(limit)
    rows = [row for row in rows if row]
    for number, row in enumerate(rows):
        if len(row) != len(header):
            raise InputError(
                f"all rows must have {len(header)} cells as the first line, got {len(row)} in row "
                f"{number}."
            )
    place = {name: number for number, name in enumerate(header)}

    def values(column: str) -> list[str]:
        return [row[place[column]] for row in rows]

    def vectors(column: str) -> NDArray[Any]:
        return np.array([_parse(cell, row, column) for row, cell in enumerate(values(column))])

    return Table(header, values, vectors)


def _parse(cell: str, row: int, column: str) -> list[float]:
    try:
        inside = cell.strip().removeprefix("[").removesuffix("]")
        found = json.loads(f"[{inside}]") if "," in inside else inside.split()
        return [float(each) for each in found]
    except (TypeError, ValueError):
        raise InputError(
            f"column '{column}' must hold vectors such as [0.1, 0.2], got '{cell[:40]}' in row "
            f"{row}."
        ) from None


def open_parquet(path: Path) -> Table:
    """A .parquet file."""
    try:
        from pyarrow import Table as ArrowTable
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError(
            "pyarrow", extra="parquet", purpose="Reading .parquet files"
        ) from None
    with (
        path.open("rb") as file,
        parquet.ParquetFile(file, page_checksum_verification=True) as content,
    ):
        batches, n_bytes = [], 0
        for batch in content.iter_batches(ROWS_AT_ONCE):
            batches.append(batch)
            n_bytes += batch.nbytes
            check_unpacked(path, n_bytes)
        table = ArrowTable.from_batches(batches, content.schema_arrow)
    return _of_arrow(table)


def _of_arrow(table: Any) -> Table:
    from pyarrow import compute

    def vectors(column: str) -> NDArray[Any]:
        lengths = compute.unique(compute.list_value_length(table[column])).to_pylist()
        if len(lengths) != 1 or lengths[0] is None:
            raise InputError(
                f"{column} must be a vector of the same length in every row, "
                f"got lengths {listing(lengths)}."
            )
        found: NDArray[Any] = compute.list_flatten(table[column]).to_numpy()
        return found.reshape(-1, lengths[0])

    return Table(table.column_names, lambda column: table[column].to_pylist(), vectors)


def is_table(source: object) -> bool:
    """Whether something is a DataFrame of pandas, or a dataset of Hugging Face."""
    return hasattr(source, "iloc") or hasattr(source, "with_format")


def open_frame(source: Any) -> Table:
    """A pandas DataFrame, or a Hugging Face dataset whose class numbers get their names."""
    if not hasattr(source, "iloc"):
        given = source.features
        labels = {
            column: given[column].names for column in given if hasattr(given[column], "names")
        }
        table = _of_arrow(source.with_format("arrow")[:])

        def named(column: str) -> Sequence[Any]:
            values = table.values(column)
            if column not in labels:
                return values
            return [None if each is None or each < 0 else labels[column][each] for each in values]

        return table._replace(values=named)

    def vectors(column: str) -> NDArray[Any]:
        lengths = sorted({len(each) for each in source[column]})
        if len(lengths) != 1:
            raise InputError(
                f"{column} must be a vector of the same length in every row, "
                f"got lengths {listing(lengths)}."
            )
        return np.stack([np.asarray(each) for each in source[column]])

    names = [str(each) for each in source.columns]
    by_name = dict(zip(names, source.columns, strict=True))
    return Table(names, lambda column: source[by_name[column]].tolist(), vectors)
