"""Small feature files."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def make_file(tmp_path) -> Callable[..., Path]:
    """Writes classes of made-up vectors that are not negative, twenty rows per class."""

    def make(name: str = "features.npz", *, n_classes: int = 6, seed: int = 0) -> Path:
        rng = np.random.default_rng(seed)
        labels = np.repeat(np.arange(n_classes), 20)
        vectors = np.abs(
            rng.gamma(1.0, size=(n_classes, 6))[labels] + 0.4 * rng.normal(size=(len(labels), 6))
        )
        np.savez(tmp_path / name, features=vectors.astype(np.float32), labels=labels)
        return tmp_path / name

    return make
