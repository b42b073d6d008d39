"""Later images, one by one, by a kept model."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fewlabels.data import ImageSet, read_images
from fewlabels.data.image_set import Problem
from fewlabels.data.listing import SUFFIXES
from fewlabels.data.sources import ImageFile, Source
from fewlabels.errors import FileFormatError, InputError
from fewlabels.features import read_features
from fewlabels.labeling.collection import Collection
from fewlabels.labeling.foreign import is_foreign, remark_foreign
from fewlabels.labeling.naming import remark_problems
from fewlabels.labeling.predictor import Predictor
from fewlabels.labeling.sources import Extraction
from fewlabels.labeling.table import LabelRow, check_abstain


def predict_later(
    model: Path, paths: Sequence[Path], *, abstain: float = 0.0, device: str = "auto"
) -> tuple[list[LabelRow], list[str]]:
    """Labels of images, folders of images or one file of features, in the order given; and what should be said about them.

    Args:
        model: What `fewlabels label --model` wrote.
        paths: What to label.
        abstain: Confidence below which the label is left out.
        device: Where the network runs.
    """
    check_abstain(abstain)
    predictor = Predictor.load(model)
    foreign = remark_foreign(paths)
    paths = [path for path in paths if path.is_dir() or not path.exists() or not is_foreign(path)]
    if not paths:
        raise FileFormatError(" ".join(["there is no image to label.", *foreign]))
    if len(paths) == 1 and paths[0].is_file() and paths[0].suffix.lower() not in SUFFIXES:
        features = read_features(paths[0], labels_needed=False)
        return predictor.rows(
            Collection.of_features(features).names, features.features, abstain=abstain
        ), foreign
    if not predictor.backbone:
        raise InputError(
            f"{model} was made from features and can only be asked about features, got {paths[0]}."
        )
    extraction = Extraction(predictor.backbone, device)
    encoders = extraction.encoders()
    weights = "+".join(encoder.weights_digest for encoder in encoders)
    if (known := predictor.provenance.get("weights", weights)) != weights:
        raise InputError(
            f"{predictor.backbone} has other weights here ({weights[:8]}…) than when {model} was made ({known[:8]}…). Label anew."
        )
    try:
        images = _gather(paths)
    except FileFormatError as error:
        raise FileFormatError(" ".join([str(error), *foreign])) from error
    found, warned = extraction.with_remarks(images)
    rows = predictor.rows(Collection.of_features(found).names, found.features, abstain=abstain)
    return rows, [*foreign, *remark_problems(images), *warned]


def _gather(paths: Sequence[Path]) -> ImageSet:
    """All images named, those of folders included, each once, under the path that leads to it first."""
    names: dict[str, str] = {}  # by full path, so that a.jpg and sub/../a.jpg are one
    sources: dict[str, Source] = {}
    problems: list[Problem] = []
    for path in paths:
        if path.is_dir():
            inside = read_images(path)
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
            raise FileFormatError(f"{path} does not exist. Check the path for a slip of the pen.")
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
    )
