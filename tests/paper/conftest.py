"""A small stand-in for CIFAR-FS features: its class names and counts, made-up vectors."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fewlabels.features import FeatureSet
from fewlabels.paper.benchmarks import expected_classes
from fewlabels.paper.ledger import Ledger
from fewlabels.paper.library import Library

PER_CLASS = 101  # Figure 3 draws one support row and 99 queries of one class


def _make_benchmark(
    split: str = "novel", *, dataset: str = "cifar-fs", backbone: str = "wrn28-10", seed: int = 0
) -> FeatureSet:
    names = expected_classes(dataset, split)
    labels = np.repeat(np.arange(len(names)), PER_CLASS)
    rng = np.random.default_rng(seed)
    features = rng.gamma(1.0, size=(len(names), 6))[labels] * rng.gamma(2.0, size=(len(labels), 6))
    about = {"dataset": dataset, "backbone": backbone, "split": split}
    return FeatureSet.from_arrays(features.astype(np.float32), labels, names, about)


@pytest.fixture(scope="session")
def make_benchmark() -> Callable[..., FeatureSet]:
    return _make_benchmark


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory) -> Path:
    """A folder of artifacts with CIFAR-FS, WRN, validation and novel classes."""
    folder = tmp_path_factory.mktemp("artifacts")
    (folder / "cifar-fs" / "wrn28-10").mkdir(parents=True)
    for number, split in enumerate(("val", "novel")):
        _make_benchmark(split, seed=number).save(
            folder / "cifar-fs" / "wrn28-10" / f"{split}.safetensors"
        )
    return folder


@pytest.fixture
def ledger(artifacts, tmp_path) -> Ledger:
    return Ledger(tmp_path, Library(artifacts), n_episodes=12)
