"""The benchmarks: their base, val and novel classes, and their numbers of images.

The lists are in splits/*.toml, written by tests/data/make_splits.py.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fewlabels.data.image_set import ALL, SPLITS
from fewlabels.errors import InputError, unknown_choice

FOLDER = Path(__file__).parent / "splits"
NAMES = ("cifar-fs", "fc100", "mini-imagenet", "tiered-imagenet", "cub")


@dataclass(frozen=True)
class Benchmark:
    """A few-shot benchmark as the literature defines it."""

    name: str
    title: str
    cite: str
    obtain: str  # where to get the images
    classes: Mapping[str, tuple[str, ...]]  # of each split, in the order of the published lists
    n_images: Mapping[str, int]  # of each split
    per_class: int | None  # images of each class, where all have the same number

    def __post_init__(self) -> None:
        require_disjoint(self.classes)

    def split_classes(self, split: str) -> tuple[str, ...]:
        """The classes of one split, or of all three."""
        if split not in (*SPLITS, ALL):
            raise unknown_choice("split", split, (*SPLITS, ALL))
        return tuple(name for each in SPLITS if split in (each, ALL) for name in self.classes[each])

    def split_of(self, class_name: str) -> str:
        """The split that a class belongs to."""
        return next(split for split, names in self.classes.items() if class_name in names)


def require_disjoint(classes: Mapping[str, Iterable[str]]) -> None:
    """Refuse splits that share a class: training classes must not be evaluation classes.

    >>> require_disjoint({"base": ["ant", "bee"], "novel": ["cat"]})
    """
    first: dict[str, str] = {}
    for split, names in classes.items():
        for name in names:
            if name in first:
                raise InputError(
                    f"classes must not be shared between splits, got '{name}' in "
                    f"{first[name]} and {split}. Drop it from one."
                )
        first |= dict.fromkeys(names, split)


def _load(name: str) -> Benchmark:
    about = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    classes = {split: tuple(names) for split, names in about["classes"].items()}
    words = (about["title"], about["cite"], about["obtain"])
    return Benchmark(name, *words, classes, about["images"], about.get("per_class"))


BENCHMARKS: Mapping[str, Benchmark] = {name: _load(name) for name in NAMES}


def find_benchmark(name: str) -> Benchmark:
    """The benchmark of that name."""
    if name not in BENCHMARKS:
        raise unknown_choice("dataset", name, BENCHMARKS)
    return BENCHMARKS[name]
