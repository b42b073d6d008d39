"""PADDLE: prototypes and class sizes together, with a penalty on the number of classes in use.

    u_ij = softmax_j(-|x_i - c_j|^2 / 2 + size_weight log pi_j),   pi_j = mean_i u_ij
    c_j  = (sum of support rows of class j + sum_i u_ij x_i) / (their number + sum_i u_ij)

from the support means and equal pi; i runs over the queries. Every feature is first scaled so that
the queries span 0 to 1; a feature that is the same in all queries is only shifted. The published
size_weight is the number of queries over the same number, 1 in this scale, with 100 updates. The
classes that no query belongs to are expected to become empty.

Martin et al. (2022). Published for 5 present classes of all novel ones, not for the episodes here.
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
from fewlabels.methods.parts import N_UPDATES, linear_rules
from fewlabels.preprocess.pipeline import Pipeline

UPDATES = 100
LAM = 0.5  # of squared distances


def assign_paddle(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    size_weight: float = 1.0,
    n_updates: int = UPDATES,
) -> Assignment:
    """Prototypes and class sizes in turn, (E, S, D), (E, S) and (E, Q, D) -> Assignment."""
    support, query, shift = prepare_episode(support, support_labels, query, n_way)
    low = query.amin(dim=1, keepdim=True)
    span = query.amax(dim=1, keepdim=True) - low
    span = torch.where(span > 0, span, 1.0)
    support, query = (support - low) / span, (query - low) / span
    members = one_hot(support_labels, n_way, support.dtype)
    support_sums, shots = weighted_sums(members, support), members.sum(dim=-2)
    prototypes = class_means(support, support_labels, n_way)
    biases = prototypes.new_zeros(prototypes.shape[:2])
    tiny = torch.finfo(query.dtype).tiny
    for _ in range(n_updates):
        plan = (LAM * similarities(query, prototypes) + biases[:, None, :]).softmax(dim=-1)
        biases = size_weight * plan.mean(dim=-2).clamp_min(tiny).log()
        sums = support_sums + weighted_sums(plan, query)
        prototypes = sums / (shots + plan.sum(dim=-2))[..., None]
    scores = LAM * similarities(query, prototypes) + biases[:, None, :]
    # the same scores as linear functions of rows that are not scaled
    slopes = prototypes / span
    offsets = biases - LAM * (prototypes**2).sum(dim=-1) - (slopes * (low + shift)).sum(dim=-1)
    rule = linear_rules(slopes, offsets, LAM)
    return make_assignment(
        scores.softmax(dim=-1), rule[0], labels=scores.argmax(dim=-1), biases=rule[1], lam=LAM
    )


register(
    Method(
        "paddle",
        "PT+PADDLE",
        Reference(
            "Martin, Boudiaf, Chouzenoux, Pesquet, Ben Ayed",
            2022,
            "Towards Practical Few-Shot Query Sets: Transductive Minimum Description Length "
            "Inference",
            "https://arxiv.org/abs/2210.14545",
        ),
        Pipeline.parse("power(0.5) | unit"),
        assign_paddle,
        knobs=(
            Knob(
                "size_weight",
                "weight of class sizes against distances",
                default=1.0,
                low=0,
                grid=(0, 0.5, 1, 2, 5, 10),
                symbol="weight of sizes",
            ),
            replace(N_UPDATES, default=UPDATES),
        ),
    )
)
