"""Vision models of Hugging Face by name, with the transform of their image processor."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from fewlabels.backbones import hub
from fewlabels.backbones.hub import write_normalize, write_resize
from fewlabels.errors import InputError

# Numbers of Pillow's filters in the files of image processors.
PILLOW_FILTERS = {1: "lanczos", 2: "bilinear", 3: "bicubic"}
# pixels: ConvNext's processor crops below, and makes a square from here on
CONVNEXT_WARPS_FROM = 384
LEVIT_MARGIN = 256 / 224  # Levit's processor resizes to this multiple of its stated size


class HuggingFaceFeatures(nn.Module):
    """A vision model with one vector per image.

    If the model pools without weights of its own, its pooled output; otherwise the class token, or
    the mean over all positions of a convolutional network. A pooling layer with weights is not
    used: many checkpoints lack these weights, and they would be random.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = getattr(model, "vision_model", model)  # part of models for images and text
        pooler = getattr(self.model, "pooler", None)
        self.pools_itself = pooler is None or not list(pooler.parameters())
        if not self.pools_itself:
            self.model.pooler = nn.Identity()  # random weights would change the digest

    def forward(self, images: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, D)."""
        output = self.model(pixel_values=images)
        pooled = getattr(output, "pooler_output", None)
        if self.pools_itself and pooled is not None:
            return pooled.flatten(1)  # type: ignore[no-any-return]
        hidden: Tensor = output.last_hidden_state
        return hidden.mean(dim=(2, 3)) if hidden.ndim == 4 else hidden[:, 0]


def load_hf(name: str) -> tuple[nn.Module, str, int]:
    """The network with pooled features, its transform and its number of features.

    Args:
        name: As on the hub, like "facebook/dinov2-small", or a local folder.
    """
    transformers = hub.import_extra("transformers", extra="hf", purpose=f"hf:{name}")
    try:
        config = transformers.AutoImageProcessor.from_pretrained(name).to_dict()
        module = HuggingFaceFeatures(transformers.AutoModel.from_pretrained(name))
    except Exception as error:  # of transformers, of downloads, of damaged files
        raise hub.unreachable(f"hf:{name}", error) from error
    transform, size = translate_hf(config)
    return module, transform, hub.count_features(module, size=size)


def translate_hf(config: Mapping[str, Any]) -> tuple[str, int]:
    """The settings of an image processor as one line, and the side of its images in pixels.

    >>> translate_hf({"size": {"shortest_edge": 256}, "do_center_crop": True,
    ...               "crop_size": {"height": 224, "width": 224}, "resample": 3,
    ...               "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]})
    ('resize(256) | crop(224) | normalize(0.485 0.456 0.406, 0.229 0.224 0.225)', 224)
    """
    once = not config.get("include_top") and not config.get("rescale_offset")
    if not (once and config.get("do_rescale", True)):
        raise InputError(
            "hf: the image processor must scale values to [0, 1] and normalize them once, "
            "got another rule. Choose another model."
        )
    steps, size = _geometry(config)
    if config.get("do_normalize", True):
        steps.append(write_normalize(config["image_mean"], config["image_std"]))
    return " | ".join(steps), size


def _geometry(config: Mapping[str, Any]) -> tuple[list[str], int]:
    """The steps that resize and crop, and the side of the resulting square in pixels."""
    resample = PILLOW_FILTERS.get(int(config.get("resample", 3)), "nearest")
    crop = _square_side(config.get("crop_size")) if config.get("do_center_crop") else None
    if side := _square_side(config["size"]):
        if not crop:
            return [write_resize("square", side, resample)], side
        return [write_resize("square", side, resample), f"crop({crop})"], crop
    short = config["size"].get("shortest_edge")
    if short is None:
        raise InputError(
            "hf: the size of the image processor must be a square or a shortest_edge, "
            f"got {config['size']}. Choose another model."
        )
    crop_ratio = config.get("crop_pct")
    if crop_ratio and crop is None and short >= CONVNEXT_WARPS_FROM:
        return [write_resize("square", short, resample)], short
    resized = int(short / crop_ratio) if crop_ratio else short
    if str(config.get("image_processor_type", "")).startswith("Levit"):
        resized = int(LEVIT_MARGIN * short)
    crop = crop or short
    return [write_resize("resize", resized, resample), f"crop({crop})"], crop


def _square_side(size: Any) -> int | None:
    """The side, if both sides are given and equal."""
    if isinstance(size, Mapping):
        height, width = size.get("height"), size.get("width")
        return int(height) if height and height == width else None
    return int(size) if isinstance(size, int) else None
