"""A session: quick answers at once, thorough ones soon, the journal always first."""

import gzip
import itertools
import json
import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from fewlabels.confidence import outliers
from fewlabels.errors import InputError
from fewlabels.features import FeatureSet
from fewlabels.labeling import state as state_module
from fewlabels.labeling.answer import Answer, solve
from fewlabels.labeling.collection import Collection
from fewlabels.labeling.project import DATABASE, Project
from fewlabels.labeling.session import Session
from fewlabels.labeling.state import State, Told


@pytest.fixture
def session(make_project):
    made = Session(make_project())
    yield made
    made.close()


def wait_for(session, what, seconds=600):
    until = time.monotonic() + seconds
    while not getattr(session.state, what):
        assert time.monotonic() < until, f"the state was never {what}"
        time.sleep(0.02)
    return session.state


def settle(session):
    return wait_for(session, "settled")


def search(session):
    return wait_for(session, "searched")


def test_a_decision_is_in_the_journal_and_in_the_answer(session):
    state = session.decide([50, 51], "c1")
    assert state.given["item-050"].origin == state.given["item-051"].origin == "person"
    assert (state.answer.labels[[50, 51]] == 1).all()
    assert session.project.journal.current["item-050"].label == "c1"
    assert not state.settled


def test_the_thorough_answer_is_that_of_the_command(session, blobs):
    session.decide([50], "c1")
    state = settle(session)
    expected = solve(session.vectors, state.numbers, n_way=4)
    np.testing.assert_array_equal(state.answer.probabilities, expected.probabilities)
    assert state.estimate.n_hidden == 9
    assert len(state.suggested) == 24
    kept = session.project.journal.model_labels
    assert len(kept) == len(blobs) - 9
    assert all(
        kept[f"item-{i:03d}"].label == f"c{state.answer.labels[i]}"
        for i in range(60, 120)
        if f"item-{i:03d}" not in state.given
    )


def test_confirm_takes_what_the_person_saw(session):
    seen = [
        "c0" if label else "c1" for label in session.state.answer.labels[[70, 100]]
    ]  # the model thinks otherwise by now
    state, _ = session.confirm([70, 100], seen)
    assert [state.given[name].label for name in ("item-070", "item-100")] == seen
    with pytest.raises(InputError, match="one for each of the 2 items, got 1"):
        session.confirm([1, 2], ["c0"])


def test_confirm_leaves_what_somebody_else_decided_meanwhile(session):
    session.decide([70], "c1")  # in another window
    session.decide([71], None, mark="none")
    state, _ = session.confirm([70, 71, 72], ["c0", "c0", "c0"])  # as a stale page shows them
    assert (state.given["item-070"].label, state.given["item-070"].origin) == ("c1", "person")
    assert "item-071" not in state.given
    assert state.marks == {"item-071": "none"}
    assert (state.given["item-072"].label, state.given["item-072"].origin) == ("c0", "confirmed")
    assert session.confirm([70], ["c0"])[0] is state  # nothing to record


def test_a_clock_that_is_set_back_changes_no_order(make_project, monkeypatch):
    project = make_project()
    session = Session(project)
    session.decide([50], "c1")
    version = session.state.version
    session.close()
    clock = datetime(1970, 1, 1, tzinfo=UTC)

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return clock.astimezone(tz)

    monkeypatch.setattr("fewlabels.labeling.journal.datetime", Clock)
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    again = Session(Project.open(project.folder, write=True))
    assert again.state.version not in range(version - 100, version + 100)
    again.decide([50], "c2")
    history = again.describe([50])["history"]
    assert [each["label"] for each in history] == ["c1", "c2"]
    assert history[0]["time"].startswith("1970") != history[1]["time"].startswith("1970")
    state, rows = again.undo()
    assert (rows, state.given["item-050"].label) == ([50], "c1")
    again.close()


def test_what_cannot_be_written_down_does_not_end_the_answers(make_project):
    project = make_project()
    with closing(sqlite3.connect(project.folder / DATABASE, isolation_level=None)) as other:
        other.execute("DROP TABLE model_labels")
    session = Session(project)
    try:
        for label in ("c1", "c2"):
            session.decide([50], label)
            assert search(session).given["item-050"].label == label
    finally:
        session.close()


def test_undo_goes_back_and_says_what_to(session):
    before = session.state.answer.labels.copy()
    session.decide([50, 60], "c3")
    state, items = session.undo()
    assert items == [50, 60]
    assert "item-050" not in state.given
    assert (settle(session).answer.labels == before).all()
    version = search(session).version
    assert session.undo()[1] == []  # imported labels stay
    assert session.state.version == version


def test_new_classes_and_removed_labels(session):
    state = session.decide([5, 6, 7], "  new one ")
    assert state.class_names[-1] == "new one"
    assert state.active[-1] == "new one"
    state = session.decide([5, 6, 7], None)
    assert "new one" in state.class_names
    assert "new one" not in state.active
    found = session.to_dict(state)
    assert found["marks"][5] == "0"
    assert found["classes"] == ["c0", "c1", "c2", "c3"]  # a class without a label is not listed


def test_many_confirmed_at_once_are_kept_apart_from_those_looked_at(session):
    seen = [f"c{label}" for label in session.state.answer.labels[[50, 51, 52]]]
    session.confirm([50], seen[:1])
    state, _ = session.confirm([51, 52], seen[1:])
    assert [state.given[f"item-{i:03d}"].origin for i in (50, 51, 52)] == [
        "person",
        "confirmed",
        "confirmed",
    ]
    assert session.to_dict(state)["marks"][50:53] == "133"
    assert [row.origin for row in session.rows()[50:53]] == ["person", "confirmed", "confirmed"]


def test_images_of_no_class_and_skipped_ones(session):
    first, second = search(session).suggested[:2]
    session.decide([first], None, mark="none")
    state = session.decide([second], None, mark="skip")
    found = session.to_dict(state)
    assert (found["marks"][first], found["marks"][second]) == ("4", "5")
    assert found["labels"][first] == -1  # the model's label is kept for the skipped one only
    assert found["labels"][second] >= 0
    assert not {first, second} & set(found["suggested"])
    assert not {first, second} & set(search(session).suggested)
    rows = session.rows()
    assert (rows[first].label, rows[first].origin) == ("", "person")
    assert rows[second].origin == "model"
    with pytest.raises(InputError, match="mark must be 'none' or 'skip'"):
        session.decide([first], "c1", mark="none")


def test_a_class_is_renamed_joined_and_removed(session):
    before = settle(session).answer.labels.copy()
    state = session.relabel("c1", "kale")
    assert state.active == ("c0", "c2", "c3", "kale")
    moved = np.array(state.active)[state.answer.labels]
    assert (moved == np.array(["c0", "kale", "c2", "c3"])[before]).all()  # at once
    assert session.relabel("kale", "c2").active == ("c0", "c2", "c3")
    assert session.relabel("c3", None).active == ("c0", "c2")
    with pytest.raises(InputError, match="got 'kale'"):
        session.relabel("kale", "c0")
    for _ in range(3):
        session.undo()
    assert session.state.active == ("c0", "c1", "c2", "c3")
    assert session.redo()[0].active == ("c0", "c2", "c3", "kale")


def test_without_an_answer_no_labels_of_the_model_are_kept(make_project, make_blobs):
    """Exports read them: they had the model's labels of the class that was removed."""
    session = Session(make_project(features=make_blobs(n_classes=2)))
    try:
        search(session)
        assert session.project.journal.model_labels
        session.relabel("c1", None)
        session.keep_answer()
        assert session.state.answer is None
        assert session.project.journal.model_labels == {}
    finally:
        session.close()


def test_undo_and_redo_show_at_once_what_was_there_before(session):
    """Not a quick answer that differs, with the estimate of other labels."""
    before = search(session)
    kept = session.project.journal.model_labels
    session.decide([50, 95], "c0")
    session.decide([51], None, mark="none")
    after = search(session)
    assert not np.array_equal(before.answer.probabilities, after.answer.probabilities)
    session.undo()
    undone, _ = session.undo()
    for state, known in ((undone, before), (session.redo()[0], None), (session.redo()[0], after)):
        if known is None:  # it was never settled
            assert not state.settled
            continue
        assert state.settled
        assert state.searched
        np.testing.assert_array_equal(state.answer.probabilities, known.answer.probabilities)
        for what in ("estimate", "suggested", "outliers", "suspicious", "given", "marks"):
            assert getattr(state, what) == getattr(known, what)
    session.undo()
    session.undo()
    until = time.monotonic() + 600
    while session.project.journal.model_labels != kept:  # other programs read them
        assert time.monotonic() < until
        time.sleep(0.02)


def test_undo_of_a_page_that_has_not_seen_the_last_decision(session):
    seen = session.decide([50], "c1").undo
    session.decide([51], "c2")  # in another window
    state, rows = session.undo(seen.number)
    assert rows == []
    assert state.given["item-051"].label == "c2"


def test_classes_of_several_items_together(session):
    answer = settle(session).answer
    rows = [40, 70, 100]
    found = session.describe(rows)
    mean = answer.probabilities[rows].mean(axis=0)
    assert found["candidates"][0]["label"] == f"c{mean.argmax()}"
    assert found["candidates"][0]["probability"] == pytest.approx(mean.max(), abs=1e-4)
    assert found["history"] == []


def test_the_state_for_the_page(session, blobs):
    found = session.to_dict(session.decide([50], "c1"))
    assert len(found["labels"]) == len(found["confidence"]) == len(found["marks"]) == len(blobs)
    assert found["marks"].count("1") == 1
    assert found["marks"].count("2") == 8
    assert found["labels"][50] == 1
    assert all(0 <= sure <= 1000 for sure in found["confidence"])


def test_the_start_tells_its_steps(make_project, blobs):
    told = []
    Session(make_project(), on_progress=told.append).close()
    n = len(blobs)
    steps = [("compare", 0), ("compare", n), ("label", 0), ("label", n)]
    assert [(each.stage, each.done) for each in told] == steps
    assert {each.total for each in told} == {n}


def test_differences_to_a_state_that_the_page_has(session):
    """Whatever was decided since, differences and the last state give the whole state."""
    search(session)
    last = session.to_dict(session.state)
    none, open_row = session.state.suggested[:2]
    labels = [session.state.active[label] for label in session.state.answer.labels[60:64]]
    steps = (
        lambda: session.decide([50], "c1"),
        lambda: session.decide([none], None, mark="none"),
        lambda: session.decide([open_row], "a new class"),
        lambda: session.confirm(range(60, 64), labels)[0],
        lambda: session.relabel("c0", "renamed"),
        lambda: session.undo()[0],
        lambda: search(session),
    )
    for step in steps:
        state = step()
        whole, told = session.to_dict(state), session.to_dict(state, last["version"])
        assert told["since"] == last["version"]
        assert apply(told, last) == whole
        last = whole
    assert set(session.to_dict(session.state, last["version"])["labels"]) == {"#"}
    assert "since" not in session.to_dict(session.state, 7)  # of another server


def test_confidences_of_many_items_are_coarse_and_never_too_high(session, monkeypatch):
    state = search(session)
    truth = 1000 * state.answer.confidences
    fine = np.array(Told(session.collection).to_dict(state)["confidence"])
    monkeypatch.setattr(state_module, "MANY", 5)
    told = Told(session.collection).to_dict(state)
    coarse, below = np.array(told["confidence"]), told["doubtful_below"]
    assert told["step"] == 50
    assert (coarse <= fine).all()
    assert (fine <= truth).all()
    assert (truth - coarse < 100).all()
    np.testing.assert_array_equal(coarse < below, truth < below)  # the same ones are doubtful


def test_a_large_change_is_told_in_parts(session, monkeypatch):
    """What the person decided is told at once, the rest bit by bit, item by item."""
    search(session)
    last = session.to_dict(session.state)
    monkeypatch.setattr(state_module, "MOST_TOLD", 5)
    decided = [*range(100, 110)]
    session.decide(decided, "c0")  # most of them wrong, so that others change too
    state = search(session)
    whole, n_parts = session.to_dict(state), 0
    while True:
        told = session.to_dict(state, last["version"])
        assert told["since"] == last["version"]
        now = apply(told, last)
        differ = {
            row for row in range(len(session.collection)) if look(now, row) != look(last, row)
        }
        assert len(differ - set(decided)) <= 5
        assert all(look(now, row) == look(whole, row) for row in differ.union(decided))
        n_parts, last = n_parts + 1, now
        if not told["more"]:
            break
        assert not told["settled"]  # the page asks again
        assert not told["searched"]
        assert last["version"] < 0  # that of no state
    assert n_parts > 2
    assert now == whole


def look(state, row):
    """What the page shows of an item."""
    label = state["labels"][row]
    return (
        None if label < 0 else state["classes"][label],
        state["confidence"][row],
        state["marks"][row],
        dict(state["outliers"]).get(row),
    )


def test_no_answer_of_30_000_items_takes_more_than_30_kilobytes():
    """Not even where everything changes at random, of 20 or 200 classes."""
    n, rng = 30_000, np.random.default_rng(0)
    features = FeatureSet.from_arrays(np.ones((n, 1), np.float32), [-1] * n, [])
    told = Told(Collection.of_features(features))
    versions = itertools.count()

    def make(n_way):
        classes = tuple(f"class {way}" for way in range(n_way))
        top = rng.uniform(1 / n_way, 1, n).astype(np.float32)
        probabilities = np.repeat(((1 - top) / (n_way - 1))[:, None], n_way, axis=1)
        probabilities[np.arange(n), rng.integers(0, n_way, n)] = top
        unlabelled = np.full(n, -1)
        outliers = [(row, rng.uniform(0.5, 1)) for row in np.flatnonzero(rng.random(n) < 0.5)]
        state = State(next(versions), {}, {}, classes, classes, unlabelled, Answer(probabilities))
        return replace(state, outliers=outliers, settled=True, searched=True)

    for n_way in (20, 200):
        since = told.to_dict(make(n_way))["version"]
        state, n_parts = make(n_way), 0
        while True:
            answer = told.to_dict(state, since)
            written = json.dumps(answer, separators=(",", ":"), ensure_ascii=False).encode()
            assert len(gzip.compress(written, 6)) <= 30_000
            since, n_parts = answer["version"], n_parts + 1
            if not answer["more"]:
                break
        assert n_parts == 3


def apply(told, last):
    """The whole state, as the page computes it."""
    coded = ("since", "groups", "above_sure")
    whole = {key: value for key, value in told.items() if key not in coded}
    place = [
        told["classes"].index(name) if name in told["classes"] else -1 for name in last["classes"]
    ]
    whole["labels"] = [place[label] if label >= 0 else -1 for label in last["labels"]]
    whole["marks"], whole["confidence"] = list(last["marks"]), list(last["confidence"])
    outliers = dict(last["outliers"])
    above = {row: [label, sure] for row, label, sure in last["above"] if label in told["groups"]}
    for row, code in patches(told["labels"]):
        whole["labels"][row] = code - 1
    for row, code in patches(told["confidence"]):
        whole["confidence"][row] = told["step"] * code
    for row, code in patches(told["marks"]):
        whole["marks"][row] = str(code)
    for row, code in patches(told["outliers"]):
        outliers[row] = told["outlier_step"] * code
    for row, code in patches(told["above"]):
        above.setdefault(row, ["", 0])[0] = told["groups"][code - 1] if code else ""
    for row, code in patches(told["above_sure"]):
        above.setdefault(row, ["", 0])[1] = told["step"] * code
    whole["marks"] = "".join(whole["marks"])
    found = [(row, p) for row, p in outliers.items() if p]
    whole["outliers"] = sorted(found, key=lambda each: (-each[1], each[0]))
    whole["above"] = sorted((row, *each) for row, each in above.items() if each[0])
    return whole


def patches(text):
    return [(row, ord(each) - ord("#") - 1) for row, each in enumerate(text) if each != "#"]


@pytest.fixture
def session_with_outliers(make_project, blobs):
    """Two labels each of c0, c1 and c2; c3, items 90 to 119, has no name yet."""
    project = make_project()
    project.journal.decide({"item-090": None, "item-091": None}, origin="import")
    made = Session(project)
    yield made
    made.close()


def test_images_of_no_class_are_those_of_the_command(session_with_outliers):
    session = session_with_outliers
    assert session.state.outliers == ()  # the first answer does not wait for them
    state = search(session)
    assert state.settled
    expected = solve(session.vectors, state.numbers, n_way=3, none_of_these=True).none_of_these
    assert dict(state.outliers) == {
        item: expected[item] for item in np.flatnonzero(expected >= 0.5)
    }
    probabilities = [probability for _, probability in state.outliers]
    assert probabilities == sorted(probabilities, reverse=True)
    assert len({item for item, _ in state.outliers} & set(range(90, 120))) > 25
    found = session.to_dict(state)
    assert found["searched"]
    rounded = [(item, round(1000 * p)) for item, p in state.outliers]
    assert found["outliers"] == sorted(rounded, key=lambda each: (-each[1], each[0]))


def test_what_was_labelled_is_no_outlier_and_a_name_for_them_ends_it(session_with_outliers):
    session = session_with_outliers
    before = search(session).outliers
    first, second = before[0][0], before[1][0]
    state = session.decide([first], "c0")
    assert not state.searched
    assert state.outliers == [
        each for each in before if each[0] != first
    ]  # those of before, until they are found anew
    assert first not in dict(search(session).outliers)
    session.decide([first, second], "c3")
    assert search(session).outliers == []
    names = session.collection.names
    others = [row for row, name in enumerate(names) if name in session.state.given]
    session.decide([row for row in others if row not in (first, second)], None)
    assert session.state.outliers == []  # one class is left: there is no answer to doubt
    assert search(session).outliers == ()


def test_a_decision_calls_the_search_off(session_with_outliers, monkeypatch):
    session = session_with_outliers
    search(session)
    endless = replace(outliers.OUTLIERS, steps=10**9)  # until somebody calls it off
    monkeypatch.setattr(outliers, "OUTLIERS", endless)
    for item in (50, 51):
        session.decide([item], "c1")
        state = settle(session)  # does not wait for the search of before
        assert f"item-{item:03d}" in state.given
        assert not state.searched
        assert state.outliers  # those of before


def test_from_nothing(make_project):
    session = Session(make_project(n_labels=0))
    try:
        assert session.state.answer is None
        assert len(settle(session).suggested) == 24
        session.decide([0], "c0")
        assert session.to_dict(session.state)["labels"][:2] == [0, -1]
        rows = session.rows()
        assert (rows[0].label, rows[0].origin, rows[1].label) == ("c0", "person", "")
        state = session.decide([30], "c1")
        assert state.answer.probabilities.shape == (120, 2)
        session.undo()
        assert session.state.answer is None
    finally:
        session.close()


@pytest.mark.parametrize(
    ("items", "label", "words"),
    [
        ([500], "c1", "below 120"),
        ([-1], "c1", "below 120"),
        ([1], "  ", "not be empty"),
        ([1], "x" * 300, "200"),
    ],
)
def test_what_is_refused_changes_nothing(session, items, label, words):
    before = session.state
    with pytest.raises(InputError, match=words):
        session.decide(items, label)
    assert session.state is before


def test_nothing_selected_decides_nothing(session):
    assert session.decide([], "c1") is session.state


def test_it_goes_on_where_it_was_left(make_project):
    project = make_project()
    session = Session(project)
    session.decide([50, 80], "c2")
    rows = session.rows()
    session.close()
    again = Session(Project.open(project.folder, write=True))
    assert again.rows() == rows
    again.close()


def test_many_threads_at_once(session):
    def work(start):
        for item in range(start, start + 5):
            session.decide([item], f"c{start % 4}")

    threads = [threading.Thread(target=work, args=(start,)) for start in (40, 55, 70, 85)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    current = session.project.journal.current
    assert sum(decided.origin == "person" for decided in current.values()) == 20
    assert session.state.given == current


def test_a_second_server_is_refused(session):
    with pytest.raises(InputError, match="open already"):
        Project.open(session.project.folder, write=True)
    with Project.open(session.project.folder) as reading:  # reading along is fine
        assert len(reading.journal.current) == 8
