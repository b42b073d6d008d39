"""Boxes: each crop is an item, whatever file tells them."""

import io
import json
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from fewlabels import label_folder
from fewlabels.data import read_images
from fewlabels.errors import FewLabelsError, FileFormatError, InputError
from fewlabels.features import FeatureSet
from fewlabels.features.store import FeatureStore
from fewlabels.labeling.boxes import crop_images
from fewlabels.labeling.collection import Extraction
from fewlabels.labeling.exports import export_labels, format_names
from fewlabels.labeling.session import open_session
from fewlabels.labeling.thumbnails import Thumbnails

COLORS = {"red": (200, 30, 30), "green": (30, 180, 30), "blue": (30, 30, 200)}
LEFT = {"red": 0, "green": 20, "blue": 40}  # of stripes of 20 pixels


@pytest.fixture
def scenes(tmp_path):
    """Six pictures of three stripes, the last one turned by its EXIF tag."""
    for number in range(6):
        noise = np.random.default_rng(number).normal(scale=12, size=(24, 60, 3))
        pixels = np.repeat(np.array(list(COLORS.values())), 20, axis=0)[None] + noise
        image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
        exif = Image.Exif()
        if number == 5:
            image, exif[0x0112] = image.transpose(Image.Transpose.ROTATE_90), 6
        (tmp_path / "scenes" / "a").mkdir(parents=True, exist_ok=True)
        image.save(tmp_path / "scenes" / "a" / f"{number}.png", exif=exif)
    return tmp_path / "scenes"


def write(form, path, names=range(6)):
    """All stripes, with a label in the first two pictures; returns the names of the items."""
    stripes = [(f"a/{name}.png", color) for name in names for color in COLORS]
    if form == "coco":
        content = {
            "images": [{"id": name, "file_name": f"a/{name}.png"} for name in names],
            "annotations": [
                {
                    "id": 100 + row,
                    "image_id": int(file[2]),
                    "bbox": [LEFT[color], 0, 20, 24],
                    "category_id": list(COLORS).index(color) + 1 if file < "a/2" else 0,
                }
                for row, (file, color) in enumerate(stripes)
            ],
            "categories": [{"id": row + 1, "name": name} for row, name in enumerate(COLORS)],
        }
        path.write_text(json.dumps(content))
        return {f"{file}#{100 + row}": color for row, (file, color) in enumerate(stripes)}
    if form == "megadetector":
        images = [
            {
                "file": f"a/{name}.png",
                "detections": [
                    {"category": "1", "conf": 0.9, "bbox": [left / 60, 0.0, 1 / 3, 1.0]}
                    for left in LEFT.values()
                ]
                + [{"category": "1", "conf": 0.1, "bbox": [0, 0, 1, 1]}],
            }
            for name in names
        ] + [{"file": "a/9.png", "failure": "cannot be opened", "detections": None}]
        path.write_text(json.dumps({"images": images, "detection_categories": {"1": "animal"}}))
    else:
        lines = ["path,x1,y1,x2,y2,label" if form == "corners" else "file;X;Y;Width;Height;label"]
        for file, color in stripes:
            left, label = LEFT[color], color if file < "a/2" else ""
            cells = (left, 0, left + 20, 24) if form == "corners" else (left, 0, 20, 24)
            lines.append((";,"[form == "corners"]).join(map(str, (file, *cells, label))))
        path.write_text("\n".join(lines) + "\n")
    return {f"{file}#{list(COLORS).index(color)}": color for file, color in stripes}


@pytest.mark.parametrize("form", ["coco", "megadetector", "corners", "sizes"])
def test_each_crop_is_an_item(scenes, tmp_path, form, encoder):
    path = tmp_path / ("boxes.csv" if form in ("corners", "sizes") else "boxes.json")
    colors = write(form, path)
    cropped = crop_images(read_images(scenes), path)
    assert cropped.images.names == tuple(colors)
    for row, name in enumerate(cropped.images.names):
        pixels = np.asarray(cropped.images.read(row))
        assert pixels.shape == (24, 20, 3)
        assert np.abs(pixels.mean(axis=(0, 1)) - COLORS[colors[name]]).max() < 15
    labels = None
    if form == "megadetector":
        assert any("6 detections with confidence below 0.2" in each for each in cropped.remarks)
        labels = tmp_path / "few.csv"
        rows = [f"{name},{color}" for name, color in colors.items() if name < "a/2"]
        labels.write_text("\n".join(["path,label", *rows]))
    outcome = label_folder(scenes, labels, boxes=path, backbone=encoder, device="cpu", n_workers=0)
    assert {row.path: row.label for row in outcome.rows} == colors
    assert sum(row.origin == "import" for row in outcome.rows) == 6


def test_boxes_that_are_not_in_the_image(scenes, tmp_path):
    (tmp_path / "b.csv").write_text(
        "path,x,y,w,h,id\na/1.png,-5,0,20,20,one\na/1.png,60,0,20,20,two\na/1.png,5,5,0,9,three\n"
        "a/7.png,0,0,9,9,four\n"
    )
    cropped = crop_images(read_images(scenes), tmp_path / "b.csv")
    assert cropped.images.names == ("a/1.png#one",)
    assert cropped.images.read(0).size == (15, 20)
    assert [each.name for each in cropped.images.problems] == ["a/1.png#two", "a/1.png#three"]
    said = " ".join(cropped.remarks)
    assert "1 box cut at the edge" in said
    assert "1 box of images that are not there left out: a/7.png" in said
    assert "5 images without a box left out" in said


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("b.csv", "path,x,y\na/1.png,1,1\n", "columns must be path and x, y, width, height"),
        ("b.csv", "path,x,y,w,h\na/1.png,1,1,one,2\n", "line 2: w must be a number, got 'one'"),
        ("b.csv", "path,x,y,w,h\nb/1.png,1,1,1,2\n", "got 1 box of b/1.png"),
        (
            "b.csv",
            "path,x,y,w,h,id\na/1.png,1,1,8,9,7\na/2.png,1,1,8,9,7\na/1.png,3,3,9,9,7\n",
            r"b.csv must give .* different ids, got '7' more than once for a/1.png",
        ),
        ("b.json", "[]", "object with a list 'images'"),
        ("b.json", "{", "cannot be read"),
        ("b.json", '{"images": [{"file": "x", "detections": [{"bbox": [1]}]}]}', "x, detection 0"),
        ("b.txt", "", "must end in .csv or .json"),
    ],
)
def test_files_that_hold_no_boxes(scenes, tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(FewLabelsError, match=words):
        crop_images(read_images(scenes), tmp_path / name)
    with pytest.raises(FileFormatError, match="does not exist"):
        crop_images(read_images(scenes), tmp_path / "no.csv")


def test_labels_of_crops_go_out_without_a_project(scenes, tmp_path, encoder, monkeypatch):
    monkeypatch.setenv("FEWLABELS_CACHE", str(tmp_path / "cache"))
    write("csv", tmp_path / "boxes.csv")
    table, boxes = tmp_path / "labels.csv", tmp_path / "boxes.csv"
    how = {"backbone": encoder, "device": "cpu"}
    outcome = label_folder(scenes, boxes=boxes, output=table, n_workers=0, **how)
    labels = {row.path: row.label for row in outcome.rows}
    with pytest.raises(InputError, match=r"none of its 18 paths is .* give boxes=FILE"):
        export_labels(scenes, labels=table, to="csv", output=tmp_path / "whole")
    export_labels(
        scenes,
        labels=table,
        boxes=boxes,
        to="imagefolder",
        output=tmp_path / "o",
        split=(0.5, 0.5),
        **how,
    )
    pictures = list((tmp_path / "o").glob("*/*/*.jpg"))
    assert Counter(path.parent.name for path in pictures) == Counter(labels.values())
    with Image.open(pictures[0]) as image:
        assert image.size == (20, 24)
    done = export_labels(scenes, boxes=boxes, to="csv", output=tmp_path / "own")
    assert sum(done.counts.values()) == 18
    FeatureSet.from_arrays(np.eye(2), ["a", "b"]).save(tmp_path / "f.safetensors")
    with pytest.raises(InputError, match=r"boxes needs a folder of images, got .*f\.safetensors"):
        export_labels(tmp_path / "f.safetensors", boxes=boxes, to="csv", output=tmp_path / "no")


def test_crops_are_a_project_too(scenes, tmp_path, encoder, monkeypatch):
    monkeypatch.setenv("FEWLABELS_CACHE", str(tmp_path / "cache"))
    write("csv", tmp_path / "boxes.csv")
    how = Extraction(backbone=encoder, device="cpu", n_workers=0, store=FeatureStore())
    session = open_session(
        tmp_path / "p", photos=scenes, boxes=tmp_path / "boxes.csv", extraction=how, person="anna"
    )
    names = session.collection.names
    assert len(names) == 18
    assert len(session.state.given) == 6
    session.close()
    session = open_session(  # the command that began the project, once more
        tmp_path / "p", photos=scenes, boxes=tmp_path / "boxes.csv", extraction=how, person="anna"
    )
    session.decide([names.index("a/3.png#0")], "crimson")
    session.close()
    (tmp_path / "boxes.csv").unlink()  # the project has a copy
    scenes.rename(tmp_path / "elsewhere")
    session = open_session(tmp_path / "p", photos=tmp_path / "elsewhere", extraction=how)
    try:
        assert session.collection.names == names
        assert session.state.given["a/3.png#0"].label == "crimson"
        thumbnails = Thumbnails(session.collection, tmp_path / "thumbnails")
        for name in ("a/0.png#1", "a/5.png#1"):  # the last one is turned
            row = names.index(name)
            with Image.open(io.BytesIO(thumbnails.get(row))) as image:
                color = np.asarray(image.convert("RGB")).mean(axis=(0, 1))
            assert int(color.argmax()) == 1
            with Image.open(io.BytesIO(thumbnails.preview(row))) as image:
                assert image.size == (20, 24)
        assert len({thumbnails.tag(row) for row in range(3)}) == 3
        session.keep_answer()
    finally:
        session.close()
    outcome = label_folder(tmp_path / "p", output=tmp_path / "labels.csv")
    assert {row.path: row.label for row in outcome.rows}["a/3.png#0"] == "crimson"
    for form in format_names():  # each crop is a picture of its own
        done = export_labels(tmp_path / "p", to=form, output=tmp_path / form)
        assert sum(done.counts.values()) == 18
    pictures = sorted((tmp_path / "imagefolder" / "crimson").iterdir())
    assert [path.name for path in pictures] == ["3.png-0.jpg"]
    with Image.open(pictures[0]) as image:
        assert image.size == (20, 24)
        assert np.asarray(image).mean(axis=(0, 1)).argmax() == 0
    with pytest.raises(FewLabelsError, match="boxes must be left out"):
        open_session(tmp_path / "p", boxes=tmp_path / "labels.csv", extraction=how)


def coco(**image) -> str:
    annotation = {"id": 1, "image_id": 1, "bbox": [0, 0, 9, 9]}
    annotation |= {key: image.pop(key) for key in ("id", "bbox") if key in image}
    return json.dumps({"images": [{"id": 1, **image}], "annotations": [annotation]})


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "path,x,y,width,height,id\na/1.png,0,0,9,9,/../../x.png\n", "id of a box must"),
        ("a.csv", "path,x,y,width,height,id\na/1.png,0,0,9,9,..\\x\n", "id of a box must"),
        ("a.json", coco(file_name="a/1.png", id="../../../x"), "id of a box must"),
        ("a.json", coco(file_name=5), "path of an image must be text"),
        ("a.csv", "path,x,y,width,height\na/1.png,1e308,0,1e308,9\n", "boxes inside images"),
        (
            "a.json",
            json.dumps({"images": [{"file": ["x"], "detections": [{"bbox": [0, 0, 1, 1]}]}]}),
            "path of an image must be text",
        ),
    ],
)
def test_hostile_boxes_are_refused(scenes, tmp_path, name, text, words):
    """An id with slashes would be written outside the output of an export."""
    (tmp_path / name).write_text(text)
    with pytest.raises(FewLabelsError, match=words):
        crop_images(read_images(scenes), tmp_path / name)
