"""Rows of features as points of a plane, for the map of the report."""

from math import log

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fewlabels.preprocess.components import principal_components

PERPLEXITY = 30.0  # neighbors of a row, about; van der Maaten and Hinton use 5 to 50
N_COMPONENTS = 50  # of the rows, before distances are computed
N_STEPS, N_EARLY = 350, 100  # of gradient descent; the early ones exaggerate similarities
EXAGGERATION = 12.0
N_HALVINGS = 40  # of the search for the width around each row


def embed_plane(x: Tensor) -> NDArray[np.float64]:
    """Points of a plane whose neighbors are those of the rows, (N, D) -> (N, 2).

    t-SNE (van der Maaten and Hinton 2008), computed exactly: time and memory grow with the square
    of the rows. It begins with the principal components, so that the same rows give the same map.
    """
    z = principal_components(x.float(), N_COMPONENTS)
    n = len(z)
    start = torch.zeros(n, 2)
    flat = torch.linalg.svd(z - z.mean(dim=0), full_matrices=False)
    n_axes = min(2, flat.S.shape[0])
    start[:, :n_axes] = flat.U[:, :n_axes] * flat.S[:n_axes]
    if n <= 4:  # too few for neighbors
        return start.double().numpy()
    similar = _similarities(torch.cdist(z, z).square())
    place = 1e-2 * start / start[:, 0].std().clamp_min(1e-12)
    speed, gains = torch.zeros_like(place), torch.ones_like(place)
    rate = max(n / EXAGGERATION, 50.0)
    for step in range(N_STEPS):
        early = step < N_EARLY
        near = 1 / (1 + torch.cdist(place, place).square())
        near.fill_diagonal_(0)
        pull = (similar * EXAGGERATION if early else similar) - near / near.sum()
        weights = pull * near
        slope = 4 * (weights.sum(dim=1, keepdim=True) * place - weights @ place)
        same = (slope > 0) == (speed > 0)
        gains = torch.where(same, gains * 0.8, gains + 0.2).clamp_min(0.01)
        speed = (0.5 if early else 0.8) * speed - rate * gains * slope
        place = place + speed
        place = place - place.mean(dim=0)
    return place.double().numpy()


def _similarities(squared: Tensor) -> Tensor:
    """Probabilities of pairs by squared distances, (N, N); they sum to 1."""
    n = len(squared)
    target = log(min(PERPLEXITY, (n - 1) / 3))
    low, high = torch.zeros(n, 1), torch.full((n, 1), torch.inf)
    sharp = 1 / squared.mean().clamp_min(1e-12).expand(n, 1)
    others = ~torch.eye(n, dtype=torch.bool)
    for _ in range(N_HALVINGS):
        logits = torch.where(others, -sharp * squared, -torch.inf)
        p = logits.softmax(dim=1)
        entropy = -(p * p.clamp_min(1e-30).log()).sum(dim=1, keepdim=True)
        wide = entropy > target  # then it must be sharper
        low, high = torch.where(wide, sharp, low), torch.where(wide, high, sharp)
        sharp = torch.where(high.isinf(), 2 * sharp, (low + high) / 2)
    return ((p + p.T) / (2 * n)).clamp_min(1e-12)
