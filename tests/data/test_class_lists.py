"""The class lists in the package are those of the literature."""

import csv
import importlib.util
import json
from pathlib import Path

import pytest

from fewlabels.data import BENCHMARKS, require_disjoint
from fewlabels.data.class_lists import FOLDER, Benchmark, find_benchmark
from fewlabels.data.forms.imagenet import mini_choice
from fewlabels.errors import InputError

COUNTS = {  # classes and images of base, val and novel, as the papers of the benchmarks give them
    "cifar-fs": ((64, 16, 20), (38_400, 9_600, 12_000)),
    "fc100": ((60, 20, 20), (36_000, 12_000, 12_000)),
    "mini-imagenet": ((64, 16, 20), (38_400, 9_600, 12_000)),
    "tiered-imagenet": ((351, 97, 160), (448_695, 124_261, 206_209)),
    "cub": ((100, 50, 50), (5_885, 2_950, 2_953)),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_and_disjointness(name):
    benchmark = BENCHMARKS[name]
    assert tuple(map(len, benchmark.classes.values())) == COUNTS[name][0]
    assert tuple(benchmark.n_images.values()) == COUNTS[name][1]
    names = benchmark.split_classes("all")
    assert len(set(names)) == len(names) == sum(COUNTS[name][0])
    assert all(
        benchmark.split_of(each) == split
        for split in ("base", "val", "novel")
        for each in benchmark.split_classes(split)
    )


def test_the_registry_is_complete():
    assert BENCHMARKS.keys() == COUNTS.keys()
    assert sum(BENCHMARKS["cub"].n_images.values()) == 11_788
    assert set(BENCHMARKS["cifar-fs"].split_classes("all")) == set(
        BENCHMARKS["fc100"].split_classes("all")
    )


def test_the_birds_are_split_by_their_numbers():
    for split, classes in BENCHMARKS["cub"].classes.items():
        rests = {"base": {0, 2}, "val": {1}, "novel": {3}}[split]
        assert {(int(name[:3]) - 1) % 4 for name in classes} == rests


def test_a_shared_class_is_refused():
    with pytest.raises(InputError, match="'owl' in base and novel"):
        require_disjoint({"base": ["ant", "owl"], "val": ["bee"], "novel": ["owl"]})
    with pytest.raises(InputError, match="must not be shared"):
        Benchmark("x", "X", "", "", {"base": ("a",), "val": ("a",), "novel": ()}, {}, None)


def test_unknown_names_list_the_choices():
    with pytest.raises(
        InputError, match=r"dataset must be one of cifar-fs, fc100, .*, got 'cifar'"
    ):
        find_benchmark("cifar")
    with pytest.raises(InputError, match="split must be one of base, val, novel, all, got 'test'"):
        find_benchmark("cub").split_classes("test")


def test_all_lists_together_are_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 50_000


def test_the_lists_are_those_that_the_script_makes(shared, tmp_path):
    spec = importlib.util.spec_from_file_location(
        "make_splits", Path(__file__).parent / "make_splits.py"
    )
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.write_lists(shared, tmp_path)
    script.write_mini_images(shared, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        path.name: path.read_bytes() for path in FOLDER.iterdir()
    }


def test_the_chosen_images_of_mini_are_those_of_the_published_lists(real):
    chosen = {
        name: [f"{name}{number:08d}.jpg" for number in mini_choice(name)]
        for name in BENCHMARKS["mini-imagenet"].split_classes("all")
    }
    for split, file in {"base": "train", "val": "val", "novel": "test"}.items():
        with (real / f"splits/mini_ravi/{file}.csv").open(newline="") as lines:
            rows = list(csv.reader(lines))[1:]
        assert [
            name for each in BENCHMARKS["mini-imagenet"].classes[split] for name in chosen[each]
        ] == [row[0] for row in rows]


def test_the_superclasses_of_fc100_are_whole(real):
    superclass = {
        name: about["superclass"]
        for name, about in json.loads((real / "cifar-fs/index.json").read_text())["classes"].items()
    }
    groups = {
        split: {superclass[name] for name in names}
        for split, names in BENCHMARKS["fc100"].classes.items()
    }
    require_disjoint(groups)
    assert {split: len(names) for split, names in groups.items()} == {
        "base": 12,
        "val": 4,
        "novel": 4,
    }
