"""DenseNet121 (Huang et al., "Densely connected convolutional networks", 2017) of SimpleShot.

1024 features, 6.9 M parameters. The input of every layer is the output of all layers before it. The
stem is a single 3x3 convolution that keeps the resolution, for images of 84 px; the original stem
for ImageNet divides it by four.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fewlabels.backbones.backbone import Backbone
from fewlabels.backbones.layers import GlobalAveragePool, convolution, initialize, norm_relu
from fewlabels.backbones.layout import simpleshot_layout

N_LAYERS = (6, 12, 24, 16)  # dense layers of each stage
GROWTH = 32  # channels added by a layer
STEM_CHANNELS = 2 * GROWTH
BOTTLENECK = 4  # inner channels of a layer over its growth


class DenseLayer(nn.Module):
    """BN - ReLU - 1x1 conv - BN - ReLU - 3x3 conv, appended to the input as new channels."""

    def __init__(self, n_in: int, *, growth: int) -> None:
        super().__init__()
        n_inner = BOTTLENECK * growth
        self.norm1, self.conv1 = nn.BatchNorm2d(n_in), convolution(n_in, n_inner, 1)
        self.norm2, self.conv2 = nn.BatchNorm2d(n_inner), convolution(n_inner, growth, 3)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """(N, n_in, H, W) -> (N, n_in + growth, H, W)."""
        inner = self.conv1(self.relu(self.norm1(x)))
        return torch.cat([x, self.conv2(self.relu(self.norm2(inner)))], dim=1)


def _transition(n_in: int, n_out: int) -> nn.Sequential:
    """Half the channels, half the resolution."""
    return nn.Sequential(*norm_relu(n_in), convolution(n_in, n_out, 1), nn.AvgPool2d(2))


def build_densenet(
    *, n_layers: Sequence[int] = N_LAYERS, growth: int = GROWTH, stem_channels: int = STEM_CHANNELS
) -> Backbone:
    """DenseNet; a stage is a dense block and, except for the last, the transition after it.

    >>> build_densenet(n_layers=(1, 2), growth=4, stem_channels=8).feature_dim
    14
    """
    n_in, stages = stem_channels, []
    for i, n in enumerate(n_layers):
        layers: list[nn.Module] = [DenseLayer(n_in + j * growth, growth=growth) for j in range(n)]
        n_in += n * growth
        if i + 1 < len(n_layers):
            layers.append(_transition(n_in, n_in // 2))
            n_in //= 2
        stages.append(nn.Sequential(*layers))
    head = nn.Sequential(*norm_relu(n_in), GlobalAveragePool())
    stem = convolution(3, stem_channels, 3)
    backbone = Backbone(stem=stem, stages=stages, head=head, feature_dim=n_in)
    initialize(backbone)
    return backbone


def _layer_renames() -> tuple[tuple[str, str], ...]:
    """SimpleShot has blocks and transitions at the same level and counts from 1."""
    layers = [
        (f"^features[.]denseblock{i + 1}[.]denselayer{j + 1}[.]", f"stages.{i}.{j}.")
        for i, n in enumerate(N_LAYERS)
        for j in range(n)
    ]
    for i, n in enumerate(N_LAYERS[:-1]):
        layers += [
            (f"^features[.]transition{i + 1}[.]norm[.]", f"stages.{i}.{n}.0."),
            (f"^features[.]transition{i + 1}[.]conv[.]", f"stages.{i}.{n}.2."),
        ]
    return tuple(layers)


_ENDS = (("^features[.]conv0[.]", "stem."), ("^features[.]norm5[.]", "head.0."))
SIMPLESHOT = simpleshot_layout(*_ENDS, *_layer_renames())
