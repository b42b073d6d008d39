"""Small collections: blobs of made-up features, folders of coloured pictures, a tiny encoder."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fewlabels.backbones import build_backbone, save_backbone
from fewlabels.features import FeatureSet
from fewlabels.features.store import FeatureStore
from fewlabels.labeling.collection import Extraction
from fewlabels.labeling.project import Project
from fewlabels.preprocess.power_rule import MOST_MEASUREMENTS

COLORS = {"apple": (200, 40, 40), "leek": (40, 170, 60), "plum": (90, 40, 150)}
N_PER_CLASS = 8


def draw(path: Path, color: tuple[int, int, int], seed: int, *, side: int = 32) -> None:
    noise = np.random.default_rng(seed).normal(scale=18, size=(side, side, 3))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.clip(np.array(color) + noise, 0, 255).astype(np.uint8)).save(path)


@pytest.fixture
def photos(tmp_path) -> Path:
    """Three classes of eight pictures, side by side: apple-0.png ... plum-7.png."""
    for number, (name, color) in enumerate(COLORS.items()):
        for i in range(N_PER_CLASS):
            draw(tmp_path / "photos" / f"{name}-{i}.png", color, seed=100 * number + i)
    return tmp_path / "photos"


@pytest.fixture
def few(photos) -> Path:
    """Two labels per class."""
    path = photos.parent / "few.csv"
    path.write_text(
        "path,label\n" + "".join(f"{name}-{i}.png,{name}\n" for name in COLORS for i in range(2))
    )
    return path


@pytest.fixture(scope="session")
def encoder(tmp_path_factory) -> str:
    """The path of a small network with random weights, which tells colours apart well enough."""
    path = tmp_path_factory.mktemp("encoder") / "conv4.safetensors"
    backbone = build_backbone("conv4", image_size=32)
    transform = "resize(32) | crop(32) | normalize(0.5 0.5 0.5, 0.5 0.5 0.5)"
    save_backbone(
        path, backbone, name="conv4", options={"image_size": 32}, transform=transform, provenance={}
    )
    return str(path)


@pytest.fixture
def extraction(encoder, tmp_path):
    return Extraction(
        backbone=encoder, device="cpu", n_workers=0, store=FeatureStore(tmp_path / "store")
    )


def make_blobs(
    *, n_classes: int = 4, per_class: int = 30, dim: int = 16, spread: float = 0.8, seed: int = 0
) -> FeatureSet:
    """Non-negative blobs that overlap a little, every row with its true label and a name.

    Their columns are repeated, so that they are as wide as features of a network.
    """
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_classes), per_class)
    features = (
        rng.gamma(1.0, size=(n_classes, dim))[labels]
        + spread * rng.gamma(1.0, size=(len(labels), dim))
    ).astype(np.float32)
    return FeatureSet.from_arrays(
        np.tile(features, 1 + MOST_MEASUREMENTS // dim),
        labels,
        [f"c{i}" for i in range(n_classes)],
        names=[f"item-{i:03d}" for i in range(len(labels))],
    )


@pytest.fixture(scope="session")
def blobs() -> FeatureSet:
    return make_blobs()


@pytest.fixture(scope="session", name="make_blobs")
def make_blobs_fixture() -> Callable[..., FeatureSet]:
    return make_blobs


@pytest.fixture(scope="session", name="hide")
def hide_fixture() -> Callable[..., np.ndarray]:
    return hide


def hide(labels: np.ndarray, n: int) -> np.ndarray:
    """The labels with all but the first n of each class hidden."""
    hidden = np.full(len(labels), -1)
    for way in range(labels.max() + 1):
        rows = np.flatnonzero(labels == way)[:n]
        hidden[rows] = way
    return hidden


@pytest.fixture
def make_project(tmp_path) -> Callable[..., Project]:
    """Projects of blobs with two imported labels per class, closed when the test ends."""
    made: list[Project] = []

    def make(
        name: str = "project", features: FeatureSet | None = None, *, n_labels: int = 2
    ) -> Project:
        features = make_blobs() if features is None else features
        project = Project.create(tmp_path / name, features, title="blobs")
        made.append(project)
        shown = np.flatnonzero(hide(features.labels, n_labels) >= 0)
        if n_labels:
            project.journal.decide(
                {features.names[i]: features.class_names[features.labels[i]] for i in shown},
                origin="import",
            )
        return project

    yield make
    for project in made:
        project.close()
