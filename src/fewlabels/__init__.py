"""Few labels in, all labels out: PT-MAP and other few-shot methods, exact and fast.

The public names below are imported on first use, so that `import fewlabels` and `fewlabels --help`
need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from fewlabels.errors import FewLabelsError as FewLabelsError
    from fewlabels.errors import FileFormatError as FileFormatError
    from fewlabels.errors import InputError as InputError
    from fewlabels.errors import MissingExtraError as MissingExtraError
    from fewlabels.estimators import PTMAP as PTMAP
    from fewlabels.estimators import FewLabelsClassifier as FewLabelsClassifier
    from fewlabels.estimators import NearestClassMean as NearestClassMean
    from fewlabels.estimators import PowerTransform as PowerTransform
    from fewlabels.estimators import SeededKMeans as SeededKMeans
    from fewlabels.evaluation import Episodes as Episodes
    from fewlabels.evaluation import EvaluationResult as EvaluationResult
    from fewlabels.evaluation import draw_as_authors as draw_as_authors
    from fewlabels.evaluation import evaluate as evaluate
    from fewlabels.evaluation import sample_episodes as sample_episodes
    from fewlabels.features import FeatureSet as FeatureSet
    from fewlabels.features import load_embedded as load_embedded
    from fewlabels.features import read_features as read_features
    from fewlabels.fitting import Fitted as Fitted
    from fewlabels.fitting import classify as classify
    from fewlabels.fitting import fit as fit
    from fewlabels.labeling import export_labels as export_labels
    from fewlabels.labeling import label_folder as label_folder
    from fewlabels.methods import Assignment as Assignment
    from fewlabels.methods import Knob as Knob
    from fewlabels.methods import Method as Method
    from fewlabels.methods import Reference as Reference
    from fewlabels.methods import configure as configure
    from fewlabels.methods import make_assignment as make_assignment
    from fewlabels.methods import method_names as method_names
    from fewlabels.methods import register as register
    from fewlabels.preprocess import Pipeline as Pipeline
    from fewlabels.preprocess import Step as Step
    from fewlabels.transport import AtLeast as AtLeast
    from fewlabels.transport import Estimated as Estimated
    from fewlabels.transport import Free as Free
    from fewlabels.transport import Prior as Prior
    from fewlabels.transport import Sizes as Sizes
    from fewlabels.transport import Uniform as Uniform
    from fewlabels.transport import solve_transport as solve_transport

_NAMES = {  # by module; `tests/test_package.py` keeps this and the imports above equal
    "errors": "FewLabelsError FileFormatError InputError MissingExtraError",
    "estimators": "FewLabelsClassifier NearestClassMean PTMAP PowerTransform SeededKMeans",
    "evaluation": "Episodes EvaluationResult draw_as_authors evaluate sample_episodes",
    "features": "FeatureSet load_embedded read_features",
    "fitting": "Fitted classify fit",
    "labeling": "export_labels label_folder",
    "methods": "Assignment Knob Method Reference configure make_assignment method_names register",
    "preprocess": "Pipeline Step",
    "transport": "AtLeast Estimated Free Prior Sizes Uniform solve_transport",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"fewlabels.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'fewlabels' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
