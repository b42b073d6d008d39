"""Baseline++ (Chen et al., ICLR 2019, arXiv:1904.04232): a cosine classifier, twice.

    training:  logit_k(x) = scale * cos(f(x), w_k) over all base classes, every image of the batch
    episodes:  the same classifier for the classes of the episode, fitted to its support by
               gradient descent with momentum; the backbone stays as it is

The fit starts at the class means, and each step takes the whole support. The authors start at
random weights and take four images per step.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fewlabels.errors import InputError
from fewlabels.training.objectives import CosineHead
from fewlabels.training.systems.base import SYSTEMS, Shape, System

MOMENTUM, WEIGHT_DECAY = 0.9, 1e-3  # of the fit, as the authors'


@dataclass(frozen=True)
class BaselineSettings:
    """Settings of Baseline++."""

    scale: float = 10.0  # initial value in training; the fit uses the learned one
    fit_lr: float = 0.01
    fit_steps: int = 100

    def __post_init__(self) -> None:
        if min(self.scale, self.fit_lr) <= 0:
            raise InputError("scale and fit_lr must be positive.")
        if self.fit_steps < 0:
            raise InputError(f"fit_steps must not be negative, got {self.fit_steps}.")


@SYSTEMS.register
class BaselinePlusPlus(System):
    """A cosine classifier on the base classes, and one fitted to each support."""

    name, title = "baseline++", "Baseline++"
    reference = "Chen et al. 2019, A closer look at few-shot classification"
    Settings = BaselineSettings
    uses_shots = False

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self.head = CosineHead(self.feature_dim, self.n_classes, scale=self.settings.scale)

    def forward(self, images: Tensor, labels: Tensor, shape: Shape) -> Tensor:  # noqa: ARG002
        """Cross-entropy of the base classes, (N, 3, S, S) and (N,) -> a number."""
        return F.cross_entropy(self.head(self.represent(images)).float(), labels)

    def answer(self, support: Tensor, query: Tensor) -> Tensor:
        """(E, W, K, D) and (E, Q, D) -> (E, Q, W)."""
        n_episodes, n_way, n_shot = support.shape[:3]
        scale = self.head.scale.detach()
        rows = F.normalize(support.detach().flatten(1, 2), dim=-1)  # (E, S, D)
        ways = torch.arange(n_way, device=rows.device).repeat_interleave(n_shot).repeat(n_episodes)
        weights = rows.view_as(support).mean(dim=2)  # (E, W, D)
        velocity = torch.zeros_like(weights)
        for _ in range(self.settings.fit_steps):
            with torch.enable_grad():
                weights.requires_grad_()
                logits = scale * rows @ F.normalize(weights, dim=-1).mT
                # a sum over episodes, so that each has the gradient that it has alone
                loss = F.cross_entropy(logits.flatten(0, 1), ways) * n_episodes
            [gradient] = torch.autograd.grad(loss, weights)
            velocity = MOMENTUM * velocity + gradient + WEIGHT_DECAY * weights.detach()
            weights = weights.detach() - self.settings.fit_lr * velocity
        return scale * F.normalize(query, dim=-1) @ F.normalize(weights, dim=-1).mT
