"""ResNet12 (Lee et al., "Meta-learning with differentiable convex optimization", 2019).

Four blocks of three convolutions, 64-160-320-640 channels, 640 features, 12.4 M parameters. There
are two differences. The power transform of Eq. (1) needs features that are not negative, so the
last block ends in a plain ReLU instead of LeakyReLU(0.1). Each block ends in plain dropout instead
of DropBlock.
"""

from itertools import pairwise

from torch import Tensor, nn

from fewlabels.backbones.backbone import Backbone
from fewlabels.backbones.layers import GlobalAveragePool, convolution, initialize

CHANNELS = (64, 160, 320, 640)
SLOPE = 0.1  # of the leaky ReLU


class ResNet12Block(nn.Module):
    """Three 3x3 convolutions plus a 1x1 shortcut, activation, then max pooling to half the size."""

    def __init__(self, n_in: int, n_out: int, *, dropout: float, last: bool) -> None:
        super().__init__()
        self.conv1, self.bn1 = convolution(n_in, n_out, 3), nn.BatchNorm2d(n_out)
        self.conv2, self.bn2 = convolution(n_out, n_out, 3), nn.BatchNorm2d(n_out)
        self.conv3, self.bn3 = convolution(n_out, n_out, 3), nn.BatchNorm2d(n_out)
        self.shortcut = nn.Sequential(convolution(n_in, n_out, 1), nn.BatchNorm2d(n_out))
        self.inner = nn.LeakyReLU(SLOPE, inplace=True)
        self.outer = nn.ReLU(inplace=True) if last else nn.LeakyReLU(SLOPE, inplace=True)
        self.pool = nn.MaxPool2d(2)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(N, n_in, H, W) -> (N, n_out, H // 2, W // 2)."""
        residual = self.inner(self.bn1(self.conv1(x)))
        residual = self.inner(self.bn2(self.conv2(residual)))
        residual = self.bn3(self.conv3(residual))
        out: Tensor = self.dropout(self.pool(self.outer(residual + self.shortcut(x))))
        return out


def build_resnet12(
    *, channels: tuple[int, ...] = CHANNELS, dropout: float = 0.0, n_in: int = 3
) -> Backbone:
    """ResNet12; its stages are the four blocks, its stem is the identity.

    Args:
        channels: Of the blocks.
        dropout: Probability of dropout at the end of each block.
        n_in: Channels of the images.

    >>> build_resnet12(channels=(4, 6, 8, 10)).feature_dim
    10
    """
    last, dim = len(channels) - 1, channels[-1]
    stages = [
        ResNet12Block(before, n_out, dropout=dropout, last=i == last)
        for i, (before, n_out) in enumerate(pairwise((n_in, *channels)))
    ]
    head = GlobalAveragePool()
    backbone = Backbone(stem=nn.Identity(), stages=stages, head=head, feature_dim=dim)
    initialize(backbone, slope=SLOPE)
    return backbone
