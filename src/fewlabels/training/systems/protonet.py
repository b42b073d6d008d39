"""Prototypical networks (Snell, Swersky and Zemel, NeurIPS 2017, arXiv:1703.05175).

    c_j = mean of the features of the support of class j
    logit_j(x) = -|f(x) - c_j|² / temperature

The paper's temperature is 1. Deep backbones that start from trained weights need a larger one.
"""

from dataclasses import dataclass

from torch import Tensor

from fewlabels.errors import InputError
from fewlabels.training.systems.base import SYSTEMS, System, squared_distances


@dataclass(frozen=True)
class ProtoNetSettings:
    """Settings of ProtoNet."""

    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise InputError(f"temperature must be positive, got {self.temperature}.")


@SYSTEMS.register
class ProtoNet(System):
    """Nearest class mean of features that were trained for it."""

    name, title = "protonet", "ProtoNet"
    reference = "Snell et al. 2017, Prototypical networks for few-shot learning"
    Settings = ProtoNetSettings

    def answer(self, support: Tensor, query: Tensor) -> Tensor:
        """(E, W, K, D) and (E, Q, D) -> (E, Q, W)."""
        temperature: float = self.settings.temperature
        return -squared_distances(query, support.mean(dim=2)) / temperature
