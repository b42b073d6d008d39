"""SavedBackbone: a backbone from a file; comparison of weights with an architecture."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fewlabels.backbones.backbone import Backbone
from fewlabels.backbones.layout import State
from fewlabels.backbones.registry import build_backbone
from fewlabels.io.words import listing


@dataclass(frozen=True, eq=False)
class SavedBackbone:
    """A backbone from a file, with the data of the file's header."""

    backbone: Backbone
    name: str
    options: dict[str, Any]  # of build_backbone
    transform: str  # of its images, as one line
    provenance: dict[str, str]


def build_empty(name: str, options: Mapping[str, Any]) -> Backbone:
    """The architecture without memory for its weights: only names and shapes."""
    with torch.device("meta"):
        return build_backbone(name, **options)


def build_filled(name: str, options: Mapping[str, Any], state: State) -> Backbone:
    """The architecture with these weights, which must fit."""
    backbone = build_empty(name, options).to_empty(device="cpu")
    backbone.load_state_dict(state)
    return backbone


def find_differences(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> list[str]:
    """Differences in names and shapes of weights, as texts; an empty list if all agree.

    >>> expected = {"a": torch.zeros(2, 3), "b": torch.zeros(())}
    >>> find_differences(expected, {"a": torch.zeros(4, 3), "c": torch.zeros(5)})
    ['a is 4x3 instead of 2x3', 'b (a number) is missing', 'c (5) is not expected']
    """
    shared = [key for key in expected if key in found and expected[key].shape != found[key].shape]
    missing = [each for each in expected.items() if each[0] not in found]
    surplus = [each for each in found.items() if each[0] not in expected]
    return [
        *(f"{key} is {_shape(found[key])} instead of {_shape(expected[key])}" for key in shared),
        *(f"{key} ({_shape(tensor)}) is missing" for key, tensor in missing),
        *(f"{key} ({_shape(tensor)}) is not expected" for key, tensor in surplus),
    ]


def name_differences(differences: list[str]) -> str:
    """The first three differences and the number of the others."""
    return listing(differences, most=3, separator="; ")


def _shape(tensor: Tensor) -> str:
    return "x".join(str(size) for size in tensor.shape) or "a number"
