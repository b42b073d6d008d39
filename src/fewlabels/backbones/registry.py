"""Backbones by name: a dict that refuses duplicates and lists its choices for unknown names."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from fewlabels.backbones import (
    conv4,
    dct,
    densenet,
    mobilenet,
    resnet,
    resnet12,
    wrn,
    wrn_simpleshot,
)
from fewlabels.backbones.backbone import Backbone
from fewlabels.backbones.layout import Layout
from fewlabels.errors import InputError, unknown_choice

SMALLEST_IMAGE = 16  # pixels per side: after four halvings, one position is left


class Architecture(NamedTuple):
    """The function that builds a backbone, its fixed arguments, and the free ones it takes."""

    build: Callable[..., Backbone]
    fixed: Mapping[str, Any] = {}
    takes: frozenset[str] = frozenset()  # of "dropout" and "image_size"
    layouts: tuple[Layout, ...] = ()  # of published weights


class Registry(dict[str, Architecture]):
    """Architectures by name."""

    def __setitem__(self, name: str, architecture: Architecture) -> None:
        if name in self:
            raise InputError(
                f"a backbone named {name!r} must not exist already. Choose another name."
            )
        super().__setitem__(name, architecture)

    def __missing__(self, name: str) -> Architecture:
        raise unknown_choice("backbone", name, self)


DROPOUT, IMAGE_SIZE = frozenset({"dropout"}), frozenset({"image_size"})
RESNET10, RESNET18 = {"n_blocks": 1}, {"n_blocks": 2}
SMALL_STEM = {"image_size": resnet.SMALL_IMAGE}
BACKBONES = Registry()
BACKBONES["wrn28-10"] = Architecture(wrn.build_wrn, takes=DROPOUT, layouts=(wrn.S2M2,))
BACKBONES["resnet12"] = Architecture(resnet12.build_resnet12, takes=DROPOUT)
BACKBONES["resnet18"] = Architecture(resnet.build_resnet, RESNET18, takes=IMAGE_SIZE)
BACKBONES["resnet18-3x3"] = Architecture(
    resnet.build_resnet, RESNET18 | SMALL_STEM, layouts=(resnet.AUTHORS, resnet.SIMPLESHOT)
)
BACKBONES["resnet10"] = Architecture(resnet.build_resnet, RESNET10, takes=IMAGE_SIZE)
BACKBONES["resnet10-3x3"] = Architecture(
    resnet.build_resnet, RESNET10 | SMALL_STEM, layouts=(resnet.SIMPLESHOT,)
)
BACKBONES["conv4"] = Architecture(conv4.build_conv4)
BACKBONES["conv4-flat"] = Architecture(
    conv4.build_conv4_flat, takes=IMAGE_SIZE, layouts=(conv4.SIMPLESHOT,)
)
BACKBONES["conv4-32-flat"] = Architecture(
    conv4.build_conv4_flat, {"channels": (32,) * 4}, takes=IMAGE_SIZE
)
BACKBONES["mobilenet"] = Architecture(mobilenet.build_mobilenet, layouts=(mobilenet.SIMPLESHOT,))
BACKBONES["wrn28-10-dct"] = Architecture(dct.build_wrn_dct, takes=DROPOUT)
BACKBONES["resnet12-dct"] = Architecture(dct.build_resnet12_dct, takes=DROPOUT)
BACKBONES["resnet18-dct"] = Architecture(dct.build_resnet_dct, RESNET18, takes=IMAGE_SIZE)
BACKBONES["wrn28-10-simpleshot"] = Architecture(
    wrn_simpleshot.build_wrn_simpleshot, takes=DROPOUT, layouts=(wrn_simpleshot.SIMPLESHOT,)
)
BACKBONES["densenet121"] = Architecture(densenet.build_densenet, layouts=(densenet.SIMPLESHOT,))


def build_backbone(
    name: str, *, dropout: float = 0.0, image_size: int = 84, seed: int = 0
) -> Backbone:
    """A backbone with random weights, in training mode.

    Args:
        dropout: Probability of dropout inside the blocks; 0 for architectures without dropout.
        image_size: Side of the images in pixels; decides the stem of resnet10 and resnet18.
        seed: Of the weights. Torch's global generator is not changed.

    >>> build_backbone("conv4", image_size=32).feature_dim
    64
    """
    architecture = BACKBONES[name]
    if not 0 <= dropout < 1:
        raise InputError(f"dropout must be at least 0 and below 1, got {dropout}.")
    if dropout and "dropout" not in architecture.takes:
        having = ", ".join(other for other in BACKBONES if "dropout" in BACKBONES[other].takes)
        raise InputError(
            f"dropout must be 0 for {name}, which has none, got {dropout}. "
            f"Backbones with dropout: {having}."
        )
    if image_size < SMALLEST_IMAGE:
        raise InputError(
            f"image_size must be at least {SMALLEST_IMAGE} pixels, got {image_size}. "
            "Enlarge the images."
        )
    free = {"dropout": dropout, "image_size": image_size}
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        taken = {key: free[key] for key in architecture.takes}
        return architecture.build(**architecture.fixed, **taken)
