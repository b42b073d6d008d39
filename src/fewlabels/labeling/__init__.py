"""Labelling: all labels of a folder from a few, with projects, outputs, report and web page."""

from fewlabels.labeling.collection import Collection, Extraction
from fewlabels.labeling.exports import export_labels
from fewlabels.labeling.inputs import Inputs, read_inputs
from fewlabels.labeling.label import label_folder
from fewlabels.labeling.outcome import Outcome, label_inputs, suggest_next
from fewlabels.labeling.predict import predict_images, save_model
from fewlabels.labeling.project import Project

__all__ = [
    "Collection",
    "Extraction",
    "Inputs",
    "Outcome",
    "Project",
    "export_labels",
    "label_folder",
    "label_inputs",
    "predict_images",
    "read_inputs",
    "save_model",
    "suggest_next",
]
