"""The journal of a project: every decision about a label, in order, in an SQLite database.

    items      name of each item; the name of a number never changes
    classes    name of each class, in the order of first use
    decisions  item, class (none: the label was removed), mark, origin, time, batch, what the model
               had predicted, when it was undone

Decisions are only added, or marked as undone. The label of an item is that of its last decision
that was not undone. The decisions of one command or click are one batch, and are undone together.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from fewlabels.errors import FileFormatError

# Origins of a label. "confirmed": a person confirmed the model's labels of many items at once.
# Such a label is no independent evidence of the model's accuracy.
PERSON, IMPORT, MODEL, CONFIRMED = "person", "import", "model", "confirmed"
NONE, SKIP = "none", "skip"  # marks: an item belongs to no class; the person cannot tell
APPLICATION_ID = 0x70746D70  # "ptmp", from the program's first name: marks our databases
VERSION = 2
DECISIONS = """
CREATE TABLE decisions (
    id INTEGER PRIMARY KEY,
    batch INTEGER NOT NULL,
    item INTEGER NOT NULL REFERENCES items (id),
    class INTEGER REFERENCES classes (id),
    origin TEXT NOT NULL CHECK (origin IN ('person', 'import', 'model', 'confirmed')),
    time TEXT NOT NULL,
    predicted INTEGER REFERENCES classes (id),
    undone TEXT,
    mark TEXT CHECK (mark IN ('none', 'skip'))
) STRICT;
CREATE INDEX decisions_by_item ON decisions (item, id);
"""
SCHEMA = f"""
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, stamp TEXT NOT NULL) STRICT;
CREATE TABLE classes (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
{DECISIONS}
CREATE TABLE model_labels (
    item INTEGER PRIMARY KEY REFERENCES items (id), class INTEGER NOT NULL REFERENCES classes (id),
    confidence REAL NOT NULL, margin REAL NOT NULL, time TEXT NOT NULL
) STRICT;
"""
FROM_VERSION_1 = f"""
DROP INDEX decisions_by_item;
ALTER TABLE decisions RENAME TO decisions_1;
{DECISIONS}
INSERT INTO decisions SELECT *, NULL FROM decisions_1;
DROP TABLE decisions_1;
"""
CURRENT = """
SELECT items.name, classes.name, origin, time, mark FROM decisions
JOIN items ON items.id = item LEFT JOIN classes ON classes.id = class
WHERE decisions.id IN (SELECT max(id) FROM decisions WHERE undone IS NULL GROUP BY item)
"""
# Imports are not undone. The second is undone, and no later batch is valid.
TO_UNDO = "SELECT max(batch) FROM decisions WHERE undone IS NULL AND origin != 'import'"
TO_REDO = f"""
SELECT min(batch) FROM decisions
WHERE undone IS NOT NULL AND origin != 'import' AND batch > coalesce(({TO_UNDO}), 0)
"""


class GivenLabel(NamedTuple):
    """A label that a person or a file gave."""

    label: str
    origin: str  # "person", "import", "confirmed" (one of many at once), or "model"
    time: str = ""  # ISO 8601, UTC


class ModelLabel(NamedTuple):
    """The model's label of an item."""

    label: str
    confidence: float
    margin: float


class Batch(NamedTuple):
    """The decisions of one click or command."""

    number: int
    n_items: int
    labels: list[str]  # the different ones
    origin: str
    mark: str | None


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
                f"{path} is a database of another program, not a labelling project. "
                "Name another folder."
            )
        if version > VERSION:
            raise FileFormatError(
                f"{path} is a project of version {version}, this fewlabels knows up to {VERSION}. "
                "Upgrade fewlabels."
            )
        db.execute("PRAGMA journal_mode = WAL")
        # FULL: a person's decision is on the disk before the call returns.
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")
        if fresh or version < VERSION:
            with self._change():
                for statement in (SCHEMA if fresh else FROM_VERSION_1).split(";\n"):
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {VERSION}")

    def close(self) -> None:
        """Close the file; SQLite then moves the write-ahead log into it."""
        self._db.close()

    @contextmanager
    def _change(self) -> Iterator[None]:
        """All of a change or nothing; it takes the write lock first, so it cannot fail half way."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @property
    def about(self) -> dict[str, str]:
        """Facts about the project: folder, backbone, title."""
        return dict(self._db.execute("SELECT key, value FROM about"))

    def describe(self, about: Mapping[str, str]) -> None:
        """Store facts about the project."""
        with self._change():
            self._db.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", about.items())

    def add_items(self, stamps: Mapping[str, str]) -> None:
        """Add items by name; an item that exists gets the new stamp."""
        with self._change():
            self._db.executemany(
                "INSERT INTO items (name, stamp) VALUES (?, ?) "
                "ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp",
                stamps.items(),
            )

    @property
    def stamps(self) -> dict[str, str]:
        """The stamp of each item's file when its features were computed."""
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
        mark: str | None = None,
    ) -> None:
        """Give labels to items (None removes a label), as one batch.

        Args:
            labels: Label by item name.
            origin: "person", "import", "confirmed" or "model".
            predicted: What the model had predicted, by item name, to count later how often it was
                right.
            mark: "none" for items of no class, "skip" for items that the person cannot tell.
        """
        time = _now()
        with self._change():
            batch = self._new_batch()
            predicted = predicted or {}
            used = [label for label in (*labels.values(), *predicted.values()) if label is not None]
            self._db.executemany(
                "INSERT OR IGNORE INTO classes (name) VALUES (?)",
                [(label,) for label in dict.fromkeys(used)],
            )
            self._db.executemany(
                "INSERT INTO decisions (batch, item, class, origin, time, predicted, mark) "
                "VALUES (?, (SELECT id FROM items WHERE name = ?), "
                "(SELECT id FROM classes WHERE name = ?), ?, ?, "
                "(SELECT id FROM classes WHERE name = ?), ?)",
                [
                    (batch, name, label, origin, time, predicted.get(name), mark)
                    for name, label in labels.items()
                ],
            )

    def relabel(self, old: str, new: str | None) -> list[str]:
        """Give all items of one class another label, or none, as one batch; returns their names.

        An imported label becomes the person's; labels confirmed at once stay what they are.
        """
        current = {name: each for name, each in self.current.items() if each.label == old}
        with self._change():
            batch, time = self._new_batch(), _now()
            self._db.execute(
                "INSERT OR IGNORE INTO classes (name) SELECT ? WHERE ? != ''", (new,) * 2
            )
            self._db.executemany(
                "INSERT INTO decisions (batch, item, class, origin, time) "
                "VALUES (?, (SELECT id FROM items WHERE name = ?), "
                "(SELECT id FROM classes WHERE name = ?), ?, ?)",
                [
                    (batch, name, new, PERSON if each.origin == IMPORT else each.origin, time)
                    for name, each in current.items()
                ],
            )
        return list(current)

    def _new_batch(self) -> int:
        found: int = self._db.execute(
            "SELECT coalesce(max(batch), 0) + 1 FROM decisions"
        ).fetchone()[0]
        return found

    @property
    def to_undo(self) -> Batch | None:
        """The batch that `undo` would undo: the last one of a person."""
        return self._batch(TO_UNDO)

    @property
    def to_redo(self) -> Batch | None:
        """The batch that `redo` would bring back: the last one undone, if nothing came since."""
        return self._batch(TO_REDO)

    def _batch(self, which: str) -> Batch | None:
        (number,) = self._db.execute(which).fetchone()
        if number is None:
            return None
        rows = self._db.execute(
            "SELECT classes.name, origin, mark FROM decisions "
            "LEFT JOIN classes ON classes.id = class WHERE batch = ?",
            (number,),
        ).fetchall()
        labels = list(dict.fromkeys(label for label, *_ in rows if label is not None))
        return Batch(number, len(rows), labels, *rows[0][1:])

    def undo(self, batch: int | None = None) -> list[str]:
        """Undo the last batch of a person's decisions, and return the names of its items.

        Args:
            batch: Its number as the person knows it: if there is a later one, nothing is undone.
        """
        return self._mark_undone(TO_UNDO, batch, _now())

    def redo(self, batch: int | None = None) -> list[str]:
        """Bring back the batch that was undone last; arguments and result as in `undo`."""
        return self._mark_undone(TO_REDO, batch, None)

    def _mark_undone(self, which: str, expected: int | None, time: str | None) -> list[str]:
        with self._change():
            (batch,) = self._db.execute(which).fetchone()
            if batch is None or expected not in (None, batch):
                return []
            names = [
                name
                for (name,) in self._db.execute(
                    "SELECT name FROM decisions JOIN items ON items.id = item WHERE batch = ?",
                    (batch,),
                )
            ]
            self._db.execute("UPDATE decisions SET undone = ? WHERE batch = ?", (time, batch))
        return names

    @property
    def current(self) -> dict[str, GivenLabel]:
        """The label of every item that has one, by name."""
        return {
            name: GivenLabel(label, origin, time)
            for name, label, origin, time, _ in self._db.execute(CURRENT)
            if label is not None
        }

    @property
    def marks(self) -> dict[str, str]:
        """The mark of every item that has one, "none" or "skip", by name."""
        return {name: mark for name, *_, mark in self._db.execute(CURRENT) if mark is not None}

    def history(self, name: str) -> list[dict[str, str | None]]:
        """Every decision about an item, the oldest first."""
        rows = self._db.execute(
            "SELECT classes.name, origin, time, undone, mark FROM decisions "
            "JOIN items ON items.id = item LEFT JOIN classes ON classes.id = class "
            "WHERE items.name = ? ORDER BY decisions.id",
            (name,),
        )
        keys = ("label", "origin", "time", "undone", "mark")
        return [dict(zip(keys, row, strict=True)) for row in rows]

    def keep_model_labels(self, labels: Iterable[tuple[str, ModelLabel]]) -> None:
        """Replace all labels of the model."""
        time = _now()
        with self._change():
            self._db.execute("DELETE FROM model_labels")
            self._db.executemany(
                "INSERT INTO model_labels VALUES ((SELECT id FROM items WHERE name = ?), "
                "(SELECT id FROM classes WHERE name = ?), ?, ?, ?)",
                [
                    (name, found.label, found.confidence, found.margin, time)
                    for name, found in labels
                ],
            )

    @property
    def model_labels(self) -> dict[str, ModelLabel]:
        """The last labels of the model, by item name."""
        rows = self._db.execute(
            "SELECT items.name, classes.name, confidence, margin FROM model_labels "
            "JOIN items ON items.id = item JOIN classes ON classes.id = class"
        )
        return {
            name: ModelLabel(label, confidence, margin) for name, label, confidence, margin in rows
        }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
