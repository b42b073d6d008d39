"""Tables: path, label, split, confidence, origin, guess, person; as CSV or parquet."""

import csv
import io
from pathlib import Path

from fewlabels.errors import MissingExtraError
from fewlabels.io.words import escape_formula
from fewlabels.labeling.exports.base import Dataset, Format, register

COLUMNS = ("path", "label", "split", "confidence", "origin", "guess", "person")


def write_csv(folder: Path, data: Dataset) -> None:
    """Write labels.csv."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for item in data.items:
        cells = [getattr(item, name) for name in COLUMNS]
        writer.writerow([escape_formula(each) if isinstance(each, str) else each for each in cells])
    (folder / "labels.csv").write_bytes(text.getvalue().encode())


def write_parquet(folder: Path, data: Dataset) -> None:
    """Write labels.parquet."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError(
            "pyarrow", extra="parquet", purpose="Writing .parquet files"
        ) from None
    table = {name: [getattr(item, name) for item in data.items] for name in COLUMNS}
    parquet.write_table(pyarrow.table(table), folder / "labels.parquet")


register(
    Format(
        "csv",
        "labels.csv: path, label, split, confidence, origin, person",
        write_csv,
        lists_unlabelled=True,
    ),
    Format("parquet", "the same as labels.parquet", write_parquet, lists_unlabelled=True),
)
