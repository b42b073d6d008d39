"""Bursts: one label on request, one side of a split, and one selection on the page."""

import csv

import pytest
from PIL import Image

from fewlabels.labeling.exports import export_labels
from fewlabels.labeling.label import label_folder
from fewlabels.labeling.session import open_session


@pytest.fixture
def bursts(photos, extraction, monkeypatch, tmp_path):
    """The pictures, taken in bursts of four: apple-0 to apple-3, apple-4 to apple-7, ..."""
    monkeypatch.setenv("FEWLABELS_CACHE", str(tmp_path / "cache"))
    for number, path in enumerate(sorted(photos.glob("*.png"))):
        exif = Image.Exif()
        minute, second = divmod(number, 4)
        exif.get_ifd(0x8769)[0x9003] = f"2024:05:01 10:{minute:02d}:{second:02d}"
        with Image.open(path) as image:
            pixels = image.convert("RGB")
        pixels.save(path, "JPEG", quality=95, exif=exif)
    return photos


def test_a_burst_gets_one_label_on_request(bursts, few, encoder):
    # The first picture of the last burst of plums looks like an apple.
    with Image.open(bursts / "plum-4.png") as plum, Image.open(bursts / "apple-5.png") as apple:
        exif, image = plum.getexif(), apple.convert("RGB")
    image.save(bursts / "plum-4.png", "JPEG", quality=95, exif=exif)
    options = {"backbone": encoder, "device": "cpu", "n_workers": 0}
    alone = label_folder(bursts, few, **options)
    together = label_folder(bursts, few, burst=3, **options)
    labels = {row.path: row.label for row in alone.rows}
    assert labels["plum-4.png"] == "apple"
    labels = {row.path: row.label for row in together.rows}
    assert {labels[f"plum-{i}.png"] for i in range(4, 8)} == {"plum"}
    assert "24 photographs of 6 bursts" in " ".join(together.remarks)


def test_labels_of_a_burst_are_hidden_together(bursts, few, encoder, extraction, tmp_path):
    """Both labels of each class are of one burst: with one shown, the other is no test."""
    options = {"backbone": encoder, "device": "cpu", "n_workers": 0}
    found = label_folder(bursts, few, **options)
    assert found.estimate is None
    assert any("24 images are near-duplicates or a burst" in each for each in found.similar)
    session = open_session(tmp_path / "p", photos=bursts, labels=few, extraction=extraction)
    try:
        assert session.thorough().estimate is None
    finally:
        session.close()
    for path in bursts.glob("*.png"):  # without times nobody knows of bursts
        with Image.open(path) as image:
            image.convert("RGB").save(path, "JPEG", quality=95)
    found = label_folder(bursts, few, **options)
    assert found.estimate is not None
    assert found.estimate.n_hidden == 6


def test_a_burst_is_on_one_side_of_a_split(bursts, tmp_path):
    path = tmp_path / "all.csv"
    names = sorted(each.name for each in bursts.glob("*.png"))
    path.write_text("path,label\n" + "".join(f"{n},{n.split('-')[0]}\n" for n in names))
    export_labels(bursts, labels=path, to="csv", output=tmp_path / "o", split=(0.5, 0.5), near=1)
    with (tmp_path / "o" / "labels.csv").open() as file:
        splits = {row["path"]: row["split"] for row in csv.DictReader(file)}
    for name in names:
        first = name[:-5] + ("0.png" if name[-5] in "0123" else "4.png")
        assert splits[name] == splits[first]
    assert set(splits.values()) == {"train", "validation"}


def test_the_session_names_the_burst_of_a_picture(bursts, few, extraction, tmp_path):
    session = open_session(tmp_path / "p", photos=bursts, labels=few, extraction=extraction)
    try:
        names = session.collection.names
        rows = session.burst(names.index("leek-5.png"))
        assert [names[row] for row in rows] == [f"leek-{i}.png" for i in range(4, 8)]
    finally:
        session.close()
