"""Anchored prototypes after StatA: the fewer queries a class seems to have, the nearer its
prototype stays to the labels.

    p_ij = softmax_j(-sharpness / 2 |x_i - c_j|^2)
    n_j  = number of queries whose largest p is at j;   b_j = n_j / (anchor + n_j)
    c_j  = b_j (sum_i p_ij x_i / sum_i p_ij) + (1 - b_j) (mean of the support rows of class j)

from the support means, for a fixed number of updates; one more p decides. StatA anchors classes
at embeddings of their names, estimates a variance per class and feature, and smooths the labels
over nearest rows; here the anchors are the support means, and one sharpness takes the place of the
variances. An absent class keeps its support mean. Published: anchor 1, 10 updates.

Zanella et al. (2025). Published for zero-shot classification, not for the episodes here.
"""

from dataclasses import replace

import torch
from torch import Tensor

from fewlabels.methods.assignment import (
    Assignment,
    class_means,
    make_assignment,
    one_hot,
    prepare_episode,
    similarities,
    weighted_sums,
)
from fewlabels.methods.base import Knob, Method, Reference, register
from fewlabels.methods.parts import N_UPDATES, SHARPNESS
from fewlabels.preprocess.pipeline import Pipeline

SHARP = 20.0  # twice the lam of MAP
ANCHOR = 1.0  # as published
UPDATES = 10  # likewise


def assign_anchored(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    sharpness: float = SHARP,
    anchor: float = ANCHOR,
    n_updates: int = UPDATES,
) -> Assignment:
    """Prototypes between labels and queries, (E, S, D), (E, S) and (E, Q, D) -> Assignment."""
    support, query, shift = prepare_episode(support, support_labels, query, n_way)
    lam = sharpness / 2
    anchors = class_means(support, support_labels, n_way)
    prototypes = anchors
    tiny = torch.finfo(query.dtype).tiny
    for _ in range(n_updates):
        scores = lam * similarities(query, prototypes)
        plan = scores.softmax(dim=-1)
        means = weighted_sums(plan, query) / plan.sum(dim=-2).clamp_min(tiny)[..., None]
        number = one_hot(scores.argmax(dim=-1), n_way, query.dtype).sum(dim=-2)[..., None]
        part = number / (anchor + number)
        prototypes = part * means + (1 - part) * anchors
    scores = lam * similarities(query, prototypes)
    labels = scores.argmax(dim=-1)
    return make_assignment(scores.softmax(dim=-1), prototypes + shift, labels=labels, lam=lam)


register(
    Method(
        "anchored",
        "PT+Anchored prototypes",
        Reference(
            "Zanella, Fuchs, De Vleeschouwer, Ben Ayed",
            2025,
            "Realistic Test-Time Adaptation of Vision-Language Models",
            "https://arxiv.org/abs/2501.03729",
        ),
        Pipeline.parse("power(0.5) | unit | center(support) | unit"),
        assign_anchored,
        knobs=(
            replace(SHARPNESS, default=SHARP, grid=(5, 10, 20, 40)),
            Knob(
                "anchor",
                "queries that weigh as much as the labels of a class",
                default=ANCHOR,
                low=0,
                above_low=True,
                grid=(0.5, 1, 2, 5, 10, 20),
                symbol="anchor",
            ),
            replace(N_UPDATES, default=UPDATES),
        ),
    )
)
