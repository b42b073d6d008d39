import numpy as np
import pytest
import torch

from fewlabels.training.loop import DecodedImages
from fewlabels.training.processes import Processes
from fewlabels.training.recipe import Optimizer, Recipe, Stage

SIZE = 16


def make_images(n_classes, n_each, *, seed, size=SIZE):
    """Classes of colored blocks with noise: easy to learn, cheap to pass."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 255, (n_classes, 4, 4, 3)).repeat(size // 4, 1).repeat(size // 4, 2)
    noisy = blocks[:, None] + rng.normal(0, 25, (n_classes, n_each, size, size, 3))
    return DecodedImages(
        np.clip(noisy, 0, 255).reshape(-1, size, size, 3).astype(np.uint8),
        np.repeat(np.arange(n_classes), n_each),
    )


@pytest.fixture(scope="session")
def base():
    return make_images(4, 10, seed=0)


@pytest.fixture(scope="session")
def val():
    return make_images(3, 8, seed=1)


@pytest.fixture
def recipe():
    """Two stages of tiny epochs, exact on a CPU."""
    return Recipe(
        backbone="conv4",
        stages=(Stage("rotation", 1), Stage("mixup+rotation", 2)),
        image_size=SIZE,
        batch_size=8,
        ema=0.9,
        precision="float32",
        compile=False,
        optimizer=Optimizer(warmup_epochs=0.5, lr=0.05),
    )


@pytest.fixture
def alone():
    return Processes(0, 1, torch.device("cpu"))
