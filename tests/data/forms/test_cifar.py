"""CIFAR-100's own archive and the mosaics give the same pixels in the same order."""

import hashlib
import io
import json
import os
import pickle
import struct
import tarfile

import numpy as np
import pytest
from PIL import Image

from fewlabels.data import BENCHMARKS, Problem, read_benchmark
from fewlabels.data.class_lists import find_benchmark
from fewlabels.data.forms import find_form
from fewlabels.errors import FileFormatError

N_TRAIN, N_TEST = 3, 2  # of each class; the real ones have 500 and 100


def make_pickles(arrays, *, seed=1):
    """train, test and meta: images in random order, whose file names tell the right one."""
    rng = np.random.default_rng(seed)
    classes = sorted(arrays)
    contents = {"meta": {"fine_label_names": classes, "coarse_label_names": []}}
    for part, rows in {"train": range(N_TRAIN), "test": range(N_TRAIN, N_TRAIN + N_TEST)}.items():
        items = [
            (f"{name[:3]}_s_{100 * row:06d}.png", number, arrays[name][row])
            for number, name in enumerate(classes)
            for row in rows
        ]
        items = [items[place] for place in rng.permutation(len(items))]
        contents[part] = {
            "filenames": [item[0] for item in items],
            "batch_label": "x",
            "fine_labels": [item[1] for item in items],
            "data": np.stack(
                [item[2].transpose(2, 0, 1).reshape(-1) for item in items]
            ),  # red, green, blue planes
        }
    return contents


@pytest.fixture
def archive(tmp_path, cifar_arrays):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name, content in make_pickles(cifar_arrays).items():
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    return folder


def write_mosaics(root, arrays, *, split_of, checksum=None):
    classes = {}
    for name, array in arrays.items():
        path = root / split_of(name) / f"{name}.webp"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.concatenate(list(array), axis=1)).save(path, lossless=True, method=0)
        digest = checksum or hashlib.sha256(array.tobytes()).hexdigest()
        classes[name] = {
            "split": split_of(name),
            "superclass": "x",
            f"sha256_uint8_{len(array)}x32x32x3": digest,
        }
    (root / "index.json").write_text(
        json.dumps(
            {"tile": 32, "cols": N_TRAIN + N_TEST, "rows": 1, "order": "x", "classes": classes}
        )
    )


@pytest.mark.parametrize("name", ["cifar-fs", "fc100"])
@pytest.mark.parametrize("split", ["base", "val", "novel"])
def test_train_images_by_file_name_then_test_images(archive, cifar_arrays, name, split):
    images = read_benchmark(name, archive, split=split)
    assert images.class_names == BENCHMARKS[name].classes[split]
    expected = np.concatenate([cifar_arrays[each] for each in images.class_names])
    np.testing.assert_array_equal(images.stack(32), expected)
    assert (
        images.labels.tolist()
        == np.repeat(np.arange(len(images.class_names)), N_TRAIN + N_TEST).tolist()
    )
    assert images.names[0].startswith("train#")
    assert images.names[4].startswith("test#")
    assert images.problems[0] == Problem(
        images.class_names[0], "5 images where the literature counts 600"
    )


def test_the_archive_may_be_named_held_or_packed(archive, cifar_arrays):
    packed = archive.parent / "packed" / "cifar-100-python.tar.gz"
    packed.parent.mkdir()
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(archive, "cifar-100-python")
    expected = read_benchmark("cifar-fs", archive, split="val").stack(32)
    for place in (archive.parent, packed, packed.parent):
        np.testing.assert_array_equal(
            read_benchmark("cifar-fs", place, split="val").stack(32), expected
        )


def test_archive_and_mosaics_agree_class_by_class(archive, cifar_arrays, tmp_path):
    write_mosaics(tmp_path / "mosaics", cifar_arrays, split_of=BENCHMARKS["cifar-fs"].split_of)
    for name in ("cifar-fs", "fc100"):
        ours, theirs = (
            read_benchmark(name, place, split="all") for place in (tmp_path / "mosaics", archive)
        )
        assert ours.class_names == theirs.class_names
        np.testing.assert_array_equal(ours.labels, theirs.labels)
        np.testing.assert_array_equal(ours.stack(32), theirs.stack(32))
    assert "novel/bed.webp#4" in ours.names


def python2_text(text):
    return b"T" + struct.pack("<i", len(text)) + text


def test_an_archive_that_python_2_wrote(archive, cifar_arrays):
    """The real one is of that make: its texts and arrays are byte strings."""
    names = b"".join(python2_text(name.encode()) for name in sorted(cifar_arrays))
    (archive / "meta").write_bytes(
        b"\x80\x02}" + python2_text(b"fine_label_names") + b"](" + names + b"es."
    )
    assert len(read_benchmark("cifar-fs", archive, split="novel")) == 100


@pytest.mark.parametrize("name", ["train", "test", "meta"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"junk",
        pickle.dumps([1]),
        pickle.dumps({"data": np.zeros((3, 5), np.uint8), "fine_labels": [0], "filenames": ["a"]}),
        pickle.dumps(
            {"data": np.zeros((3, 3072), np.uint8), "fine_labels": [0], "filenames": ["a"]}
        ),
        pickle.dumps({"data": np.zeros((1, 3072)), "fine_labels": [0], "filenames": ["a"]}),
    ],
)
def test_a_damaged_part_is_named(archive, name, content):
    (archive / name).write_bytes(content)
    with pytest.raises(FileFormatError, match=f"cifar-100-python: {name}"):
        read_benchmark("cifar-fs", archive, split="base")


class Touch:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_a_malicious_archive_runs_nothing(archive, tmp_path):
    (archive / "meta").write_bytes(pickle.dumps({"fine_label_names": [Touch(tmp_path / "it-ran")]}))
    with pytest.raises(FileFormatError, match="refused"):
        read_benchmark("cifar-fs", archive, split="base")
    assert not (tmp_path / "it-ran").exists()


def test_a_damaged_tar_is_named(tmp_path):
    path = tmp_path / "cifar-100-python.tar.gz"
    path.write_bytes(b"\x1f\x8bjunk")
    with pytest.raises(FileFormatError, match=r"cifar-100-python\.tar\.gz must hold"):
        read_benchmark("cifar-fs", path, split="base")
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("cifar-100-python/train"), io.BytesIO())
    with pytest.raises(FileFormatError, match=r"must hold cifar-100-python/train, test and meta"):
        read_benchmark("cifar-fs", path, split="base")


def test_checksums_of_mosaics_are_compared(tmp_path, cifar_arrays):
    few = {name: cifar_arrays[name] for name in ("bed", "bee")}
    write_mosaics(tmp_path, few, split_of=BENCHMARKS["cifar-fs"].split_of)
    form = find_form(tmp_path, find_benchmark("cifar-fs"))
    assert list(form.verify()) == []
    (tmp_path / "base/bee.webp").write_bytes((tmp_path / "novel/bed.webp").read_bytes())
    assert list(form.verify()) == [
        Problem("base/bee.webp", "its pixels differ from the checksum in index.json")
    ]


@pytest.mark.parametrize(
    "index",
    [
        "",
        "[]",
        "{}",
        '{"tile": 32, "cols": 5, "rows": 0, "classes": {}}',
        '{"tile": 32, "cols": 5, "rows": 1, "classes": {"bed": {"split": "../.."}}}',
        '{"tile": "x", "cols": 5, "rows": 1, "classes": {}}',
    ],
)
def test_a_damaged_index_is_named(tmp_path, index):
    (tmp_path / "index.json").write_text(index)
    with pytest.raises(FileFormatError, match=r"index\.json must have tile, cols, rows"):
        read_benchmark("cifar-fs", tmp_path, split="base")


def test_the_real_mosaics_are_whole(real):
    form = find_form(real / "cifar-fs", find_benchmark("cifar-fs"))
    form.classes = {
        name: about for name, about in form.classes.items() if about["split"] == "val"
    }  # to be quick; `fewlabels data check` does all
    assert list(form.verify()) == []
    images = read_benchmark("cifar-fs", real / "cifar-fs", split="val")
    assert (len(images), images.problems) == (9600, ())
    pixels = images.of_classes(["beaver"]).stack(32)
    wanted = json.loads((real / "cifar-fs/index.json").read_text())["classes"]["beaver"][
        "sha256_uint8_600x32x32x3"
    ]
    assert hashlib.sha256(pixels.tobytes()).hexdigest() == wanted
