"""Several people: names kept with decisions, projects merged, agreement against scikit-learn."""

import csv
import gzip
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score
from typer.testing import CliRunner

from fewlabels.cli import app
from fewlabels.errors import InputError
from fewlabels.features import FeatureSet
from fewlabels.labeling.agreement import check_person, cohen_kappa, find_agreement
from fewlabels.labeling.exports import export_labels
from fewlabels.labeling.journal import Journal
from fewlabels.labeling.label import label_folder
from fewlabels.labeling.labels_file import read_labels
from fewlabels.labeling.merging import merge_projects
from fewlabels.labeling.project import Project
from fewlabels.labeling.session import Session, open_session
from fewlabels.labeling.text_copy import TextCopy

OLD = Path(__file__).parent / "old_project" / "version2"
NAMES = [f"{each}.jpg" for each in "abcdefgh"]


def begin(folder: Path, *, stamps=None, names=NAMES) -> Path:
    vectors = np.random.default_rng(0).normal(size=(len(names), 4)) ** 2
    features = FeatureSet.from_arrays(vectors, [-1] * len(names), [], names=names)
    Project.create(folder, features, title=folder.stem, stamps=stamps).close()
    return folder


def decide(folder: Path, labels, *, person="", origin="person", mark=None) -> None:
    with Project.open(folder, write=True) as project:
        people = dict.fromkeys(labels, person)
        project.journal.decide(labels, origin=origin, mark=mark, people=people)


def standing(folder: Path):
    with Project.open(folder) as project:
        labels, marks, people = project.journal.standing
        return {name: each.label for name, each in labels.items()}, marks, people


def decisions(folder: Path) -> int:
    with Project.open(folder) as project:
        return project.journal.n_decisions


@pytest.fixture
def two(tmp_path):
    """Projects of two people, who began with the same imported label and decided apart."""
    anna, ben = begin(tmp_path / "anna"), begin(tmp_path / "ben")
    for folder in (anna, ben):
        decide(folder, {"a.jpg": "leek"}, origin="import")
    decide(anna, {"b.jpg": "leek", "c.jpg": "leek", "d.jpg": "plum"}, person="anna")
    decide(anna, {"e.jpg": None}, person="anna", mark="skip")
    decide(ben, {"b.jpg": "leek", "c.jpg": "plum", "e.jpg": "plum", "f.jpg": "kale"})
    decide(ben, {"a.jpg": "plum"})
    decide(ben, {"d.jpg": None}, mark="none")
    return anna, ben


def test_two_projects_become_one_and_conflicts_wait_for_a_person(two):
    anna, ben = two
    before = {path.name: path.read_bytes() for path in ben.iterdir() if path.suffix != ".lock"}
    merged = merge_projects(anna, ben)
    assert merged.conflicts == ["c.jpg", "d.jpg"]
    labels, marks, people = standing(anna)
    assert labels == {"a.jpg": "plum", "b.jpg": "leek", "e.jpg": "plum", "f.jpg": "kale"}
    assert marks == {"c.jpg": "conflict", "d.jpg": "conflict"}
    assert people == {"a.jpg": "ben", "b.jpg": "anna", "e.jpg": "ben", "f.jpg": "ben"}
    assert {path.name: path.read_bytes() for path in ben.iterdir()} == before
    with Project.open(anna) as project:  # nothing is lost: every decision of both is in the history
        found = find_agreement(project.journal)
        history = project.journal.history("d.jpg")
    assert [(each["person"], each["label"], each["mark"]) for each in history] == [
        ("anna", "plum", None),
        ("ben", None, "none"),
        ("", None, "conflict"),
    ]
    assert found.n_decided == {"anna": 3, "ben": 6}
    assert [(each.path, each.opinions, each.is_open) for each in found.disagreements] == [
        ("c.jpg", {"anna": "leek", "ben": "plum"}, True),
        ("d.jpg", {"anna": "plum", "ben": "none of these"}, True),
    ]


def test_merging_twice_changes_nothing_also_after_conflicts_were_settled(two):
    anna, ben = two
    merge_projects(anna, ben)
    n, before = decisions(anna), standing(anna)
    again = merge_projects(anna, ben)
    assert (again.n_decisions, again.n_labels, again.conflicts) == (0, 0, [])
    assert (decisions(anna), standing(anna)) == (n, before)
    decide(anna, {"c.jpg": "leek"}, person="carl")
    decide(anna, {"f.jpg": None}, person="carl")  # the label was removed on purpose
    before = standing(anna)
    assert merge_projects(anna, ben).n_labels == 0
    assert standing(anna) == before
    # The other way, the settled conflict is taken over; the open one is open there too.
    back = merge_projects(ben, anna)
    assert back.conflicts == ["d.jpg"]
    assert standing(ben)[0]["c.jpg"] == "leek"
    assert standing(ben)[1] == {"d.jpg": "conflict"}
    assert merge_projects(ben, anna).n_labels == 0


def test_a_merge_is_undone_as_one_and_can_be_done_again(two):
    anna, ben = two
    before = standing(anna)
    merge_projects(anna, ben)
    after = standing(anna)
    with Project.open(anna, write=True) as project:
        assert project.journal.undo()
    assert standing(anna) == before
    assert merge_projects(anna, ben).conflicts == ["c.jpg", "d.jpg"]
    assert standing(anna) == after


def test_what_a_copy_of_the_project_corrected_is_no_conflict(tmp_path):
    anna = begin(tmp_path / "anna")
    decide(anna, {"a.jpg": "leek", "b.jpg": "leek"}, person="anna")
    ben = tmp_path / "ben"
    shutil.copytree(anna, ben)
    decide(ben, {"a.jpg": "plum"}, person="ben")  # with Anna's label before his eyes
    decide(anna, {"b.jpg": "kale"}, person="anna")
    assert merge_projects(anna, ben).conflicts == []
    assert standing(anna)[0] == {"a.jpg": "plum", "b.jpg": "kale"}


def test_photographs_are_matched_by_content_and_missing_ones_are_kept(tmp_path):
    anna = begin(tmp_path / "anna", stamps={"a.jpg": "1 1 aa", "b.jpg": "1 1 bb", "c.jpg": "1 1 c"})
    stamps = {"x/b.jpg": "1 2 aa", "a.jpg": "1 2 zz", "y.jpg": "1 2 bb", "d.jpg": ""}
    ben = begin(tmp_path / "ben", stamps=stamps, names=list(stamps))
    decide(ben, {"x/b.jpg": "leek", "a.jpg": "plum", "y.jpg": "kale", "d.jpg": "fig"}, person="ben")
    merged = merge_projects(anna, ben)
    assert (merged.n_matched, merged.elsewhere) == (3, ["a.jpg"])
    labels, _, _ = standing(anna)
    assert labels == {"a.jpg": "leek", "a.jpg (2)": "plum", "b.jpg": "kale", "d.jpg": "fig"}
    assert merge_projects(anna, ben).n_decisions == 0
    assert standing(anna)[0] == labels
    with pytest.raises(InputError, match="none of them"):
        merge_projects(anna, begin(tmp_path / "others", names=["z1", "z2"]))
    with pytest.raises(InputError, match="got the same"):
        merge_projects(anna, tmp_path / "ben" / ".." / "anna")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["anna", "ben"]),
        st.sampled_from(NAMES[:3]),
        st.sampled_from(["leek", "plum", None, "none", "skip", "undo", "merge"]),
    ),
    max_size=10,
)


@settings(max_examples=30, deadline=None)
@given(STEPS)
def test_no_order_of_decisions_and_merges_loses_an_opinion(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("p")
    names = NAMES[:3]
    folders = {person: begin(folder / person, names=names) for person in ("anna", "ben")}
    for person, name, what in steps:
        mine, other = folders[person], folders["ben" if person == "anna" else "anna"]
        if what == "merge":
            merge_projects(mine, other)
        elif what == "undo":
            with Project.open(mine, write=True) as project:
                project.journal.undo()
        elif what in ("none", "skip"):
            decide(mine, {name: None}, person=person, mark=what)
        else:
            decide(mine, {name: what}, person=person)
    anna, ben = folders.values()
    before = {}
    for key, each in folders.items():
        with Project.open(each) as project:
            before[key] = {(r.decision.item, r.time) for r in project.journal.records}
    merge_projects(anna, ben)
    with Project.open(anna) as project:
        after = {(r.decision.item, r.time) for r in project.journal.records}
    assert before["anna"] | before["ben"] <= after
    settled = standing(anna)
    assert merge_projects(anna, ben).n_labels == 0
    assert standing(anna) == settled
    Project.repair(anna)  # the plain-text copy has all of it
    assert standing(anna) == settled


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=1, max_size=30))
def test_kappa_is_that_of_scikit_learn(pairs):
    first, second = zip(*pairs, strict=True)
    found = cohen_kappa(first, second)
    if len({*first, *second}) == 1:
        assert found is None
    else:
        assert found == pytest.approx(cohen_kappa_score(first, second), abs=1e-12)


def test_names_are_one_short_line():
    assert check_person(" Zoe\u0308 ") == "Zo\u00eb"
    for wrong in ("a\nb", "x" * 61, "\ud800"):
        with pytest.raises(InputError, match="person must be one line"):
            check_person(wrong)


def test_a_project_of_version_2_is_carried_over_and_read_without_being_changed(tmp_path):
    database = tmp_path / "project.sqlite"
    database.write_bytes(gzip.decompress((OLD / "project.sqlite.gz").read_bytes()))
    shutil.copy(OLD / "decisions.jsonl", tmp_path)
    content = database.read_bytes()

    def check(journal: Journal) -> None:
        labels, marks, people = journal.standing
        assert {name: each[:2] for name, each in labels.items()} == {
            "a.jpg": ("plum", "person"),
            "b.jpg": ("plum", "import"),
        }
        assert (marks, people) == ({"c.jpg": "none"}, {})
        assert journal.to_redo.labels == ["leek"]

    reader = Journal(database, write=False)
    check(reader)
    reader.close()
    assert database.read_bytes() == content
    for _ in range(2):
        writer = Journal(database)
        check(writer)
        writer.close()
    writer = Journal(database)
    writer.decide({"d.jpg": "leek"}, origin="person", people={"d.jpg": "anna"})
    writer.close()
    last = json.loads((tmp_path / "decisions.jsonl").read_text().splitlines()[-1])
    assert last["decisions"] == [["d.jpg", "leek", "person", None, None, "anna", False]]
    Project.repair(tmp_path)
    again = Journal(database, write=False)
    assert again.standing.people == {"d.jpg": "anna"}
    again.close()


def test_renaming_a_class_renames_what_others_said_of_it(two):
    anna, ben = two
    merge_projects(anna, ben)
    decide(anna, {"c.jpg": "leek"}, person="anna")
    with Project.open(anna, write=True) as project:
        project.journal.relabel("plum", "leek")
        found = find_agreement(project.journal)
        assert [each.path for each in found.disagreements] == ["d.jpg"]
        assert found.disagreements[0].opinions == {"anna": "leek", "ben": "none of these"}
        project.journal.undo()
        assert len(find_agreement(project.journal).disagreements) == 2


def test_names_go_from_the_page_into_every_table_and_back(make_project, tmp_path):
    project = make_project()
    session = Session(project, person="anna")
    names = session.collection.names
    session.decide([0], "c1")
    session.decide([1], "c2", person="ben")
    session.decide([2], None, mark="none")
    session.confirm([3, 4], ["c0", "c0"], person="carl")
    people = {names[0]: "anna", names[1]: "ben", names[2]: "anna", names[3]: "carl"}
    people[names[4]] = "carl"
    assert {row.path: row.person for row in session.rows() if row.person} == people
    session.close()
    outcome = label_folder(project.folder, output=tmp_path / "labels.csv")
    assert {row.path: row.person for row in outcome.rows if row.person} == people
    export_labels(project.folder, to="csv", output=tmp_path / "out")
    for path in (tmp_path / "labels.csv", tmp_path / "out" / "labels.csv"):
        rows = csv.DictReader(io.StringIO(path.read_text()))
        assert {row["path"]: row["person"] for row in rows if row["person"]} == people
    # A file with names, imported into a new project.
    decide_file = tmp_path / "given.csv"
    decide_file.write_text(
        f"path,label,person\n{names[0]},c1,anna\n{names[9]},c0,\n{names[5]},c2,b\n"
    )
    features = tmp_path / "blobs.safetensors"
    FeatureSet.load(project.folder / "features.safetensors").save(features)
    opened = open_session(features, labels=decide_file)
    try:
        assert opened.state.people == {names[0]: "anna", names[5]: "b"}
    finally:
        opened.close()


def test_conflicts_are_shown_and_never_confirmed_with_others(make_project):
    project = make_project()
    first, second = (f"item-{i:03d}" for i in (0, 70))
    for person, label in (("anna", "c0"), ("ben", "c1")):
        project.journal.decide({first: label}, origin="person", people={first: person})
    project.journal.decide({first: None}, origin="person", mark="conflict")
    session = Session(project)
    try:
        told = session.to_dict(session.state)
        assert told["conflicts"] == [[0, {"anna": "c0", "ben": "c1"}]]
        assert told["marks"][0] == "6"
        session.confirm([0, 70], ["c0", "c2"])
        assert first not in session.state.given
        assert session.state.given[second].label == "c2"
        session.confirm([0], ["c1"])
        assert session.state.given[first].label == "c1"
        assert session.to_dict(session.state)["conflicts"] == []
    finally:
        session.close()


def test_the_commands_tell_conflicts_and_kappa(two):
    anna, ben = two
    run = CliRunner().invoke
    done = run(app, ["merge", str(anna), str(ben), "--person", "ben"])
    assert done.exit_code == 0, done.output
    assert "2 items decided differently, left for a person: c.jpg, d.jpg" in done.output
    people = run(app, ["people", str(anna)])
    assert "anna and ben: 3 items decided by both, 33 % equal, Cohen's kappa" in people.output
    assert "c.jpg: anna: leek, ben: plum (open)" in people.output
    found = json.loads(run(app, ["people", str(anna), "--json"]).output)
    expected = cohen_kappa_score(["leek", "leek", "plum"], ["leek", "plum", "none"])
    assert found["pairs"][0]["kappa"] == pytest.approx(expected)
    again = json.loads(run(app, ["merge", str(anna), str(ben), "--json"]).output)
    assert (again["n_decisions"], again["conflicts"]) == (0, [])


def test_a_merge_that_was_killed_before_its_copy_is_whole(two, monkeypatch):
    anna, ben = two
    monkeypatch.setattr(TextCopy, "rewrite", lambda *_: None)  # the process ends before it
    merge_projects(anna, ben)
    monkeypatch.undo()
    expected = standing(anna)
    assert expected[1] == {"c.jpg": "conflict", "d.jpg": "conflict"}
    Project.open(anna, write=True).close()
    Project.repair(anna)
    assert standing(anna) == expected


def test_a_column_person_of_another_program_is_no_reason_to_refuse(tmp_path):
    path = tmp_path / "few.csv"
    path.write_text(f"path,label,person\na.jpg,leek,{'x' * 99}\nb.jpg,leek,\nc.jpg,plum, zoe \n")
    found = read_labels(path, NAMES)
    assert found.labels == {"a.jpg": "leek", "b.jpg": "leek", "c.jpg": "plum"}
    assert found.people == {"c.jpg": "zoe"}
