"""ImageSet: its rules, its subsets and its stack."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fewlabels.data import ImageSet, Problem, read_benchmark, read_images
from fewlabels.data.sources import ArrayRow
from fewlabels.errors import FileFormatError, InputError


def made_of(labels, class_names=("ant", "bee", "cat"), **options):
    pixels = np.random.default_rng(0).integers(0, 256, (len(labels), 4, 4, 3), dtype=np.uint8)
    return ImageSet.from_array(pixels, labels, class_names, **options)


def test_from_array_gives_its_rows_back():
    images = made_of([0, 2, -1], name="pets", split="novel")
    assert (images.name, images.split, len(images), images.class_sizes.tolist()) == (
        "pets",
        "novel",
        3,
        [1, 0, 1],
    )
    assert images.labels.dtype == np.int64
    assert images.path(0) is None
    assert len(images.digest(0)) == 32
    np.testing.assert_array_equal(images.read(1), images.sources[1].images[1])
    np.testing.assert_array_equal(images.stack(4), images.sources[0].images)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [0, 3, 0]}, r"from -1 .* to 2, as there are 3 class_names, got 3 in row 1"),
        ({"labels": [0, -2, 0]}, "got -2 in row 1"),
        ({"labels": [0, 1]}, "one entry per image, got 2, 3 and 3"),
        ({"split": "train"}, "split must be one of base, val, novel, all, got 'train'"),
        (
            {"class_names": ("ant", "bee", "ant")},
            "class_names must be different.*'ant' more than once",
        ),
        ({"names": ("x", "y", "x")}, "names must be different.*'x' more than once"),
    ],
)
def test_rules(change, message):
    images = made_of([0, 1, 2])
    fields = {
        "name": "pets",
        "split": "all",
        "class_names": images.class_names,
        "labels": images.labels,
        "names": images.names,
    }
    with pytest.raises(InputError, match=message):
        ImageSet(**(fields | change), sources=images.sources)


@pytest.mark.parametrize(
    "pixels",
    [np.zeros((2, 4, 4, 3)), np.zeros((2, 4, 4), np.uint8), np.zeros((2, 4, 4, 4), np.uint8)],
)
def test_an_array_must_be_of_rgb_bytes(pixels):
    with pytest.raises(InputError, match=r"pixels must be uint8 of shape \(N, H, W, 3\)"):
        ImageSet.from_array(pixels, [0, 0], ["ant"])


@given(
    labels=st.lists(st.integers(-1, 2), max_size=12),
    chosen=st.permutations(["ant", "bee", "cat"]),
    n=st.integers(0, 3),
)
def test_of_classes_keeps_exactly_their_images_under_new_numbers(labels, chosen, n):
    images, chosen = made_of(labels), chosen[:n]
    part = images.of_classes(chosen)
    assert part.class_names == tuple(chosen)
    kept = [
        (name, images.class_names[label])
        for name, label in zip(images.names, labels, strict=True)
        if label >= 0
    ]
    assert list(
        zip(part.names, [part.class_names[label] for label in part.labels], strict=True)
    ) == [(name, label) for name, label in kept if label in chosen]
    assert all(
        source is images.sources[images.names.index(name)]
        for name, source in zip(part.names, part.sources, strict=True)
    )


def test_of_classes_lists_the_classes_when_one_is_unknown():
    with pytest.raises(InputError, match="must be one of ant, bee, cat, got 'dog'"):
        made_of([0]).of_classes(["dog"])


@pytest.mark.parametrize(
    "indices",
    [[2, 0], np.array([2, 0]), np.array([True, False, True]), slice(0, 2), [], np.array([], int)],
)
def test_subset_is_numpy_indexing(indices):
    images = made_of([0, 1, 2])
    part = images.subset(indices)
    rows = np.arange(3)[indices].tolist()
    assert part.names == tuple(f"images#{row}" for row in rows)
    assert part.labels.tolist() == rows
    assert part.class_names == images.class_names


def test_problems_stay_with_the_parts():
    images = made_of([0, 1])
    whole = ImageSet(
        "pets",
        "all",
        images.class_names,
        images.labels,
        images.names,
        images.sources,
        (Problem("x.jpg", "empty"),),
    )
    assert (
        whole.subset([0]).problems
        == whole.of_classes(["bee"]).problems
        == (Problem("x.jpg", "empty"),)
    )
    assert str(whole.problems[0]) == "x.jpg: empty"


def test_a_set_can_be_sent_to_another_process(write):
    write("ant/x.png")
    images = read_images(write("bee/y.png", seed=1).parents[1])
    back = pickle.loads(pickle.dumps(images))
    np.testing.assert_array_equal(back.read(1), images.read(1))


def test_stack_resizes_the_short_side_and_crops_the_middle(noise):
    wide, tall = noise(40, 20, seed=1), noise(10, 30, seed=2)
    sources = ArrayRow(wide[None], 0), ArrayRow(tall[None], 0)
    images = ImageSet("x", "all", (), np.array([-1, -1]), ("wide", "tall"), sources)
    stacked = images.stack(10)
    small = Image.fromarray(wide).resize((20, 10), Image.Resampling.BICUBIC)
    np.testing.assert_array_equal(stacked[0], np.asarray(small)[:, 5:15])
    np.testing.assert_array_equal(stacked[1], tall[10:20])  # its short side is 10 already


def test_stack_names_an_image_that_it_cannot_use(write, noise):
    write("ant/good.png")
    bad = write("ant/bad.png", content=b"\x89PNG")
    with pytest.raises(FileFormatError, match=r"bad\.png"):
        read_images(bad.parents[1]).stack(4)
    narrow = ImageSet(
        "x",
        "all",
        (),
        np.array([-1]),
        ("narrow",),
        (ArrayRow(np.zeros((1, 1, 60_000, 3), np.uint8), 0),),
    )
    with pytest.raises(FileFormatError, match="narrow: the image is too narrow"):
        narrow.stack(84)
    with pytest.raises(InputError, match="size must be at least 1"):
        narrow.stack(0)


def test_stack_of_many_chunks_keeps_the_order():
    labels = [0] * 200
    images = made_of(labels)
    np.testing.assert_array_equal(
        images.stack(4), np.stack([np.asarray(images.read(row)) for row in range(200)])
    )


def test_an_empty_set_stacks_to_nothing():
    assert made_of([]).stack(5).shape == (0, 5, 5, 3)


def test_real_tiles_are_read_alone_as_in_a_stack(real):
    images = read_benchmark("cifar-fs", real / "cifar-fs", split="val")
    stacked = images.stack(32)
    assert stacked.shape == (9600, 32, 32, 3)
    rng = np.random.default_rng(0)
    for row in rng.choice(9600, 20):
        np.testing.assert_array_equal(images.read(int(row)), stacked[row])
