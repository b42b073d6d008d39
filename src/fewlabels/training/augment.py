"""Augmentation of whole batches on the device of the images: crops, colors, mirror images."""

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
    """Subtract the means and divide by the standard deviations of the channels, (N, 3, H, W)."""
    means, stds = (
        torch.tensor(values, device=images.device).view(1, 3, 1, 1) for values in (MEANS, STDS)
    )
    return (images - means) / stds


def augment(images: Tensor, settings: Augment, *, size: int, generator: Generator) -> Tensor:
    """Augmented and normalized copies, (N, H, W, 3) uint8 -> (N, 3, size, size) float32.

    The augmentation of an image depends only on the generator and on its place in the batch.
    """
    varied = crop_resized(to_float(images), settings, size=size, generator=generator)
    if settings.jitter:
        varied = jitter_colors(varied, settings.jitter, generator=generator)
    return normalize(varied)


def crop_resized(images: Tensor, settings: Augment, *, size: int, generator: Generator) -> Tensor:
    """Random crops, mirrored with probability 1/2, (N, 3, H, W) -> (N, 3, size, size).

    Area and aspect ratio are drawn as in `settings`; a crop larger than the image is cut to it.
    Interpolation is bilinear without a low-pass filter, so store images at no more than about twice
    `size`.
    """
    n, device = images.shape[0], images.device
    area, aspect, left, top, mirror = torch.rand(5, n, device=device, generator=generator)
    low, high = settings.crop_area
    narrow, broad = (math.log(bound) for bound in settings.crop_aspect)
    area = low + (high - low) * area
    aspect = torch.exp(narrow + (broad - narrow) * aspect)
    # As fractions of the image's sides.
    width, height = (area * aspect).sqrt().clamp(max=1), (area / aspect).sqrt().clamp(max=1)
    # Coordinates of grid_sample are from -1 to 1: a centered crop of width w is w * grid, and can
    # move by 1 - w to either side.
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
    """Scale brightness, contrast and saturation, in this order, of values in [0, 1], (N, 3, H, W).

    Each factor is uniform in 1 ± strength.
    """
    uniform = torch.rand(3, images.shape[0], 1, 1, 1, device=images.device, generator=generator)
    brightness, contrast, saturation = 1 - strength + 2 * strength * uniform
    weights = torch.tensor(GREY, device=images.device).view(1, 3, 1, 1)
    varied = (images * brightness).clamp(0, 1)
    grey = (varied * weights).sum(dim=1, keepdim=True)  # (N, 1, H, W)
    mean_grey = grey.mean(dim=(2, 3), keepdim=True)  # (N, 1, 1, 1)
    varied = torch.lerp(mean_grey.expand_as(varied), varied, contrast.expand_as(varied)).clamp(0, 1)
    grey = (varied * weights).sum(dim=1, keepdim=True)  # (N, 1, H, W)
    return torch.lerp(grey.expand_as(varied), varied, saturation.expand_as(varied)).clamp(0, 1)


def rotate(images: Tensor) -> Tensor:
    """All images by 0, then by 90, 180 and 270 degrees, (N, 3, S, S) -> (4 N, 3, S, S)."""
    return torch.cat([torch.rot90(images, turns, dims=(2, 3)) for turns in range(4)])
