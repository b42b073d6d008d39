"""Views of an image whose features are averaged into one row: a steadier row for a few times the work."""

from collections.abc import Callable

import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import Tensor

ZOOM = 1.15  # the usual ratio between the resized and the cropped side of a test image


def crop_ten(pixels: Tensor) -> tuple[Tensor, ...]:
    """Five crops of the enlarged image (center and corners) and their mirror images, (n, 3, H, W) -> 10 x (n, 3, H, W)."""
    height, width = pixels.shape[-2:]
    tall, wide = round(ZOOM * height), round(ZOOM * width)
    large = F.interpolate(pixels, size=(tall, wide), mode="bicubic", align_corners=False)
    bottom, right = tall - height, wide - width
    corners = [(bottom // 2, right // 2), (0, 0), (0, right), (bottom, 0), (bottom, right)]
    crops = [large[..., top : top + height, left : left + width] for top, left in corners]
    return (*crops, *(crop.flip(-1) for crop in crops))


VIEWS: dict[str, Callable[[Tensor], tuple[Tensor, ...]]] = {  # of a batch (n, 3, H, W)
    "center": lambda pixels: (pixels,),
    "flip": lambda pixels: (pixels, pixels.flip(-1)),
    "ten": crop_ten,
}
