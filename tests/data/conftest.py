"""Small made-up images, and the way to the real ones."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SHARED = Path(__file__).resolve().parents[2].parent / "shared"


def _noise(width: int = 8, height: int = 6, *, seed: int = 0, channels: int = 3) -> np.ndarray:
    shape = (height, width) if channels == 1 else (height, width, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


@pytest.fixture(scope="session")
def noise() -> Callable[..., np.ndarray]:
    return _noise


@pytest.fixture
def write(tmp_path) -> Callable[..., Path]:
    """Writes a noise image, or any bytes, into the folder of the test."""

    def write_image(
        name: str, *, seed: int = 0, width: int = 8, height: int = 6, content: bytes | None = None
    ) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            Image.fromarray(_noise(width, height, seed=seed)).save(path)
        else:
            path.write_bytes(content)
        return path

    return write_image


@pytest.fixture(scope="session")
def real() -> Path:
    """The folder of real images beside the repository."""
    if not (SHARED / "data").exists():
        pytest.skip("the shared folder is not here")
    return SHARED / "data"


@pytest.fixture(scope="session")
def shared(real) -> Path:
    return real.parent
