"""The features that are part of the package, so that it can be tried without a download."""

from pathlib import Path

from fewlabels.features.feature_set import FeatureSet

# Made by tests/features/make_embedded.py.
FILE = Path(__file__).parent / "embedded" / "cifar-fs-wrn28-10-novel.safetensors"


def load_embedded() -> FeatureSet:
    """WRN-28-10 features of 200 images of each of the 20 novel classes of CIFAR-FS.

    >>> load_embedded().features.shape
    (4000, 640)
    """
    return FeatureSet.load(FILE)
