"""What the benchmarks must look like: a features file of the wrong dataset or split is told by its classes."""

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from ptmap.errors import InputError, unknown_choice
from ptmap.features import FeatureSet

SPLITS = ("val", "novel")
WORDNET = re.compile(r"n\d{8}")
NUMBERED = re.compile(r"(\d{3})\D.*")


@cache
def read_benchmarks() -> dict[str, dict[str, dict[str, Any]]]:
    """Class counts and names by dataset and split."""
    return tomllib.loads(files("ptmap.paper").joinpath("datasets.toml").read_text(encoding="utf-8"))


def check_benchmark(features: FeatureSet, dataset: str, split: str, *, origin: str) -> None:
    """Refuse features whose classes are not those of a dataset's split.

    Counts are always compared. Names are compared where they can be: not where a file has only
    numbers, nor where ImageNet classes are named in other words than WordNet ids.

    Args:
        features: The file's.
        dataset: Such as "cifar-fs".
        split: "val" or "novel".
        origin: The file, for the message.
    """
    known = read_benchmarks()
    if dataset not in known:
        raise unknown_choice("dataset", dataset, known)
    expected = known[dataset][split]
    what = f"{origin}: the {split} classes of {dataset}"
    if features.n_classes != expected["count"]:
        raise InputError(f"{what} must be {expected['count']}, got {features.n_classes}. Is it another dataset or split?")
    names = [re.split(r"[/\\]", name)[-1] for name in features.class_names]
    if all(name.isdigit() for name in names):
        return
    if strangers := _strangers(names, expected, strict=dataset == "cifar-fs"):
        raise InputError(f"{what} must be the benchmark's, got '{strangers[0]}' among them. Is it another dataset or split?")


def _strangers(names: list[str], expected: dict[str, Any], *, strict: bool) -> list[str]:
    if "numbers" in expected:  # CUB: "004.Groove_billed_Ani"
        every, first = expected["numbers"]["every"], expected["numbers"]["first"]
        found = [(name, NUMBERED.fullmatch(name)) for name in names]
        return [name for name, match in found if match and (int(match[1]) - first) % every]
    allowed = set(expected["names"].split())
    if not strict and not any(WORDNET.fullmatch(name) for name in names):
        return []
    return [name for name in names if _plain(name) not in allowed]


def _plain(name: str) -> str:
    return name.lower().replace(" ", "_").replace("-", "_")
