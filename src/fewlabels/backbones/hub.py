"""What models from elsewhere have in common: packages that may be missing, transforms to write down, features to count."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
from torch import nn

from fewlabels.errors import InputError, MissingExtraError, unknown_choice

FILTERS = ("bicubic", "bilinear", "lanczos")


def import_extra(module: str, *, package: str, extra: str, purpose: str) -> Any:
    """Import an optional package when it is needed; say how to get it where it is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(package, extra=extra, purpose=purpose) from error
    except Exception as error:  # as when torch and torchvision were built for different machines
        raise InputError(
            f"{purpose} needs {package}, which is here but broken ({_reason(error)}). Install it anew."
        ) from error


def unreachable(spec: str, error: Exception) -> InputError:
    """The error for a model that a hub could not give."""
    return InputError(
        f"{spec} cannot be loaded ({_reason(error)}). "
        "Check its name; its weights must be in the local cache or the network must be reachable."
    )


def write_resize(step: str, size: int, interpolation: str) -> str:
    """A step that resizes; bicubic goes without saying.

    >>> write_resize("resize", 256, "bicubic"), write_resize("square", 224, "bilinear")
    ('resize(256)', 'square(224, bilinear)')
    """
    if interpolation not in FILTERS:
        raise unknown_choice("the interpolation of the model's transform", interpolation, FILTERS)
    return f"{step}({size})" if interpolation == "bicubic" else f"{step}({size}, {interpolation})"


def write_normalize(mean: Sequence[float], std: Sequence[float]) -> str:
    """The step that normalizes.

    >>> write_normalize((0.5, 0.5, 0.5), (0.25, 0.25, 1 / 3))
    'normalize(0.5 0.5 0.5, 0.25 0.25 0.333333333333)'
    """
    means, stds = (" ".join(f"{value:.12g}" for value in values) for values in (mean, std))
    return f"normalize({means}, {stds})"


def count_features(module: nn.Module, *, size: int) -> int:
    """How many features the module makes of an image, by trying: configurations may count before the last layers."""
    with torch.inference_mode():
        return int(module.eval()(torch.zeros(1, 3, size, size)).shape[1])


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0].rstrip('. ')[:160]}"
