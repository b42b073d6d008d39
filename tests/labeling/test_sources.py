"""From what a person names to items and labels: folders, files, projects, and what is wrong with them."""

import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fewlabels.data import read_images
from fewlabels.errors import FewLabelsError, FileFormatError, InputError
from fewlabels.features.store import FeatureStore
from fewlabels.labeling.importing import begin_project, import_labels, refresh
from fewlabels.labeling.later import predict_later
from fewlabels.labeling.outcome import label_source, suggest_next
from fewlabels.labeling.predictor import Predictor
from fewlabels.labeling.project import Project
from fewlabels.labeling.sources import Extraction, open_source, read_truth
from fewlabels.labeling.starting import start_session


@pytest.fixture
def extraction(encoder, tmp_path):
    return Extraction(
        backbone=encoder, device="cpu", n_workers=0, store=FeatureStore(tmp_path / "store")
    )


def true_labels(names):
    return {
        item: name.split("/")[-1].split("-")[0].removeprefix("labels:")
        for item, name in enumerate(names)
    }


def test_photos_and_a_csv(photos, few, extraction):
    outcome = label_source(open_source(photos, labels=few, extraction=extraction))
    assert [row.path for row in outcome.rows] == sorted(row.path for row in outcome.rows)
    assert len(outcome.rows) == 24
    assert outcome.score(true_labels([row.path for row in outcome.rows])).accuracy > 0.9
    assert sum(row.origin == "import" for row in outcome.rows) == 6
    assert outcome.summary()["features"]["backbone"].startswith("conv4")
    assert "Estimated accuracy" in outcome.describe()


def test_sub_folders_are_labels(photos, extraction):
    for name in ("apple", "leek"):
        (photos / name).mkdir()
        for i in range(2):
            (photos / f"{name}-{i}.png").rename(photos / name / f"{name}-{i}.png")
    source = open_source(photos, labels=None, extraction=extraction)
    assert sorted(source.labels.values()) == ["apple", "apple", "leek", "leek"]
    assert len(label_source(source).rows) == 24


def test_a_folder_of_labelled_images_elsewhere(photos, tmp_path, extraction):
    for name in ("apple", "leek", "plum"):
        (tmp_path / "shown" / name).mkdir(parents=True)
        (photos / f"{name}-0.png").rename(tmp_path / "shown" / name / "elsewhere.png")
        shutil.copy(photos / f"{name}-1.png", tmp_path / "shown" / name / "copy.png")
    source = open_source(photos, labels=tmp_path / "shown", extraction=extraction)
    outcome = label_source(source)
    assert len(outcome.rows) == 21  # the photos only, though 24 images were used
    assert len(source.collection) == 24
    assert {row.path: row.origin for row in outcome.rows}[
        "apple-1.png"
    ] == "import"  # the copy is that photo, not one more
    assert len(outcome.suggest(30)) == 18
    with pytest.raises(InputError, match="one folder"):
        begin_project(tmp_path / "p", source)


def test_the_same_image_in_two_classes(photos, tmp_path, extraction):
    for name in ("apple", "leek"):
        (tmp_path / "shown" / name).mkdir(parents=True)
        shutil.copy(photos / "apple-0.png", tmp_path / "shown" / name / "x.png")
    with pytest.raises(InputError, match="the same image is in 'apple' and in 'leek'"):
        open_source(photos, labels=tmp_path / "shown", extraction=extraction)


def test_features_with_and_without_a_csv(tmp_path, blobs, hide, extraction):
    labels = hide(blobs.labels, 2)
    np.savez(
        tmp_path / "f.npz",
        features=blobs.features,
        labels=labels,
        class_names=np.array(blobs.class_names),
    )
    one = label_source(open_source(tmp_path / "f.npz", labels=None, extraction=extraction))
    (tmp_path / "few.csv").write_text(
        "name,label\n" + "".join(f"row {i},c{labels[i]}\n" for i in np.flatnonzero(labels >= 0))
    )
    two = label_source(
        open_source(tmp_path / "f.npz", labels=tmp_path / "few.csv", extraction=extraction)
    )
    assert one.rows == two.rows
    assert one.score(dict(enumerate(f"c{label}" for label in blobs.labels))).accuracy > 0.9


def test_broken_and_huge_images_are_passed_over_and_named(photos, few, extraction, monkeypatch):
    (photos / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n nonsense")
    (photos / "empty.jpg").touch()
    Image.new("1", (4000, 4000)).save(photos / "huge.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 4_000_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = open_source(photos, labels=few, extraction=extraction)
    said = " ".join(source.remarks)
    assert all(name in said for name in ("broken.png", "empty.jpg", "huge.png"))
    assert len(label_source(source).rows) == 24


def test_links_out_of_the_folder_are_passed_over(photos, few, tmp_path, extraction):
    (tmp_path / "private").mkdir()
    Image.new("RGB", (32, 32)).save(tmp_path / "private" / "secret.png")
    (photos / "link.png").symlink_to(tmp_path / "private" / "secret.png")
    (photos / "folder").symlink_to(tmp_path / "private")
    source = open_source(photos, labels=few, extraction=extraction)
    assert len(source.collection) == 24
    assert "link.png" in " ".join(source.remarks)


def test_names_of_all_kinds(photos, extraction):
    odd = {"早餐 äö.png": "早餐", "with, comma.PNG": "käse", f"{'x' * 200}.png": "x" * 200}
    for new, old in zip(odd, ("apple-0.png", "leek-0.png", "plum-0.png"), strict=True):
        (photos / old).rename(photos / new)
    text = "path,label\n" + "".join(f'"{name}",{label}\n' for name, label in odd.items())
    (photos.parent / "few.csv").write_text(text, encoding="utf-8")
    rows = label_source(
        open_source(photos, labels=photos.parent / "few.csv", extraction=extraction)
    ).rows
    assert {row.label for row in rows} == set(odd.values())


class Forbidden(Extraction):
    """Whoever asks it for features asks too early."""

    def __call__(self, *_):
        raise AssertionError("images were read before the labels")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("path,label\nnowhere.png,leek\n", "line 2: nowhere.png"),
        ("path,label\napple-0.png,apple\n", "at least two classes"),
        ("path,label\n", "no labels to learn from"),
    ],
)
def test_wrong_labels_are_refused_before_any_image_is_read(photos, tmp_path, text, words):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(InputError, match=words):
        open_source(photos, labels=tmp_path / "bad.csv", extraction=Forbidden(), enough=True)


def test_labels_of_images_that_cannot_be_read_are_no_mistake(photos, few, extraction):
    (photos / "empty.png").touch()
    (photos / "broken.png").write_bytes(b"nothing")
    few.write_text(few.read_text() + "empty.png,apple\nbroken.png,leek\n")
    source = open_source(photos, labels=few, extraction=extraction)
    assert len(source.labels) == 6
    assert any("broken.png" in remark and "Replace it" in remark for remark in source.remarks)
    assert any(
        "2 labels lost" in remark and "empty.png; broken.png" in remark and "class" not in remark
        for remark in source.remarks
    )


@pytest.mark.parametrize("enough", [False, True])
def test_a_class_that_is_lost_with_its_only_image_is_named(photos, few, extraction, enough):
    (photos / "broken.png").write_bytes(b"nothing")
    few.write_text(few.read_text() + "broken.png,pear\n")
    source = open_source(photos, labels=few, extraction=extraction, enough=enough)
    lost = "1 label lost with images that cannot be read: broken.png. No other image of this class has a label: pear."
    assert lost in source.remarks
    few.write_text("path,label\napple-0.png,apple\nbroken.png,pear\n")
    if enough:
        with pytest.raises(InputError, match=r"at least two classes.*broken\.png.*pear"):
            open_source(photos, labels=few, extraction=extraction, enough=True)


def test_a_class_that_is_lost_with_an_empty_file_is_named_before_the_work(photos, few):
    (photos / "empty.png").touch()
    few.write_text("path,label\napple-0.png,apple\nempty.png,pear\n")
    with pytest.raises(InputError, match=r"at least two classes.*empty\.png.*pear"):
        open_source(photos, labels=few, extraction=Forbidden(), enough=True)


def test_pictures_in_other_forms_are_named(photos, few, extraction, tmp_path):
    for name in ("IMG_1.HEIC", "deep/2.heic", "film.mov", ".hidden.heic"):
        (photos / name).parent.mkdir(exist_ok=True)
        (photos / name).write_bytes(b"x")
    remarks = open_source(photos, labels=few, extraction=extraction).remarks
    assert any("2 .heic files" in remark and "JPEG" in remark for remark in remarks)
    assert any("1 .mov" in remark for remark in remarks)
    (tmp_path / "phone").mkdir()
    (tmp_path / "phone" / "a.heic").write_bytes(b"x")
    with pytest.raises(FileFormatError, match=r"1 \.heic.*JPEG"):
        open_source(tmp_path / "phone", labels=None, extraction=extraction)


def test_a_plus_in_a_path_is_no_second_backbone(encoder, tmp_path):
    shutil.copy(encoder, tmp_path / "a+b.safetensors")
    assert len(Extraction(backbone=str(tmp_path / "a+b.safetensors")).encoders()) == 1
    assert len(Extraction(backbone=f"{encoder} + {encoder}").encoders()) == 2


def test_no_images(tmp_path, extraction):
    with pytest.raises(FewLabelsError, match="does not exist"):
        open_source(tmp_path / "empty", labels=None, extraction=extraction)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FewLabelsError, match="must hold images"):
        open_source(tmp_path / "empty", labels=None, extraction=extraction)


def test_one_image_is_no_folder(photos, extraction):
    with pytest.raises(InputError, match="fewlabels predict"):
        open_source(photos / "apple-0.png", labels=None, extraction=extraction)


def test_suggestions_without_a_label(photos, extraction):
    names, advice = suggest_next(open_source(photos, labels=None, extraction=extraction), n=3)
    assert {name.split("-")[0] for name in names} == {"apple", "leek", "plum"}
    assert "two classes" in advice


def test_truth_by_folders_or_file(few, tmp_path):
    assert read_truth("folders", ("a/1.jpg", "2.jpg"), root=None).labels == {0: "a"}
    assert (
        read_truth(
            str(few),
            tuple(f"{n}-{i}.png" for n in ("apple", "leek", "plum") for i in (0, 1)),
            root=None,
        ).labels[5]
        == "plum"
    )


def test_a_truth_is_read_before_any_image_and_may_name_broken_ones(
    photos, few, tmp_path, extraction
):
    (tmp_path / "truth.csv").write_text("path,label\napple-5.png,apple\nnowhere.png,leek\n")
    with pytest.raises(InputError, match=r"truth\.csv.*1 path not found"):
        open_source(photos, labels=few, extraction=Forbidden(), truth=str(tmp_path / "truth.csv"))
    for name in ("empty.png", "broken.png"):
        (photos / name).write_bytes(b"" if name == "empty.png" else b"nothing")
    (tmp_path / "truth.csv").write_text(
        "path,label\nempty.png,leek\nbroken.png,leek\nplum-5.png,plum\nplum-5.png,plum\n"
    )
    source = open_source(
        photos, labels=few, extraction=extraction, truth=str(tmp_path / "truth.csv")
    )
    assert {source.collection.names[item]: label for item, label in source.truth.items()} == {
        "plum-5.png": "plum"
    }
    assert any("given twice alike" in remark for remark in source.remarks)
    assert open_source(photos, labels=few, extraction=extraction).truth is None
    begin_project(tmp_path / "p", source).close()
    assert (
        open_source(
            tmp_path / "p", labels=None, extraction=extraction, truth=str(tmp_path / "truth.csv")
        ).truth
        == source.truth
    )


def test_a_project_begins_grows_and_exports(photos, few, tmp_path, extraction):
    begin_project(tmp_path / "p", open_source(photos, labels=few, extraction=extraction)).close()
    (photos / "apple-7.png").rename(photos / "apple-8.png")
    with Project.open(tmp_path / "p", write=True) as project:
        assert refresh(project, extraction) == []
        assert len(project.load()) == 24
        collection = project.load()
        assert "apple-8.png" in collection.names
        assert "apple-7.png" not in collection.names
        assert import_labels(project, collection, {0: "apple", 3: "pear"}) == (1, 0)
        project.journal.decide({"leek-5.png": "leek"}, origin="person")
    outcome = label_source(open_source(tmp_path / "p", labels=None, extraction=extraction))
    origins = {row.path: (row.label, row.origin) for row in outcome.rows}
    assert origins["leek-5.png"] == ("leek", "person")
    assert origins[collection.names[3]] == ("pear", "import")
    with pytest.raises(InputError, match="fewlabels serve"):
        open_source(tmp_path / "p", labels=few, extraction=extraction)


def test_a_changed_image_gets_new_features(photos, few, tmp_path, extraction):
    project = begin_project(tmp_path / "p", open_source(photos, labels=few, extraction=extraction))
    before = project.load()
    shutil.copy(photos / "plum-3.png", photos / "apple-3.png")
    refresh(project, extraction)
    after = project.load()
    project.close()
    row = before.names.index("apple-3.png")
    assert not np.allclose(before.features[row], after.features[row])
    np.testing.assert_array_equal(
        after.features[row], after.features[after.names.index("plum-3.png")]
    )


def test_a_project_of_features_begins_again_with_the_same_features_only(
    tmp_path, blobs, hide, extraction
):
    def start(name):
        start_session(
            tmp_path / "p", photos=tmp_path / name, labels=None, extraction=extraction
        ).close()

    np.savez(
        tmp_path / "f.npz",
        features=blobs.features,
        labels=hide(blobs.labels, 2),
        class_names=np.array(blobs.class_names),
    )
    np.savez(tmp_path / "other.npz", features=blobs.features + 1, labels=blobs.labels)
    start("f.npz")
    start("f.npz")
    (tmp_path / "f.npz").rename(tmp_path / "moved.npz")
    start("moved.npz")
    for other in ("other.npz", ""):
        with pytest.raises(InputError, match="is a project of features, not of"):
            start(other)


def test_photos_that_came_since_are_said(photos, few, tmp_path, extraction):
    (photos / "broken.png").write_bytes(b"nothing")  # was there before, and still cannot be read
    begin_project(tmp_path / "p", open_source(photos, labels=few, extraction=extraction)).close()
    assert open_source(tmp_path / "p", labels=None, extraction=extraction).remarks == ()
    shutil.copy(photos / "plum-3.png", photos / "new.png")
    said = f"1 photo came or changed since: run fewlabels serve {tmp_path / 'p'} to take it up."
    assert open_source(tmp_path / "p", labels=None, extraction=extraction).remarks == (said,)
    (photos / "apple-0.png").touch()
    assert "2 photos" in open_source(tmp_path / "p", labels=None, extraction=extraction).remarks[0]
    start_session(tmp_path / "p", photos=photos, labels=None, extraction=extraction).close()
    assert open_source(tmp_path / "p", labels=None, extraction=extraction).remarks == ()
    shutil.copy(photos / "plum-3.png", photos / "broken.png")
    assert "1 photo" in open_source(tmp_path / "p", labels=None, extraction=extraction).remarks[0]


def test_labels_imported_again_leave_what_the_person_decided(photos, few, tmp_path, extraction):
    def start():
        said = []
        session = start_session(
            tmp_path / "p", photos=photos, labels=few, extraction=extraction, on_remark=said.append
        )
        return session, said

    session, _ = start()
    place = {name: item for item, name in enumerate(session.collection.names)}
    session.decide([place["apple-0.png"]], "pear")
    session.decide([place["leek-0.png"]], None)
    session.decide([place["plum-0.png"]], "pear")
    session.undo()
    session.close()
    (photos / "empty.png").touch()
    few.write_text(few.read_text() + "plum-2.png,plum\nempty.png,plum\n")
    session, said = start()
    given = session.state.given
    session.close()
    assert given[place["apple-0.png"]][:2] == ("pear", "person")
    assert place["leek-0.png"] not in given
    assert given[place["plum-0.png"]].label == given[place["plum-2.png"]].label == "plum"
    assert said[-2] == "1 label lost with images that cannot be read: empty.png."
    assert said[-1] == f"1 label imported from {few}; 2 images stay as you decided."


@pytest.mark.parametrize("begun", [False, True])
def test_an_image_that_changes_while_features_are_computed_is_noticed(
    photos, few, tmp_path, extraction, begun
):
    def change(progress):
        if (
            progress.stage == "extract" and progress.done == progress.total
        ):  # every image was read by now
            shutil.copy(photos / "plum-3.png", photos / "apple-3.png")

    meddled = replace(extraction, on_progress=change)
    if begun:
        begin_project(
            tmp_path / "p", open_source(photos, labels=few, extraction=extraction)
        ).close()
        Image.new("RGB", (32, 32), (250, 250, 9)).save(photos / "apple-4.png")
        start_session(tmp_path / "p", photos=None, labels=None, extraction=meddled).close()
    else:
        begin_project(tmp_path / "p", open_source(photos, labels=few, extraction=meddled)).close()
    with Project.open(tmp_path / "p", write=True) as project:
        assert project.newcomers(read_images(photos)) == ["apple-3.png"]
        refresh(project, extraction)
        kept = project.load()
        assert project.newcomers(read_images(photos)) == []
    np.testing.assert_array_equal(
        kept.features[kept.names.index("apple-3.png")],
        kept.features[kept.names.index("plum-3.png")],
    )


def test_projects_refuse_what_is_in_the_way(photos, few, tmp_path, extraction):
    source = open_source(photos, labels=few, extraction=extraction)
    with pytest.raises(InputError, match="must not lie inside"):
        begin_project(photos / "p", source)
    with pytest.raises(InputError, match="new or empty"):
        begin_project(few.parent, source)
    with pytest.raises(InputError, match="Begin it with --photos"):
        start_session(tmp_path / "none", photos=None, labels=None, extraction=extraction)
    with pytest.raises(FileFormatError, match="not a labelling project"):
        Project.open(tmp_path / "none")
    begin_project(tmp_path / "p", source).close()
    with pytest.raises(InputError, match="is a project of"):
        start_session(tmp_path / "p", photos=tmp_path, labels=None, extraction=extraction)
    shutil.rmtree(photos)
    with Project.open(tmp_path / "p") as project, pytest.raises(FileFormatError, match="is gone"):
        project.load()


def test_a_model_for_later_images(photos, few, tmp_path, extraction):
    outcome = label_source(open_source(photos, labels=few, extraction=extraction))
    Predictor.of(outcome).save(tmp_path / "m.safetensors")
    one, _ = predict_later(tmp_path / "m.safetensors", [photos / "leek-6.png"], device="cpu")
    assert [(row.path, row.label) for row in one] == [((photos / "leek-6.png").as_posix(), "leek")]
    rows, _ = predict_later(tmp_path / "m.safetensors", [photos], device="cpu")
    assert sum(row.label == row.path.split("/")[-1].split("-")[0] for row in rows) >= 22
    with pytest.raises(FileFormatError, match="does not exist"):
        predict_later(tmp_path / "m.safetensors", [photos / "no.png"], device="cpu")


def test_later_images_count_once_and_other_forms_are_named(
    photos, few, tmp_path, extraction, monkeypatch
):
    model = tmp_path / "m.safetensors"
    Predictor.of(label_source(open_source(photos, labels=few, extraction=extraction))).save(model)
    monkeypatch.chdir(photos)
    again = [
        Path("leek-6.png"),
        Path("leek-6.png"),
        photos / "leek-6.png",
        Path("../photos/leek-6.png"),
    ]
    rows, remarks = predict_later(model, again, device="cpu")
    assert [row.path for row in rows] == ["leek-6.png"]
    assert remarks == []
    rows, _ = predict_later(model, [Path("leek-6.png"), photos], device="cpu")
    assert len(rows) == 24
    (tmp_path / "phone").mkdir()
    for name in ("a.heic", "phone/b.HEIC"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(
        FileFormatError, match=r"no image to label. Not read: 1 \.heic files; export them as JPEG"
    ):
        predict_later(model, [tmp_path / "a.heic"], device="cpu")
    with pytest.raises(
        FileFormatError, match=r"must hold images.*1 \.heic files; export them as JPEG"
    ):
        predict_later(model, [tmp_path / "phone"], device="cpu")
    (photos / "empty.png").touch()
    rows, remarks = predict_later(model, [photos, tmp_path / "a.heic"], device="cpu")
    assert len(rows) == 24
    assert "1 .heic" in remarks[0]
    assert "empty.png" in remarks[1]


def test_a_model_of_features_agrees_with_the_labelling(tmp_path, blobs, hide, extraction):
    np.savez(
        tmp_path / "f.npz",
        features=blobs.features,
        labels=hide(blobs.labels, 3),
        class_names=np.array(blobs.class_names),
    )
    outcome = label_source(open_source(tmp_path / "f.npz", labels=None, extraction=extraction))
    Predictor.of(outcome).save(tmp_path / "m.safetensors")
    rows, _ = predict_later(tmp_path / "m.safetensors", [tmp_path / "f.npz"])
    same = [
        a.label == b.label for a, b in zip(rows, outcome.rows, strict=True) if b.origin == "model"
    ]
    assert np.mean(same) > 0.99
    with pytest.raises(InputError, match="only be asked about features"):
        predict_later(tmp_path / "m.safetensors", [tmp_path])
    with pytest.raises(InputError, match=r"shape \(N, 16\)"):
        Predictor.load(tmp_path / "m.safetensors").predict(np.ones((1, 3)))


def test_models_that_are_none(tmp_path, blobs, hide, extraction):
    (tmp_path / "m.safetensors").write_bytes(b"nonsense")
    with pytest.raises(FileFormatError, match="cannot be read"):
        Predictor.load(tmp_path / "m.safetensors")
    blobs.save(tmp_path / "f.safetensors")
    with pytest.raises(FileFormatError, match="not a model of fewlabels"):
        Predictor.load(tmp_path / "f.safetensors")
