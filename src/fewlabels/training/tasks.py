"""What the loop trains: classification of the base classes, or a system on episodes.

A task knows the length of an epoch, the rows of a step, the learner and its loss. All of it is a
function of the recipe and of the number of the step.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fewlabels.backbones import Backbone, build_backbone, load_backbone
from fewlabels.errors import InputError
from fewlabels.training.augment import normalize, to_float
from fewlabels.training.embedding import BATCH, embed
from fewlabels.training.episodic import AnyRecipe, EpisodicRecipe
from fewlabels.training.objectives import Learner, compute_loss
from fewlabels.training.recipe import Recipe
from fewlabels.training.schedule import episode_stream, epoch_order
from fewlabels.training.systems import System


class Represented(NamedTuple):
    """A system and what it takes of images, (N, ...): ready to answer episodes."""

    system: System
    rows: Tensor


class Task(Protocol):
    """A kind of training."""

    steps_per_epoch: int
    random: bool  # whether the loss draws from torch's global stream
    frozen: bool  # whether rows are features instead of pixels

    def build_learner(self) -> nn.Module:
        """The module to train; its `kept` is what is validated and kept."""
        ...

    def batches(self, epoch: int, device: torch.device) -> Iterator[Tensor]:
        """Row numbers of each step of an epoch."""
        ...

    def loss(
        self,
        model: nn.Module,
        images: Tensor,
        labels: Tensor,
        step: int,
        objective: str,
        rng: np.random.Generator,
    ) -> tuple[Tensor, int]:
        """The loss of one shard of a step, and how many images it saw."""
        ...

    def subject(self, kept: Any, pixels: Tensor, *, bf16: bool) -> Any:
        """What validation takes: features, or a system with representations."""
        ...


def make_task(labels: NDArray[np.int64], feature_dim: int, recipe: AnyRecipe) -> Task:
    """The task of a recipe.

    Args:
        labels: (N,) base classes of the images.
        feature_dim: Of rows that are features; ignored for images.
        recipe: Of either kind.
    """
    if isinstance(recipe, EpisodicRecipe):
        return EpisodeTask(labels, feature_dim, recipe)
    return ClassTask(labels, recipe)


class ClassTask:
    """Classes, rotations and mixed images (`objectives`); an epoch sees every image once."""

    frozen = False

    def __init__(self, labels: NDArray[np.int64], recipe: Recipe) -> None:
        self.recipe, self.n_images = recipe, len(labels)
        self.n_classes = int(labels.max()) + 1
        self.random = bool(recipe.dropout)
        self.steps_per_epoch = self.n_images // recipe.batch_size
        if self.steps_per_epoch < 1:
            raise InputError(
                f"batch_size must be at most the number of base images, {self.n_images}, "
                f"got {recipe.batch_size}."
            )

    def build_learner(self) -> nn.Module:
        """See `Task`."""
        backbone = _build(self.recipe)
        torch.manual_seed(self.recipe.seed)  # weights of the heads, the same in every process
        return Learner(backbone, n_classes=self.n_classes, recipe=self.recipe)

    def batches(self, epoch: int, device: torch.device) -> Iterator[Tensor]:
        """See `Task`."""
        order = torch.from_numpy(epoch_order(self.recipe.seed, epoch, self.n_images)).to(device)
        size = self.recipe.batch_size
        yield from order[: self.steps_per_epoch * size].view(self.steps_per_epoch, size)

    def loss(
        self,
        model: nn.Module,
        images: Tensor,
        labels: Tensor,
        step: int,  # noqa: ARG002 - as Task
        objective: str,
        rng: np.random.Generator,
    ) -> tuple[Tensor, int]:
        """See `Task`."""
        return compute_loss(model, images, labels, objective, self.recipe, rng)

    def subject(self, kept: Any, pixels: Tensor, *, bf16: bool) -> Any:
        """See `Task`."""
        return embed(kept, pixels, bf16=bf16)


class EpisodeTask:
    """A system on episodes of the base classes; an epoch has the recipe's number of steps."""

    random = True  # dropout and samples of heads

    def __init__(self, labels: NDArray[np.int64], feature_dim: int, recipe: EpisodicRecipe) -> None:
        self.recipe, self.feature_dim = recipe, feature_dim
        self.frozen, self.steps_per_epoch = recipe.kind.frozen, recipe.steps_per_epoch
        self.classes = [np.flatnonzero(labels == number) for number in range(labels.max() + 1)]
        if recipe.n_way > len(self.classes):
            raise InputError(
                f"n_way must be at most the number of base classes, {len(self.classes)}, "
                f"got {recipe.n_way}."
            )
        smallest, needed = min(map(len, self.classes)), max(recipe.shots) + recipe.n_query
        if needed > smallest:
            raise InputError(
                "shots and n_query together must be at most the images of the smallest base "
                f"class, {smallest}, got {max(recipe.shots)} + {recipe.n_query}. Lower one."
            )

    def build_learner(self) -> nn.Module:
        """See `Task`."""
        recipe = self.recipe
        backbone = None if self.frozen else _build(recipe)
        if backbone is not None and recipe.start:
            start = load_backbone(recipe.start, name=recipe.backbone).backbone
            backbone.load_state_dict(start.state_dict())
        return build_system(
            recipe,
            backbone,
            feature_dim=self.feature_dim if backbone is None else backbone.feature_dim,
            n_classes=len(self.classes),
        )

    def batches(self, epoch: int, device: torch.device) -> Iterator[Tensor]:
        """See `Task`."""
        first = epoch * self.steps_per_epoch
        rows = [self.draw(step) for step in range(first, first + self.steps_per_epoch)]
        moved = torch.from_numpy(np.concatenate(rows)).to(device)
        yield from torch.split(moved, [*map(len, rows)])

    def draw(self, step: int) -> NDArray[np.int64]:
        """The rows of a step: by episode, by class, support first."""
        rng, shape = episode_stream(self.recipe.seed, step), self.recipe.shape(step)
        return np.concatenate(
            [
                rng.choice(self.classes[number], shape.n_each, replace=False)
                for _ in range(self.recipe.episodes_per_step)
                for number in rng.choice(len(self.classes), shape.n_way, replace=False)
            ]
        )

    def loss(
        self,
        model: nn.Module,
        images: Tensor,
        labels: Tensor,
        step: int,
        objective: str,  # noqa: ARG002 - as Task
        rng: np.random.Generator,  # noqa: ARG002 - as Task
    ) -> tuple[Tensor, int]:
        """See `Task`."""
        return model(images, labels, self.recipe.shape(step)), len(images)

    def subject(self, kept: Any, pixels: Tensor, *, bf16: bool) -> Any:
        """See `Task`."""
        return represent(kept, pixels, bf16=bf16)


def build_system(
    recipe: EpisodicRecipe, backbone: Backbone | None, *, feature_dim: int, n_classes: int
) -> System:
    """The system of a recipe with random weights of its head."""
    torch.manual_seed(recipe.seed)
    return recipe.kind(
        backbone,
        recipe.settings,
        feature_dim=feature_dim,
        n_way=recipe.n_way,
        n_classes=n_classes,
    )


@torch.no_grad()
def represent(system: System, pixels: Tensor, *, bf16: bool = False) -> Represented:
    """Representations of images in one view, (N, S, S, 3) uint8 or (N, D) features."""
    done = []
    for start in range(0, len(pixels), BATCH):
        images = pixels[start : start + BATCH]
        if not system.frozen:
            images = normalize(to_float(images)).contiguous(memory_format=torch.channels_last)
        with torch.autocast(pixels.device.type, dtype=torch.bfloat16, enabled=bf16):
            done.append(system.represent(images).float())
    return Represented(system, torch.cat(done))


def _build(recipe: AnyRecipe) -> Backbone:
    return build_backbone(
        recipe.backbone, dropout=recipe.dropout, image_size=recipe.image_size, seed=recipe.seed
    )
