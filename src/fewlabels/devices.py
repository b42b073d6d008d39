"""The device that "auto" means, and a check that a requested device is available."""

import torch

from fewlabels.errors import InputError, unknown_choice

DEVICES = ("auto", "cpu", "cuda", "mps")


def choose_device(device: str) -> str:
    """The device that "auto" stands for, or the requested one if it is available.

    mps has no float64 and is slow at small linear systems, so "auto" never chooses it.

    >>> choose_device("cpu")
    'cpu'
    """
    if device not in DEVICES:
        raise unknown_choice("device", device, DEVICES)
    available = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if device == "auto":
        return "cuda" if available["cuda"] else "cpu"
    if not available[device]:
        raise InputError(
            f"device '{device}' is not available here. "
            "Use device='cpu', or install a build of torch that supports it."
        )
    return device
