"""`fewlabels label`, `next`, `predict` and `serve` as a person types them."""

import csv
import json
import shutil
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from fewlabels.backbones import build_backbone, save_backbone
from fewlabels.data import read_images
from fewlabels.features import FeatureSet
from fewlabels.labeling.project import Project

COLORS = {"apple": (200, 40, 40), "leek": (40, 170, 60)}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEWLABELS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def photos(tmp_path):
    rng = np.random.default_rng(0)
    for name, color in COLORS.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(6):
            pixels = np.clip(
                np.array(color) + rng.normal(scale=15, size=(32, 32, 3)), 0, 255
            ).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i}.png")
    (tmp_path / "few.csv").write_text(
        "path,label\n" + "".join(f"{name}/{i}.png,{name}\n" for name in COLORS for i in range(2))
    )
    return tmp_path / "photos"


@pytest.fixture
def backbone(tmp_path):
    transform = "resize(32) | crop(32) | normalize(0.5 0.5 0.5, 0.5 0.5 0.5)"
    path = tmp_path / "conv4.safetensors"
    save_backbone(
        path,
        build_backbone("conv4", image_size=32),
        name="conv4",
        options={"image_size": 32},
        transform=transform,
        provenance={},
    )
    return path


def test_everything_at_once(here, photos, backbone, tmp_path):
    done = here(
        *(
            "label",
            photos,
            "--labels",
            tmp_path / "few.csv",
            "--backbone",
            backbone,
            "--device",
            "cpu",
            "--truth",
            "folders",
        ),
        *(
            "--output",
            tmp_path / "out" / "labels.csv",
            "--report",
            tmp_path / "report.html",
            "--model",
            tmp_path / "m.safetensors",
        ),
        *(
            "--label-studio",
            tmp_path / "tasks.json",
            "--copy-to",
            tmp_path / "sorted",
            "--link-to",
            tmp_path / "linked",
        ),
    )
    assert done.code == 0, done.stderr
    assert "12 images, 2 classes: 4 labels given, 8 found." in done.stdout
    assert "8 of 8 right: 100.0 %" in done.stdout
    assert "; logistic regression 100.0 %, nearest class mean 100.0 %." in done.stdout
    assert f"Written: {tmp_path}/out/labels.csv" in done.stderr
    with (tmp_path / "out" / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(row["label"] == row["path"].split("/")[0] for row in rows)
    assert len(list((tmp_path / "sorted" / "apple").iterdir())) == 6
    assert len(json.loads((tmp_path / "tasks.json").read_text())) == 12
    model = ("--model", tmp_path / "m.safetensors")
    done = here("predict", photos / "leek" / "5.png", *model, "--device", "cpu")
    assert done.stdout.splitlines()[1].startswith(f"{photos}/leek/5.png,leek,")
    done = here("predict", photos, *model, "--json", "--device", "cpu")
    assert len(json.loads(done.stdout)) == 12


def test_json_says_the_same(here, photos, backbone, tmp_path):
    options = (
        "--labels",
        tmp_path / "few.csv",
        "--backbone",
        backbone,
        "--device",
        "cpu",
        "--output",
        tmp_path / "l.csv",
        "--json",
    )
    found = json.loads(
        here("label", photos, *options, "--truth", "folders", "--abstain", "1").stdout
    )
    assert (found["images"], found["given"], found["labelled"] + found["left_out"]) == (12, 4, 8)
    kept, left_out = found["labelled"], found["left_out"]
    rivals = ("right_logistic_regression", "right_nearest_class_mean")
    expected = {
        "right": kept,
        **(dict.fromkeys(rivals, kept) if kept else {}),
        "of": kept,
        "n_left_out": left_out,
        "other_classes": {},
    }
    assert found["score"] == expected
    assert found["features"]["fingerprint"]


def test_classes_that_no_label_names_are_counted_apart(here, photos, backbone, tmp_path):
    few = tmp_path / "few.csv"
    options = (
        "--labels",
        few,
        "--backbone",
        backbone,
        "--device",
        "cpu",
        "--output",
        tmp_path / "l.csv",
        "--truth",
        "folders",
    )
    few.write_text(few.read_text().replace(",leek", ",Lauch"))
    done = here("label", photos, *options)
    assert "4 of 4 right: 100.0 %" in done.stdout
    assert "4 images not scored, of classes without a label: 'leek' (4)." in done.stdout
    few.write_text(few.read_text().replace(",apple", ",Apfel"))
    done = here("label", photos, *options, "--report", tmp_path / "r.html")
    assert done.code == 0
    assert "right:" not in done.stdout
    assert (
        "8 images not scored, of classes without a label: 'apple' (4), 'leek' (4)." in done.stdout
    )


@pytest.fixture
def features_with_outliers(tmp_path):
    """Labels for four rows each of c0, c1 and c2; of ten rows each of c0 to c3."""
    from pyarrow import Table, parquet

    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), 10)
    vectors = rng.gamma(1.0, size=(4, 16))[truth] + 0.3 * rng.gamma(1.0, size=(40, 16))
    labels = [
        f"c{label}" if label < 3 and place % 10 < 4 else None for place, label in enumerate(truth)
    ]
    parquet.write_table(
        Table.from_pydict({"embedding": vectors.tolist(), "label": labels}), tmp_path / "f.parquet"
    )
    return tmp_path / "f.parquet"


def test_none_of_these(here, features_with_outliers, tmp_path):
    without = ("--output", tmp_path / "plain.csv", "--no-none-of-these")
    done = here("label", features_with_outliers, *without)
    assert "none of these" not in done.stdout
    assert "Estimated accuracy 1" in done.stdout
    done = here("label", features_with_outliers, "--output", tmp_path / "labels.csv")
    assert done.code == 0, done.stderr
    assert (
        "10 images look like none of these classes: sort by none_of_these to see them first."
        in done.stdout
    )
    assert "Estimated accuracy among the named classes 1" in done.stdout
    plain, rows = (
        list(csv.DictReader((tmp_path / name).read_text().splitlines()))
        for name in ("plain.csv", "labels.csv")
    )
    assert list(rows[0]) == [*plain[0], "none_of_these"]
    assert [{**row, "none_of_these": "0"} for row in rows] == [
        {**row, "none_of_these": "0"} for row in plain
    ]
    assert all(len(row["none_of_these"]) <= len("0.123") for row in rows)
    strange = [place for place, row in enumerate(rows) if float(row["none_of_these"]) >= 0.5]
    assert strange == list(range(30, 40))  # those of c3
    done = here(
        "label",
        features_with_outliers,
        "--output",
        tmp_path / "labels.csv",
        "--none-of-these",
        "--json",
    )
    assert json.loads(done.stdout)["none_of_these"] == 10
    assert "none_of_these" not in json.loads(
        here("label", features_with_outliers, *without, "--json").stdout
    )


def test_next(here, photos, backbone, tmp_path):
    done = here(
        "next",
        photos,
        "--labels",
        tmp_path / "few.csv",
        "--backbone",
        backbone,
        "--device",
        "cpu",
        "-n",
        3,
    )
    assert len(done.stdout.splitlines()) == 3
    assert "doubtful" in done.stderr
    found = json.loads(
        here(
            "next",
            photos,
            "--labels",
            tmp_path / "few.csv",
            "--backbone",
            backbone,
            "--device",
            "cpu",
            "-n",
            3,
            "--json",
        ).stdout
    )
    assert found["next"] == done.stdout.splitlines()


def test_features_without_labels_are_labelled_and_predicted(here, tmp_path):
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1], 10)
    np.save(
        tmp_path / "rows.npy",
        rng.gamma(1.0, size=(2, 8))[truth] + 0.1 * rng.gamma(1.0, size=(20, 8)),
    )
    (tmp_path / "few.csv").write_text("path,label\nrow 0,leek\nrow 10,plum\n")
    done = here(
        "label",
        tmp_path / "rows.npy",
        "--labels",
        tmp_path / "few.csv",
        "--output",
        tmp_path / "l.csv",
        "--model",
        tmp_path / "m.safetensors",
    )
    assert done.code == 0, done.stderr
    done = here("predict", tmp_path / "rows.npy", "--model", tmp_path / "m.safetensors")
    assert [row["label"] for row in csv.DictReader(done.stdout.splitlines())] == ["leek"] * 10 + [
        "plum"
    ] * 10


def test_features_in_parquet(here, tmp_path, make_file):
    from pyarrow import Table, parquet

    with np.load(make_file(n_classes=3)) as arrays:
        vectors, truth = arrays["features"], arrays["labels"]
    labels = [f"c{label}" if place % 20 < 3 else None for place, label in enumerate(truth)]
    names = [f"img/{i}.jpg" for i in range(len(truth))]
    parquet.write_table(
        Table.from_pydict({"embedding": vectors.tolist(), "label": labels, "path": names}),
        tmp_path / "f.parquet",
    )
    done = here("label", tmp_path / "f.parquet", "--output", tmp_path / "labels.parquet")
    assert done.code == 0, done.stderr
    rows = parquet.read_table(tmp_path / "labels.parquet").to_pylist()
    assert len(rows) == 60
    assert (
        np.mean([row["label"] == f"c{label}" for row, label in zip(rows, truth, strict=True)]) > 0.8
    )


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ("path,label\napple/0.png,apple\napple/1.png,apple\n", "at least two classes"),
        ("path,label\napple/0.png,\n", "no labels to learn from"),
        ("path,label\napple/0.png,apple\nnowhere.png,leek\n", "line 3: nowhere.png"),
        ("path,label\napple/0.png,apple\napple/0.png,leek\n", "lines 2 and 3"),
    ],
)
def test_bad_labels_end_in_words(here, photos, backbone, tmp_path, labels, words):
    (tmp_path / "bad.csv").write_text(labels)
    done = here(
        "label",
        photos,
        "--labels",
        tmp_path / "bad.csv",
        "--backbone",
        backbone,
        "--device",
        "cpu",
        "--output",
        tmp_path / "x.csv",
    )
    assert done.code == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x.csv").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--output", "x.txt"), "must end in .csv or .parquet"),
        (("--output", "photos"), "must end in .csv"),
        (("--output", "few.csv/x.csv"), "cannot be written"),
        (("--report", "photos"), "is a folder"),
        (("--report", "r.pdf"), "--report must end in .html, got 'r.pdf'"),
        (("--label-studio", "photos/apple/0.png"), "--label-studio must end in .json"),
        (("--model", "m.bin"), "--model must end in .safetensors"),
        (("--label-studio", "few.csv/x.json"), "cannot be written"),
        (("--copy-to", "photos/sorted"), "--copy-to must not lie inside"),
        (("--copy-to", "few.csv/sorted"), "cannot be written"),
        (("--truth", "nowhere.csv"), "--truth must be 'folders' or a CSV file"),
        (("--abstain", "90"), "--abstain must be a confidence from 0 to 1"),
    ],
)
def test_what_cannot_work_is_refused_before_the_work(
    here, photos, tmp_path, monkeypatch, options, words
):
    monkeypatch.chdir(tmp_path)
    done = here("label", "photos", "--labels", "few.csv", "--backbone", "never-reached", *options)
    assert done.code == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_features_cannot_be_copied_into_folders(here, make_file, tmp_path, monkeypatch):
    project = tmp_path / "p"
    Project.create(
        project, FeatureSet.from_arrays([[1.0, 2.0], [2.0, 1.0]], [-1, -1], []), title="p"
    ).close()
    monkeypatch.setattr(
        "fewlabels.features.readers.READERS", {}
    )  # whoever reads the file reads it too early
    for photos in (make_file(), project):
        done = here(
            "label", photos, "--output", tmp_path / "x.csv", "--copy-to", tmp_path / "sorted"
        )
        assert done.code == 2
        assert "--copy-to needs a folder of images, got features only" in done.stderr


def test_parquet_without_pyarrow_is_refused_before_the_work(here, photos, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    done = here(
        "label",
        photos,
        "--labels",
        tmp_path / "few.csv",
        "--backbone",
        "never-reached",
        "--output",
        tmp_path / "x.parquet",
    )
    assert done.code == 2
    assert "pip install 'fewlabels[parquet]'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("photos", "--labels", "labels.csv"),
            "--output must not be labels.csv, which is --labels",
        ),
        (("photos", "--labels", "few.csv", "--output", "photos/../few.csv"), "which is --labels"),
        (("photos", "--labels", "few.csv", "--output", "link.csv"), "which is --labels"),
        (("photos", "--labels", "few.csv", "--truth", "labels.csv"), "which is --truth"),
        (
            ("photos", "--labels", "few.csv", "--output", "x.csv", "--report", "x.csv"),
            "--report must not be x.csv, which is --output",
        ),
        (
            ("photos", "--labels", "few.csv", "--copy-to", "sorted", "--link-to", "./sorted"),
            "--link-to must not be sorted",
        ),
        (
            ("f.safetensors", "--model", "f.safetensors"),
            "--model must not be f.safetensors, which is PHOTOS",
        ),
        (("p", "--model", "p/features.safetensors"), "which is PHOTOS"),
        (
            ("photos", "--backbone", "conv4.safetensors", "--model", "conv4.safetensors"),
            "which is --backbone",
        ),
    ],
)
def test_no_input_and_no_other_output_is_overwritten(
    here, photos, backbone, tmp_path, monkeypatch, arguments, words
):
    monkeypatch.chdir(tmp_path)
    for name in ("labels.csv", "f.safetensors"):
        (tmp_path / name).write_bytes((tmp_path / "few.csv").read_bytes())
    (tmp_path / "link.csv").symlink_to("few.csv")
    FeatureSet.from_arrays([[1.0, 2.0], [2.0, 1.0]], [-1, -1], []).save(tmp_path / "f.safetensors")
    Project.create(tmp_path / "p", FeatureSet.load(tmp_path / "f.safetensors"), title="p").close()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = here("label", *arguments)
    assert done.code == 2
    assert words in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_images_that_cannot_be_read_are_said_in_one_line(here, photos, backbone, tmp_path):
    (photos / "leek" / "broken.png").write_bytes(b"nothing")
    options = (
        "--labels",
        tmp_path / "few.csv",
        "--backbone",
        backbone,
        "--device",
        "cpu",
        "--output",
        tmp_path / "l.csv",
    )
    done = here("label", photos, *options, "--model", tmp_path / "m.safetensors")
    assert done.code == 0
    assert "UserWarning" not in done.stderr
    assert done.stderr.count("broken.png") == 2  # the list and the reason, on one line
    done = here(
        "predict",
        photos / "leek" / "broken.png",
        photos / "leek" / "0.png",
        "--model",
        tmp_path / "m.safetensors",
        "--device",
        "cpu",
    )
    assert len(done.stdout.splitlines()) == 2
    assert "broken.png" in done.stderr
    assert "UserWarning" not in done.stderr


def test_the_photos_are_left_alone(here, photos, backbone, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in photos.rglob("*")}
    options = (
        "--labels",
        tmp_path / "few.csv",
        "--backbone",
        backbone,
        "--device",
        "cpu",
        "--output",
        tmp_path / "l.csv",
    )
    assert here("label", photos, *options, "--report", tmp_path / "r.html").code == 0
    assert {path: path.stat().st_mtime_ns for path in photos.rglob("*")} == before


def test_a_class_of_one_and_nothing_left(here, photos, backbone, tmp_path):
    options = ("--backbone", backbone, "--device", "cpu", "--output", tmp_path / "x.csv")
    (tmp_path / "one.csv").write_text("path,label\napple/0.png,apple\nleek/0.png,leek\n")
    done = here("label", photos, "--labels", tmp_path / "one.csv", *options)
    assert done.code == 0
    assert "Only one label each for 'apple', 'leek'" in done.stderr
    done = here("label", photos, *options)  # sub-folders: every image has a label
    assert done.code == 0
    assert "nothing left to label" in done.stderr


def test_a_backbone_that_would_have_no_effect_is_refused(
    here, photos, backbone, tmp_path, make_file
):
    options = ("--output", tmp_path / "x.csv", "--backbone")
    done = here("label", make_file(), *options, "nonsense")
    assert done.code == 2
    assert "--backbone must be left out for" in done.stderr
    assert "holds features already, got 'nonsense'" in done.stderr
    images = read_images(photos)
    features = FeatureSet.from_arrays(
        np.random.default_rng(0).gamma(1.0, size=(12, 4)), [-1] * 12, [], names=images.names
    )
    with Project.create(
        tmp_path / "p", features, title="p", root=photos, backbone="conv4"
    ) as project:
        project.journal.decide({"apple/0.png": "apple", "leek/0.png": "leek"}, origin="person")
    for command in (
        ("label", tmp_path / "p", *options),
        ("next", tmp_path / "p", "--backbone"),
        ("serve", tmp_path / "p", "--backbone"),
    ):
        done = here(*command, "resnet18")
        assert done.code == 2
        assert "a project of features by conv4, got 'resnet18'" in done.stderr
    assert here("label", tmp_path / "p", *options, "conv4").code == 0


def test_next_says_when_nothing_is_left(here, photos, backbone):
    done = here(
        "next", photos, "--backbone", backbone, "--device", "cpu"
    )  # sub-folders: every image has a label
    assert done.code == 0
    assert done.stdout == ""
    assert "Every image has a label" in done.stderr
    (photos / "leek").rename(photos / "apple" / "more")  # one class only
    done = here("next", photos, "--backbone", backbone, "--device", "cpu", "--json")
    assert json.loads(done.stdout) == {
        "next": [],
        "advice": "Every image has a label: there is none to label next.",
    }


def test_guesses_are_not_labels_the_next_time(here, photos, backbone, tmp_path):
    options = ("--backbone", backbone, "--device", "cpu", "--output")
    assert (
        here(
            "label", photos, "--labels", tmp_path / "few.csv", *options, tmp_path / "first.csv"
        ).code
        == 0
    )
    done = here(
        "label", photos, "--labels", tmp_path / "first.csv", *options, tmp_path / "second.csv"
    )
    assert "4 labels given, 8 found" in done.stdout
    assert "8 rows of origin 'model' are predictions of fewlabels" in done.stderr
    assert (tmp_path / "second.csv").read_text() == (tmp_path / "first.csv").read_text()
    lines = (tmp_path / "first.csv").read_text().splitlines()
    (tmp_path / "guesses.csv").write_text("\n".join(line for line in lines if "import" not in line))
    done = here(
        "label", photos, "--labels", tmp_path / "guesses.csv", *options, tmp_path / "third.csv"
    )
    assert done.code == 2
    assert "no labels to learn from" in done.stderr
    assert "8 rows of origin 'model'" in done.stderr


def test_serve_refuses_in_words(here, tmp_path, photos):
    done = here("serve", tmp_path / "p")
    assert done.code == 2
    assert "does not exist" in done.stderr
    (tmp_path / "p").mkdir()
    done = here("serve", tmp_path / "p")
    assert done.code == 2
    assert "begin the project with --photos" in done.stderr
    (tmp_path / "new").mkdir()
    with sqlite3.connect(tmp_path / "new" / "project.sqlite") as db:
        db.execute(f"PRAGMA application_id = {0x70746D70}")
        db.execute("PRAGMA user_version = 7")
        db.execute("CREATE TABLE about (key, value)")
    db.close()
    done = here("serve", tmp_path / "new")
    assert done.code == 2
    assert "version 7" in done.stderr


def test_methods_and_knobs_from_the_command_line(here, make_file, tmp_path):
    few = tmp_path / "few.csv"
    few.write_text(
        "path,label\n" + "".join(f"row {20 * c + i},c{c}\n" for c in (0, 1) for i in (0, 1))
    )
    options = ("--labels", few, "--output", tmp_path / "l.csv", "--json")
    features = make_file(n_classes=2)
    method = ("--method", "map-folder")
    found = json.loads(here("label", features, *options, *method, "--set", "lam=30").stdout)
    assert found["lam"] == 30
    assert found["method"] == "map-folder"
    default = json.loads(here("label", features, *options).stdout)["method"]
    assert default == "folder"
    assert here("label", features, *options, "--method", default).code == 0
    for command in (
        ("label", features, *options),
        ("next", features, "--labels", few),
        ("serve", tmp_path / "p", "--photos", features, "--labels", few),
    ):
        done = here(*command, "--method", "nonsense")
        assert done.code == 2
        assert "--method must be one of" in done.stderr
        done = here(*command, "--set", "nonsense=3")
        assert done.code == 2
        assert "method 'folder' has no knobs, got 'nonsense'. Leave it out" in done.stderr
        done = here(*command, "--set", "lam")
        assert done.code == 2
        assert "--set must be KNOB=VALUE" in done.stderr


def test_label_ends_with_the_command_that_goes_on(here, photos, backbone, tmp_path):
    few = tmp_path / "few.csv"
    done = here(
        *("label", photos, "--labels", few, "--backbone", backbone),
        *("--device", "cpu", "-o", tmp_path / "out.csv"),
    )
    assert "-o" in here("label", "-h").stdout
    command = f"fewlabels serve {photos} --labels {few} --backbone {backbone}"
    assert done.stderr.splitlines()[-2].startswith("Next, ")
    assert done.stderr.splitlines()[-1].strip() == command  # in one line, to copy
    (tmp_path / "boxes.csv").write_text(
        "path,x,y,w,h,label\n"
        + "".join(f"{name}/{i}.png,0,0,8,8,{name}\n" for name in COLORS for i in range(2))
    )
    done = here(
        *("label", photos, "--boxes", tmp_path / "boxes.csv", "--backbone", backbone),
        *("--sub-classes", "/", "--device", "cpu", "-o", tmp_path / "crops.csv"),
    )
    command = (
        f"fewlabels serve {photos} --backbone {backbone} --sub-classes / "
        f"--boxes {tmp_path / 'boxes.csv'}"
    )
    assert done.stderr.splitlines()[-1].strip() == command
    done = here(
        *("next", photos, "--boxes", tmp_path / "boxes.csv", "--backbone", backbone),
        *("--device", "cpu", "-n", 1, "--json"),
    )
    assert json.loads(done.stdout)["next"] == []  # all crops have a label


def test_a_path_that_does_not_exist_is_refused_before_torch_is_imported():
    code = """
import sys
from fewlabels.cli import app
place = "/no/such/place"
commands = [[name, place] for name in (
    "label", "serve", "next", "doctor", "evaluate", "tune", "leaderboard", "extract", "check"
)]
commands += [
    ["tune", sys.executable, "--novel", place],
    ["evaluate", sys.executable + "+" + place],
    ["predict", place, "--model", sys.executable],
    ["watch", place, "--model", sys.executable],
    ["export", place, "--to", "csv", "-o", "out"],
    ["train", place, "-o", "out"],
    ["data", "check", place],
]
for command in commands:
    try:
        app(command, standalone_mode=False)
    except BaseException as error:
        assert getattr(error, "exit_code", None) == 2, error
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("/no/such/place does not exist.") == 16


def test_export(here, photos, tmp_path):
    (tmp_path / "labels.csv").write_text(
        "path,label,origin\n"
        + "".join(f"{name}/{i}.png,{name},model\n" for name in COLORS for i in range(6))
    )
    words = ("export", photos, "--labels", tmp_path / "labels.csv", "--near", "1")
    done = here(*words, "--to", "ultralytics", "--split", "0.5,0.5", "-o", tmp_path / "yolo")
    assert "12 images written" in done.stdout
    assert "train 6, validation 6" in done.stdout
    assert len(list((tmp_path / "yolo" / "val" / "leek").iterdir())) == 3
    wrong = here(*words, "--to", "csv", "-o", tmp_path / "o", "--split", "half")
    assert wrong.code == 2
    assert "--split must be numbers" in wrong.stderr
    wrong = here(*words, "--to", "yolo", "-o", tmp_path / "o")
    assert "--to must be one of imagefolder" in wrong.stderr
    (tmp_path / "t.csv").write_text("photo,kind,e0,e1\na,leek,1,2\nb,,2,1\n")
    table = ("export", tmp_path / "t.csv", "--to", "csv", "-o", tmp_path / "table")
    done = here(*table, "--column", "name=photo", "--column", "label=kind")
    assert "2 rows written" in done.stdout
    assert "a,leek," in (tmp_path / "table" / "labels.csv").read_text()


def test_move_and_undo(here, photos, tmp_path):
    before = {path: path.read_bytes() for path in photos.rglob("*.png")}
    words = ("move", photos, "-o", tmp_path / "sorted")
    done = here(*words, "--dry-run")
    assert f"{photos / 'leek' / '0.png'} -> {tmp_path / 'sorted' / 'leek' / '0.png'}" in done.stdout
    assert "12 files would move: apple 6, leek 6." in done.stdout
    done = here(*words)
    assert "12 files moved: apple 6, leek 6." in done.stdout
    assert not list(photos.rglob("*.png"))
    (journal,) = (tmp_path / "sorted").glob("*.jsonl")
    assert str(journal) in done.stdout
    assert "12 files at the new place" in here("undo", journal, "--finish").stdout
    assert "12 files at the old place" in here("undo", journal).stdout
    assert {path: path.read_bytes() for path in photos.rglob("*.png")} == before
    assert here("undo", journal).code == 2


def test_undo_takes_the_folder_and_its_last_moves_first(here, photos, tmp_path):
    labels, place = tmp_path / "labels.csv", tmp_path / "sorted"
    place.mkdir()
    refused = here("undo", place)
    assert (refused.code, "got none. Nothing was moved there" in refused.stderr) == (2, True)
    names = sorted(str(path.relative_to(photos)) for path in photos.rglob("*.png"))
    for n in (3, 5):  # photographs that are moved, then those of the rest
        labels.write_text("path,label\n" + "".join(f"{name},a\n" for name in names[:n]))
        assert here("move", photos, "--labels", labels, "-o", place).code == 0
        names = names[n:]
    assert "5 files at the old place" in here("undo", place).stdout
    assert "3 files at the old place" in here("undo", place).stdout
    assert len(list(photos.rglob("*.png"))) == 8 + len(names)


def test_remarks_and_refusals_name_options_and_archives_a_way_out(here, tmp_path):
    rng = np.random.default_rng(0)
    for number in range(8):
        folder = tmp_path / "photos" / "fruit" / ("apple" if number % 2 else "plum")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    done = here("label", tmp_path / "photos", "--output", tmp_path / "labels.csv")
    assert done.code == 0, done.stderr
    assert "--class-from 1 takes the first folder, --class-from path all" in done.stderr
    (tmp_path / "rows.csv").write_text("id,label,e0,e1\na,x,1,2\na,y,2,1\nb,,1,1\n")
    done = here("label", tmp_path / "rows.csv", "--output", tmp_path / "labels.csv")
    assert done.code == 2
    assert "got 'a' more than once. Choose another with --column name=COLUMN." in done.stderr
    (tmp_path / "rows.csv").write_text("id,species,e0,e1\na,x,1,2\nc,y,2,1\nb,,1,1\n")
    done = here("label", tmp_path / "rows.csv")
    assert done.code == 2
    assert "rows.csv has no column 'label', but id, species, e0, e1." in done.stderr
    assert "Name it with --column label=COLUMN." in done.stderr
    done = here("label", tmp_path / "labels.csv")
    assert done.code == 2
    assert "--column embedding=COLUMN or --column text=COLUMN. Or is it a file of" in done.stderr
    assert "`fewlabels label PHOTOS --labels FILE` takes it." in done.stderr
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "photos")
    for command in ("label", "serve", "next"):
        done = here(command, archive)
        assert done.code == 2
        assert "packed.zip is not a folder of images. Not read: 1 .zip file; unpack" in done.stderr
