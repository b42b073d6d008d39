"""Models of images and text by name: CLIP (Radford et al. 2021), SigLIP (Zhai et al. 2023), ...

`clip:ORG/NAME` is an encoder of images like any other, whose vectors can be compared with those of
words: the class names alone tell something about the classes.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fewlabels.backbones import hub
from fewlabels.backbones.hf_models import translate_hf

HUB = "clip"
PROMPT = "a photo of a {}."  # as published with CLIP


def _vectors(output: Any) -> Tensor:
    """The vectors in what a model returns: itself, or its pooled output in later versions."""
    return output if isinstance(output, Tensor) else output.pooler_output


class ImageSide(nn.Module):
    """The part for images, up to the space that it has in common with texts."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, D)."""
        return _vectors(self.model.get_image_features(pixel_values=images))


def load_clip(name: str) -> tuple[nn.Module, str, int]:
    """The network for images, its transform and its number of features.

    Args:
        name: As on the hub, like "openai/clip-vit-base-patch32", or a local folder.
    """
    transformers, model = _load(name)
    try:
        config = transformers.AutoImageProcessor.from_pretrained(name).to_dict()
    except Exception as error:  # of transformers, of downloads, of damaged files
        raise hub.unreachable(f"{HUB}:{name}", error) from error
    transform, size = translate_hf(config)
    module = ImageSide(model)
    return module, transform, hub.count_features(module, size=size)


def encode_names(name: str, names: Sequence[str]) -> tuple[NDArray[np.float32], float]:
    """Vectors of class names, (W, D), and what their cosines with images are multiplied by."""
    words = load_words(name)
    return words.encode([PROMPT.format(each) for each in names]), words.scale


class Words(NamedTuple):
    """The part of a model for texts."""

    encode: Callable[[Sequence[str]], NDArray[np.float32]]  # n texts -> (n, D)
    scale: float  # that cosines of images and texts are multiplied by


def load_words(name: str) -> Words:
    """The part of a model for texts."""
    transformers, model = _load(name)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name)
    except Exception as error:
        raise hub.unreachable(f"the texts of {HUB}:{name}", error) from error
    # SigLIP was trained on texts that are filled up to its greatest length.
    longest = int(model.config.text_config.max_position_embeddings)
    filled = {"padding": "max_length", "max_length": longest, "truncation": True}

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        tokens = tokenizer(list(texts), return_tensors="pt", **filled)
        with torch.inference_mode():
            found: NDArray[np.float32] = (
                _vectors(model.eval().get_text_features(**tokens)).float().numpy()
            )
        return found

    return Words(encode, float(model.logit_scale.detach().exp()))


def _load(name: str) -> tuple[Any, Any]:
    transformers = hub.import_extra("transformers", extra="hf", purpose=f"{HUB}:{name}")
    try:
        model = transformers.AutoModel.from_pretrained(name)
        if not hasattr(model, "get_text_features"):
            raise ValueError(f"{type(model).__name__} has no part for texts")
    except Exception as error:  # of transformers, of downloads, of damaged files
        raise hub.unreachable(f"{HUB}:{name}", error) from error
    return transformers, model
