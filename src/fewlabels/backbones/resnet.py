"""ResNet10 and ResNet18 (He et al., "Deep residual learning", 2016): 512 features.

4.9 and 11.2 M parameters. The residual blocks are those of the paper, with 64-128-256-512 channels.
The stem decides the resolution of the blocks:

    3x3, stride 1                images up to 40 px (CIFAR); for any size under the names
                                 resnet10-3x3 and resnet18-3x3, as the paper's authors and
                                 SimpleShot do at 84 px
    7x7, stride 2                images up to 159 px: a quarter of the work, and twice the
                                 resolution of the ImageNet stem
    7x7, stride 2, max pool 2    from 160 px on, as for ImageNet
"""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from fewlabels.backbones.backbone import Backbone
from fewlabels.backbones.layers import GlobalAveragePool, convolution, initialize, norm_relu
from fewlabels.backbones.layout import s2m2_layout, simpleshot_layout, stage_renames

CHANNELS = (64, 128, 256, 512)
STRIDES = (1, 2, 2, 2)
SMALL_IMAGE = 40  # pixels: up to this size the stem keeps the resolution
LARGE_IMAGE = 160  # pixels: from this size on the stem divides it by four

_RENAMES = (
    ("^conv1[.]", "stem.0."),
    ("^bn1[.]", "stem.1."),
    *stage_renames("layer{}", 4),
    ("[.]downsample[.]", ".shortcut."),
)
AUTHORS = s2m2_layout("the authors", *_RENAMES)
SIMPLESHOT = simpleshot_layout(*_RENAMES)


class ResidualBlock(nn.Module):
    """conv - BN - ReLU - conv - BN, plus the input or a 1x1 convolution of it, then ReLU."""

    def __init__(self, n_in: int, n_out: int, *, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = convolution(n_in, n_out, 3, stride=stride), nn.BatchNorm2d(n_out)
        self.conv2, self.bn2 = convolution(n_out, n_out, 3), nn.BatchNorm2d(n_out)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = None
        if n_in != n_out or stride != 1:
            shortcut = convolution(n_in, n_out, 1, stride=stride)
            self.shortcut = nn.Sequential(shortcut, nn.BatchNorm2d(n_out))

    def forward(self, x: Tensor) -> Tensor:
        """(N, n_in, H, W) -> (N, n_out, H / stride, W / stride)."""
        residual = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out: Tensor = self.relu(residual + (x if self.shortcut is None else self.shortcut(x)))
        return out


def build_resnet(*, n_blocks: int, image_size: int, channels: Sequence[int] = CHANNELS) -> Backbone:
    """A ResNet with `n_blocks` blocks in each of its four stages.

    Args:
        n_blocks: 1 for ResNet10, 2 for ResNet18.
        image_size: Side of the images in pixels; decides the stem.

    >>> build_resnet(n_blocks=1, image_size=32, channels=(4, 6, 8, 10)).feature_dim
    10
    """
    stages = [
        nn.Sequential(
            ResidualBlock(n_in, n_out, stride=stride),
            *(ResidualBlock(n_out, n_out, stride=1) for _ in range(n_blocks - 1)),
        )
        for (n_in, n_out), stride in zip(pairwise((channels[0], *channels)), STRIDES, strict=True)
    ]
    stem, dim = build_stem(channels[0], image_size), channels[-1]
    backbone = Backbone(stem=stem, stages=stages, head=GlobalAveragePool(), feature_dim=dim)
    initialize(backbone)
    return backbone


def build_stem(n_out: int, image_size: int, *, n_in: int = 3) -> nn.Sequential:
    """The first convolution for images of a size, (N, n_in, H, W) -> (N, n_out, ., .)."""
    kernel, stride = (3, 1) if image_size <= SMALL_IMAGE else (7, 2)
    layers: list[nn.Module] = [convolution(n_in, n_out, kernel, stride=stride), *norm_relu(n_out)]
    if image_size >= LARGE_IMAGE:
        layers.append(nn.MaxPool2d(3, stride=2, padding=1))
    return nn.Sequential(*layers)
