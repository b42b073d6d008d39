"""Augmentation of whole batches on the device where the images live: crops, colors, mirror images."""

import math

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import Generator, Tensor

from fewlabels.training.recipe import MEANS, STDS, Augment

GREY = (0.299, 0.587, 0.114)  # luma weights of ITU-R BT.601


def to_float(images: Tensor) -> Tensor:
    """Stored pixels to values in [0, 1], (N, H, W, 3) uint8 -> (N, 3, H, W) float32."""
    return images.permute(0, 3, 1, 2).float() / 255


def normalize(images: Tensor) -> Tensor:
    """Values in [0, 1] to about zero mean and unit spread, channel by channel, (N, 3, H, W) -> the same."""
    means, stds = (
        torch.tensor(values, device=images.device).view(1, 3, 1, 1) for values in (MEANS, STDS)
    )
    return (images - means) / stds


def augment(images: Tensor, settings: Augment, *, size: int, generator: Generator) -> Tensor:
    """Varied copies, (N, H, W, 3) uint8 -> (N, 3, size, size) float32, normalized.

    An image's variation depends on the generator and on its place in the batch alone.
    """
    varied = crop_resized(to_float(images), settings, size=size, generator=generator)
    if settings.jitter:
        varied = jitter_colors(varied, settings.jitter, generator=generator)
    return normalize(varied)


def crop_resized(images: Tensor, settings: Augment, *, size: int, generator: Generator) -> Tensor:
    """A random part of each image, mirrored half of the time, brought to one size, (N, 3, H, W) -> (N, 3, size, size).

    Area and aspect ratio are drawn as settings say, a part that would stick out is cut to the image; bilinear,
    without low-pass filter, so store images at no more than about twice `size`.
    """
    n, device = images.shape[0], images.device
    area, aspect, left, top, mirror = torch.rand(5, n, device=device, generator=generator)
    low, high = settings.crop_area
    narrow, broad = (math.log(bound) for bound in settings.crop_aspect)
    area = low + (high - low) * area
    aspect = torch.exp(narrow + (broad - narrow) * aspect)
    width, height = (
        (area * aspect).sqrt().clamp(max=1),
        (area / aspect).sqrt().clamp(max=1),
    )  # shares of the image's sides
    # grid_sample counts from -1 to 1: a centered part of width w is w * grid, and may move by 1 - w to either side.
    theta = torch.zeros(n, 2, 3, device=device)
    theta[:, 0, 0] = width * torch.where(mirror < 0.5, -1.0, 1.0) if settings.flip else width
    theta[:, 1, 1] = height
    theta[:, 0, 2] = (2 * left - 1) * (1 - width)
    theta[:, 1, 2] = (2 * top - 1) * (1 - height)
    grid = F.affine_grid(theta, [n, 3, size, size], align_corners=False)
    return F.grid_sample(
        images, grid, mode="bilinear", padding_mode="reflection", align_corners=False
    )


def jitter_colors(images: Tensor, strength: float, *, generator: Generator) -> Tensor:
    """Brightness, contrast and saturation times a factor in 1 ± strength each, in this order, (N, 3, H, W) in [0, 1] -> the same."""
    factors = (
        1
        - strength
        + 2
        * strength
        * torch.rand(3, images.shape[0], 1, 1, 1, device=images.device, generator=generator)
    )
    brightness, contrast, saturation = factors
    weights = torch.tensor(GREY, device=images.device).view(1, 3, 1, 1)
    varied = (images * brightness).clamp(0, 1)
    mean_grey = (
        (varied * weights).sum(dim=1, keepdim=True).mean(dim=(2, 3), keepdim=True)
    )  # (N, 1, 1, 1)
    varied = torch.lerp(mean_grey.expand_as(varied), varied, contrast.expand_as(varied)).clamp(0, 1)
    grey = (varied * weights).sum(dim=1, keepdim=True)  # (N, 1, H, W)
    return torch.lerp(grey.expand_as(varied), varied, saturation.expand_as(varied)).clamp(0, 1)


def rotate(images: Tensor) -> Tensor:
    """All images by 0, 90, 180 and 270 degrees, one rotation after the other, (N, 3, S, S) -> (4 N, 3, S, S)."""
    return torch.cat([torch.rot90(images, turns, dims=(2, 3)) for turns in range(4)])
