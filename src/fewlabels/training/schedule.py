"""The learning rate of a step, the order of the images in an epoch, the random streams: all functions of numbers alone.

Nothing here has a state, so a training that resumes at step k goes on exactly as if it had never stopped.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray

from fewlabels.training.recipe import Optimizer

_ORDER, _SHARD = 0, 1  # what a random stream is for


def learning_rate(settings: Optimizer, *, step: int, n_steps: int, steps_an_epoch: int) -> float:
    """Of step number `step`, from 0, out of n_steps.

    >>> [round(learning_rate(Optimizer(warmup_epochs=1), step=step, n_steps=6, steps_an_epoch=2), 3) for step in range(6)]
    [0.05, 0.1, 0.1, 0.085, 0.05, 0.015]
    """
    warmup = settings.warmup_epochs * steps_an_epoch
    if step + 1 < warmup:
        return settings.lr * (step + 1) / warmup
    if settings.schedule == "cosine":
        share = (1 + math.cos(math.pi * max(0.0, step - warmup) / max(1.0, n_steps - warmup))) / 2
        return settings.lowest_lr + (settings.lr - settings.lowest_lr) * share
    if settings.schedule == "steps":
        return settings.lr * 0.1 ** sum(step >= share * n_steps for share in settings.milestones)
    return settings.lr


def epoch_order(seed: int, epoch: int, n_images: int) -> NDArray[np.int64]:
    """The order in which an epoch visits the images."""
    return np.random.default_rng([seed, _ORDER, epoch]).permutation(n_images)


def shard_streams(
    seed: int, step: int, shard: int, device: torch.device
) -> tuple[np.random.Generator, torch.Generator]:
    """Random streams of one shard of one step: for the host and for the device."""
    rng = np.random.default_rng([seed, _SHARD, step, shard])
    return rng, torch.Generator(device).manual_seed(int(rng.integers(2**62)))
