"""System: a backbone with a head of its own, trained and tested on episodes.

Rows of an episode are ordered by class, and within a class the support comes first. A system turns
images into rows of any shape (`represent`) and labels the queries of many episodes at once
(`answer`). Its training loss is the cross-entropy of the queries, unless it says otherwise.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fewlabels.backbones import Backbone
from fewlabels.errors import InputError, unknown_choice


class Shape(NamedTuple):
    """Sizes of an episode; `n_shot` and `n_query` are per class."""

    n_way: int
    n_shot: int
    n_query: int

    @property
    def n_each(self) -> int:
        """Images per class."""
        return self.n_shot + self.n_query


@dataclass(frozen=True)
class NoSettings:
    """For systems without settings."""


class System(nn.Module, ABC):
    """A backbone and a head; see the file of each system for its formulas.

    Attributes:
        name: In recipes.
        title: In tables.
        reference: Authors, year, title.
        Settings: A dataclass, the table `settings` of recipes.
        frozen: Whether the backbone is not trained; `represent` then takes its features.
        gives_features: Whether its trained backbone alone gives features of images.
        uses_shots: Whether training depends on the number of shots.
        fixed_n_way: Whether episodes of tests must have the n_way of training.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    reference: ClassVar[str]
    Settings: ClassVar[type] = NoSettings
    frozen: ClassVar[bool] = False
    gives_features: ClassVar[bool] = True
    uses_shots: ClassVar[bool] = True
    fixed_n_way: ClassVar[bool] = False

    def __init__(
        self,
        backbone: Backbone | None,
        settings: Any,
        *,
        feature_dim: int,
        n_way: int,
        n_classes: int,
    ) -> None:
        """A system with random weights of its head.

        Args:
            backbone: None for a frozen system.
            settings: Of type `Settings`.
            feature_dim: Of the backbone.
            n_way: Classes per episode of training.
            n_classes: Base classes.
        """
        super().__init__()
        self.backbone = backbone
        self.settings = settings
        self.feature_dim, self.n_way, self.n_classes = feature_dim, n_way, n_classes

    @property
    def kept(self) -> nn.Module:
        """What a training averages, validates and keeps: the whole system."""
        return self

    def represent(self, images: Tensor) -> Tensor:
        """What `answer` takes, (N, 3, S, S) -> (N, ...); by default the features (N, D)."""
        assert self.backbone is not None
        features: Tensor = self.backbone(images)
        return features

    @abstractmethod
    def answer(self, support: Tensor, query: Tensor) -> Tensor:
        """Logits of queries, (E, W, K, ...) and (E, Q, ...) -> (E, Q, W)."""

    def forward(self, images: Tensor, labels: Tensor, shape: Shape) -> Tensor:  # noqa: ARG002
        """Training loss of episodes, (E * W * n_each, 3, S, S) -> a number.

        Args:
            images: Ordered as this module's text says.
            labels: (E * W * n_each,) base classes; some systems use them.
            shape: Of the episodes.
        """
        rows = widen(self.represent(images))
        with torch.autocast(rows.device.type, enabled=False):
            return query_loss(self.answer(*split_rows(rows, shape)), shape)


def split_rows(rows: Tensor, shape: Shape) -> tuple[Tensor, Tensor]:
    """Support and queries of episodes, (E * W * n_each, ...) -> (E, W, K, ...) and (E, Q, ...)."""
    by_class = rows.view(-1, shape.n_way, shape.n_each, *rows.shape[1:])
    return by_class[:, :, : shape.n_shot], by_class[:, :, shape.n_shot :].flatten(1, 2)


def widen(rows: Tensor) -> Tensor:
    """Rows of half precision as float32: heads are computed in it."""
    return rows.float() if rows.dtype in (torch.bfloat16, torch.float16) else rows


def query_loss(logits: Tensor, shape: Shape) -> Tensor:
    """Mean cross-entropy of queries ordered by class, (E, W * n_query, W) -> a number."""
    ways = torch.arange(shape.n_way, device=logits.device).repeat_interleave(shape.n_query)
    return F.cross_entropy(logits.flatten(0, 1), ways.repeat(len(logits)))


def squared_distances(rows: Tensor, centers: Tensor) -> Tensor:
    """Squared Euclidean distances, (..., Q, D) and (..., W, D) -> (..., Q, W)."""
    return (
        rows.square().sum(-1, keepdim=True)
        - 2 * rows @ centers.mT
        + centers.square().sum(-1).unsqueeze(-2)
    )


def both_views(images: Tensor) -> Tensor:
    """Each image and its mirror image, (N, 3, S, S) -> (2 N, 3, S, S), mirror images last."""
    return torch.cat([images, images.flip(3)])


def pair_views(rows: Tensor) -> Tensor:
    """Rows of `both_views` side by side, (2 N, D) -> (N, 2, D)."""
    return torch.stack(rows.chunk(2), dim=1)


class Systems(dict[str, type[System]]):
    """Systems by name; refuses duplicates and lists its choices."""

    def __missing__(self, name: str) -> type[System]:
        raise unknown_choice("system", name, self)

    def register(self, system: type[System]) -> type[System]:
        """Add a system; a decorator."""
        if system.name in self:
            raise InputError(
                f"a system named {system.name!r} must not exist already. Choose another name."
            )
        self[system.name] = system
        return system


SYSTEMS = Systems()
