"""Stage 3: feature vectors with their class numbers, kept in files and read from foreign dumps."""

from ptmap.features.embedded import load_embedded
from ptmap.features.feature_set import FeatureSet
from ptmap.features.readers import read_features

__all__ = ["FeatureSet", "load_embedded", "read_features"]
