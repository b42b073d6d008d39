"""Losses: classes, rotations, and classes of mixed images (S2M2_R; Mangla et al., WACV 2020).

    plain            CE(class)
    rotation         ½ CE(class) + ½ CE(rotation), every image in four rotations
    mixup+rotation   w CE(class) + (1 - w) CE(class of the partner) on images mixed at a random
                     depth (manifold mixup, Verma et al. 2019), plus ½ CE(class) + ½ CE(rotation) on
                     a quarter of the images in four rotations, not mixed

CE is the cross-entropy. Mixed and rotated rows are one batch of the network, with common
normalization statistics.
"""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fewlabels.backbones import Backbone
from fewlabels.training.augment import rotate
from fewlabels.training.recipe import N_ROTATIONS, Recipe

MIXING_DEPTHS = 4  # the input and the outputs of the first three stages


class CosineHead(nn.Module):
    """Logits = scale × cosine of feature and class vector, with one learned scale."""

    def __init__(self, feature_dim: int, n_classes: int, *, scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_classes, feature_dim))
        self.scale = nn.Parameter(torch.tensor(float(scale)))

    def forward(self, features: Tensor) -> Tensor:
        """Logits, (N, D) -> (N, classes)."""
        return self.scale * F.normalize(features, dim=1) @ F.normalize(self.weight, dim=1).T


class Mixing(NamedTuple):
    """Row i becomes weight × row i + (1 - weight) × its partner, at the given depth.

    Rows from len(partners) on are not changed.
    """

    partners: Tensor  # (n_mixed,) row numbers
    weight: float
    depth: int

    def __call__(self, rows: Tensor) -> Tensor:
        """Mix the first rows, (N, ...) -> (N, ...)."""
        n_mixed = len(self.partners)
        mixed = torch.lerp(rows[self.partners], rows[:n_mixed], self.weight)
        return mixed if len(rows) == n_mixed else torch.cat([mixed, rows[n_mixed:]])


class Learner(nn.Module):
    """A backbone with a class head and, if a stage needs it, a rotation head."""

    def __init__(self, backbone: Backbone, *, n_classes: int, recipe: Recipe) -> None:
        super().__init__()
        self.backbone = backbone
        dim = backbone.feature_dim
        self.classify: nn.Module = (
            CosineHead(dim, n_classes, scale=recipe.head_scale)
            if recipe.head == "cosine"
            else nn.Linear(dim, n_classes)
        )
        rotated = any(stage.objective != "plain" for stage in recipe.stages)
        self.tell_rotation = nn.Linear(dim, N_ROTATIONS) if rotated else None

    @property
    def kept(self) -> nn.Module:
        """What a training averages, validates and keeps: the backbone."""
        return self.backbone

    def forward(
        self, images: Tensor, mixing: Mixing | None, n_rotated: int
    ) -> tuple[Tensor, Tensor | None]:
        """Class and rotation logits, (N, 3, S, S) -> (N, classes) and (n_rotated, 4).

        Rotation logits are of the last n_rotated rows.
        """
        rows = images if mixing is None or mixing.depth != 0 else mixing(images)
        rows = self.backbone.stem(rows)
        for depth, stage in enumerate(self.backbone.stages, start=1):
            rows = stage(rows)
            if mixing is not None and mixing.depth == depth:
                rows = mixing(rows)
        features = self.backbone.head(rows)  # (N, D)
        turned = None
        if self.tell_rotation is not None and n_rotated:
            turned = self.tell_rotation(features[-n_rotated:])
        return self.classify(features), turned


def compute_loss(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    objective: str,
    recipe: Recipe,
    rng: np.random.Generator,
) -> tuple[Tensor, int]:
    """The loss of one shard of a batch, and its number of rows, rotated ones included.

    Args:
        images: (B, 3, S, S), augmented.
        labels: (B,) class numbers.
        rng: For mixing weight, depth and partners.
    """
    if objective == "plain":
        logits, _ = model(images, None, 0)
        return F.cross_entropy(logits.float(), labels), len(images)
    if objective == "rotation":
        rows = rotate(images)
        logits, turned = model(_channels_last(rows), None, len(rows))
        return _rotation_loss(logits, turned, labels), len(rows)
    n_turned = max(1, round(recipe.rotated_share * len(images)))
    rows = torch.cat([images, rotate(images[:n_turned])])
    partners = torch.from_numpy(rng.permutation(len(images))).to(images.device, non_blocking=True)
    weight = float(rng.beta(recipe.mixup_alpha, recipe.mixup_alpha))
    mixing = Mixing(partners, weight, int(rng.integers(MIXING_DEPTHS)))
    logits, turned = model(_channels_last(rows), mixing, N_ROTATIONS * n_turned)
    mixed, upright = logits[: len(images)].float(), logits[len(images) :]
    own, others = F.cross_entropy(mixed, labels), F.cross_entropy(mixed, labels[partners])
    mixed_loss = weight * own + (1 - weight) * others
    return mixed_loss + _rotation_loss(upright, turned, labels[:n_turned]), len(rows)


def _rotation_loss(logits: Tensor, turned: Tensor | None, labels: Tensor) -> Tensor:
    """½ CE(class) + ½ CE(rotation) of rows that `rotate` made."""
    assert turned is not None
    turns = torch.arange(N_ROTATIONS, device=labels.device).repeat_interleave(len(labels))
    by_class = F.cross_entropy(logits.float(), labels.repeat(N_ROTATIONS))
    return (by_class + F.cross_entropy(turned.float(), turns)) / 2


def _channels_last(rows: Tensor) -> Tensor:
    return rows.contiguous(memory_format=torch.channels_last)
