"""Classes with sub-classes: a tree in, a tree out, and the class where the other is doubtful."""

import csv

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewlabels.errors import InputError
from fewlabels.features import FeatureSet
from fewlabels.io.moves import undo_moves
from fewlabels.labeling.answer import Answer
from fewlabels.labeling.exports import export_labels
from fewlabels.labeling.label import label_folder
from fewlabels.labeling.labels_file import read_labels
from fewlabels.labeling.outputs import folder_names, make_rows, to_csv
from fewlabels.labeling.predict import predict_images
from fewlabels.labeling.session import open_session
from fewlabels.labeling.sorting import move_photos
from fewlabels.labeling.subclasses import Tree, check_separator
from fewlabels.preprocess.power_rule import MOST_MEASUREMENTS

NAMES = ("animal/cat", "animal/dog", "animal/dog/husky", "plant", "plant/fern")


def find(*probabilities: float, least: float = 0.8):
    found = Tree(NAMES, "/").find(np.array(probabilities), least)
    return None if found is None else (found.label, round(found.confidence, 6))


def test_the_deepest_class_that_is_sure_enough():
    assert find(0.9, 0.1, 0, 0, 0) == ("animal/cat", 0.9)
    assert find(0.45, 0.45, 0, 0.1, 0) == ("animal", 0.9)
    assert find(0, 0.5, 0.4, 0.1, 0) == ("animal/dog", 0.9)
    assert find(0, 0, 0.85, 0.15, 0) == ("animal/dog/husky", 0.85)
    assert find(0.3, 0.3, 0, 0.4, 0) is None
    # The most probable class alone is another one than what is more probable together.
    assert find(0.3, 0.3, 0, 0.4, 0, least=0.5) == ("animal", 0.6)
    assert find(0, 0, 0, 0.4, 0.5) == ("plant", 0.9)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.001, 1), min_size=5, max_size=5),
    st.floats(0.05, 1),
)
def test_a_surer_threshold_gives_a_class_above(weights, least):
    p = np.array(weights) / sum(weights)
    tree = Tree(NAMES, "/")
    loose, strict = tree.find(p, least / 2), tree.find(p, least)
    if strict is not None:
        assert loose is not None
        assert f"{loose.label}/".startswith(f"{strict.label}/")
        below = [i for i, name in enumerate(NAMES) if f"{name}/".startswith(f"{strict.label}/")]
        assert strict.confidence == pytest.approx(p[below].sum())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.floats(0.001, 1), min_size=5, max_size=5), max_size=6))
def test_many_items_get_what_each_gets_alone(weights):
    p = np.array([np.array(each) / sum(each) for each in weights]).reshape(-1, 5)
    tree = Tree(NAMES, "/")
    alone = {row: tree.find(each, 0.6) for row, each in enumerate(p)}
    assert tree.find_rows(p, 0.6) == {row: node for row, node in alone.items() if node is not None}


def test_rows_fall_back_and_are_no_corrections_when_given_back(tmp_path):
    classes = ["animal/cat", "animal/dog", "plant"]
    p = np.array([[0.95, 0.03, 0.02], [0.5, 0.45, 0.05], [0.4, 0.25, 0.35]], dtype=np.float32)
    names = ["a.jpg", "b.jpg", "c.jpg"]
    rows = make_rows(names, classes, Answer(p), {}, sub_classes="/")
    assert [row.label for row in rows] == ["animal/cat", "animal", "animal/cat"]
    assert (rows[1].confidence, rows[1].runner_up) == (0.95, "animal/cat")
    rows = make_rows(names, classes, Answer(p), {}, abstain=0.6, sub_classes="/")
    assert [row.label for row in rows] == ["animal/cat", "animal", "animal"]
    rows = make_rows(names, classes, Answer(p), {}, abstain=0.9, sub_classes="/")
    assert [(row.label, row.origin) for row in rows] == [
        ("animal/cat", "model"),
        ("animal", "model"),
        ("", ""),
    ]
    (tmp_path / "labels.csv").write_text(to_csv(rows))
    assert read_labels(tmp_path / "labels.csv", names).labels == {}


def test_folders_are_nested_and_no_two_classes_share_one():
    labels = {"a/b", "a", "A", "a/B", "con/x: y", "c"}
    names = folder_names(labels, "/")
    assert names["a"].lower() != names["A"].lower()
    assert names["a/b"].startswith(names["a"] + "/")
    assert names["con/x: y"] == "_con/x_ y"
    assert len({each.lower() for each in names.values()}) == len(labels)
    for wrong in (" / ", "ab", "----"):
        with pytest.raises(InputError, match="sub_classes must be"):
            check_separator(wrong)


@pytest.fixture
def tree(tmp_path, photos):
    """Photographs in nested folders, and two of each class without a label."""
    for path in sorted(photos.glob("*.png")):
        kind, number = path.stem.split("-")
        folder = {"apple": "fruit/apple", "plum": "fruit/plum", "leek": "leek"}[kind]
        folder = "unlabelled" if int(number) >= 6 else folder
        (tmp_path / "tree" / folder).mkdir(parents=True, exist_ok=True)
        path.rename(tmp_path / "tree" / folder / path.name)
    return tmp_path / "tree"


def test_a_tree_in_a_tree_out_and_back(tree, encoder, tmp_path, monkeypatch):
    monkeypatch.setenv("FEWLABELS_CACHE", str(tmp_path / "cache"))
    before = sorted(path.relative_to(tree).as_posix() for path in tree.rglob("*.png"))
    outcome = label_folder(
        tree,
        backbone=encoder,
        device="cpu",
        class_from="path",
        sub_classes="/",
        output=tmp_path / "labels.csv",
        copy_to=tmp_path / "sorted",
    )
    labels = {row.path: row.label for row in outcome.rows}
    assert labels["fruit/apple/apple-0.png"] == "fruit/apple"
    assert labels["unlabelled/leek-7.png"] == "leek"
    assert labels["unlabelled/plum-7.png"] in ("fruit/plum", "fruit")
    copied = {
        path.name: path.parent.relative_to(tmp_path / "sorted").as_posix()
        for path in (tmp_path / "sorted").rglob("*.png")
    }
    assert copied == {name.split("/")[-1]: label for name, label in labels.items()}
    # What was written is read again as the same tree.
    again = label_folder(
        tmp_path / "sorted", backbone=encoder, device="cpu", class_from="path", sub_classes="/"
    )
    assert {row.path.split("/")[-1]: row.label for row in again.rows} == copied
    export_labels(
        tree,
        labels=tmp_path / "labels.csv",
        to="imagefolder",
        output=tmp_path / "o",
        sub_classes="/",
    )
    exported = {
        path.name: path.parent.relative_to(tmp_path / "o").as_posix()
        for path in (tmp_path / "o").rglob("*.png")
    }
    assert exported == copied
    moved = move_photos(tree, tmp_path / "m", labels=tmp_path / "labels.csv", sub_classes="/")
    assert {
        path.name: path.parent.relative_to(tmp_path / "m").as_posix()
        for path in (tmp_path / "m").rglob("*.png")
    } == copied
    undo_moves(moved.journal)
    assert sorted(path.relative_to(tree).as_posix() for path in tree.rglob("*.png")) == before


def test_two_sub_classes_that_look_alike_become_their_class(tmp_path):
    rng = np.random.default_rng(0)
    middle = {"animal/cat": [9, 1, 1], "animal/dog": [9, 1, 1], "plant": [1, 9, 1]}
    vectors, labels, truth = [], [], []
    for name, center in middle.items():
        for i in range(30):
            vector = np.abs(center + rng.normal(scale=0.6, size=3))
            vectors.append(np.tile(vector, MOST_MEASUREMENTS))  # as features of a network
            labels.append(name if i < 6 else "")
            truth.append(name)
    features = FeatureSet.from_arrays(vectors, labels, names=[f"i{i}" for i in range(90)])
    features.save(tmp_path / "f.safetensors")
    model = tmp_path / "m.safetensors"
    outcome = label_folder(tmp_path / "f.safetensors", sub_classes="/", model=model)
    found = [row for row in outcome.rows if row.origin == "model"]
    fallen = [row for row in found if row.label == "animal"]
    assert len(fallen) >= 24  # of 48: nobody can tell these cats from these dogs
    right = {f"i{i}": name for i, name in enumerate(truth)}
    assert all(right[row.path].startswith("animal/") for row in fallen)
    assert all(row.confidence >= 0.8 for row in fallen)
    # Later items fall back as well: the model remembers, a project is told.
    FeatureSet.from_arrays(vectors, [-1] * 90, []).save(tmp_path / "later.safetensors")
    later, _ = predict_images(model, [tmp_path / "later.safetensors"])
    n_above = sum(row.label == "animal" for row in later)
    assert n_above >= 24
    session = open_session(tmp_path / "p", photos=tmp_path / "f.safetensors", sub_classes="/")
    try:
        above = session.to_dict(session.thorough())["above"]
        assert len(above) >= 24
        assert all(label == "animal" and sure >= 800 for _, label, sure in above)
        assert {row.label for row in session.rows()} == {*middle, "animal"}
        session.keep_answer()
    finally:
        session.close()
    plain, _ = predict_images(tmp_path / "p", [tmp_path / "later.safetensors"])
    assert {row.label for row in plain} == {*middle}
    told, _ = predict_images(tmp_path / "p", [tmp_path / "later.safetensors"], sub_classes="/")
    assert sum(row.label == "animal" for row in told) >= 24
    export_labels(tmp_path / "p", to="csv", output=tmp_path / "o")
    assert ",animal," in (tmp_path / "o" / "labels.csv").read_text()
    path = tmp_path / "truth.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label"), *right.items()])
    scored = label_folder(tmp_path / "f.safetensors", sub_classes="/", truth=path)
    score = scored.score(scored.inputs.truth)
    assert score.n + scored.unscored(scored.inputs.truth).n_left_out == len(found)
