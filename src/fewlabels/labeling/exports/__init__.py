"""Exports: labelled images as other programs want them, one file per format."""

# The order of these imports is the order of the formats in lists.
from fewlabels.labeling.exports import (  # isort: skip
    folders as folders,
    hf as hf,
    fiftyone as fiftyone,
    coco as coco,
    cvat as cvat,
    label_studio as label_studio,
    tables as tables,
)
from fewlabels.labeling.exports.base import Dataset, Format, Item, find_format, format_names
from fewlabels.labeling.exports.export import Exported, export_labels

__all__ = [
    "Dataset",
    "Exported",
    "Format",
    "Item",
    "export_labels",
    "find_format",
    "format_names",
]
