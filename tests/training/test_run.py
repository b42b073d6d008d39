import dataclasses
import json

import numpy as np
import pytest
import torch

from fewlabels.backbones import load_encoder
from fewlabels.data import ImageSet
from fewlabels.errors import InputError
from fewlabels.features import FeatureSet
from fewlabels.features.extraction import extract
from fewlabels.training.embedding import embed
from fewlabels.training.recipe import Recipe
from fewlabels.training.run import check_disjoint, decode, train_backbone
from fewlabels.training.validation import validate

from .conftest import SIZE, make_images


def image_set(n_classes, n_each, *, seed, split, size=SIZE):
    images = make_images(n_classes, n_each, seed=seed, size=size)
    names = tuple(f"{split} {number}" for number in range(n_classes))
    return ImageSet.from_array(
        images.stack, images.labels, name="blocks", split=split, class_names=names
    )


@pytest.fixture(scope="module")
def sets():
    return {
        split: image_set(n, each, seed=seed, split=split)
        for seed, (split, n, each) in enumerate([("base", 4, 10), ("val", 3, 8), ("novel", 3, 4)])
    }


def test_a_folder_with_backbone_log_metrics_and_features(sets, recipe, tmp_path):
    folder = tmp_path / "run"
    trained = train_backbone(
        sets["base"],
        recipe,
        output=folder,
        val=sets["val"],
        extract=[sets["novel"]],
        views="best",
        device="cpu",
    )
    assert trained.finished
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["n_images"] == 40
    assert Recipe.from_dict(metrics["recipe"]) == recipe
    assert set(metrics["views"]) == {"chosen", "center", "flip", "ten"}
    novel = FeatureSet.load(folder / "novel.safetensors")
    assert (
        novel.provenance["dataset"],
        novel.provenance["split"],
        novel.provenance["backbone"],
    ) == ("blocks", "novel", "conv4")
    assert novel.provenance["views"] == metrics["views"]["chosen"]
    assert novel.class_names == sets["novel"].class_names


@pytest.mark.parametrize("views", ["center", "flip", "ten"])
def test_features_are_those_that_extraction_makes_of_the_checkpoint(sets, recipe, tmp_path, views):
    """The file is that of `extract`; features for validation, from pixels in memory, agree."""
    seen = []
    train_backbone(
        sets["base"],
        recipe,
        output=tmp_path,
        extract=[sets["novel"]],
        views=views,
        device="cpu",
        on_extraction=seen.append,
    )
    assert seen[-1].done == seen[-1].total == len(sets["novel"])
    encoder = load_encoder(str(tmp_path / "backbone.safetensors"))
    expected = extract(sets["novel"], [encoder], store=None, views=views)
    expected.save(tmp_path / "expected.safetensors", encoding="root8")
    written = (tmp_path / "novel.safetensors").read_bytes()
    assert written == (tmp_path / "expected.safetensors").read_bytes()
    size = recipe.image_size
    pixels = torch.from_numpy(decode(sets["novel"], size=size, crop=size).stack)
    in_memory = embed(encoder.module, pixels, views=views)
    largest = expected.features.max()
    np.testing.assert_allclose(in_memory, expected.features, rtol=0, atol=1e-5 * largest)


def test_images_are_kept_larger_than_the_network_where_the_recipe_says_so(recipe, tmp_path):
    large = image_set(2, 3, seed=5, split="base", size=24)
    pixels = decode(large, size=20, crop=16)
    assert pixels.stack.shape == (6, 16, 16, 3)
    np.testing.assert_array_equal(pixels.stack, large.stack(20)[:, 2:18, 2:18])
    wide = dataclasses.replace(recipe, stored_size=20, batch_size=4)
    assert train_backbone(large, wide, output=tmp_path, device="cpu").finished


@pytest.mark.parametrize("finish", [False, True])
def test_a_stopped_training_writes_features_if_told_to(sets, recipe, tmp_path, finish):
    shared = {"output": tmp_path, "val": sets["val"], "extract": [sets["novel"]], "device": "cpu"}
    stopped = train_backbone(sets["base"], recipe, stop_after=0.0, finish=finish, **shared)
    assert not stopped.finished
    assert stopped.epoch == 1
    assert (tmp_path / "novel.safetensors").exists() == finish
    if finish:
        early = FeatureSet.load(tmp_path / "novel.safetensors")
        pixels = torch.from_numpy(sets["novel"].stack(recipe.storage_size))
        expected = embed(stopped.backbone, pixels)
        step = np.sqrt(expected.max()) / 255  # of a root in 8 bits
        np.testing.assert_allclose(np.sqrt(early.features), np.sqrt(expected), atol=0.52 * step)
    assert train_backbone(sets["base"], recipe, **shared).finished  # it goes on all the same


def test_tests_may_see_larger_images_than_training(sets, recipe, tmp_path):
    """The same training; the transform of the backbone is the first, features are of both."""
    larger = dataclasses.replace(recipe, test_sizes=((24, 20), (18, 18)))
    losses = []
    for each in (recipe, larger):
        folder = tmp_path / each.transform.partition(" ")[0]
        trained = train_backbone(
            sets["base"],
            each,
            output=folder,
            val=sets["val"],
            extract=[sets["novel"]],
            views="best",
            device="cpu",
        )
        losses.append([report["loss"] for report in trained.reports])
    assert losses[0] == losses[1]
    encoder = load_encoder(folder / "backbone.safetensors")
    assert encoder.transform.startswith("resize(24) | crop(20) | normalize")
    metrics = json.loads((folder / "metrics.json").read_text())
    pixels = torch.from_numpy(decode(sets["val"], size=24, crop=20).stack)
    found = validate(embed(encoder.module, pixels), sets["val"].labels, n_episodes=600)
    assert metrics["views"]["center"] == pytest.approx(found)
    assert Recipe.from_dict(metrics["recipe"]) == larger
    written = FeatureSet.load(folder / "novel.safetensors")
    expected = 0
    for size, crop in larger.test_sizes:
        pixels = torch.from_numpy(decode(sets["novel"], size=size, crop=crop).stack)
        expected = expected + embed(encoder.module, pixels, views=metrics["views"]["chosen"]) / 2
    step = np.sqrt(expected.max()) / 255  # of a root in 8 bits
    np.testing.assert_allclose(np.sqrt(written.features), np.sqrt(expected), atol=0.52 * step)
    assert " and resize(18) | crop(18)" in written.provenance["transform"]


def test_classes_that_are_judged_must_not_be_trained_on(sets, recipe, tmp_path):
    twice = sets["base"].subset(torch.arange(20).numpy())
    with pytest.raises(
        InputError,
        match="base classes must not be among the base classes, got 4 in both, such as 'base 0'",
    ):
        check_disjoint(sets["base"], twice)
    with pytest.raises(InputError, match="must not be among"):
        train_backbone(sets["base"], recipe, output=tmp_path, val=sets["base"])


def test_bad_requests_are_said_before_any_work(sets, recipe, tmp_path):
    with pytest.raises(
        InputError, match="views must be one of center, flip, ten, best, got 'many'"
    ):
        train_backbone(sets["base"], recipe, output=tmp_path, views="many")
    with pytest.raises(InputError, match="views='best' needs validation classes, got none"):
        train_backbone(sets["base"], recipe, output=tmp_path, views="best")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file cannot be written"):
        train_backbone(sets["base"], recipe, output=tmp_path / "file")
    nameless = dataclasses.replace(sets["base"], labels=np.full(40, -1))
    with pytest.raises(InputError, match="every image of blocks must have a class, got 40 without"):
        train_backbone(nameless, recipe, output=tmp_path)
