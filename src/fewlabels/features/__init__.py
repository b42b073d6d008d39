"""Stage 3: feature vectors with class numbers, extracted from images or read from files.

`extract` and `FeatureStore` are imported on first use, because only extraction needs torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fewlabels.features.embedded import load_embedded
from fewlabels.features.feature_set import FeatureSet
from fewlabels.features.readers import read_features

if TYPE_CHECKING:
    from fewlabels.features.extraction import extract
    from fewlabels.features.store import FeatureStore

__all__ = ["FeatureSet", "FeatureStore", "extract", "load_embedded", "read_features"]

_HOME = {"FeatureStore": "store", "extract": "extraction"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"fewlabels.features.{_HOME[name]}"), name)
    raise AttributeError(f"module 'fewlabels.features' has no attribute {name!r}")
