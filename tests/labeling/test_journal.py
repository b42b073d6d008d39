"""Decisions on disk: none lost, each undone as one, nobody else's database touched."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewlabels.errors import FileFormatError, InputError
from fewlabels.labeling.journal import Journal, ModelLabel
from fewlabels.labeling.project import ProjectLock


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path / "project.sqlite")
    made.add_items(dict.fromkeys("abcd", ""))
    yield made
    made.close()


def labels(journal):
    return {name: decided.label for name, decided in journal.current.items()}


def test_decide_change_remove_undo(journal):
    journal.decide({"a": "leek", "b": "leek"}, origin="person")
    journal.decide({"a": "apple"}, origin="person", predicted={"a": "plum"})
    journal.decide({"b": None}, origin="person")
    assert labels(journal) == {"a": "apple"}
    assert journal.undo() == ["b"]
    assert labels(journal) == {"a": "apple", "b": "leek"}
    assert journal.undo() == ["a"]
    assert sorted(journal.undo()) == ["a", "b"]
    assert journal.undo() == []
    assert labels(journal) == {}
    assert journal.class_names == ["leek", "apple", "plum"]


def test_the_history_keeps_everything(journal):
    journal.decide({"a": "leek"}, origin="import")
    journal.decide({"a": "apple"}, origin="person")
    journal.undo()
    history = journal.history("a")
    assert [(entry["label"], entry["origin"], entry["undone"] is None) for entry in history] == [
        ("leek", "import", True),
        ("apple", "person", False),
    ]
    assert all(entry["time"].endswith("+00:00") for entry in history)


def test_imports_are_not_undone(journal):
    journal.decide({"a": "leek"}, origin="import")
    assert journal.undo() == []
    assert labels(journal) == {"a": "leek"}


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.just("undo"),
            st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["x", "y", None]), min_size=1),
        ),
        max_size=12,
    )
)
def test_it_behaves_like_a_stack_of_dicts(tmp_path_factory, steps):
    journal = Journal(tmp_path_factory.mktemp("j") / "p.sqlite")
    journal.add_items(dict.fromkeys("abcd", ""))
    stack: list[dict] = [{}]
    for step in steps:
        if step == "undo":
            journal.undo()
            if len(stack) > 1:
                stack.pop()
        else:
            journal.decide(step, origin="person")
            stack.append(stack[-1] | step)
        assert labels(journal) == {
            name: label for name, label in stack[-1].items() if label is not None
        }
    journal.close()


def test_the_models_labels_are_kept_apart(journal):
    journal.decide({"a": "leek", "b": "apple"}, origin="person")
    journal.keep_model_labels([("c", ModelLabel("leek", 0.9, 0.8))])
    journal.keep_model_labels([("d", ModelLabel("apple", 0.7, 0.4))])
    assert journal.model_labels == {"d": ModelLabel("apple", 0.7, 0.4)}
    assert set(labels(journal)) == {"a", "b"}


def test_an_unknown_item_changes_nothing(journal):
    with pytest.raises(sqlite3.IntegrityError):
        journal.decide({"a": "leek", "nobody": "leek"}, origin="person")
    assert labels(journal) == {}
    journal.decide({"a": "leek"}, origin="person")  # no transaction is left open
    assert labels(journal) == {"a": "leek"}


def test_a_newer_version_is_refused(tmp_path):
    Journal(tmp_path / "p.sqlite").close()
    with sqlite3.connect(tmp_path / "p.sqlite") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(FileFormatError, match=r"version 99, this fewlabels knows up to 3. Upgrade"):
        Journal(tmp_path / "p.sqlite")


@pytest.mark.parametrize("version", [0, -1])
@pytest.mark.parametrize("write", [True, False])
def test_a_version_that_never_was_is_damage(tmp_path, version, write):
    Journal(tmp_path / "p.sqlite").close()
    with sqlite3.connect(tmp_path / "p.sqlite") as db:
        db.execute(f"PRAGMA user_version = {version}")
    db.close()
    with pytest.raises(FileFormatError, match=f"its version is {version}"):
        Journal(tmp_path / "p.sqlite", write=write)


def test_other_databases_and_other_files_are_refused(tmp_path):
    with sqlite3.connect(tmp_path / "other.sqlite") as db:
        db.execute("CREATE TABLE t (x)")
    db.close()
    with pytest.raises(FileFormatError, match="another program"):
        Journal(tmp_path / "other.sqlite")
    (tmp_path / "text.sqlite").write_text("hello " * 1000)
    with pytest.raises(FileFormatError, match="not a labelling project"):
        Journal(tmp_path / "text.sqlite")


WRITER = """
import sys
from pathlib import Path
from fewlabels.labeling.journal import Journal
from fewlabels.labeling.project import ProjectLock
folder = Path(sys.argv[1])
lock = ProjectLock(folder / "lock")
journal = Journal(folder / "p.sqlite")
journal.add_items({str(i): "" for i in range(100000)})
for i in range(100000):
    journal.decide({str(i): f"class {i % 7}"}, origin="person")
    print(i, flush=True)
"""


def test_nothing_is_lost_on_kill_9_and_the_lock_is_free_again(tmp_path):
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    for _ in range(20):
        last = int(writer.stdout.readline())
    with pytest.raises(InputError, match=f"open already \\(process {writer.pid}\\)"):
        ProjectLock(tmp_path / "lock")
    os.kill(writer.pid, signal.SIGKILL)
    told = [int(line) for line in writer.stdout.read().split()]
    writer.wait()
    writer.stdout.close()
    last = max([last, *told])
    lock = ProjectLock(tmp_path / "lock")  # free again, as the process is gone
    journal = Journal(tmp_path / "p.sqlite")
    found = journal.current
    journal.close()
    lock.release()
    assert (
        last + 1 <= len(found) <= last + 2
    )  # all that was reported, and perhaps one that was on its way
    assert all(found[str(i)].label == f"class {i % 7}" for i in range(last + 1))


def test_redo_brings_back_what_was_undone_until_something_new_is_decided(journal):
    journal.decide({"a": "leek"}, origin="person")
    journal.decide({"b": "plum"}, origin="person")
    assert journal.to_redo is None
    journal.undo()
    journal.undo()
    assert journal.to_undo is None
    assert journal.redo() == ["a"]
    assert labels(journal) == {"a": "leek"}
    assert journal.to_redo.labels == ["plum"]
    assert journal.redo() == ["b"]
    assert journal.redo() == []
    journal.undo()
    journal.decide({"c": "apple"}, origin="person")
    assert journal.redo() == []
    assert labels(journal) == {"a": "leek", "c": "apple"}


def test_undo_tells_what_it_undoes_and_refuses_another_batch(journal):
    journal.decide({"a": "leek", "b": "plum"}, origin="confirmed")
    first = journal.to_undo
    assert (first.n_items, first.labels, first.origin) == (2, ["leek", "plum"], "confirmed")
    journal.decide({"c": None}, origin="person", mark="none")
    assert journal.undo(first.number) == []  # somebody decided since
    assert (journal.to_undo.labels, journal.to_undo.mark) == ([], "none")
    assert journal.undo(journal.to_undo.number) == ["c"]
    assert journal.undo(first.number) == ["a", "b"]


def test_marks_are_no_labels_and_a_label_ends_them(journal):
    journal.decide({"a": None, "b": None}, origin="person", mark="none")
    journal.decide({"b": "leek"}, origin="person")
    journal.decide({"c": None}, origin="person", mark="skip")
    assert journal.marks == {"a": "none", "c": "skip"}
    assert labels(journal) == {"b": "leek"}
    assert journal.history("a")[-1]["mark"] == "none"


def test_a_class_is_renamed_joined_and_removed_as_one_batch(journal):
    journal.decide({"a": "leek", "b": "leak"}, origin="import")
    journal.decide({"c": "leak", "d": "leak"}, origin="confirmed")
    assert sorted(journal.relabel("leak", "leek")) == ["b", "c", "d"]
    assert set(labels(journal).values()) == {"leek"}
    assert {name: each.origin for name, each in journal.current.items()} == {
        "a": "import",
        "b": "person",
        "c": "confirmed",  # still not looked at one by one
        "d": "confirmed",
    }
    journal.undo()
    assert labels(journal) == {"a": "leek", "b": "leak", "c": "leak", "d": "leak"}
    journal.relabel("leak", None)
    assert labels(journal) == {"a": "leek"}


SCHEMA_1 = """
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
INSERT INTO items VALUES (1, 'a', ''), (2, 'b', '');
INSERT INTO classes VALUES (1, 'leek');
INSERT INTO decisions VALUES (1, 1, 1, 1, 'import', 't1', NULL, NULL);
INSERT INTO decisions VALUES (2, 2, 2, 1, 'person', 't2', 1, NULL);
INSERT INTO decisions VALUES (3, 3, 1, NULL, 'person', 't3', 1, 't4');
PRAGMA user_version = 1;
PRAGMA application_id = 1886678384;
"""


def test_a_project_of_the_first_version_is_carried_over(tmp_path):
    with sqlite3.connect(tmp_path / "p.sqlite") as db:
        db.executescript(SCHEMA_1)
    db.close()
    for _ in range(2):  # and stays what it is
        journal = Journal(tmp_path / "p.sqlite")
        assert labels(journal) == {"a": "leek", "b": "leek"}
        assert [each["undone"] for each in journal.history("a")] == [None, "t4"]
        journal.close()
    journal = Journal(tmp_path / "p.sqlite")
    journal.decide({"a": "leek"}, origin="confirmed")
    assert journal.undo() == ["a"]
    journal.close()


OPEN_FILES = Path("/proc/self/fd")


@pytest.mark.skipif(not OPEN_FILES.is_dir(), reason="needs /proc")
@pytest.mark.parametrize("write", [False, True])
def test_a_refused_database_is_closed(tmp_path, write):
    """Python 3.13 warns of connections that are left open; other versions only keep the file."""
    path = tmp_path / "project.sqlite"
    path.write_bytes(b"SQLite format 3\0" + bytes(4000))
    before, errors = len(list(OPEN_FILES.iterdir())), []
    for _ in range(5):
        with pytest.raises(FileFormatError) as caught:
            Journal(path, write=write)
        errors.append(caught.value)  # holds what its traceback holds
    assert len(list(OPEN_FILES.iterdir())) == before
