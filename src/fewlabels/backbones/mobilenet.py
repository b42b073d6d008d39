"""MobileNet v1 (Howard et al. 2017) of SimpleShot: 1024 features, 3.2 M parameters.

The stem keeps the resolution instead of halving it, for images of 84 px. The 13 blocks are those of
the paper. A stage is all blocks of one resolution.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from fewlabels.backbones.backbone import Backbone
from fewlabels.backbones.layers import GlobalAveragePool, convolution, initialize, norm_relu
from fewlabels.backbones.layout import simpleshot_layout

STEM_CHANNELS = 32
STAGES = ((64, 1), (128, 2), (256, 2), (512, 6), (1024, 2))  # channels and number of blocks


class SeparableBlock(nn.Module):
    """A 3x3 convolution per channel, then a 1x1 convolution, each with BN and ReLU."""

    def __init__(self, n_in: int, n_out: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = convolution(n_in, n_in, 3, stride=stride, groups=n_in)
        self.bn1 = nn.BatchNorm2d(n_in)
        self.conv2, self.bn2 = convolution(n_in, n_out, 1), nn.BatchNorm2d(n_out)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """(N, n_in, H, W) -> (N, n_out, H / stride, W / stride)."""
        x = self.relu(self.bn1(self.conv1(x)))
        out: Tensor = self.relu(self.bn2(self.conv2(x)))
        return out


def build_mobilenet(
    *, stem_channels: int = STEM_CHANNELS, stages: Sequence[tuple[int, int]] = STAGES
) -> Backbone:
    """MobileNet; every stage but the first halves the resolution.

    >>> build_mobilenet(stem_channels=2, stages=[(4, 1), (6, 2)]).feature_dim
    6
    """
    n_in, groups = stem_channels, []
    for i, (n_out, n_blocks) in enumerate(stages):
        blocks = [SeparableBlock(n_in, n_out, stride=2 if i else 1)]
        blocks += [SeparableBlock(n_out, n_out, stride=1) for _ in range(n_blocks - 1)]
        groups.append(nn.Sequential(*blocks))
        n_in = n_out
    stem = nn.Sequential(convolution(3, stem_channels, 3), *norm_relu(stem_channels))
    backbone = Backbone(stem=stem, stages=groups, head=GlobalAveragePool(), feature_dim=n_in)
    initialize(backbone)
    return backbone


def _block_renames() -> tuple[tuple[str, str], ...]:
    """SimpleShot counts blocks over all stages, ours start at 0 in each stage."""
    places = [(stage, block) for stage, (_, n) in enumerate(STAGES) for block in range(n)]
    return tuple(
        (f"^layers[.]{i}[.]", f"stages.{stage}.{block}.") for i, (stage, block) in enumerate(places)
    )


_STEM = (("^conv1[.]", "stem.0."), ("^bn1[.]", "stem.1."))
SIMPLESHOT = simpleshot_layout(*_STEM, *_block_renames())
