"""Encoder: a network ready to turn images into features, with the transform its images go through.

spec                        what it is
path of a checkpoint        a backbone that was trained here, or a published one (see checkpoint.py)
wrn28-10, resnet12, ...     the same, with `weights` as the path: the file must hold this architecture
efficientnet-lite0          small and pretrained on ImageNet, its weights come by pip
timm:NAME, hf:ORG/NAME      any vision model of timm or of Hugging Face, with its own transform
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fewlabels.backbones import efficientnet_lite, hf_models, timm_models
from fewlabels.backbones.checkpoint import load_backbone
from fewlabels.backbones.registry import BACKBONES
from fewlabels.errors import InputError, unknown_choice

DIGEST_DIGITS = 32  # hex digits: 128 bits
HUBS: dict[str, Callable[[str], tuple[nn.Module, str, int]]] = {
    "timm": timm_models.load_timm,
    "hf": hf_models.load_hf,
}
CHOICES = (
    *BACKBONES,
    efficientnet_lite.NAME,
    "timm:NAME",
    "hf:ORG/NAME",
    "the path of a checkpoint",
)


@dataclass(frozen=True, eq=False)
class Encoder:
    """A network in evaluation mode: transformed images (N, 3, H, W) in, features (N, feature_dim) out."""

    name: str
    module: nn.Module
    transform: str  # one line, as ImageTransform reads it
    feature_dim: int
    weights_digest: str  # 32 hex digits


def load_encoder(
    spec: str | Path, *, weights: str | Path | None = None, transform: str | None = None
) -> Encoder:
    """The encoder that a spec names.

    Args:
        spec: One of the forms above.
        weights: The checkpoint, where `spec` is the name of an architecture.
        transform: Another transform than the encoder's own. Checkpoints published by others do not
            tell theirs and are taken to want 84 px: give one for those trained on CIFAR at 32 px.
    """
    encoder = _find(spec, weights)
    return encoder if transform is None else replace(encoder, transform=transform)


def _find(spec: str | Path, weights: str | Path | None) -> Encoder:
    name = str(spec)
    hub, colon, model = name.partition(":")
    if name in BACKBONES:
        if weights is None:
            raise InputError(
                f"weights must be the path of a checkpoint for {name}, as it has none of its own. Train one or name a file."
            )
        return _from_checkpoint(weights, name)
    if weights is not None:
        raise InputError(
            f"weights must be left out for {name}, which is not the bare name of an architecture, got {weights}."
        )
    if colon and hub in HUBS:
        return _ready(name, *HUBS[hub](model))
    if name == efficientnet_lite.NAME:
        return _ready(name, *efficientnet_lite.load_efficientnet_lite())
    if name and (Path(spec).suffix or Path(spec).exists()):
        return _from_checkpoint(spec, None)
    raise unknown_choice("encoder", name, CHOICES)


def _from_checkpoint(path: str | Path, name: str | None) -> Encoder:
    saved = load_backbone(path, name=name)
    return _ready(
        saved.name,
        saved.backbone,
        saved.transform,
        saved.backbone.feature_dim,
        options=saved.options,
    )


def _ready(
    name: str,
    module: nn.Module,
    transform: str,
    feature_dim: int,
    *,
    options: dict[str, Any] | None = None,
) -> Encoder:
    module.eval().requires_grad_(False)
    return Encoder(
        name,
        module,
        transform,
        feature_dim,
        digest_weights(module, architecture=json.dumps([name, options], sort_keys=True)),
    )


def digest_weights(module: nn.Module, *, architecture: str) -> str:
    """Thirty-two hex digits that name an architecture and all its weights, for cache keys.

    The same digits on every device and in every memory format. The architecture takes part because
    two of them can share their weights: a max pool has none.

    >>> len(digest_weights(nn.Linear(2, 3), architecture="linear"))
    32
    """
    digest = hashlib.sha256(architecture.encode())
    for key, tensor in sorted(module.state_dict().items()):
        digest.update(json.dumps([key, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:DIGEST_DIGITS]
