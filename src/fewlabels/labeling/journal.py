"""The journal of a project: every decision about a label, in order, in an SQLite database.

    items      name of each item; the name of a number never changes
    classes    name of each class, in the order of first use
    decisions  item, class (none: the label was removed), mark, origin, time, batch, what the model
               had predicted, when it was undone, who decided, whether it is kept aside

Decisions are only added, or marked as undone. The label of an item is that of its last decision
that was not undone or kept aside. Those aside came with another project that was merged into this
one (merging.py): they tell what somebody decided, no more. The decisions of one command or click
are one batch, and are undone together.

A plain-text copy beside it (text_copy.py) follows every change. A database that is damaged, or that
lacks what the copy has, is refused; `fill` makes a new one from the copy.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from fewlabels.errors import FewLabelsError, FileFormatError
from fewlabels.io.files import unwritable
from fewlabels.io.words import first_line
from fewlabels.labeling.text_copy import Change, Copied, Decision, TextCopy

# Origins of a label. "confirmed": a person confirmed the model's labels of many items at once.
# Such a label is no independent evidence of the model's accuracy.
PERSON, IMPORT, MODEL, CONFIRMED = "person", "import", "model", "confirmed"
# Marks: an item belongs to no class; the person cannot tell; people decided differently, and one
# of them must decide again.
NONE, SKIP, CONFLICT = "none", "skip", "conflict"
COPY = "decisions.jsonl"
COPIED = ("title", "root", "backbone", "every", "boxes")  # facts that the copy has too
PRIMARY_CODE = 0xFF  # the part of SQLite's codes that names the kind of error
DISK_ERRORS = (  # the disk is full, read-only or failing, or another process holds the file
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY),
    *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN),
)
NOT_KEPT = "The decision was not kept. Free some space, then decide again."
APPLICATION_ID = 0x70746D70  # "ptmp", from the program's first name: marks our databases
VERSION = 3
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
    mark TEXT CHECK (mark IN ('none', 'skip', 'conflict')),
    person TEXT NOT NULL,
    aside INTEGER NOT NULL
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
FROM_VERSION = {  # what decisions of former versions lack
    version: f"""
DROP INDEX decisions_by_item;
ALTER TABLE decisions RENAME TO decisions_before;
{DECISIONS}
INSERT INTO decisions SELECT *, {lacking} FROM decisions_before;
DROP TABLE decisions_before;
"""
    for version, lacking in {1: "NULL, '', 0", 2: "'', 0"}.items()
}
CURRENT = """
SELECT items.name, classes.name, origin, time, mark, person FROM decisions
JOIN items ON items.id = item LEFT JOIN classes ON classes.id = class
WHERE decisions.id IN
    (SELECT max(id) FROM decisions WHERE undone IS NULL AND NOT aside GROUP BY item)
"""
# A conflict is nobody's opinion, and a file that nobody gave is no person.
OPINIONS = """
SELECT items.name, person, classes.name, mark, origin FROM decisions
JOIN items ON items.id = item LEFT JOIN classes ON classes.id = class
WHERE decisions.id IN
    (SELECT max(id) FROM decisions WHERE undone IS NULL AND mark IS NOT 'conflict'
     AND origin != 'model' AND (origin != 'import' OR person != '') GROUP BY item, person)
ORDER BY item, person
"""
ALL = """
SELECT batch, time, undone, items.name, classes.name, origin, mark, guesses.name, person, aside
FROM decisions LEFT JOIN items ON items.id = item LEFT JOIN classes ON classes.id = class
LEFT JOIN classes AS guesses ON guesses.id = predicted ORDER BY decisions.id
"""
# Imports are not undone. The second is undone, and no later batch is valid.
TO_UNDO = (
    "SELECT max(batch) FROM decisions WHERE undone IS NULL AND origin != 'import' AND NOT aside"
)
TO_REDO = f"""
SELECT min(batch) FROM decisions
WHERE undone IS NOT NULL AND origin != 'import' AND NOT aside AND batch > coalesce(({TO_UNDO}), 0)
"""


class GivenLabel(NamedTuple):
    """A label that a person or a file gave."""

    label: str
    origin: str  # "person", "import", "confirmed" (one of many at once), or "model"
    time: str = ""  # ISO 8601, UTC


class Standing(NamedTuple):
    """What the journal says of items now, by name."""

    labels: dict[str, GivenLabel]
    marks: dict[str, str]  # "none", "skip" or "conflict"
    people: dict[str, str]  # who decided, where the person has a name


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
    person: str


class Record(NamedTuple):
    """A decision as it is kept; a later one has a larger place."""

    place: int
    batch: int
    time: str
    undone: str | None
    decision: Decision


class Journal:
    """An open journal; every change is on the disk when its call returns."""

    def __init__(self, path: Path, *, write: bool = True) -> None:
        self.path = path
        self.copy = TextCopy(path.with_name(COPY))
        try:
            self._db = self._connect(write=write)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._explain(error) from error

    def _connect(self, *, write: bool) -> sqlite3.Connection:
        if not write:
            return self._connect_to_read()
        db = self._open()
        with _closed_on_error(db):
            fresh, version = self._identify(db)
            db.execute("PRAGMA journal_mode = WAL")
            # FULL: a person's decision is on the disk before the call returns.
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA foreign_keys = ON")
            if fresh or version < VERSION:
                _bring_up(db, SCHEMA if fresh else FROM_VERSION[version])
            copied = self.copy.read()
            known = self._compare(db, copied)
            if known == copied and copied.damaged_line is None:
                self.copy.go_on_after(copied)
            else:
                self.copy.rewrite(_changes(known))
        return db

    def _connect_to_read(self) -> sqlite3.Connection:
        copied = self.copy.read()  # first: another process may add to both meanwhile
        try:
            db = self._open("mode=rw")
            with _closed_on_error(db):
                db.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            # SQLite wants to write beside the file even to read it. On a read-only disk nothing
            # changes, and the file alone has everything if there is no write-ahead log.
            if self.path.with_name(f"{self.path.name}-wal").exists():
                raise
            db = self._open("immutable=1")
        with _closed_on_error(db):
            fresh, version = self._identify(db)
            if fresh:
                raise self._damaged("it is empty")
        if version < VERSION:  # carried over in memory: who only reads changes nothing
            with closing(db) as kept:
                db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
                with _closed_on_error(db):
                    kept.backup(db)
                    _bring_up(db, FROM_VERSION[version])
        with _closed_on_error(db):
            self._compare(db, copied)
        return db

    def _open(self, how: str = "mode=rwc") -> sqlite3.Connection:
        address = f"file:{quote(str(self.path.absolute()))}?{how}"
        return sqlite3.connect(
            address, uri=True, isolation_level=None, check_same_thread=False, timeout=10
        )

    def _identify(self, db: sqlite3.Connection) -> tuple[bool, int]:
        """Whether the database is empty, and its version; refused if it is not one of ours."""
        application, version = (
            db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("application_id", "user_version")
        )
        fresh = not db.execute("SELECT 1 FROM sqlite_master").fetchone()
        if not fresh and application != APPLICATION_ID:
            raise FileFormatError(
                f"{self.path} is a database of another program, not a labelling project. "
                "Name another folder."
            )
        if not fresh and version < 1:
            raise self._damaged(f"its version is {version}")
        if version > VERSION:
            raise FileFormatError(
                f"{self.path} is a project of version {version}, "
                f"this fewlabels knows up to {VERSION}. Upgrade fewlabels."
            )
        return fresh, version

    def _compare(self, db: sqlite3.Connection, copied: Copied) -> Copied:
        """What the database holds; refused if it is damaged or lacks what the copy has."""
        found = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise self._damaged(first_line(found))
        about = {key: value for key, value in _ask(db, "SELECT * FROM about") if key in COPIED}
        known = Copied([about] if about else [], digest=copied.digest)
        for batch, time, undone, *decision in _ask(db, ALL):
            made = _decision(decision)
            known.batches.setdefault(batch, (time, []))[1].append(made)
            if undone is not None:
                known.undone[batch] = undone
        for batch, decisions in copied.batches.items():
            if known.batches.get(batch) != decisions:
                raise self._damaged(f"decision {batch} is not the one that {COPY} has")
        if copied.abouts:
            # The copy is written first: it may be one ahead.
            if about not in [{}, *copied.abouts][-2:]:
                raise self._damaged(f"title, folder or backbone are not those that {COPY} has")
            known.abouts = copied.abouts if about == copied.abouts[-1] else [about]
        return known

    def _explain(self, error: Exception) -> FewLabelsError:
        """An error of SQLite in our words: the disk cannot be written, or the file is damaged."""
        if getattr(error, "sqlite_errorcode", 0) & PRIMARY_CODE in DISK_ERRORS:
            return unwritable(self.path, error, way_out=NOT_KEPT)
        return self._damaged(str(error))

    def _damaged(self, what: str) -> FileFormatError:
        way = "Name the folder that fewlabels made."
        if self.copy.path.is_file():
            way = f"Rebuild it from {COPY}: `fewlabels check {self.path.parent} --repair`."
        return FileFormatError(
            f"{self.path} is not a labelling project, or damaged ({what}). {way}"
        )

    def close(self) -> None:
        """Close the file; SQLite then moves the write-ahead log into it."""
        self._db.close()

    def _ask(self, query: str, *values: object) -> list[Any]:
        try:
            return _ask(self._db, query, *values)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise self._explain(error) from error

    @contextmanager
    def _change(self) -> Iterator[None]:
        """All of a change or nothing; it takes the write lock first, so it cannot fail half way."""
        try:
            with _transaction(self._db):
                yield
        except sqlite3.IntegrityError:
            raise
        except sqlite3.DatabaseError as error:
            raise self._explain(error) from error

    def _add_to_copy(self, change: Change, *, durable: bool = False) -> None:
        if not self.copy.append(change, durable=durable):
            self.copy.rewrite(_changes(self._compare(self._db, Copied())))

    def fill(self, copied: Copied) -> None:
        """Fill an empty journal with what a copy tells."""
        with self._change():
            for about in copied.abouts[-1:]:
                self._describe(about)
            for batch, (time, decisions) in copied.batches.items():
                self._db.executemany(
                    "INSERT OR IGNORE INTO items (name, stamp) VALUES (?, '')",
                    [(each.item,) for each in decisions],
                )
                self._insert(batch, time, decisions, copied.undone.get(batch))

    @property
    def n_decisions(self) -> int:
        """How many decisions were ever made, those undone included."""
        ((n,),) = self._ask("SELECT count(*) FROM decisions")
        return int(n)

    def check(self) -> list[str]:
        """What is wrong inside, in words; all that opening it checks is right already."""
        broken = self._ask("PRAGMA foreign_key_check")
        links = [f"{table} names an unknown entry of {other}" for table, _, other, _ in broken]
        return list(dict.fromkeys(links))

    def _insert(
        self, batch: int, time: str, decisions: Sequence[Decision], undone: str | None = None
    ) -> None:
        used = [*(each.label for each in decisions), *(each.predicted for each in decisions)]
        self._db.executemany(
            "INSERT OR IGNORE INTO classes (name) VALUES (?)",
            [(label,) for label in dict.fromkeys(used) if label is not None],
        )
        self._db.executemany(
            "INSERT INTO decisions "
            "(batch, item, class, origin, time, predicted, mark, undone, person, aside) "
            "VALUES (?, (SELECT id FROM items WHERE name = ?), "
            "(SELECT id FROM classes WHERE name = ?), ?, ?, "
            "(SELECT id FROM classes WHERE name = ?), ?, ?, ?, ?)",
            [
                (batch, item, label, origin, time, predicted, mark, undone, person, aside)
                for item, label, origin, mark, predicted, person, aside in decisions
            ],
        )

    @property
    def about(self) -> dict[str, str]:
        """Facts about the project: folder, backbone, title."""
        return dict(self._ask("SELECT key, value FROM about"))

    def describe(self, about: Mapping[str, str]) -> None:
        """Store facts about the project."""
        kept = {key: value for key, value in {**self.about, **about}.items() if key in COPIED}
        if any(key in COPIED for key in about):
            # On the disk first: facts of the database that the copy lacks are taken for damage.
            self._add_to_copy({"about": kept}, durable=True)
        with self._change():
            self._describe(about)

    def _describe(self, about: Mapping[str, str]) -> None:
        self._db.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", about.items())

    def add_items(self, stamps: Mapping[str, str]) -> None:
        """Add items by name; an item that exists gets the new stamp."""
        with self._change():
            self._db.executemany(
                "INSERT INTO items (name, stamp) VALUES (?, ?) "
                "ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp",
                stamps.items(),
            )

    def rename_items(self, names: Mapping[str, str]) -> None:
        """Give items new names, by the old ones: their images were moved or renamed."""
        with self._change():
            for step in (0, 1):  # first to names that nothing has, as two items may change places
                self._db.executemany(
                    "UPDATE items SET name = ? WHERE name = ?",
                    [
                        (f"\0{new}", old) if step == 0 else (new, f"\0{new}")
                        for old, new in names.items()
                    ],
                )
            # Between the two there is no copy: one with other names is taken for damage.
            self.copy.remove()
        self.copy.rewrite(_changes(self._compare(self._db, Copied())))

    @property
    def stamps(self) -> dict[str, str]:
        """The stamp of each item's file when its features were computed."""
        return dict(self._ask("SELECT name, stamp FROM items"))

    @property
    def class_names(self) -> list[str]:
        """All classes ever used, in the order of first use."""
        return [name for (name,) in self._ask("SELECT name FROM classes ORDER BY id")]

    def decide(
        self,
        labels: Mapping[str, str | None],
        *,
        origin: str,
        predicted: Mapping[str, str] | None = None,
        mark: str | None = None,
        people: Mapping[str, str] | None = None,
    ) -> None:
        """Give labels to items (None removes a label), as one batch.

        Args:
            labels: Label by item name.
            origin: "person", "import", "confirmed" or "model".
            predicted: What the model had predicted, by item name, to count later how often it was
                right.
            mark: "none" for items of no class, "skip" for items that the person cannot tell.
            people: Who decided, by item name.
        """
        predicted, people = predicted or {}, people or {}
        self._decide(
            [
                Decision(name, label, origin, mark, predicted.get(name), people.get(name, ""))
                for name, label in labels.items()
            ]
        )

    def relabel(self, old: str, new: str | None) -> list[str]:
        """Give all items of one class another label, or none, as one batch; returns their names.

        An imported label becomes a person's; labels confirmed at once stay what they are. What
        others decided about an item is renamed too: it is the same class under another name.
        """
        standing = self.standing
        current = {name: each for name, each in standing.labels.items() if each.label == old}
        aside = [
            Decision(name, new, origin, None, None, person, aside=True)
            for name, person, label, _, origin in self._ask(OPINIONS)
            if label == old and (name not in current or standing.people.get(name, "") != person)
        ]
        own = [
            Decision(
                name,
                new,
                PERSON if each.origin == IMPORT else each.origin,
                None,
                None,
                standing.people.get(name, ""),
            )
            for name, each in current.items()
        ]
        self._decide([*aside, *own])
        return list(current)

    @property
    def records(self) -> list[Record]:
        """Every decision ever made, those undone included, in order."""
        return [
            Record(place, batch, time, undone, _decision(decision))
            for place, (batch, time, undone, *decision) in enumerate(self._ask(ALL))
        ]

    def take_over(
        self,
        batches: Iterable[tuple[str, str | None, Sequence[Decision]]],
        decisions: Sequence[Decision],
    ) -> None:
        """Keep batches of another journal aside, and make decisions that follow from them.

        Args:
            batches: Time, time at which it was undone, and decisions of each.
            decisions: One batch, which can be undone.
        """
        with self._change():
            ((number,),) = self._ask("SELECT coalesce(max(batch), 0) FROM decisions")
            for time, undone, others in batches:
                number += 1
                self._insert(number, time, [each._replace(aside=True) for each in others], undone)
            if decisions:
                self._insert(number + 1, _now(), decisions)
        # Afterwards: a copy that lacks something is completed, one that is ahead would be refused.
        self.copy.rewrite(_changes(self._compare(self._db, Copied())))

    def _decide(self, decisions: Sequence[Decision]) -> None:
        if not decisions:
            return
        time = _now()
        with self._change():
            ((batch,),) = self._ask("SELECT coalesce(max(batch), 0) + 1 FROM decisions")
            self._insert(batch, time, decisions)
        self._add_to_copy({"batch": batch, "time": time, "decisions": decisions})

    @property
    def to_undo(self) -> Batch | None:
        """The batch that `undo` would undo: the last one of a person."""
        return self._batch(TO_UNDO)

    @property
    def to_redo(self) -> Batch | None:
        """The batch that `redo` would bring back: the last one undone, if nothing came since."""
        return self._batch(TO_REDO)

    def _batch(self, which: str) -> Batch | None:
        ((number,),) = self._ask(which)
        if number is None:
            return None
        rows = self._ask(
            "SELECT classes.name, origin, mark, person FROM decisions "
            "LEFT JOIN classes ON classes.id = class WHERE batch = ? AND NOT aside",
            number,
        )
        labels = list(dict.fromkeys(label for label, *_ in rows if label is not None))
        _, *columns = zip(*rows, strict=True)
        origin, mark, person = (each[0] if len(set(each)) == 1 else "" for each in columns)
        return Batch(number, len(rows), labels, origin, mark or None, person)

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
            ((batch,),) = self._ask(which)
            if batch is None or expected not in (None, batch):
                return []
            names = self._ask(
                "SELECT name FROM decisions JOIN items ON items.id = item WHERE batch = ?", batch
            )
            self._db.execute("UPDATE decisions SET undone = ? WHERE batch = ?", (time, batch))
        self._add_to_copy({"undone": batch, "time": time})
        return [name for (name,) in names]

    @property
    def standing(self) -> Standing:
        """Labels, marks and who decided, of every item that was decided."""
        found = Standing({}, {}, {})
        for name, label, origin, time, mark, person in self._ask(CURRENT):
            if label is not None:
                found.labels[name] = GivenLabel(label, origin, time)
            if mark is not None:
                found.marks[name] = mark
            if person and (label is not None or mark is not None):
                found.people[name] = person
        return found

    @property
    def current(self) -> dict[str, GivenLabel]:
        """The label of every item that has one, by name."""
        return self.standing.labels

    @property
    def marks(self) -> dict[str, str]:
        """The mark of every item that has one, "none", "skip" or "conflict", by name."""
        return self.standing.marks

    @property
    def opinions(self) -> dict[str, dict[str, tuple[str | None, str | None]]]:
        """What each person decided last about each item: label and mark, by item and person."""
        found: dict[str, dict[str, tuple[str | None, str | None]]] = {}
        for name, person, label, mark, _ in self._ask(OPINIONS):
            found.setdefault(name, {})[person] = (label, mark)
        return found

    def history(self, name: str) -> list[dict[str, Any]]:
        """Every decision about an item, the oldest first."""
        rows = self._ask(
            "SELECT classes.name, origin, time, undone, mark, person, aside FROM decisions "
            "JOIN items ON items.id = item LEFT JOIN classes ON classes.id = class "
            "WHERE items.name = ? ORDER BY decisions.id",
            name,
        )
        keys = ("label", "origin", "time", "undone", "mark", "person", "aside")
        return [dict(zip(keys, row, strict=True)) for row in rows]

    def keep_model_labels(self, labels: Iterable[tuple[str, ModelLabel]]) -> None:
        """Replace all labels of the model."""
        time, labels = _now(), list(labels)
        with self._change():
            self._db.execute("DELETE FROM model_labels")
            # The class above a doubtful sub-class may have no label of its own.
            self._db.executemany(
                "INSERT OR IGNORE INTO classes (name) VALUES (?)",
                [(name,) for name in dict.fromkeys(found.label for _, found in labels)],
            )
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
        rows = self._ask(
            "SELECT items.name, classes.name, confidence, margin FROM model_labels "
            "JOIN items ON items.id = item JOIN classes ON classes.id = class"
        )
        return {
            name: ModelLabel(label, confidence, margin) for name, label, confidence, margin in rows
        }


@contextmanager
def _closed_on_error(db: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        db.close()
        raise


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # SQLite ends it itself on some errors
            db.execute("ROLLBACK")
        raise


def _bring_up(db: sqlite3.Connection, statements: str) -> None:
    """Make the tables of this version."""
    with _transaction(db):
        for statement in statements.split(";\n"):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {VERSION}")


def _ask(db: sqlite3.Connection, query: str, *values: object) -> list[Any]:
    return db.execute(query, values).fetchall()


def _decision(values: Sequence[Any]) -> Decision:
    """A decision from the last columns of `ALL`."""
    *others, aside = values
    return Decision(*others)._replace(aside=bool(aside))


def _changes(known: Copied) -> Iterator[Change]:
    """The lines of a copy that tells the same."""
    yield from ({"about": about} for about in known.abouts[-1:])
    for batch, (time, decisions) in known.batches.items():
        yield {"batch": batch, "time": time, "decisions": decisions}
    yield from ({"undone": batch, "time": time} for batch, time in known.undone.items())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
