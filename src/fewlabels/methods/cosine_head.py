"""Baseline++ and S2M2_R: a cosine classifier fitted on the support.

    p_j(x) = softmax_j(sharpness cos(x, w_j))
    minimise  - mean over support rows of log p_y(x)

by gradient descent with momentum, all rows at once. Baseline++ and S2M2_R share this head; they
differ in how the backbone was trained. Published (not checked against the papers): random first
weights, batches of 4 rows, 100 epochs (Baseline++), sharpness 2. Here the weights start at the
class means, which makes the answer a function of the support alone. With few updates it stays near
the nearest mean by cosine.

Chen et al. (2019); published, miniImageNet, ResNet18, Baseline++: 51.87 / 75.68 at 1 / 5 shots.
Mangla et al. (2020); published, miniImageNet, WRN, S2M2_R: 64.93 / 83.18.
"""

from dataclasses import replace

import torch
from torch import Tensor

from fewlabels.methods.assignment import (
    Assignment,
    class_means,
    make_assignment,
    one_hot,
    weighted_sums,
)
from fewlabels.methods.base import Knob, Method, Reference, register
from fewlabels.methods.parts import N_UPDATES, SHARPNESS, check_rows, cosines
from fewlabels.preprocess.pipeline import PAPER_INDUCTIVE
from fewlabels.preprocess.steps import unit

SHARP = 10.0
UPDATES = 100  # as published
RATE = 0.1
MOMENTUM = 0.9  # as published


def assign_cosine_head(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    sharpness: float = SHARP,
    n_updates: int = UPDATES,
    rate: float = RATE,
) -> Assignment:
    """A fitted cosine classifier, (E, S, D), (E, S) and (E, Q, D) -> Assignment."""
    support, query = check_rows(support, support_labels, query, n_way)
    rows = unit(support)
    truth = one_hot(support_labels, n_way, support.dtype)
    weights = unit(class_means(rows, support_labels, n_way))
    speed = torch.zeros_like(weights)
    tiny = torch.finfo(weights.dtype).tiny ** 0.5
    for _ in range(n_updates):
        length = torch.linalg.vector_norm(weights, dim=-1, keepdim=True).clamp_min(tiny)
        heading = weights / length
        cosine = cosines(rows, heading)
        error = sharpness * ((sharpness * cosine).softmax(dim=-1) - truth) / support.shape[1]
        # derivative of cos(x, w) by w: (x - cos w / |w|) / |w|
        along = (error * cosine).sum(dim=-2)[..., None] * heading
        speed = MOMENTUM * speed + (weighted_sums(error, rows) - along) / length
        weights = weights - rate * speed
    prototypes = unit(weights)
    plan = (sharpness * cosines(query, prototypes)).softmax(dim=-1)
    return make_assignment(plan, prototypes, lam=sharpness / 2)


register(
    Method(
        "cosine-head",
        "PT+Baseline++ head",
        Reference(
            "Chen, Liu, Kira, Wang, Huang",
            2019,
            "A Closer Look at Few-shot Classification",
            "https://arxiv.org/abs/1904.04232",
        ),
        PAPER_INDUCTIVE,
        assign_cosine_head,
        knobs=(
            replace(SHARPNESS, default=SHARP, grid=(2, 5, 10, 20)),
            replace(N_UPDATES, default=UPDATES),
            Knob("rate", "step size of the gradient", default=RATE, low=0, above_low=True),
        ),
    )
)
