"""The features in artifacts/ are what they say: classes, counts, accuracies, sizes of files."""

import json
from pathlib import Path

import numpy as np
import pytest

from fewlabels.backbones import load_encoder
from fewlabels.data import BENCHMARKS, read_benchmark
from fewlabels.evaluation.run import evaluate
from fewlabels.features import FeatureSet
from fewlabels.features.extraction import extract
from fewlabels.methods import configure
from fewlabels.training.recipe import Recipe

ARTIFACTS = Path(__file__).resolve().parents[1] / "artifacts"
FOLDERS = sorted(path.parent for path in ARTIFACTS.glob("*/*/metrics.json"))
EVERY_FOLDER = pytest.mark.parametrize(
    "folder", FOLDERS, ids=lambda folder: "/".join(folder.parts[-2:])
)
IMAGES = ARTIFACTS.parents[1] / "shared" / "data" / "cifar-fs"
MOST_BYTES = 60_000_000
# One-shot PT+MAP on novel classes that the README of artifacts/ states.
STATED = {
    "cifar-fs/wrn28-10": 89.23,
    "cifar-fs/wrn28-10-dct": 90.19,
    "cifar-fs/wrn28-10-48": 89.83,
    "cifar-fs/resnet18": 87.50,
    "cifar-fs/resnet12": 87.92,
    "cub/resnet12": 93.72,
    "cub/resnet12-dct": 93.94,
    "cub/resnet18": 92.98,
    "cub/resnet18-112": 93.27,
    "cub/resnet18-dct": 93.42,
    "cub/wrn28-10-dct": 93.95,
    "cifar-fs/conv4": 54.55,
}


def test_artifacts_are_small():
    assert sum(path.stat().st_size for path in ARTIFACTS.rglob("*") if path.is_file()) < MOST_BYTES


@EVERY_FOLDER
def test_features_are_of_the_classes_they_say(folder):
    dataset, backbone = folder.parts[-2:]
    splits = sorted(path.stem for path in folder.glob("*.safetensors") if path.stem != "backbone")
    assert splits in (["novel"], ["novel", "val"])
    for split in splits:
        found = FeatureSet.load(folder / f"{split}.safetensors")
        assert found.class_names == tuple(BENCHMARKS[dataset].classes[split])
        assert (
            found.provenance["dataset"],
            found.provenance["backbone"],
            found.provenance["split"],
        ) == (dataset, backbone, split)
        assert (found.features >= 0).all()
        if dataset == "cifar-fs":
            assert set(found.class_sizes) == {600}


@EVERY_FOLDER
def test_the_record_says_how_they_were_made(folder):
    metrics = json.loads((folder / "metrics.json").read_text())
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    recipe = Recipe.from_dict(metrics["recipe"])
    assert [report["epoch"] for report in log] == list(range(1, recipe.n_epochs + 1))
    assert metrics["kept_epoch"] == log[metrics["kept_epoch"]["epoch"] - 1]
    assert (
        metrics["views"]["chosen"]
        == FeatureSet.load(folder / "novel.safetensors").provenance["views"]
    )


@EVERY_FOLDER
def test_the_stated_accuracy_is_found_again(folder):
    dataset = folder.parts[-2]
    novel = FeatureSet.load(folder / "novel.safetensors")
    [result] = evaluate(
        [configure("map", n_shot=1, dataset=dataset)], novel, n_episodes=1000, seed=1
    )
    assert abs(result.accuracy - STATED["/".join(folder.parts[-2:])]) < 4 * result.ci95 / 1.96


@pytest.mark.parametrize(
    "names",
    [
        ("cifar-fs/wrn28-10", "cifar-fs/wrn28-10-dct"),
        ("cifar-fs/wrn28-10-48", "cifar-fs/wrn28-10-dct"),
        ("cub/resnet18-112", "cub/resnet18-dct"),
        ("cub/resnet18", "cub/resnet18-dct"),
        ("cub/resnet12", "cub/resnet12-dct"),
        ("cub/resnet12", "cub/resnet18-112"),
        ("cub/resnet12", "cub/wrn28-10-dct"),
    ],
)
def test_two_streams_hold_the_same_images_in_the_same_order(names):
    """Images that one stream finds alike, the other does too; in another order they would not."""
    streams = [FeatureSet.load(ARTIFACTS / name / "novel.safetensors") for name in names]
    for rows in streams[0].class_rows:
        roots = [np.sqrt(stream.features[rows]) for stream in streams]
        alike = [each @ each.T / np.outer(*[np.linalg.norm(each, axis=1)] * 2) for each in roots]
        pairs = np.triu_indices(len(rows), k=1)
        assert np.corrcoef(alike[0][pairs], alike[1][pairs])[0, 1] > 0.5


@pytest.mark.parametrize(
    ("dataset", "names", "stated"),
    [
        ("cifar-fs", ("wrn28-10-48", "wrn28-10-dct"), 90.80),
        ("cub", ("resnet12", "resnet12-dct", "resnet18-dct"), 94.56),
        ("cub", ("resnet12", "resnet12-dct", "resnet18-dct", "wrn28-10-dct"), 94.77),
    ],
)
def test_streams_side_by_side_have_the_stated_accuracy(dataset, names, stated):
    streams = [FeatureSet.load(ARTIFACTS / dataset / name / "novel.safetensors") for name in names]
    powered = [(stream.features + 1e-6) ** 0.4 for stream in streams]
    rows = np.hstack([each / np.linalg.norm(each, axis=1, keepdims=True) for each in powered])
    joined = FeatureSet.from_arrays(rows, streams[0].labels, streams[0].class_names)
    method = configure("map", n_shot=1, dataset=dataset, pipeline="unit | center | unit")
    [result] = evaluate([method], joined, n_episodes=1000, seed=1)
    assert abs(result.accuracy - stated) < 4 * result.ci95 / 1.96


@pytest.mark.skipif(not IMAGES.is_dir(), reason="needs the images of CIFAR-FS")
def test_the_shipped_checkpoint_gives_the_shipped_features_again():
    folder = ARTIFACTS / "cifar-fs" / "conv4"
    kept = FeatureSet.load(folder / "novel.safetensors")
    rows = list(range(0, len(kept), 400))
    images = read_benchmark("cifar-fs", IMAGES, split="novel").subset(rows)
    found = extract(images, [load_encoder(str(folder / "backbone.safetensors"))], store=None)
    assert found.names == kept.subset(rows).names
    step = np.sqrt(kept.features.max()) / 255  # of a root in 8 bits
    np.testing.assert_allclose(
        np.sqrt(found.features), np.sqrt(kept.features[rows]), atol=0.51 * step
    )
