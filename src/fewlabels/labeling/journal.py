"""The journal of a project: every decision about a label, in SQLite, in the order in which they were made.

    items      name of each item; a number never changes its name
    classes    name of each class, in the order of first use
    decisions  item, class (none: the label was taken away), origin, time, batch, what the model had said, when it was undone

Decisions are only ever added or marked as undone. The label of an item is that of its last decision
that was not undone. What one command or click decided is one batch, and is undone as one.
"""

import sqlite3
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from fewlabels.errors import FileFormatError

APPLICATION_ID = 0x70746D70  # "ptmp": how `file` and we know whose database this is
VERSION = 1
SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, stamp TEXT NOT NULL) STRICT;
CREATE TABLE classes (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE decisions (
    id INTEGER PRIMARY KEY,
    batch INTEGER NOT NULL,
    item INTEGER NOT NULL REFERENCES items (id),
    class INTEGER REFERENCES classes (id),
    origin TEXT NOT NULL CHECK (origin IN ('person', 'import', 'model')),
    time TEXT NOT NULL,
    predicted INTEGER REFERENCES classes (id),
    undone TEXT
) STRICT;
CREATE INDEX decisions_by_item ON decisions (item, id);
CREATE TABLE model_labels (
    item INTEGER PRIMARY KEY REFERENCES items (id), class INTEGER NOT NULL REFERENCES classes (id),
    confidence REAL NOT NULL, margin REAL NOT NULL, time TEXT NOT NULL
) STRICT;
"""
CURRENT = """
SELECT items.name, classes.name, origin, time FROM decisions
JOIN items ON items.id = item LEFT JOIN classes ON classes.id = class
WHERE decisions.id IN (SELECT max(id) FROM decisions WHERE undone IS NULL GROUP BY item) AND class IS NOT NULL
"""


class Decided(NamedTuple):
    """The label an item has now, who gave it (person, import or model) and when (ISO 8601, UTC)."""

    label: str
    origin: str
    time: str


class ModelLabel(NamedTuple):
    """What the model thinks of an item."""

    label: str
    confidence: float
    margin: float


class Journal:
    """An open journal; every change is on the disk when its call returns."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
        try:
            self._prepare(path)
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise FileFormatError(
                f"{path} is not a labelling project ({error}). Name the folder that fewlabels made."
            ) from error
        except FileFormatError:
            self._db.close()
            raise

    def _prepare(self, path: Path) -> None:
        db = self._db
        application, version = (
            db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("application_id", "user_version")
        )
        fresh = not db.execute("SELECT 1 FROM sqlite_master").fetchone()
        if not fresh and application != APPLICATION_ID:
            raise FileFormatError(
                f"{path} is a database of another program, not a labelling project."
            )
        if version > VERSION:
            raise FileFormatError(
                f"{path} is a project of version {version}, this fewlabels knows up to {VERSION}. Upgrade fewlabels."
            )
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(
            "PRAGMA synchronous = FULL"
        )  # a person's decision is on the disk before the answer is
        db.execute("PRAGMA foreign_keys = ON")
        if fresh:
            with self._change():
                for statement in SCHEMA.split(";\n"):
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {VERSION}")

    def close(self) -> None:
        """Fold the write-ahead log into the file and close it."""
        self._db.close()

    def _change(self) -> "_Transaction":
        return _Transaction(self._db)

    @property
    def about(self) -> dict[str, str]:
        """What the project is of: folder, backbone, title."""
        return dict(self._db.execute("SELECT key, value FROM about"))

    def describe(self, about: Mapping[str, str]) -> None:
        """Keep words about the project."""
        with self._change():
            self._db.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", about.items())

    def add_items(self, stamps: Mapping[str, str]) -> None:
        """Make items known by name, or note the new stamp of one that changed."""
        with self._change():
            self._db.executemany(
                "INSERT INTO items (name, stamp) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp",
                stamps.items(),
            )

    @property
    def stamps(self) -> dict[str, str]:
        """What each item looked like when its features were computed."""
        return dict(self._db.execute("SELECT name, stamp FROM items"))

    @property
    def class_names(self) -> list[str]:
        """All classes ever used, in the order of first use."""
        return [name for (name,) in self._db.execute("SELECT name FROM classes ORDER BY id")]

    def decide(
        self,
        labels: Mapping[str, str | None],
        *,
        origin: str,
        predicted: Mapping[str, str] | None = None,
    ) -> None:
        """Give items labels (None takes a label away), as one batch.

        Args:
            labels: Label by item name.
            origin: "person" or "import", or "model" for what a person accepted unseen.
            predicted: What the model had said, by item name: an honest record of how often it was right.
        """
        time = _now()
        with self._change():
            (batch,) = self._db.execute(
                "SELECT coalesce(max(batch), 0) + 1 FROM decisions"
            ).fetchone()
            said = predicted or {}
            used = [label for label in (*labels.values(), *said.values()) if label is not None]
            self._db.executemany(
                "INSERT OR IGNORE INTO classes (name) VALUES (?)",
                [(label,) for label in dict.fromkeys(used)],
            )
            self._db.executemany(
                "INSERT INTO decisions (batch, item, class, origin, time, predicted) VALUES (?, (SELECT id FROM items WHERE name = ?), "
                "(SELECT id FROM classes WHERE name = ?), ?, ?, (SELECT id FROM classes WHERE name = ?))",
                [
                    (batch, name, label, origin, time, said.get(name))
                    for name, label in labels.items()
                ],
            )

    def undo(self) -> list[str]:
        """Take the last batch of a person's decisions back; the names of its items, none where nothing is left to undo."""
        with self._change():
            (batch,) = self._db.execute(
                "SELECT max(batch) FROM decisions WHERE undone IS NULL AND origin != 'import'"
            ).fetchone()
            if batch is None:
                return []
            names = [
                name
                for (name,) in self._db.execute(
                    "SELECT name FROM decisions JOIN items ON items.id = item WHERE batch = ?",
                    (batch,),
                )
            ]
            self._db.execute("UPDATE decisions SET undone = ? WHERE batch = ?", (_now(), batch))
        return names

    @property
    def current(self) -> dict[str, Decided]:
        """The label of every item that has one, by name."""
        return {
            name: Decided(label, origin, time)
            for name, label, origin, time in self._db.execute(CURRENT)
        }

    def history(self, name: str) -> list[dict[str, str | None]]:
        """Every decision about an item, the first first."""
        rows = self._db.execute(
            "SELECT classes.name, origin, time, undone FROM decisions JOIN items ON items.id = item "
            "LEFT JOIN classes ON classes.id = class WHERE items.name = ? ORDER BY decisions.id",
            (name,),
        )
        return [dict(zip(("label", "origin", "time", "undone"), row, strict=True)) for row in rows]

    def keep_model_labels(self, labels: Iterable[tuple[str, ModelLabel]]) -> None:
        """Replace what the model thinks, all at once."""
        time = _now()
        with self._change():
            self._db.execute("DELETE FROM model_labels")
            self._db.executemany(
                "INSERT INTO model_labels VALUES ((SELECT id FROM items WHERE name = ?), (SELECT id FROM classes WHERE name = ?), ?, ?, ?)",
                [
                    (name, found.label, found.confidence, found.margin, time)
                    for name, found in labels
                ],
            )

    @property
    def model_labels(self) -> dict[str, ModelLabel]:
        """What the model thought last, by item name."""
        rows = self._db.execute(
            "SELECT items.name, classes.name, confidence, margin FROM model_labels "
            "JOIN items ON items.id = item JOIN classes ON classes.id = class"
        )
        return {
            name: ModelLabel(label, confidence, margin) for name, label, confidence, margin in rows
        }


class _Transaction:
    """All of a change or nothing of it; the write lock is taken at the start, so that it cannot fail half way."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    def __enter__(self) -> None:
        self.db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.db.execute("COMMIT" if kind is None else "ROLLBACK")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
