"""Wide residual network, the paper's main backbone: 640 features, 36.5 M parameters.

S. Zagoruyko and N. Komodakis, "Wide residual networks", 2016, as S2M2 and the paper's authors train
it: WRN-28-10, the same network for every image size. The stem keeps the resolution, which is slow
at 84 px, but the published numbers are from this network.
"""

from collections.abc import Callable
from itertools import pairwise

from torch import Tensor, nn

from fewlabels.backbones.backbone import Backbone
from fewlabels.backbones.layers import GlobalAveragePool, convolution, initialize, norm_relu
from fewlabels.backbones.layout import s2m2_layout, stage_renames

STEM_CHANNELS = 16
CONVOLUTIONS_OUTSIDE_BLOCKS = 4  # the stem and three shortcuts, as the authors count depth
CONVOLUTIONS_PER_LEVEL = 6  # three groups of blocks with two convolutions each
STRIDES = (1, 2, 2)
S2M2 = s2m2_layout(
    "S2M2 and the authors",
    ("^conv1[.]", "stem."),
    *stage_renames("block{}[.]layer", 3),
    ("[.]convShortcut[.]", ".shortcut."),
    ("^bn1[.]", "head.0."),
)


class WideBlock(nn.Module):
    """BN - ReLU - conv - BN - ReLU - dropout - conv, plus the input.

    If the number of channels changes, the shortcut is a 1x1 convolution of the activated input,
    otherwise the input itself.
    """

    def __init__(self, n_in: int, n_out: int, *, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(n_in)
        self.conv1 = convolution(n_in, n_out, 3, stride=stride)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = convolution(n_out, n_out, 3)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = convolution(n_in, n_out, 1, stride=stride) if n_in != n_out else None

    def forward(self, x: Tensor) -> Tensor:
        """(N, n_in, H, W) -> (N, n_out, H / stride, W / stride)."""
        active = self.relu(self.bn1(x))
        residual: Tensor = self.conv2(self.dropout(self.relu(self.bn2(self.conv1(active)))))
        return residual + (x if self.shortcut is None else self.shortcut(active))


def build_wrn(
    *,
    depth: int = 28,
    width: int = 10,
    dropout: float = 0.0,
    block: Callable[..., nn.Module] = WideBlock,
) -> Backbone:
    """WRN-`depth`-`width`; its stages are the three groups of blocks.

    Args:
        depth: Number of consecutive convolutions, 6 n + 4.
        block: The class of the blocks; SimpleShot has another.

    >>> build_wrn(depth=10, width=1).feature_dim
    64
    """
    n_blocks = (depth - CONVOLUTIONS_OUTSIDE_BLOCKS) // CONVOLUTIONS_PER_LEVEL
    channels = (STEM_CHANNELS, 16 * width, 32 * width, 64 * width)
    stages = [
        nn.Sequential(
            block(n_in, n_out, stride=stride, dropout=dropout),
            *(block(n_out, n_out, stride=1, dropout=dropout) for _ in range(n_blocks - 1)),
        )
        for (n_in, n_out), stride in zip(pairwise(channels), STRIDES, strict=True)
    ]
    dim, stem = channels[-1], convolution(3, STEM_CHANNELS, 3)
    head = nn.Sequential(*norm_relu(dim), GlobalAveragePool())
    backbone = Backbone(stem=stem, stages=stages, head=head, feature_dim=dim)
    initialize(backbone)
    return backbone
