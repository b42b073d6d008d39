"""Shared code of timm and Hugging Face models: imports, errors, transforms as text."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
from torch import nn

from fewlabels.errors import InputError, MissingExtraError, unknown_choice
from fewlabels.io.words import first_line

FILTERS = ("bicubic", "bilinear", "lanczos")


def import_extra(module: str, *, extra: str, purpose: str, package: str = "") -> Any:
    """Import an optional package; if it is missing, the error says how to install it."""
    package = package or module
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(package, extra=extra, purpose=purpose) from error
    except Exception as error:  # for example torch and torchvision of different builds
        raise InputError(
            f"{purpose} needs {package}, which is installed but broken ({_reason(error)}). "
            "Reinstall it."
        ) from error


def unreachable(spec: str, error: Exception) -> InputError:
    """The error for a model that cannot be loaded from a hub."""
    return InputError(
        f"{spec} cannot be loaded ({_reason(error)}). "
        "Check its name; its weights must be in the local cache or the network must be reachable."
    )


def write_resize(step: str, size: int, interpolation: str) -> str:
    """A step that resizes; bicubic is the default and is not written.

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
    """The number of features per image, by a trial: some configurations state another number."""
    with torch.inference_mode():
        return int(module.eval()(torch.zeros(1, 3, size, size)).shape[1])


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"
