"""Stage 8: your folder, a few labels, and all the others: projects, what to label next, exports, report, web page."""

from fewlabels.labeling.collection import Collection
from fewlabels.labeling.outcome import Outcome, label_source
from fewlabels.labeling.predictor import Predictor
from fewlabels.labeling.project import Project
from fewlabels.labeling.sources import Extraction, Source, open_source

__all__ = [
    "Collection",
    "Extraction",
    "Outcome",
    "Predictor",
    "Project",
    "Source",
    "label_source",
    "open_source",
]
