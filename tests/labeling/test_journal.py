"""Decisions on disk: none lost, each undone as one, nobody else's database touched."""

import os
import signal
import sqlite3
import subprocess
import sys

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
    with pytest.raises(FileFormatError, match=r"version 99, this fewlabels knows up to 1. Upgrade"):
        Journal(tmp_path / "p.sqlite")


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
