"""ILSVRC folders, the flat folder of miniImageNet, and the pickles that went around."""

import os
import pickle
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from fewlabels.data import BENCHMARKS, Problem, read_benchmark
from fewlabels.data.forms.imagenet import mini_choice
from fewlabels.errors import FileFormatError

MINI, TIERED = BENCHMARKS["mini-imagenet"], BENCHMARKS["tiered-imagenet"]
FILES = {"base": "train", "val": "val", "novel": "test"}


@pytest.fixture(scope="module")
def ilsvrc(tmp_path_factory):
    """A class of each split of miniImageNet with 1,300 files, numbered with gaps.

    The other classes are links to the first.
    """
    root = tmp_path_factory.mktemp("ilsvrc") / "train"
    for split in FILES:
        folder = root / MINI.classes[split][0]
        folder.mkdir(parents=True)
        for number in range(1, 1301):
            (folder / f"{folder.name}_{7 * number}.JPEG").write_bytes(
                b"x"
            )  # sorted as text, 14 comes before 7
        for name in MINI.classes[split][1:]:
            (root / name).symlink_to(folder.name, target_is_directory=True)
    return root.parent


@pytest.mark.parametrize("split", ["val", "novel"])
def test_mini_takes_its_choice_in_the_order_of_the_numbers(ilsvrc, split):
    name = MINI.classes[split][0]
    place = ilsvrc if split == "val" else ilsvrc / "train"
    images = read_benchmark("mini-imagenet", place, split=split).of_classes([name])
    assert [image.rpartition("/")[2] for image in images.names] == [
        f"{name}_{7 * number}.JPEG" for number in mini_choice(name)
    ]
    assert images.problems == ()


def test_an_incomplete_class_of_ilsvrc_is_refused(ilsvrc):
    last = ilsvrc / "train" / MINI.classes["val"][0]
    gone = [file for file in last.iterdir() if int(file.stem.partition("_")[2]) > 7 * 1000]
    for file in gone:
        file.rename(ilsvrc / file.name)
    try:
        with pytest.raises(
            FileFormatError,
            match=rf"{last.name} must be a complete class of ILSVRC-2012.*got 1000 images",
        ):
            read_benchmark("mini-imagenet", ilsvrc, split="val")
    finally:
        for file in gone:
            (ilsvrc / file.name).rename(last / file.name)


def test_tiered_takes_all_images_of_a_class(tmp_path, fill):
    folders = [
        tmp_path / "ILSVRC/Data/CLS-LOC/train" / name
        for split in FILES
        for name in TIERED.classes[split]
    ]
    fill(folders, lambda folder, number: f"{folder.name}_{[30, 4][number]}.JPEG", n_images=2)
    images = read_benchmark("tiered-imagenet", tmp_path, split="novel")
    assert images.class_names == TIERED.classes["novel"]
    assert [name.rpartition("_")[2] for name in images.names[:2]] == ["4.JPEG", "30.JPEG"]
    assert images.problems == (Problem("novel", "320 images where the literature counts 206,209"),)
    assert len(read_benchmark("tiered-imagenet", tmp_path, split="all")) == 2 * 608


def test_the_flat_folder_of_listed_names(tmp_path):
    (tmp_path / "images").mkdir()
    for name in MINI.classes["novel"]:
        for number in mini_choice(name)[:3]:
            Image.new("RGB", (2, 2)).save(tmp_path / "images" / f"{name}{number:08d}.jpg", "bmp")
    for place in (tmp_path, tmp_path / "images"):
        images = read_benchmark("mini-imagenet", place, split="novel")
        assert len(images) == 60
        assert images.names[0].endswith(
            f"{MINI.classes['novel'][0]}{mini_choice(MINI.classes['novel'][0])[0]:08d}.jpg"
        )
        assert images.problems[0] == Problem(
            MINI.classes["novel"][0], "3 images where the literature counts 600"
        )
    with pytest.raises(
        FileFormatError,
        match=r"all 64 base classes of miniImageNet, got none of n01532829, .* and 59 more",
    ):
        read_benchmark("mini-imagenet", tmp_path, split="base")


def test_a_folder_per_split_with_ilsvrc_names_is_taken_as_it_is(tmp_path, fill):
    for split, file in FILES.items():
        folders = [tmp_path / file / name for name in MINI.classes[split]]
        fill(folders, lambda folder, number: f"{folder.name}_{number}.JPEG", n_images=2)
    assert len(read_benchmark("mini-imagenet", tmp_path, split="val")) == 2 * 16


def mini_cache(split, *, n_images=2, side=8):
    names = MINI.classes[split]
    pixels = np.random.default_rng(0).integers(
        0, 256, (n_images * len(names), side, side, 3), dtype=np.uint8
    )
    rows = {
        name: list(range(place, len(pixels), len(names))) for place, name in enumerate(names)
    }  # classes interleaved
    return {"image_data": pixels, "class_dict": rows}


@pytest.mark.parametrize("protocol", [0, 2, 3, 4, 5])
def test_mini_cache_pickles(tmp_path, protocol):
    content = mini_cache("val")
    (tmp_path / "mini-imagenet-cache-val.pkl").write_bytes(pickle.dumps(content, protocol=protocol))
    images = read_benchmark("mini-imagenet", tmp_path, split="val")
    assert images.class_names == MINI.classes["val"]
    assert images.names[:2] == ("mini-imagenet-cache-val.pkl#0", "mini-imagenet-cache-val.pkl#16")
    np.testing.assert_array_equal(images.stack(8)[:2], content["image_data"][[0, 16]])
    with pytest.raises(FileFormatError, match=r"mini-imagenet-cache-test\.pkl does not exist"):
        read_benchmark("mini-imagenet", tmp_path, split="novel")


@pytest.mark.parametrize(
    "change",
    [
        {"image_data": np.zeros((4, 8, 8, 3))},
        {"image_data": np.zeros((4, 8, 8), np.uint8)},
        {"image_data": None},
        {"class_dict": [1]},
        {"class_dict": {"n01855672": [0, 99]}},
        {"class_dict": {"n01855672": [-1]}},
        {"class_dict": {"n01855672": ["x"]}},
    ],
)
def test_a_cache_of_another_form_is_refused(tmp_path, change):
    (tmp_path / "mini-imagenet-cache-val.pkl").write_bytes(pickle.dumps(mini_cache("val") | change))
    with pytest.raises(
        FileFormatError, match=r"mini-imagenet-cache-val\.pkl must hold a dict of image_data"
    ):
        read_benchmark("mini-imagenet", tmp_path, split="val")


def png(color):
    file = BytesIO()
    Image.new("RGB", (3, 3), color).save(file, "png")
    return np.frombuffer(file.getvalue(), np.uint8)


def write_tiered(folder, split, words, labels):
    images = [png((label, 0, row)) for row, label in enumerate(labels)]
    (folder / f"{FILES[split]}_images_png.pkl").write_bytes(pickle.dumps(images))
    content = {
        "label_specific": np.array(labels),
        "label_general": np.zeros(len(labels)),
        "label_specific_str": words,
        "label_general_str": ["x"],
    }
    (folder / f"{FILES[split]}_labels.pkl").write_bytes(pickle.dumps(content))


def test_tiered_pickles(tmp_path):
    write_tiered(tmp_path, "base", ["Yorkshire terrier", "crane"], [1, 0, 1, 0])
    write_tiered(tmp_path, "novel", ["crane", "hatchet"], [0, 1, 1])
    images = read_benchmark("tiered-imagenet", tmp_path, split="base")
    assert images.class_names == (
        "Yorkshire terrier",
        "crane (base 1)",
    )  # a bird here, a machine there
    assert images.names == tuple(f"train_images_png.pkl#{row}" for row in (1, 3, 0, 2))
    assert [images.read(row).getpixel((0, 0)) for row in range(4)] == [
        (0, 0, 1),
        (0, 0, 3),
        (1, 0, 0),
        (1, 0, 2),
    ]
    assert images.problems == (
        Problem("base", "2 classes where the literature counts 351"),
        Problem("base", "4 images where the literature counts 448,695"),
    )
    assert read_benchmark("tiered-imagenet", tmp_path, split="novel").class_names == (
        "crane (novel 0)",
        "hatchet",
    )
    with pytest.raises(FileFormatError, match=r"val_labels\.pkl does not exist"):
        read_benchmark("tiered-imagenet", tmp_path, split="all")


def test_broken_tiered_pickles_are_named(tmp_path):
    write_tiered(tmp_path, "base", ["ant", "bee"], [0, 1])
    images, labels = tmp_path / "train_images_png.pkl", tmp_path / "train_labels.pkl"
    images.write_bytes(pickle.dumps([png("red")]))
    with pytest.raises(
        FileFormatError, match=r"train_images_png\.pkl must hold an image per label, got 1"
    ):
        read_benchmark("tiered-imagenet", tmp_path, split="base")
    images.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(
        FileFormatError, match=r"train_images_png\.pkl must hold a list of PNG images"
    ):
        read_benchmark("tiered-imagenet", tmp_path, split="base")
    labels.write_bytes(pickle.dumps({"label_specific": [0]}))
    with pytest.raises(
        FileFormatError, match=r"train_labels\.pkl must hold a dict of label_specific"
    ):
        read_benchmark("tiered-imagenet", tmp_path, split="base")


class Touch:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize(
    "file", ["mini-imagenet-cache-train.pkl", "train_images_png.pkl", "train_labels.pkl"]
)
def test_malicious_pickles_run_nothing(tmp_path, file):
    write_tiered(tmp_path, "base", ["ant"], [0])
    (tmp_path / file).write_bytes(pickle.dumps([Touch(tmp_path / "it-ran")]))
    with pytest.raises(FileFormatError, match="refused"):
        read_benchmark(
            "mini-imagenet" if file.startswith("mini") else "tiered-imagenet",
            tmp_path,
            split="base",
        )
    assert not (tmp_path / "it-ran").exists()
