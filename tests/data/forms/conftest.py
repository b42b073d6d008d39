"""Small files in the forms of the benchmarks: every class, few and tiny images."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fewlabels.data import BENCHMARKS


def _tiny(color: int) -> Image.Image:
    return Image.new("RGB", (2, 2), (color % 256, color // 256 % 256, 7))


@pytest.fixture(scope="session")
def fill() -> Callable[..., None]:
    """Fills class folders with tiny numbered images; BMP bytes under any suffix, for speed."""

    def fill_folders(
        folders: list[Path], names: Callable[[Path, int], str], *, n_images: int
    ) -> None:
        for place, folder in enumerate(folders):
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(n_images):
                _tiny(100 * place + number).save(folder / names(folder, number), "bmp")

    return fill_folders


@pytest.fixture(scope="session")
def cifar_arrays() -> dict[str, np.ndarray]:
    """The 100 classes of CIFAR-100 with three train and two test images each, as (5, 32, 32, 3)."""
    rng = np.random.default_rng(0)
    return {
        name: rng.integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
        for name in sorted(BENCHMARKS["cifar-fs"].split_classes("all"))
    }
