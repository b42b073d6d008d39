"""Where features come from: files named one by one, or a folder artifacts/<dataset>/<backbone>/<split>.safetensors."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fewlabels.errors import FileFormatError, InputError
from fewlabels.features import FeatureSet, read_features
from fewlabels.paper.benchmarks import SPLITS, check_benchmark

_GIVEN = re.compile(r"([^:=]+):([^:=]+):([^:=]+)=(.+)")


class Source(NamedTuple):
    """Which features: those of "wrn28-10+resnet18" are those of two backbones side by side."""

    dataset: str
    backbone: str
    split: str = "novel"

    def __str__(self) -> str:
        return "/".join(self)

    @property
    def parts(self) -> list["Source"]:
        """One source a backbone."""
        return [self._replace(backbone=backbone) for backbone in self.backbone.split("+")]


class Library:
    """Features by source, read once and checked against the benchmark."""

    def __init__(
        self,
        artifacts: Path,
        given: Mapping[Source, Path] | None = None,
        *,
        per_class: int | None = None,
    ) -> None:
        self.artifacts = artifacts
        self._given, self._per_class = dict(given or {}), per_class
        self._read: dict[Source, FeatureSet] = {}

    def path(self, source: Source) -> Path:
        """Where the features of one backbone are, or should be."""
        return self._given.get(
            source,
            self.artifacts / source.dataset / source.backbone / f"{source.split}.safetensors",
        )

    def missing(self, source: Source) -> list[Source]:
        """The parts that are not here; a file that was named counts as here, so that a slip of the pen is said."""
        return [
            part
            for part in source.parts
            if part not in self._given and not self.path(part).is_file()
        ]

    def has(self, source: Source) -> bool:
        """Whether all parts are here."""
        return not self.missing(source)

    def how_to_get(self, source: Source) -> str:
        """What to do about features that are not here, in one line."""
        part = self.missing(source)[0]
        return f"put them at {self.path(part)}, or give --features {part.dataset}:{part.backbone}:{part.split}=FILE"

    def load(self, source: Source) -> FeatureSet:
        """The features of a source, of several backbones side by side."""
        if source not in self._read:
            sets = [self._load_part(part) for part in source.parts]
            self._read[source] = sets[0] if len(sets) == 1 else concatenate(sets, source)
        return self._read[source]

    def _load_part(self, source: Source) -> FeatureSet:
        if source in self._read:
            return self._read[source]
        path = self.path(source)
        blocks = self._per_class if path.suffix.lower() in (".npy", ".npz") else None
        found = read_features(path, per_class=blocks)
        for key, wanted in source._asdict().items():
            said = found.provenance.get(key, wanted)
            if said != wanted:
                raise FileFormatError(
                    f"{path} must hold features of {key} {wanted}, it says {said}. Give the file of {source}."
                )
        check_benchmark(found, source.dataset, source.split, origin=str(path))
        self._read[source] = FeatureSet(
            found.features,
            found.labels,
            found.class_names,
            {**found.provenance, **source._asdict()},
        )
        return self._read[source]


def concatenate(sets: Sequence[FeatureSet], source: Source) -> FeatureSet:
    """Raw features of several backbones side by side (supplementary Table 8), row by row the same images."""
    first = sets[0]
    for other in sets[1:]:
        if other.class_names != first.class_names or not np.array_equal(other.labels, first.labels):
            raise InputError(
                f"{source}: the backbones' features must be of the same images in the same order. Extract them anew, together."
            )
    shared = {
        key: value
        for key, value in first.provenance.items()
        if all(each.provenance.get(key) == value for each in sets)
    }
    features = np.concatenate([each.features for each in sets], axis=1)
    return FeatureSet(features, first.labels, first.class_names, {**shared, **source._asdict()})


def parse_given(words: Sequence[str]) -> dict[Source, Path]:
    """Files named one by one: "cifar-fs:wrn28-10:novel=novel.npy".

    >>> parse_given(["cifar-fs:wrn28-10:val=v.npy"])[Source("cifar-fs", "wrn28-10", "val")].name
    'v.npy'
    """
    given = {}
    for word in words:
        match = _GIVEN.fullmatch(word)
        if match is None or match[3] not in SPLITS:
            raise InputError(
                f"--features must be DATASET:BACKBONE:SPLIT=FILE with SPLIT val or novel, got '{word}'."
            )
        given[Source(*match.groups()[:3])] = Path(match[4])
    return given
