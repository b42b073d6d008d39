"""Features of the right dataset are found, those of a wrong one refused."""

from pathlib import Path

import numpy as np
import pytest

from fewlabels.errors import FileFormatError, InputError
from fewlabels.features import FeatureSet
from fewlabels.paper.benchmarks import SPLITS, check_benchmark, expected_classes
from fewlabels.paper.library import FeatureSource, Library, parse_given
from fewlabels.paper.published import DATASETS

NOVEL = FeatureSource("cifar-fs", "wrn28-10")


def with_names(names):
    return FeatureSet.from_arrays(np.ones((len(names), 2)), range(len(names)), names)


def test_counts_of_the_benchmarks_are_those_of_the_paper():
    counts = {
        name: tuple(len(set(expected_classes(name, split))) for split in SPLITS)
        for name in DATASETS
    }
    assert counts == {
        "mini-imagenet": (16, 20),
        "cub": (50, 50),
        "cifar-fs": (16, 20),
        "tiered-imagenet": (97, 160),
        "mini-imagenet-to-cub": (50, 50),
    }


def test_an_unknown_dataset_is_refused_with_the_list():
    with pytest.raises(
        InputError, match=r"dataset must be one of mini-imagenet, cub, .*, got 'omniglot'"
    ):
        expected_classes("omniglot", "novel")


def test_features_are_found_in_the_folder_and_know_what_they_are(artifacts):
    library = Library(artifacts)
    assert library.has(NOVEL)
    assert library.load(NOVEL).provenance["split"] == "novel"
    assert not library.has(FeatureSource("cub", "wrn28-10"))
    assert library.missing(NOVEL._replace(backbone="wrn28-10+resnet18")) == [
        FeatureSource("cifar-fs", "resnet18")
    ]
    assert "--features cub:wrn28-10:novel=FILE" in library.how_to_get(
        FeatureSource("cub", "wrn28-10")
    )


def test_files_that_nothing_asks_for_or_that_are_missing_are_refused(artifacts):
    needed = [NOVEL, FeatureSource("cub", "resnet18+wrn28-10")]
    here = artifacts / "cifar-fs" / "wrn28-10" / "novel.safetensors"

    def check(word):
        Library(artifacts, parse_given([word])).check_given(needed)

    check(f"cifar-fs:wrn28-10:novel={here}")
    check(f"cub:resnet18:novel={here}")
    with pytest.raises(
        InputError, match=r"of cifar-fs:wrn28-10:novel, cub:resnet18:novel, .*got 'cifar-fs:wrn:"
    ):
        check(f"cifar-fs:wrn:novel={here}")
    with pytest.raises(InputError, match=r"nowhere\.npy does not exist"):
        check("cifar-fs:wrn28-10:novel=nowhere.npy")


def test_rows_without_names_are_named_by_the_command(tmp_path):
    np.save(
        tmp_path / "n.npy", np.random.default_rng(0).gamma(1.0, size=(60, 4)).astype(np.float16)
    )
    library = Library(
        tmp_path, parse_given([f"cifar-fs:wrn28-10:novel={tmp_path / 'n.npy'}"]), per_class=3
    )
    found = library.load(NOVEL)
    assert found.n_classes == 20
    assert found.provenance == {
        "file": "n.npy",
        "dataset": "cifar-fs",
        "backbone": "wrn28-10",
        "split": "novel",
    }


@pytest.mark.parametrize(
    ("dataset", "names", "message"),
    [
        ("cifar-fs", [f"c{i}" for i in range(19)], "must be 20, got 19"),
        ("cifar-fs", [f"c{i}" for i in range(20)], "got 'c0' among them"),
        ("mini-imagenet", [f"n{i:08}" for i in range(20)], "got 'n00000000'"),
        ("cub", [f"{4 * i + 3:03}.Bird" for i in range(50)], "got '003.Bird'"),
    ],
)
def test_other_classes_are_refused(dataset, names, message):
    with pytest.raises(InputError, match=message):
        check_benchmark(with_names(names), dataset, "novel", origin="file")


@pytest.mark.parametrize(
    ("dataset", "names"),
    [
        (
            "cifar-fs",
            [name.replace("_", " ").title() for name in expected_classes("cifar-fs", "novel")],
        ),
        ("cifar-fs", [str(i) for i in range(20)]),
        ("mini-imagenet", [f"dog {i}" for i in range(20)]),
        ("cub", [f"{4 * i + 4:03}.Bird" for i in range(50)]),
    ],
)
def test_the_same_classes_in_other_spellings_are_welcome(dataset, names):
    check_benchmark(with_names(names), dataset, "novel", origin="file")


def test_validation_classes_are_not_taken_for_novel_ones(artifacts):
    given = parse_given(
        [f"mini-imagenet:wrn28-10:novel={artifacts / 'cifar-fs/wrn28-10/novel.safetensors'}"]
    )
    with pytest.raises(
        FileFormatError, match="must hold features of dataset mini-imagenet, got cifar-fs"
    ):
        Library(artifacts, given).load(FeatureSource("mini-imagenet", "wrn28-10"))


def test_backbones_side_by_side(tmp_path, make_benchmark):
    for number, backbone in enumerate(("a", "b")):
        (tmp_path / "cifar-fs" / backbone).mkdir(parents=True)
        make_benchmark(backbone=backbone, seed=number).save(
            tmp_path / "cifar-fs" / backbone / "novel.safetensors"
        )
    library = Library(tmp_path)
    both = library.load(FeatureSource("cifar-fs", "a+b"))
    assert both.dim == 12
    assert np.array_equal(
        both.features[:, 6:], library.load(FeatureSource("cifar-fs", "b")).features
    )
    shuffled = make_benchmark(backbone="c").subset(np.arange(2020)[::-1])
    (tmp_path / "cifar-fs" / "c").mkdir()
    shuffled.save(tmp_path / "cifar-fs" / "c" / "novel.safetensors")
    with pytest.raises(InputError, match="same images in the same order"):
        library.load(FeatureSource("cifar-fs", "a+c"))


@pytest.mark.parametrize(
    "word", ["novel.npy", "cifar-fs:wrn28-10=x", "cifar-fs:wrn28-10:test=x", "a:b:novel="]
)
def test_a_word_that_names_no_features(word):
    with pytest.raises(InputError, match="DATASET:BACKBONE:SPLIT=FILE"):
        parse_given([word])


def test_a_file_that_was_named_but_is_not_there_is_an_error():
    library = Library(Path("nowhere"), parse_given(["cifar-fs:wrn28-10:novel=nowhere.npy"]))
    assert library.has(NOVEL)
    with pytest.raises(FileFormatError, match="does not exist"):
        library.load(NOVEL)
