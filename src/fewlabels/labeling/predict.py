"""Predict labels of later images, one by one, with a model that a labelling saved.

The file is a `Fitted`; its header also names the backbone and the provenance of the features.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from fewlabels.labeling.inputs import Named, read_inputs
from fewlabels.labeling.outcome import Outcome
from fewlabels.labeling.outputs import LabelRow, check_abstain, make_rows


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


def save_model(path: Path, outcome: Outcome) -> None:
    """Write what was learned to a .safetensors file, for `predict_images`."""
    check_model(path)
    fitted = outcome.answer.fitted
    if fitted is None:
        raise InputError("outcome must be a thorough answer, got a quick one.")
    inputs = outcome.inputs
    about = {"backbone": inputs.backbone, "provenance": inputs.collection.provenance}
    replace(fitted, class_names=outcome.class_names).save(path, about=about)


def _make_rows(
    fitted: Fitted, names: Sequence[str], features: NDArray[np.floating[Any]], abstain: float
) -> list[LabelRow]:
    """Labels of new vectors as rows."""
    x = np.asarray(features, dtype=np.float32)
    answer = Answer(fitted.predict_proba(x))
    return make_rows(names, fitted.class_names, answer, {}, abstain=abstain)


def predict_images(
    model: Path,
    paths: Sequence[Path],
    *,
    abstain: float = 0.0,
    device: str = "auto",
    columns: Mapping[str, str] | None = None,
) -> tuple[list[LabelRow], list[str]]:
    """Labels of images, folders of images, or one file of features or texts; and remarks.

    Args:
        model: A file that `save_model` wrote.
        paths: What to label.
        abstain: Confidence below which the label is left out.
        device: Where the network runs.
        columns: Of a table, as in `label_folder`; the column of texts is that of the model.
    """
    check_abstain(abstain)
    fitted, header = Fitted.load(model)
    backbone, provenance = header.get("backbone", ""), header.get("provenance", {})
    others = [str(path) for path in paths if path.is_file() and is_unreadable(path.name)]
    paths = [path for path in paths if str(path) not in others]
    if not paths:
        raise FileFormatError(" ".join(["there is no image to label.", *remark_unreadable(others)]))
    extraction = Extraction(backbone or None, device, store=FeatureStore())
    if "text_column" in provenance:
        given = {"text": provenance["text_column"], **(columns or {})}
        return _predict_texts(model, fitted, extraction, provenance, paths, given, abstain)
    if len(paths) == 1 and paths[0].is_file() and paths[0].suffix.lower() not in SUFFIXES:
        features = read_features(paths[0], labels_needed=False, columns=columns)
        names = Collection.of_features(features).names
        return _make_rows(fitted, names, features.features, abstain), remark_unreadable(others)
    if not backbone:
        raise InputError(
            f"{model} was made from features and can only predict features, got {paths[0]}."
        )
    weights = JOIN.join(encoder.weights_digest for encoder in extraction.encoders())
    _check_weights(model, backbone, weights, provenance)
    images = _gather(paths)
    found, warned = extraction(images)
    names = Collection.of_features(found).names
    rows = _make_rows(fitted, names, found.features, abstain)
    unreadable = remark_unreadable([*others, *images.others])
    return rows, [*unreadable, *remark_problems(images), *warned]


def _check_weights(model: Path, backbone: str, weights: str, provenance: Mapping[str, str]) -> None:
    if (known := provenance.get("weights", weights)) != weights:
        raise InputError(
            f"{backbone} has other weights here ({weights[:8]}…) than when {model} was "
            f"made ({known[:8]}…). Make the model again with `fewlabels label`."
        )


def _predict_texts(
    model: Path,
    fitted: Fitted,
    extraction: Extraction,
    provenance: Mapping[str, str],
    paths: Sequence[Path],
    columns: Mapping[str, str],
    abstain: float,
) -> tuple[list[LabelRow], list[str]]:
    if len(paths) != 1 or paths[0].suffix.lower() not in TABLES:
        raise InputError(
            f"{model} was made from texts and can only predict one table of texts, "
            f"{' or '.join(TABLES)}, got {listing(paths)}."
        )
    inputs = read_inputs(paths[0], extraction=extraction, columns=columns)
    items = inputs.collection
    _check_weights(model, inputs.backbone, items.provenance.get("weights", ""), provenance)
    return _make_rows(fitted, items.names, items.features, abstain), list(inputs.remarks)


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
