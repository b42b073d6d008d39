"""Image transforms as one line: "resize(36) | crop(32) | normalize(0.5 0.5 0.5, 0.2 0.2 0.2)".

The line identifies the transform in checkpoints, provenance and cache keys.

    resize(S)                 the short side becomes S pixels, the aspect ratio stays
    square(S)                 both sides become S pixels, for any aspect ratio
    crop(S)                   the center square with sides of S pixels
    normalize(MEANS, STDS)    of values in [0, 1], three numbers each for red, green and blue;
                              the last step, at most once

Resizing is bicubic, as for most networks; resize(S, bilinear) and square(S, lanczos) also work.
"""

import math
import re
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fewlabels.data import geometry
from fewlabels.errors import InputError

STEPS = "resize(S), square(S), crop(S) and normalize(R G B, R G B)"
DEFAULT_FILTER = "bicubic"
LARGEST = 8192  # pixels per side: a larger number is a typo, no network takes such images
MIN_STD = 1e-6  # of values in [0, 1]: a smaller one would only amplify rounding errors


@dataclass(frozen=True)
class ImageTransform:
    """Steps applied in order to one RGB image, which becomes a float32 tensor (3, H, W).

    >>> transform = ImageTransform.parse("resize( 36)|crop(32) | normalize(.5 .5 .5, .25 .25 .25)")
    >>> str(transform), transform.size
    ('resize(36) | crop(32) | normalize(0.5 0.5 0.5, 0.25 0.25 0.25)', 32)
    >>> transform(Image.new("RGB", (50, 40), "white"))[:, 0, 0]
    tensor([2., 2., 2.])
    """

    steps: tuple[str, ...]

    @classmethod
    def parse(cls, text: "str | ImageTransform") -> Self:
        """Read a transform from its line; "none" or "" only makes a tensor of values in [0, 1]."""
        if isinstance(text, ImageTransform):
            return cls(text.steps)
        words = [word.strip() for word in text.split("|")]
        if words in ([""], ["none"]):
            return cls(())
        steps = tuple(_parse_step(word, text) for word in words)
        if any(step.startswith("normalize") for step in steps[:-1]):
            raise InputError(
                f"transform '{text}': normalize must be the last step, "
                "because the others work on images, not on numbers."
            )
        _refuse_crop_beyond(steps, text)
        return cls(steps)

    def __str__(self) -> str:
        return " | ".join(self.steps) or "none"

    @property
    def size(self) -> int | None:
        """The side in pixels of the square that every image becomes; None if sizes may differ."""
        if not any(step.startswith(("crop", "square")) for step in self.steps):
            return None
        resized = [step for step in self.steps if not step.startswith("normalize")]
        return _size(resized[-1])  # a square stays one under resize

    def __call__(self, image: Image.Image) -> Tensor:
        """Transform one image, which is not changed, to a tensor (3, H, W)."""
        if image.mode != "RGB":
            raise InputError(
                f"transform: the image must be RGB, got mode {image.mode}. ImageSet.read gives RGB."
            )
        for step in self.steps:
            word, _, arguments = step.removesuffix(")").partition("(")
            if word == "normalize":
                break
            size, resample = _size_and_filter(arguments)
            if word == "crop":
                image = geometry.crop_center(image, size)
            else:
                resize = geometry.resize_short_side if word == "resize" else geometry.resize_square
                image = resize(image, size, resample=resample)
        pixels = torch.from_numpy(np.array(image))  # (H, W, 3)
        values = pixels.permute(2, 0, 1).to(torch.float32).div_(255)
        if self.steps and self.steps[-1].startswith("normalize"):
            means, stds = self.normalization
            values.sub_(torch.tensor(means).view(3, 1, 1)).div_(torch.tensor(stds).view(3, 1, 1))
        return values.contiguous()

    @property
    def normalization(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Means and standard deviations per color; zeros and ones without normalize."""
        if not (self.steps and self.steps[-1].startswith("normalize")):
            return (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
        means, stds = self.steps[-1].removeprefix("normalize(").removesuffix(")").split(",")
        return tuple(map(float, means.split())), tuple(map(float, stds.split()))


def _parse_step(word: str, line: str) -> str:
    match = re.fullmatch(r"(\w+)\s*\(([^()]*)\)", word)
    name, arguments = (match[1], match[2]) if match else ("", "")
    if name == "normalize":
        return _parse_normalize(arguments, line)
    if name not in ("resize", "square", "crop"):
        raise InputError(f"transform '{line}': a step must be one of {STEPS}, got '{word}'.")
    number, comma, resample = (part.strip() for part in arguments.partition(","))
    if not re.fullmatch(r"\d{1,6}", number) or not 1 <= int(number) <= LARGEST:
        raise InputError(
            f"transform '{line}': {name} must hold a whole number of pixels from 1 to {LARGEST}, "
            f"got '{number}'."
        )
    if comma and (name == "crop" or resample not in geometry.FILTERS):
        choices = f"the filter must be one of {', '.join(geometry.FILTERS)}"
        if name == "crop":
            choices = "only resize and square take a filter"
        raise InputError(f"transform '{line}': {choices}, got '{word}'.")
    shown = f", {resample}" if resample and resample != DEFAULT_FILTER else ""
    return f"{name}({int(number)}{shown})"


def _parse_normalize(arguments: str, line: str) -> str:
    groups = [group.split() for group in arguments.split(",")]
    try:
        numbers = [[float(number) for number in group] for group in groups]
    except ValueError:
        numbers = []
    if [len(group) for group in numbers] != [3, 3] or not all(
        math.isfinite(number) for group in numbers for number in group
    ):
        raise InputError(
            f"transform '{line}': normalize must hold three means and three standard deviations, "
            f"as in normalize(0.5 0.5 0.5, 0.25 0.25 0.25), got '{arguments}'."
        )
    if min(numbers[1]) < MIN_STD:
        raise InputError(
            f"transform '{line}': the standard deviations of normalize must be above 0, "
            f"got '{arguments.split(',')[1].strip()}'."
        )
    means, stds = (" ".join(f"{number:.12g}" for number in group) for group in numbers)
    return f"normalize({means}, {stds})"


def _refuse_crop_beyond(steps: tuple[str, ...], line: str) -> None:
    """Refuse a crop that is larger than the image after the step before it."""
    known = None  # the short side after the last step
    for step in steps:
        if step.startswith("normalize"):
            break
        size = _size(step)
        if step.startswith("crop") and known is not None and size > known:
            raise InputError(
                f"transform '{line}': {step} needs at least {size} pixels, "
                f"but the image has only {known} there."
            )
        known = size


def _size(step: str) -> int:
    return _size_and_filter(step.removesuffix(")").partition("(")[2])[0]


def _size_and_filter(arguments: str) -> tuple[int, str]:
    number, _, resample = arguments.partition(", ")
    return int(number), resample or DEFAULT_FILTER
