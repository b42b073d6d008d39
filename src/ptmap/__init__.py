"""Few labels in, all labels out: PT-MAP few-shot classification.

The public names below are imported on first use, so that `import ptmap` and `ptmap --help` need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from ptmap.classifiers import Assignment, AtLeast, solve_transport
    from ptmap.estimators import PTMAP, NearestClassMean, PowerTransform, SeededKMeans
    from ptmap.evaluation import Episodes, EvaluationResult, draw_as_authors, evaluate, sample_episodes
    from ptmap.features import FeatureSet, load_embedded, read_features
    from ptmap.methods import classify
    from ptmap.preprocess import Pipeline

_HOME = {
    "Assignment": "classifiers",
    "AtLeast": "classifiers",
    "solve_transport": "classifiers",
    "NearestClassMean": "estimators",
    "PTMAP": "estimators",
    "PowerTransform": "estimators",
    "SeededKMeans": "estimators",
    "Episodes": "evaluation",
    "EvaluationResult": "evaluation",
    "draw_as_authors": "evaluation",
    "evaluate": "evaluation",
    "sample_episodes": "evaluation",
    "FeatureSet": "features",
    "load_embedded": "features",
    "read_features": "features",
    "classify": "methods",
    "Pipeline": "preprocess",
}

__all__ = [  # noqa: RUF022 - by stage, as in _HOME
    "Assignment",
    "AtLeast",
    "solve_transport",
    "NearestClassMean",
    "PTMAP",
    "PowerTransform",
    "SeededKMeans",
    "Episodes",
    "EvaluationResult",
    "draw_as_authors",
    "evaluate",
    "sample_episodes",
    "FeatureSet",
    "load_embedded",
    "read_features",
    "classify",
    "Pipeline",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"ptmap.{_HOME[name]}"), name)
    raise AttributeError(f"module 'ptmap' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
