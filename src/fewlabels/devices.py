"""Which device "auto" means, and a plain word where one is asked for that is not here."""

import torch

from fewlabels.errors import InputError, unknown_choice

DEVICES = ("auto", "cpu", "cuda", "mps")


def choose_device(device: str) -> str:
    """The device that "auto" stands for, or the asked one if it is there.

    mps has no float64 and no fast small solves, so it is taken only when asked for.

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
            f"device '{device}' is not available here. Use --device cpu, or install a torch build that has it."
        )
    return device
