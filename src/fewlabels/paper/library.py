"""Features by dataset, backbone and split: from artifacts/, or from files named one by one.

artifacts/<dataset>/<backbone>/<split>.safetensors
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fewlabels import FeatureSet, read_features
from fewlabels.errors import FileFormatError, InputError
from fewlabels.io.words import JOIN
from fewlabels.paper.benchmarks import SPLITS, check_benchmark

_GIVEN = re.compile(r"([^:=]+):([^:=]+):([^:=]+)=(.+)")


class FeatureSource(NamedTuple):
    """Which features; backbone "wrn28-10+resnet18" stands for two backbones concatenated."""

    dataset: str
    backbone: str
    split: str = "novel"

    def __str__(self) -> str:
        return "/".join(self)

    @property
    def parts(self) -> list["FeatureSource"]:
        """One source per backbone."""
        return [self._replace(backbone=name) for name in self.backbone.split(JOIN)]


class Library:
    """Features by source, read once and checked against the benchmark."""

    def __init__(
        self,
        artifacts: Path,
        given: Mapping[FeatureSource, Path] | None = None,
        *,
        per_class: int | None = None,
    ) -> None:
        self.artifacts = artifacts
        self._given, self._per_class = dict(given or {}), per_class
        self._read: dict[FeatureSource, FeatureSet] = {}

    def path(self, source: FeatureSource) -> Path:
        """Where the features of one backbone are, or should be."""
        folder = self.artifacts / source.dataset / source.backbone
        return self._given.get(source, folder / f"{source.split}.safetensors")

    def missing(self, source: FeatureSource) -> list[FeatureSource]:
        """The parts that are not here.

        A file that was named counts as here, so that a typo in its path is an error.
        """
        return [
            part
            for part in source.parts
            if part not in self._given and not self.path(part).is_file()
        ]

    def has(self, source: FeatureSource) -> bool:
        """Whether all parts are here."""
        return not self.missing(source)

    def check_given(self, needed: Sequence[FeatureSource]) -> None:
        """Refuse files that were named for features that nothing asks for, or that do not exist."""
        known = list(dict.fromkeys(part for source in needed for part in source.parts))
        for source, path in self._given.items():
            if source not in known:
                listed = ", ".join(":".join(each) for each in known)
                rule = f"be of {listed} here" if known else "be left out here"
                raise InputError(
                    f"features must {rule}, got '{':'.join(source)}'. "
                    "Check it for typos; --list shows what each table takes."
                )
            if not path.is_file():
                raise InputError(f"{path} does not exist. Check the path for typos.")

    def how_to_get(self, source: FeatureSource) -> str:
        """What to do about features that are not here, in one line."""
        part = self.missing(source)[0]
        given = f"{part.dataset}:{part.backbone}:{part.split}=FILE"
        return f"put them at {self.path(part)}, or give --features {given}"

    def load(self, source: FeatureSource) -> FeatureSet:
        """The features of a source; those of several backbones concatenated."""
        if source not in self._read:
            sets = [self._load_part(part) for part in source.parts]
            self._read[source] = sets[0] if len(sets) == 1 else concatenate(sets, source)
        return self._read[source]

    def _load_part(self, source: FeatureSource) -> FeatureSet:
        if source in self._read:
            return self._read[source]
        path = self.path(source)
        blocks = self._per_class if path.suffix.lower() in (".npy", ".npz") else None
        found = read_features(path, per_class=blocks)
        for key, wanted in source._asdict().items():
            recorded = found.provenance.get(key, wanted)
            if recorded != wanted:
                raise FileFormatError(
                    f"{path} must hold features of {key} {wanted}, got {recorded}. "
                    f"Give the file of {source}."
                )
        check_benchmark(found, source.dataset, source.split, origin=str(path))
        known = {**found.provenance, **source._asdict()}
        self._read[source] = FeatureSet(found.features, found.labels, found.class_names, known)
        return self._read[source]


def concatenate(sets: Sequence[FeatureSet], source: FeatureSource) -> FeatureSet:
    """Raw features of several backbones, concatenated row by row (supplementary Table 8)."""
    first = sets[0]
    for other in sets[1:]:
        if other.class_names != first.class_names or not np.array_equal(other.labels, first.labels):
            raise InputError(
                f"{source}: the features of all backbones must be of the same images in the same "
                "order. Extract them again, together."
            )
    shared = {
        key: value
        for key, value in first.provenance.items()
        if all(each.provenance.get(key) == value for each in sets)
    }
    features = np.concatenate([each.features for each in sets], axis=1)
    return FeatureSet(features, first.labels, first.class_names, {**shared, **source._asdict()})


def parse_given(words: Sequence[str]) -> dict[FeatureSource, Path]:
    """Files named one by one: "cifar-fs:wrn28-10:novel=novel.npy".

    >>> [(source, path)] = parse_given(["cifar-fs:wrn28-10:val=v.npy"]).items()
    >>> str(source), path.name
    ('cifar-fs/wrn28-10/val', 'v.npy')
    """
    given = {}
    for word in words:
        match = _GIVEN.fullmatch(word)
        if match is None or match[3] not in SPLITS:
            raise InputError(
                "features must be DATASET:BACKBONE:SPLIT=FILE with SPLIT val or novel, "
                f"got '{word}'."
            )
        given[FeatureSource(*match.groups()[:3])] = Path(match[4])
    return given
