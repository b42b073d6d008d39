"""Stage 2: networks that turn images into feature vectors, by name and as files."""

from ptmap.backbones.backbone import Backbone
from ptmap.backbones.checkpoint import load_backbone, save_backbone
from ptmap.backbones.encoder import Encoder, load_encoder
from ptmap.backbones.registry import BACKBONES, build_backbone
from ptmap.backbones.saved import SavedBackbone

__all__ = ["BACKBONES", "Backbone", "Encoder", "SavedBackbone", "build_backbone", "load_backbone", "load_encoder", "save_backbone"]
