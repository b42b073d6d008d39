"""The filters of the DCT stream against the long way: enlarge with torch, transform with scipy."""

import numpy as np
import torch
import torch.nn.functional as F
from scipy.fft import dctn

from fewlabels.backbones.dct import YCBCR, DctFilters

# The order of JPEG (ITU-T T.81, figure 5), as places in a block of 8 x 8 read row by row.
JPEG_ORDER = [0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11]


def coefficients_the_long_way(images):
    """DCT coefficients of the blocks of the enlarged images, (N, 3, H, W) -> (N, 24, H, W)."""
    n, _, height, width = images.shape
    mixed = torch.einsum("yc,nchw->nyhw", torch.tensor(YCBCR, dtype=torch.float64), images)
    large = F.interpolate(mixed, scale_factor=8, mode="bicubic", align_corners=False).numpy()
    blocks = large.reshape(n, 3, height, 8, width, 8).transpose(0, 1, 2, 4, 3, 5)
    found = dctn(blocks, axes=(-2, -1), norm="ortho").reshape(n, 3, height, width, 64)
    kept = [found[:, color][..., JPEG_ORDER[:count]] for color, count in enumerate((14, 5, 5))]
    return np.concatenate(kept, axis=-1).transpose(0, 3, 1, 2)


def test_filters_give_the_coefficients_of_the_enlarged_image():
    images = torch.rand(
        2, 3, 9, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    expected = coefficients_the_long_way(images)
    found = DctFilters()(images).double().numpy()
    # Filters have norm 1: compare shapes, each coefficient at its own scale.
    expected, found = (
        x / np.sqrt((x**2).mean((0, 2, 3), keepdims=True)) for x in (expected, found)
    )
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_plain_image_has_no_frequencies_not_even_at_its_edge():
    found = DctFilters()(torch.full((1, 3, 6, 6), 0.7))
    alive = found.abs().amax(dim=(0, 2, 3)) > 1e-5
    assert alive.nonzero().flatten().tolist() == [0]  # grey: no color difference either


def test_low_precision_leaves_the_filters_alone():
    images = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    filters = DctFilters()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = filters(images)
    assert torch.equal(rough, filters(images))
