"""Stage 2: networks that turn images into feature vectors, by name and as files."""

from fewlabels.backbones.backbone import Backbone
from fewlabels.backbones.checkpoint import load_backbone, save_backbone
from fewlabels.backbones.encoder import load_encoder
from fewlabels.backbones.registry import BACKBONES, build_backbone

__all__ = [
    "BACKBONES",
    "Backbone",
    "build_backbone",
    "load_backbone",
    "load_encoder",
    "save_backbone",
]
