"""Views of an image; the features of the views are averaged into one row, which reduces noise."""

from collections.abc import Callable

import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import Tensor

ZOOM = 1.15  # resized side over cropped side, as S2M2's tests resize 84 px images to 96 px


def crop_ten(pixels: Tensor) -> tuple[Tensor, ...]:
    """Ten-crop testing (Krizhevsky et al. 2012), (n, 3, H, W) -> 10 x (n, 3, H, W).

    Center and corners of the enlarged image, and the mirror images of these five crops.
    """
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
