"""The features that travel with the package, so that everything can be tried without a download."""

from pathlib import Path

from fewlabels.features.feature_set import FeatureSet

FILE = (
    Path(__file__).parent / "embedded" / "cifar-fs-wrn28-10-novel.safetensors"
)  # made by tests/features/make_embedded.py


def load_embedded() -> FeatureSet:
    """200 images of each of the 20 novel classes of CIFAR-FS, as a WRN-28-10 sees them.

    >>> load_embedded().features.shape
    (4000, 640)
    """
    return FeatureSet.load(FILE)
