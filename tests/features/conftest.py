"""Folders of tiny images, and tiny networks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from fewlabels.backbones.encoder import Encoder, digest_weights
from fewlabels.data import ImageSet
from fewlabels.data.sources import ImageFile

SIDE = 12


def pixels_of(number: int) -> Image.Image:
    """An image of its own for each number."""
    return Image.fromarray(
        np.random.default_rng(number).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    )


@dataclass(frozen=True)
class Watched(ImageFile):
    """A file that notes when it is hashed and read."""

    notes: list[tuple[str, str]] = field(default_factory=list, compare=False)

    def read(self) -> Image.Image:
        self.notes.append(("read", self.path.name))
        return super().read()

    def digest(self) -> str:
        self.notes.append(("hash", self.path.name))
        return super().digest()


@pytest.fixture
def make_images(tmp_path) -> Callable[..., tuple[ImageSet, list[tuple[str, str]]]]:
    """Writes images of classes even and odd; returns the set, and notes of reads and hashes."""

    def make(
        numbers: Sequence[int], *, folder: str = "photos", suffix: str = ".bmp"
    ) -> tuple[ImageSet, list[tuple[str, str]]]:
        notes: list[tuple[str, str]] = []
        paths = [tmp_path / folder / f"{number}{suffix}" for number in numbers]
        (tmp_path / folder).mkdir(exist_ok=True)
        for number, path in zip(numbers, paths, strict=True):
            if not path.exists():
                pixels_of(number).save(path)
        labels = np.array([-1 if number == 7 else number % 2 for number in numbers])
        names = tuple(path.name for path in paths)
        return ImageSet(
            folder,
            "all",
            ("even", "odd"),
            labels,
            names,
            tuple(Watched(path, notes) for path in paths),
        ), notes

    return make


@pytest.fixture(scope="session")
def make_encoder() -> Callable[..., Encoder]:
    """A convolution, batch norm, ReLU and pooling with random weights."""

    def make(
        seed: int = 0,
        *,
        dim: int = 5,
        transform: str = "crop(8) | normalize(0.5 0.5 0.5, 0.2 0.2 0.2)",
        name: str = "tiny",
    ) -> Encoder:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            layers = [
                nn.Conv2d(3, dim, 3),
                nn.BatchNorm2d(dim),
                nn.ReLU(),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
            ]
            module = nn.Sequential(*layers).eval().requires_grad_(False)
        return Encoder(name, module, transform, dim, digest_weights(module, architecture=name))

    return make


@pytest.fixture
def trusting(monkeypatch) -> None:
    """Files count as settled 10 ms after a change, the clock step of the file systems here."""
    monkeypatch.setattr("fewlabels.features.file_digests.RACY_NS", 10_000_000)
