"""Later images, one by one, by a kept model."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ptmap.data import ImageSet, read_images
from ptmap.data.listing import SUFFIXES
from ptmap.data.sources import ImageFile, Source
from ptmap.errors import FileFormatError, InputError
from ptmap.features import read_features
from ptmap.labeling.collection import Collection
from ptmap.labeling.predictor import Predictor
from ptmap.labeling.sources import Extraction
from ptmap.labeling.table import LabelRow, check_abstain


def predict_later(model: Path, paths: Sequence[Path], *, abstain: float = 0.0, device: str = "auto") -> tuple[list[LabelRow], list[str]]:
    """Labels of images, folders of images or one file of features, in the order given; and what should be said about them.

    Args:
        model: What `ptmap label --model` wrote.
        paths: What to label.
        abstain: Confidence below which the label is left out.
        device: Where the network runs.
    """
    check_abstain(abstain)
    predictor = Predictor.load(model)
    if len(paths) == 1 and paths[0].is_file() and paths[0].suffix.lower() not in SUFFIXES:
        features = read_features(paths[0])
        return predictor.rows(Collection.of_features(features).names, features.features, abstain=abstain), []
    if not predictor.backbone:
        raise InputError(f"{model} was made from features and can only be asked about features, got {paths[0]}.")
    extraction = Extraction(predictor.backbone, device)
    encoders = extraction.encoders()
    weights = "+".join(encoder.weights_digest for encoder in encoders)
    if (known := predictor.provenance.get("weights", weights)) != weights:
        raise InputError(
            f"{predictor.backbone} has other weights here ({weights[:8]}…) than when {model} was made ({known[:8]}…). Label anew."
        )
    found, remarks = extraction.with_remarks(_gather(paths))
    return predictor.rows(Collection.of_features(found).names, found.features, abstain=abstain), remarks


def _gather(paths: Sequence[Path]) -> ImageSet:
    """All images named, those of folders included, each under the path that leads to it."""
    names: list[str] = []
    sources: list[Source] = []
    for path in paths:
        if path.is_dir():
            inside = read_images(path)
            names += [(path / name).as_posix() for name in inside.names]
            sources += inside.sources
        elif path.is_file():
            names.append(path.as_posix())
            sources.append(ImageFile(path))
        else:
            raise FileFormatError(f"{path} does not exist. Check the path for a slip of the pen.")
    return ImageSet("images", "all", (), np.full(len(names), -1), tuple(names), tuple(sources))
