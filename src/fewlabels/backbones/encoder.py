"""Encoder: a network that computes features of images, with the transform of its images.

spec                        encoder
path of a checkpoint        a backbone trained with fewlabels, or published (checkpoint.py)
wrn28-10, resnet12, ...     the same; `weights` is the path, the file must hold this architecture
efficientnet-lite0, -lite2  small, pretrained on ImageNet, their weights are pip packages
timm:NAME, hf:ORG/NAME      any vision model of timm or of Hugging Face, with its own transform
clip:ORG/NAME               a model of images and text of Hugging Face: class names can be compared
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fewlabels.backbones import efficientnet_lite, hf_models, image_text, timm_models
from fewlabels.backbones.checkpoint import load_backbone
from fewlabels.backbones.registry import BACKBONES
from fewlabels.errors import InputError, one_of_several, unknown_choice
from fewlabels.io.stamps import short_hash

HUBS: dict[str, Callable[[str], tuple[nn.Module, str, int]]] = {
    "timm": timm_models.load_timm,
    "hf": hf_models.load_hf,
    image_text.HUB: image_text.load_clip,
}
HUB_NAMES = ("timm:NAME", "hf:ORG/NAME", "clip:ORG/NAME")
QUALITIES = {  # what a person asks for; benchmarks/encoders.py measures them
    "fast": "efficientnet-lite0",
    "good": "efficientnet-lite2",
    "best": "efficientnet-lite0+efficientnet-lite2",
}
CHOICES = (
    *QUALITIES,
    *BACKBONES,
    *efficientnet_lite.VARIANTS,
    *HUB_NAMES,
    "the path of a checkpoint",
)


@dataclass(frozen=True, eq=False)
class Encoder:
    """A network in evaluation mode, from images (N, 3, H, W) to features (N, feature_dim)."""

    name: str
    module: nn.Module
    transform: str  # one line, as ImageTransform parses it
    feature_dim: int
    weights_digest: str  # 32 hex digits


def load_encoder(
    spec: str | Path, *, weights: str | Path | None = None, transform: str | None = None
) -> Encoder:
    """The encoder that a spec names.

    Args:
        transform: Another transform than the encoder's own. Checkpoints published by others do not
            contain theirs; 84 px are assumed. Give one for those trained on CIFAR at 32 px.
    """
    encoder = _find(spec, weights)
    return encoder if transform is None else replace(encoder, transform=transform)


def _find(spec: str | Path, weights: str | Path | None) -> Encoder:
    name = QUALITIES.get(str(spec), str(spec))
    if name in QUALITIES.values() and "+" in name:
        raise one_of_several("backbone", str(spec), name)
    hub, colon, model = name.partition(":")
    if name in BACKBONES:
        if weights is None:
            raise InputError(
                f"weights must be the path of a checkpoint for {name}, which has no weights of its "
                "own. Train one or name a file."
            )
        return _from_checkpoint(weights, name)
    if weights is not None:
        raise InputError(
            f"weights must be left out for {name}, which is not the name of an architecture, "
            f"got {weights}."
        )
    if colon and hub in HUBS:
        return _ready(name, *HUBS[hub](model))
    if name in efficientnet_lite.VARIANTS:
        return _ready(name, *efficientnet_lite.load_efficientnet_lite(name))
    if name and (Path(spec).suffix or Path(spec).exists()):
        return _from_checkpoint(spec, None)
    raise unknown_choice("backbone", name, CHOICES)


def _from_checkpoint(path: str | Path, name: str | None) -> Encoder:
    saved = load_backbone(path, name=name)
    dim, options = saved.backbone.feature_dim, saved.options
    return _ready(saved.name, saved.backbone, saved.transform, dim, options=options)


def _ready(
    name: str,
    module: nn.Module,
    transform: str,
    feature_dim: int,
    *,
    options: dict[str, Any] | None = None,
) -> Encoder:
    module.eval().requires_grad_(False)
    digest = digest_weights(module, architecture=json.dumps([name, options], sort_keys=True))
    return Encoder(name, module, transform, feature_dim, digest)


def digest_weights(module: nn.Module, *, architecture: str) -> str:
    """32 hex digits that name an architecture and all its weights, for cache keys.

    The digits do not depend on device and memory format. The architecture is included, because two
    architectures can have the same weights: a max pooling has none.

    >>> len(digest_weights(nn.Linear(2, 3), architecture="linear"))
    32
    """
    parts: list[bytes | memoryview] = [architecture.encode()]
    for key, tensor in sorted(module.state_dict().items()):
        parts.append(json.dumps([key, str(tensor.dtype), list(tensor.shape)]).encode())
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        parts.append(plain.view(torch.uint8).numpy().data)
    return short_hash(*parts, digits=32)
