"""Classes of the benchmarks: features of another dataset or split are refused by them."""

import re

from fewlabels import FeatureSet
from fewlabels.data import BENCHMARKS
from fewlabels.errors import InputError, unknown_choice
from fewlabels.paper.published import DATASETS

SPLITS = ("val", "novel")
TESTED_ON = {"mini-imagenet-to-cub": "cub"}  # cross-domain: where the classes come from
WORDNET = re.compile(r"n\d{8}")
NUMBERED = re.compile(r"(\d{3})\D.*")  # CUB: "004.Groove_billed_Ani"


def expected_classes(dataset: str, split: str) -> tuple[str, ...]:
    """The names of a split's classes, as the published lists spell them.

    >>> len(expected_classes("mini-imagenet-to-cub", "novel"))
    50
    """
    if dataset not in DATASETS:
        raise unknown_choice("dataset", dataset, DATASETS)
    return BENCHMARKS[TESTED_ON.get(dataset, dataset)].classes[split]


def check_benchmark(features: FeatureSet, dataset: str, split: str, *, origin: str) -> None:
    """Refuse features whose classes are not those of a dataset's split.

    Counts are always compared. Names are compared where they can be: not where a file has only
    numbers, nor where ImageNet classes are named in other words than WordNet ids.
    """
    expected = expected_classes(dataset, split)
    what = f"{origin}: the {split} classes of {dataset}"
    if features.n_classes != len(expected):
        raise InputError(
            f"{what} must be {len(expected)}, got {features.n_classes}. "
            "Is it another dataset or split?"
        )
    names = [re.split(r"[/\\]", name)[-1] for name in features.class_names]
    if all(name.isdigit() for name in names):
        return
    if others := _unexpected(names, expected):
        raise InputError(
            f"{what} must be the benchmark's, got '{others[0]}' among them. "
            "Is it another dataset or split?"
        )


def _unexpected(names: list[str], expected: tuple[str, ...]) -> list[str]:
    """The names that are not among the expected ones."""
    if NUMBERED.fullmatch(expected[0]):
        numbers = {name[:3] for name in expected}
        return [
            name
            for name in names
            if (match := NUMBERED.fullmatch(name)) and match[1] not in numbers
        ]
    if WORDNET.fullmatch(expected[0]) and not any(WORDNET.fullmatch(name) for name in names):
        return []
    return [name for name in names if _plain(name) not in expected]


def _plain(name: str) -> str:
    return name.lower().replace(" ", "_").replace("-", "_")
