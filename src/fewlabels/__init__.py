"""Few labels in, all labels out: PT-MAP few-shot classification.

The public names below are imported on first use, so that `import fewlabels` and `fewlabels --help` need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from fewlabels.estimators import PTMAP, NearestClassMean, PowerTransform, SeededKMeans
    from fewlabels.evaluation import (
        Episodes,
        EvaluationResult,
        draw_as_authors,
        evaluate,
        sample_episodes,
    )
    from fewlabels.features import FeatureSet, load_embedded, read_features
    from fewlabels.methods.assignment import Assignment
    from fewlabels.methods.base import classify
    from fewlabels.preprocess import Pipeline
    from fewlabels.transport.prior import AtLeast
    from fewlabels.transport.solver import solve_transport

_HOME = {
    "Assignment": "methods.assignment",
    "AtLeast": "transport.prior",
    "solve_transport": "transport.solver",
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
    "classify": "methods.base",
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
        return getattr(import_module(f"fewlabels.{_HOME[name]}"), name)
    raise AttributeError(f"module 'fewlabels' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
