"""Models of timm (PyTorch Image Models) by name, with the transform of their configuration."""

import math
from collections.abc import Mapping
from typing import Any

from torch import nn

from fewlabels.backbones import hub
from fewlabels.backbones.hub import write_normalize, write_resize
from fewlabels.errors import InputError, unknown_choice

CROP_MODES = ("center", "squash")  # timm's third mode, "border", pads; transforms cannot


def load_timm(name: str) -> tuple[nn.Module, str, int]:
    """The network without its classifier, its transform and its number of features."""
    timm = hub.import_extra("timm", extra="timm", purpose=f"timm:{name}")
    try:
        module = timm.create_model(name, pretrained=True, num_classes=0)
        config = timm.data.resolve_model_data_config(module)
    except Exception as error:  # of timm, of downloads, of damaged files
        raise hub.unreachable(f"timm:{name}", error) from error
    size = config["input_size"][-1]
    return module, translate_timm(config), hub.count_features(module, size=size)


def translate_timm(config: Mapping[str, Any]) -> str:
    """The data configuration of a timm model as one line.

    >>> translate_timm({"input_size": (3, 224, 224), "interpolation": "bicubic",
    ...                 "crop_pct": 0.875, "crop_mode": "center",
    ...                 "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)})
    'resize(256) | crop(224) | normalize(0.485 0.456 0.406, 0.229 0.224 0.225)'
    """
    channels, height, width = config["input_size"]
    if channels != 3 or height != width:
        raise InputError(
            "timm: input_size must be three channels of a square, "
            f"got {tuple(config['input_size'])}. Choose another model."
        )
    mode = config.get("crop_mode") or "center"
    if mode not in CROP_MODES:
        raise unknown_choice("timm: crop_mode", mode, CROP_MODES)
    resized = math.floor(height / config["crop_pct"])
    step = "resize" if mode == "center" else "square"
    first = write_resize(step, resized, config["interpolation"])
    return f"{first} | crop({height}) | {write_normalize(config['mean'], config['std'])}"
