"""Predict labels of later images, one by one, with a model that a labelling saved.

The file is a `Fitted`; its header also names the backbone and the provenance of the features.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from fewlabels.backbones.encoder import Encoder
from fewlabels.backbones.text import TEXT_QUALITIES, best_installed
from fewlabels.data import ImageSet, Problem, read_images
from fewlabels.data.listing import SUFFIXES, is_unreadable, remark_unreadable
from fewlabels.data.sources import ImageFile, ImageSource
from fewlabels.errors import FileFormatError, InputError
from fewlabels.features import read_features
from fewlabels.features.readers import TABLES
from fewlabels.features.store import FeatureStore
from fewlabels.fitting import Fitted
from fewlabels.io.files import check_suffix, check_writable
from fewlabels.io.words import JOIN, listing, split_names
from fewlabels.labeling.answer import Answer
from fewlabels.labeling.collection import TFIDF, Collection, Extraction, remark_problems
from fewlabels.labeling.inputs import Inputs, Named, read_inputs
from fewlabels.labeling.outcome import Outcome, label_inputs
from fewlabels.labeling.outputs import LabelRow, check_abstain, make_rows
from fewlabels.labeling.project import is_project
from fewlabels.labeling.subclasses import check_separator


def check_model(path: Path) -> None:
    """Refuse a path that no model can be written to, before any work is done."""
    check_suffix("model", path, [".safetensors"])
    check_writable(path)


def check_repeatable(named: Named, backbone: str | None) -> None:
    """Refuse a model of texts by an encoder that cannot encode later texts, before the work."""
    rows = named.rows
    encodes = rows is not None and rows.texts is not None and (rows.features is None or backbone)
    given = TEXT_QUALITIES.get(backbone or "", backbone or best_installed())
    name = given if encodes else named.backbone or ""
    if TFIDF in split_names(name):
        raise InputError(
            f"model needs a text encoder that can read later texts, got {TFIDF}, which learns its "
            "words from one table. Give backbone='minilm' or 'wordllama': "
            "pip install 'fewlabels[minilm]'."
        )


def require_labels(inputs: Inputs) -> None:
    """Refuse classes that are known by name alone, where later images are to be labelled."""
    lacking = set(inputs.prior.names) - set(inputs.labels.values()) if inputs.prior else ()
    if lacking:
        raise InputError(
            f"model needs a label of every class, got none of "
            f"{listing(sorted(lacking))}, known by name alone. Label some first."
        )


def save_model(path: Path, outcome: Outcome) -> None:
    """Write what was learned to a .safetensors file, for `predict_images`."""
    check_model(path)
    fitted = outcome.answer.fitted
    if fitted is None:
        raise InputError("outcome must be a thorough answer, got a quick one.")
    inputs = outcome.inputs
    about = {
        "backbone": inputs.backbone,
        "provenance": inputs.collection.provenance,
        "sub_classes": outcome.sub_classes,
    }
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
    text_column: str = ""  # of the table that it was made from, "" if it was made from no texts
    sub_classes: str = ""  # what stands between class and sub-class, as in `make_rows`

    @classmethod
    def load(cls, source: str | Path, *, device: str = "auto", sub_classes: str = "") -> Self:
        """From a file that `save_model` wrote, or from a project as it is now.

        Args:
            source: The file or the project.
            device: Where the network runs.
            sub_classes: What stands between class and sub-class; what the file tells if left out.
        """
        check_separator(sub_classes)
        source = Path(source)
        if is_project(source):
            inputs = read_inputs(source)
            require_labels(inputs)
            outcome = label_inputs(inputs, none_of_these=False)
            return replace(cls.of(outcome, str(source), device=device), sub_classes=sub_classes)
        if source.is_dir() or (source.is_file() and source.suffix.lower() != ".safetensors"):
            raise InputError(
                "model must be a .safetensors file that `fewlabels label --model` wrote, or a "
                f"labelling project, got {source}."
            )
        fitted, header = Fitted.load(source)
        found = cls._known(
            fitted, header.get("backbone", ""), header.get("provenance", {}), str(source), device
        )
        return replace(found, sub_classes=sub_classes or str(header.get("sub_classes", "")))

    @classmethod
    def of(cls, outcome: Outcome, source: str, *, device: str = "auto") -> Self:
        """From the result of a labelling."""
        fitted, inputs = outcome.answer.fitted, outcome.inputs
        assert fitted is not None, "`label_inputs` gives a thorough answer"
        fitted = fitted.renamed(outcome.class_names)
        return cls._known(fitted, inputs.backbone, inputs.collection.provenance, source, device)

    @classmethod
    def _known(
        cls, fitted: Fitted, backbone: str, provenance: Mapping[str, str], source: str, device: str
    ) -> Self:
        weights, column = (provenance.get(name, "") for name in ("weights", "text_column"))
        return cls(fitted, backbone, weights, source, device, column)

    def require_backbone(self, what: object) -> None:
        """Refuse images where the model was made from features or texts."""
        if self.text_column:
            raise InputError(
                f"{self.source} was made from texts and can only predict one table of texts, "
                f"{' or '.join(TABLES)}, got {what}."
            )
        if not self.backbone:
            raise InputError(
                f"{self.source} was made from features and can only predict features, got {what}."
            )

    @cached_property
    def extraction(self) -> Extraction:
        """How images become features; the networks are loaded once."""
        how = Extraction(self.backbone, self.device, store=FeatureStore())
        ready = tuple(how.encoders())
        self._check_weights(JOIN.join(encoder.weights_digest for encoder in ready))
        return LoadedExtraction(self.backbone, self.device, store=how.store, ready=ready)

    def _check_weights(self, weights: str) -> None:
        if self.weights and self.weights != weights:
            raise InputError(
                f"{self.backbone} has other weights here ({weights[:8]}…) than when {self.source} "
                f"was made ({self.weights[:8]}…). Make the model again with `fewlabels label`."
            )

    def label_features(
        self, names: Sequence[str], features: ArrayLike, *, abstain: float = 0.0
    ) -> list[LabelRow]:
        """Labels of vectors, (N, D), as rows."""
        answer = Answer(self.fitted.predict_proba(features))
        return make_rows(
            names,
            self.fitted.class_names,
            answer,
            {},
            abstain=abstain,
            sub_classes=self.sub_classes,
        )

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

    def label_texts(
        self, paths: Sequence[Path], columns: Mapping[str, str] | None, *, abstain: float = 0.0
    ) -> tuple[list[LabelRow], list[str]]:
        """Labels of the rows of one table of texts; and remarks."""
        if len(paths) != 1 or paths[0].suffix.lower() not in TABLES:
            self.require_backbone(listing(paths))
        given = {"text": self.text_column, **(columns or {})}
        how = Extraction(self.backbone, self.device, store=FeatureStore())
        inputs = read_inputs(paths[0], extraction=how, columns=given)
        items = inputs.collection
        self._check_weights(items.provenance.get("weights", ""))
        x = np.asarray(items.features, dtype=np.float32)
        return self.label_features(items.names, x, abstain=abstain), list(inputs.remarks)


def predict_images(
    model: Path,
    paths: Sequence[Path],
    *,
    abstain: float = 0.0,
    device: str = "auto",
    columns: Mapping[str, str] | None = None,
    sub_classes: str = "",
) -> tuple[list[LabelRow], list[str]]:
    """Labels of images, folders of images, or one file of features or texts; and remarks.

    Args:
        model: A file that `save_model` wrote, or a project.
        paths: What to label.
        abstain: Confidence below which the label is left out.
        device: Where the network runs.
        columns: Of a table, as in `label_folder`; the column of texts is that of the model.
        sub_classes: What stands between class and sub-class, as in `label_folder`; what the model
            was made with if left out.
    """
    check_abstain(abstain)
    predictor = Predictor.load(model, device=device, sub_classes=sub_classes)
    others = [str(path) for path in paths if path.is_file() and is_unreadable(path.name)]
    paths = [path for path in paths if str(path) not in others]
    if not paths:
        raise FileFormatError(" ".join(["there is no image to label.", *remark_unreadable(others)]))
    if predictor.text_column:
        return predictor.label_texts(paths, columns, abstain=abstain)
    if len(paths) == 1 and paths[0].is_file() and paths[0].suffix.lower() not in SUFFIXES:
        features = read_features(paths[0], labels_needed=False, columns=columns)
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
