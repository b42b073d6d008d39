"""Stage 8: your folder, a few labels, and all the others: projects, what to label next, exports, report, web page."""

from ptmap.labeling.collection import Collection
from ptmap.labeling.outcome import Outcome, label_source
from ptmap.labeling.predictor import Predictor
from ptmap.labeling.project import Project
from ptmap.labeling.sources import Extraction, Source, open_source

__all__ = ["Collection", "Extraction", "Outcome", "Predictor", "Project", "Source", "label_source", "open_source"]
