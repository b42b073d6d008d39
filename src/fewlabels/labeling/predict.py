"""Predict labels of later images, one by one, with a model that a labelling saved.

The file is a `Fitted`; its header also names the backbone and the provenance of the features.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from fewlabels.backbones.encoder import Encoder
from fewlabels.data import ImageSet, Problem, read_images
from fewlabels.data.listing import SUFFIXES, is_unreadable, remark_unreadable
from fewlabels.data.sources import ImageFile, ImageSource
from fewlabels.errors import FileFormatError, InputError
from fewlabels.features import read_features
from fewlabels.features.store import FeatureStore
from fewlabels.fitting import Fitted
from fewlabels.io.files import check_suffix, check_writable
from fewlabels.labeling.answer import Answer
from fewlabels.labeling.collection import Collection, Extraction, remark_problems
from fewlabels.labeling.inputs import read_inputs
from fewlabels.labeling.outcome import Outcome, label_inputs
from fewlabels.labeling.outputs import LabelRow, check_abstain, make_rows
from fewlabels.labeling.project import is_project


def check_model(path: Path) -> None:
    """Refuse a path that no model can be written to, before any work is done."""
    check_suffix("model", path, [".safetensors"])
    check_writable(path)


def save_model(path: Path, outcome: Outcome) -> None:
    """Write what was learned to a .safetensors file, for `predict_images`."""
    check_model(path)
    fitted = outcome.answer.fitted
    if fitted is None:
        raise InputError("outcome must be a thorough answer, got a quick one.")
    inputs = outcome.inputs
    about = {"backbone": inputs.backbone, "provenance": inputs.collection.provenance}
    replace(fitted, class_names=outcome.class_names).save(path, about=about)


@dataclass(frozen=True)
class LoadedExtraction(Extraction):
    """An extraction whose networks are in memory: for many small sets of images."""

    ready: tuple[Encoder, ...] = ()

    def encoders(self) -> list[Encoder]:
        """The networks."""
        return list(self.ready)


@dataclass(frozen=True, eq=False)
class Predictor:
    """What was learned, ready to label later images one by one."""

    fitted: Fitted
    backbone: str  # "" if it was made from features
    weights: str  # digest of the backbone's weights, "" where it is not known
    source: str  # in messages
    device: str = "auto"

    @classmethod
    def load(cls, source: str | Path, *, device: str = "auto") -> Self:
        """From a file that `save_model` wrote, or from a project as it is now."""
        source = Path(source)
        if is_project(source):
            outcome = label_inputs(read_inputs(source), none_of_these=False)
            return cls.of(outcome, str(source), device=device)
        fitted, header = Fitted.load(source)
        weights = header.get("provenance", {}).get("weights", "")
        return cls(fitted, header.get("backbone", ""), weights, str(source), device)

    @classmethod
    def of(cls, outcome: Outcome, source: str, *, device: str = "auto") -> Self:
        """From the result of a labelling."""
        fitted, inputs = outcome.answer.fitted, outcome.inputs
        assert fitted is not None, "`label_inputs` gives a thorough answer"
        fitted = fitted.renamed(outcome.class_names)
        weights = inputs.collection.provenance.get("weights", "")
        return cls(fitted, inputs.backbone, weights, source, device)

    def require_backbone(self, what: object) -> None:
        """Refuse images where the model was made from features."""
        if not self.backbone:
            raise InputError(
                f"{self.source} was made from features and can only predict features, got {what}."
            )

    @cached_property
    def extraction(self) -> Extraction:
        """How images become features; the networks are loaded once."""
        how = Extraction(self.backbone, self.device, store=FeatureStore())
        ready = tuple(how.encoders())
        weights = "+".join(encoder.weights_digest for encoder in ready)
        if self.weights and self.weights != weights:
            raise InputError(
                f"{self.backbone} has other weights here ({weights[:8]}…) than when {self.source} "
                f"was made ({self.weights[:8]}…). Make the model again with `fewlabels label`."
            )
        return LoadedExtraction(self.backbone, self.device, store=how.store, ready=ready)

    def label_features(
        self, names: Sequence[str], features: ArrayLike, *, abstain: float = 0.0
    ) -> list[LabelRow]:
        """Labels of vectors, (N, D), as rows."""
        answer = Answer(self.fitted.predict_proba(features))
        return make_rows(names, self.fitted.class_names, answer, {}, abstain=abstain)

    def label_images(
        self, images: ImageSet, *, abstain: float = 0.0, keep: bool = True
    ) -> tuple[list[LabelRow], list[str]]:
        """Labels of the images that can be read, as rows; and remarks about the others.

        Args:
            images: To label.
            abstain: Confidence below which a label is left out.
            keep: Whether features are kept in the store.
        """
        check_abstain(abstain)
        self.require_backbone(images.names[0])
        extract = self.extraction if keep else replace(self.extraction, store=None)
        found, warned = extract(images)
        names = Collection.of_features(found).names
        x = np.asarray(found.features, dtype=np.float32)
        return self.label_features(names, x, abstain=abstain), warned


def predict_images(
    model: Path, paths: Sequence[Path], *, abstain: float = 0.0, device: str = "auto"
) -> tuple[list[LabelRow], list[str]]:
    """Labels of images, folders of images or one file of features, in order; and remarks.

    Args:
        model: A file that `save_model` wrote, or a project.
        paths: What to label.
        abstain: Confidence below which the label is left out.
        device: Where the network runs.
    """
    check_abstain(abstain)
    predictor = Predictor.load(model, device=device)
    others = [str(path) for path in paths if path.is_file() and is_unreadable(path.name)]
    paths = [path for path in paths if str(path) not in others]
    if not paths:
        raise FileFormatError(" ".join(["there is no image to label.", *remark_unreadable(others)]))
    if len(paths) == 1 and paths[0].is_file() and paths[0].suffix.lower() not in SUFFIXES:
        features = read_features(paths[0], labels_needed=False)
        names = Collection.of_features(features).names
        x = np.asarray(features.features, dtype=np.float32)
        return predictor.label_features(names, x, abstain=abstain), remark_unreadable(others)
    predictor.require_backbone(paths[0])
    images = _gather(paths)
    rows, warned = predictor.label_images(images, abstain=abstain)
    unreadable = remark_unreadable([*others, *images.others])
    return rows, [*unreadable, *remark_problems(images), *warned]


def _gather(paths: Sequence[Path]) -> ImageSet:
    """All images named, those of folders included, each once, under the first path to it."""
    names: dict[str, str] = {}  # by full path, so that a.jpg and sub/../a.jpg are one
    sources: dict[str, ImageSource] = {}
    problems: list[Problem] = []
    others: list[str] = []
    for path in paths:
        if path.is_dir():
            inside = read_images(path)
            others += inside.others
            found = [
                (path / name, source)
                for name, source in zip(inside.names, inside.sources, strict=True)
            ]
            problems += [
                Problem((path / each.name).as_posix(), each.reason) for each in inside.problems
            ]
        elif path.is_file():
            found = [(path, ImageFile(path))]
        else:
            raise FileFormatError(f"{path} does not exist. Check the path for typos.")
        for each, source in found:
            full = os.path.normpath(each.absolute())
            names.setdefault(full, each.as_posix())
            sources.setdefault(full, source)
    return ImageSet(
        "images",
        "all",
        (),
        np.full(len(names), -1),
        tuple(names.values()),
        tuple(sources.values()),
        tuple(dict.fromkeys(problems)),
        tuple(others),
    )
