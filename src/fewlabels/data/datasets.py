"""Images of a Hugging Face dataset (package `datasets`), not decoded before they are read."""

from pathlib import Path
from typing import Any

import numpy as np

from fewlabels.data.image_set import ALL, UNLABELLED, ImageSet
from fewlabels.data.sources import EncodedImage, ImageFile, ImageSource
from fewlabels.errors import InputError
from fewlabels.io.words import listing

LABELS = ("label", "labels", "class", "category", "fine_label")  # names of columns, the first wins


def image_column(dataset: Any) -> str | None:
    """The first column of images of a dataset."""
    features = dataset.features
    return next((name for name in features if type(features[name]).__name__ == "Image"), None)


def read_dataset(dataset: Any, *, label: str | None = None) -> ImageSet:
    """The images of a dataset, under the names of their files where these differ.

    Args:
        dataset: One split.
        label: The column of labels; by default the first of label, labels, class, category.
    """
    column, features = image_column(dataset), dataset.features
    if column is None:
        raise InputError(f"a dataset must have a column of images, got {listing(features)}.")
    if label is not None and label not in features:
        raise InputError(f"label must be a column, got '{label}'; there are {listing(features)}.")
    label = label or next((name for name in LABELS if name in features), None)
    encoded = dataset.cast_column(column, type(features[column])(decode=False))[column]
    sources: list[ImageSource] = []
    names = []
    for row, each in enumerate(encoded):
        path = each["path"]
        if each["bytes"] is None:
            sources.append(ImageFile(Path(path)))
        else:
            sources.append(EncodedImage(each["bytes"], where=path or f"row {row}"))
        names.append(Path(path).name if path else "")
    if len(set(names)) < len(names) or "" in names:
        names = [f"{row} {name}".strip() for row, name in enumerate(names)]
    given = list(dataset[label]) if label else [None] * len(names)
    classes = getattr(features[label], "names", None) if label else []
    if classes is None:
        classes = sorted({str(each) for each in given if each not in (None, "")})
        numbers = {name: number for number, name in enumerate(classes)}
        given = [numbers.get(str(each), UNLABELLED) for each in given]
    labels = np.array([UNLABELLED if each is None else each for each in given], dtype=np.int64)
    title = str(getattr(getattr(dataset, "info", None), "dataset_name", None) or "dataset")
    return ImageSet(title, ALL, tuple(classes), labels, tuple(names), tuple(sources))
