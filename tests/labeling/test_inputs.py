"""From what a person names to items and labels: folders, files, and what is wrong with them."""

import shutil
import warnings

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fewlabels import FeatureSet, label_folder
from fewlabels.errors import FewLabelsError, FileFormatError, InputError
from fewlabels.labeling.collection import Extraction
from fewlabels.labeling.inputs import read_inputs
from fewlabels.labeling.outcome import label_inputs, suggest_next


def true_labels(names):
    return {name: name.split("/")[-1].split("-")[0] for name in names}


def test_photos_and_a_csv(photos, few, extraction):
    outcome = label_inputs(read_inputs(photos, labels=few, extraction=extraction))
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
    source = read_inputs(photos, extraction=extraction)
    assert sorted(source.labels.values()) == ["apple", "apple", "leek", "leek"]
    assert len(label_inputs(source).rows) == 24


def test_nested_folders_cameras_and_thumbnails(photos, tmp_path, extraction):
    for name in ("apple", "leek"):
        for i in range(2):
            for folder in (f"Food/{name}/100CANON", f"Food/{name}/@eaDir/{i}.png", "DCIM/100MEDIA"):
                target = photos / folder / f"{name}-{i}.png"
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(photos / f"{name}-{i}.png", target)
    source = read_inputs(photos, extraction=extraction, truth="folders", class_from="2")
    assert sorted(source.labels.values()) == ["apple", "apple", "leek", "leek"]
    assert source.truth == source.labels
    assert len(source.collection) == 24 + 8  # without those of @eaDir
    assert read_inputs(photos, extraction=extraction).labels == source.labels
    assert any("deepest" in each for each in read_inputs(photos, extraction=extraction).remarks)
    whole = read_inputs(photos, labels=photos, extraction=extraction, class_from="path")
    assert set(whole.labels.values()) == {"Food/apple", "Food/leek"}


def test_a_folder_of_labelled_images_elsewhere(photos, tmp_path, extraction):
    for name in ("apple", "leek", "plum"):
        (tmp_path / "shown" / name).mkdir(parents=True)
        (photos / f"{name}-0.png").rename(tmp_path / "shown" / name / "elsewhere.png")
        shutil.copy(photos / f"{name}-1.png", tmp_path / "shown" / name / "copy.png")
    source = read_inputs(photos, labels=tmp_path / "shown", extraction=extraction)
    outcome = label_inputs(source)
    assert len(outcome.rows) == 21  # the photos only, though 24 images were used
    assert len(source.collection) == 24
    assert {row.path: row.origin for row in outcome.rows}[
        "apple-1.png"
    ] == "import"  # the copy is that photo, not one more
    assert len(outcome.suggest(30)) == 18
    with pytest.raises(InputError, match="one folder"):
        source.begin_project(tmp_path / "p")


def test_the_same_image_in_two_classes(photos, tmp_path, extraction):
    for name in ("apple", "leek"):
        (tmp_path / "shown" / name).mkdir(parents=True)
        shutil.copy(photos / "apple-0.png", tmp_path / "shown" / name / "x.png")
    with pytest.raises(InputError, match="the same image is in 'apple' and in 'leek'"):
        read_inputs(photos, labels=tmp_path / "shown", extraction=extraction)


def test_features_with_and_without_a_csv(tmp_path, blobs, hide, extraction):
    labels = hide(blobs.labels, 2)
    np.savez(
        tmp_path / "f.npz",
        features=blobs.features,
        labels=labels,
        class_names=np.array(blobs.class_names),
    )
    one = label_inputs(read_inputs(tmp_path / "f.npz"))
    (tmp_path / "few.csv").write_text(
        "name,label\n" + "".join(f"row {i},c{labels[i]}\n" for i in np.flatnonzero(labels >= 0))
    )
    two = label_inputs(read_inputs(tmp_path / "f.npz", labels=tmp_path / "few.csv"))
    assert one.rows == two.rows
    assert (
        one.score({f"row {i}": f"c{label}" for i, label in enumerate(blobs.labels)}).accuracy > 0.9
    )


def test_broken_and_huge_images_are_passed_over_and_named(photos, few, extraction, monkeypatch):
    (photos / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n nonsense")
    (photos / "empty.jpg").touch()
    Image.new("1", (4000, 4000)).save(photos / "huge.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 4_000_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = read_inputs(photos, labels=few, extraction=extraction)
    said = " ".join(source.remarks)
    assert all(name in said for name in ("broken.png", "empty.jpg", "huge.png"))
    assert len(label_inputs(source).rows) == 24


def test_links_out_of_the_folder_are_passed_over(photos, few, tmp_path, extraction):
    (tmp_path / "private").mkdir()
    Image.new("RGB", (32, 32)).save(tmp_path / "private" / "secret.png")
    (photos / "link.png").symlink_to(tmp_path / "private" / "secret.png")
    (photos / "folder").symlink_to(tmp_path / "private")
    source = read_inputs(photos, labels=few, extraction=extraction)
    assert len(source.collection) == 24
    assert "link.png" in " ".join(source.remarks)


def test_names_of_all_kinds(photos, extraction):
    odd = {"早餐 äö.png": "早餐", "with, comma.PNG": "käse", f"{'x' * 200}.png": "x" * 200}
    for new, old in zip(odd, ("apple-0.png", "leek-0.png", "plum-0.png"), strict=True):
        (photos / old).rename(photos / new)
    text = "path,label\n" + "".join(f'"{name}",{label}\n' for name, label in odd.items())
    (photos.parent / "few.csv").write_text(text, encoding="utf-8")
    rows = label_inputs(
        read_inputs(photos, labels=photos.parent / "few.csv", extraction=extraction)
    ).rows
    assert {row.label for row in rows} == set(odd.values())


class Forbidden(Extraction):
    """Whoever asks it for features asks too early."""

    def __call__(self, *_):
        raise AssertionError("images were read before the labels")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("path,label\nnowhere.png,leek\n", "none of its 1 path .* line 2: nowhere.png"),
        ("path,label\napple-0.png,apple\n", "at least two classes"),
        ("path,label\n", "no labels to learn from"),
    ],
)
def test_wrong_labels_are_refused_before_any_image_is_read(photos, tmp_path, text, words):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(InputError, match=words):
        read_inputs(photos, labels=tmp_path / "bad.csv", extraction=Forbidden(), enough=True)


def test_labels_of_images_that_cannot_be_read_are_no_mistake(photos, few, extraction):
    (photos / "empty.png").touch()
    (photos / "broken.png").write_bytes(b"nothing")
    few.write_text(few.read_text() + "empty.png,apple\nbroken.png,leek\n")
    source = read_inputs(photos, labels=few, extraction=extraction)
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
    source = read_inputs(photos, labels=few, extraction=extraction, enough=enough)
    lost = (
        "1 label lost with images that cannot be read: broken.png. "
        "No other image of this class has a label: pear."
    )
    assert lost in source.remarks
    few.write_text("path,label\napple-0.png,apple\nbroken.png,pear\n")
    if enough:
        with pytest.raises(InputError, match=r"at least two classes.*broken\.png.*pear"):
            read_inputs(photos, labels=few, extraction=extraction, enough=True)


def test_a_class_that_is_lost_with_an_empty_file_is_named_before_the_work(photos, few):
    (photos / "empty.png").touch()
    few.write_text("path,label\napple-0.png,apple\nempty.png,pear\n")
    with pytest.raises(InputError, match=r"at least two classes.*empty\.png.*pear"):
        read_inputs(photos, labels=few, extraction=Forbidden(), enough=True)


def test_pictures_in_other_forms_are_named(photos, few, extraction, tmp_path):
    for name in ("IMG_1.JXL", "deep/2.jxl", "film.mov", ".hidden.jxl"):
        (photos / name).parent.mkdir(exist_ok=True)
        (photos / name).write_bytes(b"x")
    remarks = read_inputs(photos, labels=few, extraction=extraction).remarks
    assert any("2 .jxl files" in remark and "JPEG" in remark for remark in remarks)
    assert any("1 .mov" in remark for remark in remarks)
    (tmp_path / "phone").mkdir()
    (tmp_path / "phone" / "a.jxl").write_bytes(b"x")
    with pytest.raises(FileFormatError, match=r"1 \.jxl.*JPEG"):
        read_inputs(tmp_path / "phone", extraction=extraction)


def test_a_plus_in_a_path_is_no_second_backbone(encoder, tmp_path):
    shutil.copy(encoder, tmp_path / "a+b.safetensors")
    assert len(Extraction(backbone=str(tmp_path / "a+b.safetensors")).encoders()) == 1
    assert len(Extraction(backbone=f"{encoder} + {encoder}").encoders()) == 2


def test_no_images(tmp_path, extraction):
    with pytest.raises(FewLabelsError, match="does not exist"):
        read_inputs(tmp_path / "empty", extraction=extraction)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FewLabelsError, match="must hold images"):
        read_inputs(tmp_path / "empty", extraction=extraction)


def test_one_image_is_no_folder(photos, extraction):
    with pytest.raises(InputError, match="fewlabels predict"):
        read_inputs(photos / "apple-0.png", extraction=extraction)


def test_suggestions_without_a_label(photos, extraction):
    names, advice = suggest_next(read_inputs(photos, extraction=extraction), n=3)
    assert {name.split("-")[0] for name in names} == {"apple", "leek", "plum"}
    assert "two classes" in advice


def test_a_truth_is_read_before_any_image_and_may_name_broken_ones(
    photos, few, tmp_path, extraction
):
    (tmp_path / "truth.csv").write_text("path,label\nelsewhere.png,apple\nnowhere.png,leek\n")
    with pytest.raises(InputError, match=r"truth\.csv.*none of its 2 paths"):
        read_inputs(photos, labels=few, extraction=Forbidden(), truth=str(tmp_path / "truth.csv"))
    for name in ("empty.png", "broken.png"):
        (photos / name).write_bytes(b"" if name == "empty.png" else b"nothing")
    (tmp_path / "truth.csv").write_text(
        "path,label\nempty.png,leek\nbroken.png,leek\nplum-5.png,plum\nplum-5.png,plum\n"
        "elsewhere.png,plum\n"
    )
    source = read_inputs(
        photos, labels=few, extraction=extraction, truth=str(tmp_path / "truth.csv")
    )
    assert source.truth == {"plum-5.png": "plum"}
    assert any("given twice" in remark for remark in source.remarks)
    assert any("1 path not found, left out: line 6" in remark for remark in source.remarks)
    assert read_inputs(photos, labels=few, extraction=extraction).truth is None
    source.begin_project(tmp_path / "p").close()
    assert read_inputs(tmp_path / "p", truth=str(tmp_path / "truth.csv")).truth == source.truth


def test_a_frame_a_table_and_a_feature_set_are_the_same(blobs, hide, tmp_path):
    labels = [blobs.class_names[each] if each >= 0 else None for each in hide(blobs.labels, 2)]
    frame = pd.DataFrame(
        {"photo": blobs.names, "species": labels, "embedding": list(blobs.features)}
    )
    frame.to_parquet(tmp_path / "f.parquet")
    columns = {"name": "photo", "label": "species"}
    found = label_folder(tmp_path / "f.parquet", columns=columns, output=tmp_path / "out.csv")
    assert [row.path for row in found.rows] == list(blobs.names)
    assert label_folder(frame, columns=columns).rows == found.rows
    given = FeatureSet.from_arrays(blobs.features, labels, names=blobs.names)
    assert label_folder(given).rows == found.rows
    with pytest.raises(InputError, match="backbone must be left out"):
        label_folder(given, backbone="efficientnet-lite0")


def test_a_dataset_of_hugging_face(photos, extraction):
    datasets = pytest.importorskip("datasets")
    names = sorted(path.name for path in photos.iterdir())
    labels = [["apple", "leek"].index(name[:-6]) if "-0" in name else -1 for name in names[:16]]
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["apple", "leek"])}
    data = {"image": [str(photos / name) for name in names[:16]], "label": labels}
    dataset = datasets.Dataset.from_dict(data, features=datasets.Features(features))
    source = read_inputs(dataset, extraction=extraction)
    assert source.collection.names == tuple(names[:16])
    assert source.labels == {"apple-0.png": "apple", "leek-0.png": "leek"}
    folder = read_inputs(photos, extraction=extraction)
    rows = [folder.collection.rows[name] for name in names[:16]]
    assert (source.collection.features == folder.collection.features[rows]).all()
    vectors = datasets.Dataset.from_dict(
        {"embedding": source.collection.features.tolist(), "label": labels, "path": names[:16]}
    ).cast_column("label", features["label"])
    assert read_inputs(vectors).labels == source.labels
