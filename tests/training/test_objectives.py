import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fewlabels.backbones import build_backbone
from fewlabels.training.augment import rotate
from fewlabels.training.objectives import MIXING_DEPTHS, CosineHead, Learner, Mixing, compute_loss


@pytest.fixture
def images():
    return torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))


LABELS = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])


@pytest.fixture
def learner(recipe):
    torch.manual_seed(0)
    return Learner(build_backbone("conv4", image_size=16), n_classes=4, recipe=recipe).eval()


def test_cosine_head_ignores_lengths():
    head = CosineHead(5, 3, scale=7.0)
    features = torch.rand(4, 5)
    cosines = nn.CosineSimilarity(dim=-1)(features[:, None], head.weight[None])
    torch.testing.assert_close(head(features), 7 * cosines)
    torch.testing.assert_close(head(3 * features), head(features))


def test_plain_loss_is_cross_entropy_of_the_backbone(learner, images, recipe):
    loss, rows = compute_loss(
        learner, images, LABELS, objective="plain", recipe=recipe, rng=np.random.default_rng(0)
    )
    assert rows == 8
    torch.testing.assert_close(
        loss, F.cross_entropy(learner.classify(learner.backbone(images)), LABELS)
    )


def test_rotation_loss_asks_for_class_and_rotation_of_every_rotation(learner, images, recipe):
    loss, rows = compute_loss(
        learner, images, LABELS, objective="rotation", recipe=recipe, rng=np.random.default_rng(0)
    )
    want = 0.0
    for turns in range(4):
        features = learner.backbone(torch.rot90(images, turns, (2, 3)))
        said = F.cross_entropy(learner.tell_rotation(features), torch.full((8,), turns))
        want += (F.cross_entropy(learner.classify(features), LABELS) + said) / 2 / 4
    assert rows == 32
    torch.testing.assert_close(loss, want)


@pytest.mark.parametrize("seed", range(8))
def test_mixup_loss_mixes_images_at_the_drawn_depth(learner, images, recipe, seed):
    """In eval mode rows do not see one another, so mixed and rotated rows can be computed apart."""
    loss, rows = compute_loss(
        learner,
        images,
        LABELS,
        objective="mixup+rotation",
        recipe=recipe,
        rng=np.random.default_rng(seed),
    )
    assert rows == 8 + 4 * 2  # a quarter of the batch in four rotations
    rng = np.random.default_rng(seed)
    partners, weight, depth = (
        torch.from_numpy(rng.permutation(8)),
        rng.beta(2.0, 2.0),
        rng.integers(MIXING_DEPTHS),
    )
    parts = [learner.backbone.stem, *learner.backbone.stages]
    mixed = images
    for place in range(MIXING_DEPTHS):
        if place == depth:
            mixed = weight * mixed + (1 - weight) * mixed[partners]
        mixed = parts[0](mixed) if place == 0 else mixed
        if place < len(learner.backbone.stages):
            mixed = learner.backbone.stages[place](mixed)
    for stage in learner.backbone.stages[MIXING_DEPTHS:]:
        mixed = stage(mixed)
    logits = learner.classify(learner.backbone.head(mixed))
    want = weight * F.cross_entropy(logits, LABELS) + (1 - weight) * F.cross_entropy(
        logits, LABELS[partners]
    )
    features = learner.backbone(rotate(images[:2]))
    want = want + F.cross_entropy(learner.classify(features), LABELS[:2].repeat(4)) / 2
    want = (
        want
        + F.cross_entropy(learner.tell_rotation(features), torch.tensor([0, 0, 1, 1, 2, 2, 3, 3]))
        / 2
    )
    torch.testing.assert_close(loss, want, rtol=1e-4, atol=1e-5)


def test_mixing_leaves_the_rest_alone():
    rows = torch.arange(10.0).view(5, 2)
    mixed = Mixing(torch.tensor([1, 0]), 0.75, 0)(rows)
    torch.testing.assert_close(
        mixed, torch.tensor([[0.5, 1.5], [1.5, 2.5], [4, 5], [6, 7], [8, 9]])
    )


def test_every_weight_learns(recipe, images):
    learner = Learner(build_backbone("conv4", image_size=16), n_classes=4, recipe=recipe)
    loss, _ = compute_loss(
        learner,
        images,
        LABELS,
        objective="mixup+rotation",
        recipe=recipe,
        rng=np.random.default_rng(0),
    )
    loss.backward()
    assert all(
        weight.grad is not None and weight.grad.abs().sum() > 0 for weight in learner.parameters()
    )
