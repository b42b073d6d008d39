"""SavedBackbone: a backbone that came from a file, and how weights are compared with an architecture."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fewlabels.backbones.backbone import Backbone
from fewlabels.backbones.layout import State
from fewlabels.backbones.registry import build_backbone

N_SHOWN = 3  # differences named in a message


@dataclass(frozen=True, eq=False)
class SavedBackbone:
    """A backbone from a file, with what the file says about it."""

    backbone: Backbone
    name: str
    options: dict[str, Any]  # of build_backbone
    transform: str  # what its images must go through, as one line
    provenance: dict[str, str]


def build_empty(name: str, options: Mapping[str, Any]) -> Backbone:
    """The architecture without memory for its weights: only their names and shapes."""
    with torch.device("meta"):
        return build_backbone(name, **options)


def build_filled(name: str, options: Mapping[str, Any], state: State) -> Backbone:
    """The architecture with these weights, which must fit."""
    backbone = build_empty(name, options).to_empty(device="cpu")
    backbone.load_state_dict(state)
    return backbone


def find_differences(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> list[str]:
    """What keeps `found` from fitting, in words; nothing if all names and shapes agree.

    >>> find_differences({"a": torch.zeros(2, 3), "b": torch.zeros(())}, {"a": torch.zeros(4, 3), "c": torch.zeros(5)})
    ['a is 4x3 instead of 2x3', 'b (a number) is missing', 'c (5) is not expected']
    """
    shared = [key for key in expected if key in found and expected[key].shape != found[key].shape]
    return [
        *(f"{key} is {_shape(found[key])} instead of {_shape(expected[key])}" for key in shared),
        *(
            f"{key} ({_shape(tensor)}) is missing"
            for key, tensor in expected.items()
            if key not in found
        ),
        *(
            f"{key} ({_shape(tensor)}) is not expected"
            for key, tensor in found.items()
            if key not in expected
        ),
    ]


def name_differences(differences: list[str]) -> str:
    """The first few differences and how many more there are."""
    more = (
        f" and {len(differences) - N_SHOWN} more differences" if len(differences) > N_SHOWN else ""
    )
    return "; ".join(differences[:N_SHOWN]) + more


def _shape(tensor: Tensor) -> str:
    return "x".join(str(size) for size in tensor.shape) or "a number"
