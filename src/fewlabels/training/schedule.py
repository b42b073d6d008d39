"""Learning rate, order of the images and random streams, as functions of step and epoch.

These functions have no state, so a training that resumes at step k continues exactly.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray

from fewlabels.training.recipe import Optimizer

_ORDER, _SHARD, _EPISODE = 0, 1, 2  # the uses of a random stream


def learning_rate(settings: Optimizer, *, step: int, n_steps: int, steps_per_epoch: int) -> float:
    """The learning rate of step number `step`, counted from 0, out of n_steps.

    >>> settings = Optimizer(warmup_epochs=1)
    >>> [round(learning_rate(settings, step=step, n_steps=6, steps_per_epoch=2), 3)
    ...  for step in range(6)]
    [0.05, 0.1, 0.1, 0.085, 0.05, 0.015]
    """
    warmup = settings.warmup_epochs * steps_per_epoch
    if step + 1 < warmup:
        return settings.lr * (step + 1) / warmup
    if settings.schedule == "cosine":
        done = max(0.0, step - warmup) / max(1.0, n_steps - warmup)
        height = (1 + math.cos(math.pi * done)) / 2
        return settings.lowest_lr + (settings.lr - settings.lowest_lr) * height
    if settings.schedule == "steps":
        return settings.lr * 0.1 ** sum(step >= mark * n_steps for mark in settings.milestones)
    return settings.lr


def epoch_order(seed: int, epoch: int, n_images: int) -> NDArray[np.int64]:
    """The order of the images in an epoch, (n_images,)."""
    return np.random.default_rng([seed, _ORDER, epoch]).permutation(n_images)


def shard_streams(
    seed: int, step: int, shard: int, device: torch.device
) -> tuple[np.random.Generator, torch.Generator]:
    """The random streams of one shard of one step, on the host and on the device."""
    rng = np.random.default_rng([seed, _SHARD, step, shard])
    return rng, torch.Generator(device).manual_seed(int(rng.integers(2**62)))


def episode_stream(seed: int, step: int) -> np.random.Generator:
    """The random stream that draws the episodes of a step."""
    return np.random.default_rng([seed, _EPISODE, step])
