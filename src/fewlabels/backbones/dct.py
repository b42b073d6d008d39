"""WRN-28-10, ResNet12 and ResNet18 on DCT coefficients: a second stream beside that on pixels.

The idea is of X. Chen and G. Wang, "Few-shot learning by integrating spatial and frequency
representation", 2021: enlarge the image, take the coefficients of a JPEG-like DCT in blocks of
8 x 8 pixels, let every coefficient be a channel, keep the 24 of lowest frequency (14 of
brightness, 5 of each color difference; Xu et al., "Learning in the frequency domain", 2020) and
standardize each of them.

Here the image is enlarged eight times, so that a block is one pixel of the image as it comes in.
Enlarging (bicubic, Keys 1981), YCbCr and DCT are linear, and every block sees its pixel and two
neighbors to each side: together they are one fixed convolution with a 5 x 5 kernel per channel.
The enlarged image is never made. What differs from the publication: the networks keep their first
convolution, which reads the 24 channels (there they enter the first block directly, where a ReLU
drops their negative half), and Cb and Cr have the resolution of Y.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import Tensor, nn

from fewlabels.backbones.backbone import Backbone
from fewlabels.backbones.layers import convolution, initialize
from fewlabels.backbones.resnet import CHANNELS, build_resnet, build_stem
from fewlabels.backbones.resnet12 import CHANNELS as CHANNELS12
from fewlabels.backbones.resnet12 import build_resnet12
from fewlabels.backbones.wrn import STEM_CHANNELS, build_wrn

BLOCK = 8  # side of a block of the enlarged image; also how many times it is enlarged
REACH = 2  # pixels to each side that the bicubic enlargement of one pixel depends on
CUBIC_A = -0.75  # slope of Keys' kernel at 1, as torch.nn.functional.interpolate has it
YCBCR = (  # rows Y, Cb, Cr of red, green, blue (JFIF)
    (0.299, 0.587, 0.114),
    (-0.168736, -0.331264, 0.5),
    (0.5, -0.418688, -0.081312),
)
N_LOWEST = (14, 5, 5)  # coefficients kept of Y, Cb and Cr
N_COEFFICIENTS = sum(N_LOWEST)


def cubic_weight(distance: float) -> float:
    """Weight of a pixel at `distance` pixels in bicubic interpolation (Keys, 1981).

    >>> [cubic_weight(distance) for distance in (0, 0.5, 1, 1.5, 2)]
    [1.0, 0.59375, 0.0, -0.09375, 0.0]
    """
    x, a = abs(distance), CUBIC_A
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * (x**3 - 5 * x**2 + 8 * x - 4) if x < 2 else 0.0


def axis_filters() -> Tensor:
    """DCT coefficients of an enlarged pixel along one axis as weights of pixels, (8, 5) float64."""
    samples = [(j + 0.5) / BLOCK - 0.5 for j in range(BLOCK)]  # of the block, in pixels
    enlarge = [[cubic_weight(t - k) for k in range(-REACH, REACH + 1)] for t in samples]
    dct = [  # orthonormal DCT-II
        [
            math.sqrt((2 if u else 1) / BLOCK) * math.cos(math.pi * (2 * j + 1) * u / (2 * BLOCK))
            for j in range(BLOCK)
        ]
        for u in range(BLOCK)
    ]
    return torch.tensor(dct, dtype=torch.float64) @ torch.tensor(enlarge, dtype=torch.float64)


def zigzag(n: int) -> list[tuple[int, int]]:
    """The n coefficients (row, column) of lowest frequency in the order of JPEG.

    >>> zigzag(6)
    [(0, 0), (0, 1), (1, 0), (2, 0), (1, 1), (0, 2)]
    """
    every = [(u, v) for u in range(BLOCK) for v in range(BLOCK)]
    return sorted(every, key=lambda uv: (sum(uv), uv[0] if sum(uv) % 2 else uv[1]))[:n]


class DctFilters(nn.Module):
    """DCT coefficients of the block at each pixel, up to scale, (N, 3, H, W) -> (N, 24, H, W)."""

    filters: Tensor  # (24, 3, 5, 5), a buffer: saved with the weights, never trained

    def __init__(self) -> None:
        super().__init__()
        axis = axis_filters()
        kernels = [
            torch.tensor(color, dtype=torch.float64).view(3, 1, 1) * torch.outer(axis[u], axis[v])
            for color, n_kept in zip(YCBCR, N_LOWEST, strict=True)
            for u, v in zigzag(n_kept)
        ]
        # Of norm 1, so that no coefficient is small beside the epsilon of the batch norm behind it.
        filters = F.normalize(torch.stack(kernels).flatten(1), dim=1)  # (24, 75)
        self.register_buffer("filters", filters.view(-1, *kernels[0].shape).float())

    def forward(self, images: Tensor) -> Tensor:
        """Pixels beyond the edge repeat those at the edge, as when an image is enlarged."""
        # In float32 also under autocast: high frequencies are small differences of large numbers.
        with torch.autocast(images.device.type, enabled=False):
            framed = F.pad(images.float(), [REACH] * 4, mode="replicate")
            return F.conv2d(framed, self.filters.float())


def standardized_dct() -> tuple[nn.Module, nn.Module]:
    """DCT coefficients, then each of them to mean 0 and standard deviation 1."""
    return DctFilters(), nn.BatchNorm2d(N_COEFFICIENTS, affine=False)


def build_wrn_dct(*, depth: int = 28, width: int = 10, dropout: float = 0.0) -> Backbone:
    """WRN-`depth`-`width` whose first convolution reads standardized DCT coefficients.

    >>> build_wrn_dct(depth=10, width=1).feature_dim
    64
    """
    backbone = build_wrn(depth=depth, width=width, dropout=dropout)
    backbone.stem = nn.Sequential(
        *standardized_dct(), convolution(N_COEFFICIENTS, STEM_CHANNELS, 3)
    )
    initialize(backbone.stem)
    return backbone


def build_resnet_dct(
    *, n_blocks: int, image_size: int, channels: Sequence[int] = CHANNELS
) -> Backbone:
    """A ResNet whose first convolution reads standardized DCT coefficients.

    >>> build_resnet_dct(n_blocks=1, image_size=32, channels=(4, 6, 8, 10)).feature_dim
    10
    """
    backbone = build_resnet(n_blocks=n_blocks, image_size=image_size, channels=channels)
    stem = build_stem(channels[0], image_size, n_in=N_COEFFICIENTS)
    backbone.stem = nn.Sequential(*standardized_dct(), *stem)
    initialize(backbone.stem)
    return backbone


def build_resnet12_dct(*, channels: tuple[int, ...] = CHANNELS12, dropout: float = 0.0) -> Backbone:
    """ResNet12 whose first block reads standardized DCT coefficients.

    >>> build_resnet12_dct(channels=(4, 6, 8, 10)).feature_dim
    10
    """
    backbone = build_resnet12(channels=channels, dropout=dropout, n_in=N_COEFFICIENTS)
    backbone.stem = nn.Sequential(*standardized_dct())
    return backbone
