"""The check finds what is wrong, and only that."""

import json
import pickle
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from fewlabels.data import BENCHMARKS, Problem
from fewlabels.data.checking import check_survey
from fewlabels.data.survey import survey_folder
from fewlabels.errors import FileFormatError, InputError


def check(folder, **options):
    return check_survey(survey_folder(folder, **options))


@pytest.fixture
def folder(write, tmp_path):
    for name in ("leek", "kaiser"):
        for number in range(16):
            write(f"{name}/{number}.png", seed=number, width=8 + number)
    return tmp_path


def test_a_good_folder_has_no_problems(folder):
    report = check(folder)
    assert (report.problems, report.remarks, report.dataset, report.form) == (
        (),
        (),
        None,
        "plain folder",
    )
    (split,) = report.splits
    assert split[:4] == ("all", 2, 32, 0)
    assert (split.class_sizes, split.sides, split.expected_images) == ((16, 16), (6, 23), None)


def test_every_fault_is_named(folder, write):
    write("leek/empty.png", content=b"")
    write("leek/text.png", content=b"hello")
    whole = write("leek/cut.png", width=40, height=40).read_bytes()
    write("leek/cut.png", content=whole[: len(whole) // 2])
    write("one/x.png")
    write("few/x.png")
    write("few/y.png")
    write("loose.png")
    report = check(folder)
    assert [problem.name for problem in report.problems] == [
        "leek/cut.png",
        "leek/empty.png",
        "leek/text.png",
        "one",
    ]
    assert report.problems[0].reason.startswith("it is cut off: ")
    assert [str(remark) for remark in report.remarks] == [
        "few: 2 images, fewer than the 16 per class of a usual 1-shot episode",
        f"{folder.name}: unlabelled images beside the class folders: 1",
    ]
    assert json.loads(json.dumps(report.to_dict()))["problems"][3] == report.problems[3]._asdict()


def test_progress_covers_every_image(folder):
    done = []
    survey = survey_folder(folder)
    check_survey(survey, on_progress=done.append)
    assert sum(done) == len(survey) == 32


def test_splits_of_ones_own_must_not_share_classes(folder):
    (folder / "base").mkdir()
    for name in ("leek", "kaiser"):
        (folder / name).rename(folder / "base" / name)
    novel = folder / "novel" / "leek"
    novel.mkdir(parents=True)
    for number in range(20):
        Image.new("RGB", (5, 5)).save(novel / f"{number}.png")
    (novel / "bad.png").write_bytes(b"x")
    report = check(folder)
    assert [split.split for split in report.splits] == ["base", "novel"]
    assert set(report.problems) == {
        Problem("leek", "the class is in base and in novel"),
        Problem("novel/leek/bad.png", "it is damaged, or not of a known image format"),
    }


def make_cub(root, fill_class):
    for name in BENCHMARKS["cub"].split_classes("all"):
        (root / name).mkdir(parents=True)
        fill_class(root / name)


@pytest.fixture
def cub(tmp_path):
    image = Image.new("RGB", (4, 4))
    make_cub(tmp_path / "birds", lambda folder: image.save(folder / "x.png"))
    return tmp_path / "birds"


def test_a_benchmark_is_recognised_and_counted(cub):
    report = check(cub)
    assert (report.dataset, report.form) == ("cub", "class folders")
    assert [
        (split.n_classes, split.expected_classes, split.expected_images) for split in report.splits
    ] == [
        (100, 100, 5_885),
        (50, 50, 2_950),
        (50, 50, 2_953),
    ]
    assert [str(problem) for problem in report.problems] == [
        "base: 100 images where the literature counts 5,885",
        "novel: 50 images where the literature counts 2,953",
        "val: 50 images where the literature counts 2,950",
    ]


def test_a_benchmark_with_missing_and_damaged_parts_is_still_recognised(cub):
    classes = BENCHMARKS["cub"].classes["base"]
    (cub / classes[0] / "x.png").unlink()
    (cub / classes[1] / "x.png").write_bytes(b"x")
    problems = {str(problem) for problem in check(cub).problems}
    assert "base: 99 classes where the literature counts 100" in problems
    assert f"{classes[1]}/x.png: it is damaged, or not of a known image format" in problems


def test_other_folders_are_not_taken_for_a_benchmark(folder, write):
    for name in ("bed", "bee"):  # two classes of CIFAR-FS among others
        write(f"{name}/x.png")
    assert check(folder).dataset is None
    with pytest.raises(FileFormatError, match="must hold CUB in one of these forms"):
        check(folder, dataset="cub")
    with pytest.raises(FileFormatError, match="does not exist"):
        check(folder / "nowhere")


def test_what_fits_two_benchmarks_must_be_named(tmp_path):
    for name in BENCHMARKS["fc100"].split_classes("all"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (4, 4)).save(tmp_path / name / "x.png")
    with pytest.raises(
        InputError, match=r"can be read as cifar-fs or as fc100\. .*dataset='cifar-fs'"
    ):
        check(tmp_path)
    assert check(tmp_path, dataset="fc100").dataset == "fc100"


def test_split_folders_tell_two_benchmarks_apart(tmp_path):
    for split, names in BENCHMARKS["fc100"].classes.items():
        for name in names:
            (tmp_path / split / name).mkdir(parents=True)
            Image.new("RGB", (4, 4)).save(tmp_path / split / name / "x.png")
    assert survey_folder(tmp_path).form.benchmark.name == "fc100"


def test_pickles_of_which_some_are_missing_are_named_once(tmp_path):
    names = BENCHMARKS["mini-imagenet"].classes["val"]
    content = {
        "image_data": np.zeros((16, 4, 4, 3), np.uint8),
        "class_dict": {name: [row] for row, name in enumerate(names)},
    }
    (tmp_path / "mini-imagenet-cache-val.pkl").write_bytes(pickle.dumps(content))
    report = check(tmp_path)
    assert (report.dataset, report.form) == ("mini-imagenet", "cache pickles")
    assert [split.n_images for split in report.splits] == [0, 16, 0]
    assert [problem.name for problem in report.problems if "does not exist" in problem.reason] == [
        "base",
        "novel",
    ]


def test_pickles_with_words_for_classes_are_recognised(tmp_path):
    png = BytesIO()
    Image.new("RGB", (3, 3)).save(png, "png")
    (tmp_path / "val_images_png.pkl").write_bytes(
        pickle.dumps([np.frombuffer(png.getvalue(), np.uint8), np.zeros(3, np.uint8)])
    )
    (tmp_path / "val_labels.pkl").write_bytes(
        pickle.dumps({"label_specific": np.array([0, 1]), "label_specific_str": ["owl", "crane"]})
    )
    report = check(tmp_path)
    assert (report.dataset, report.form, report.n_images) == ("tiered-imagenet", "PNG pickles", 2)
    reasons = {problem.name: problem.reason for problem in report.problems}
    assert "not of a known image format" in reasons["val_images_png.pkl#1"]
    assert "train_labels.pkl does not exist" in reasons["base"]


def test_a_damaged_mosaic_is_one_problem(tmp_path):
    sheet = Image.fromarray(np.zeros((4, 8, 3), np.uint8))
    benchmark = BENCHMARKS["cifar-fs"]
    about = {name: {"split": benchmark.split_of(name)} for name in benchmark.split_classes("all")}
    (tmp_path / "index.json").write_text(
        json.dumps({"tile": 4, "cols": 2, "rows": 1, "classes": about})
    )
    for name in about:
        (tmp_path / about[name]["split"]).mkdir(exist_ok=True)
        sheet.save(tmp_path / about[name]["split"] / f"{name}.webp", lossless=True)
    (tmp_path / "novel/bed.webp").write_bytes(b"junk")
    sheet.crop((0, 0, 4, 4)).save(tmp_path / "base/bee.webp", lossless=True)
    report = check(tmp_path)
    assert report.dataset == "cifar-fs"
    assert [str(problem) for problem in report.problems if "literature" not in problem.reason] == [
        "base/bee.webp: its 4 × 4 pixels do not hold all of its tiles",
        "novel/bed.webp: it is damaged, or not of a known image format",
    ]


def test_real_groceries_are_whole(real):
    report = check(real / "grocery-demo")
    assert (report.problems, report.remarks, report.n_images) == ((), (), 700)
