"""PADDLE: prototypes and class sizes together, with a penalty on the number of classes in use.

    u_ij = softmax_j(-sharpness / 2 |x_i - c_j|^2 + size_weight log pi_j),   pi_j = mean_i u_ij
    c_j  = (sum of support rows of class j + sum_i u_ij x_i) / (their number + sum_i u_ij)

from the support means and equal pi; i runs over the queries. Classes that no query belongs to
become empty. Published: size_weight 1 (in this scale), 100 updates, sharpness 1 after every feature
is scaled so that the queries span 0 to 1. Here the rows have norm 1: on validation classes of
CIFAR-FS the published scaling makes all labels hard, and more of them wrong.

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
from fewlabels.methods.parts import N_UPDATES, SHARPNESS
from fewlabels.preprocess.pipeline import Pipeline

UPDATES = 100
SHARP = 40.0  # the best of 15 to 40 on validation classes of CIFAR-FS


def assign_paddle(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    sharpness: float = SHARP,
    size_weight: float = 1.0,
    n_updates: int = UPDATES,
) -> Assignment:
    """Prototypes and class sizes in turn, (E, S, D), (E, S) and (E, Q, D) -> Assignment."""
    support, query, shift = prepare_episode(support, support_labels, query, n_way)
    lam = sharpness / 2
    members = one_hot(support_labels, n_way, support.dtype)
    support_sums, shots = weighted_sums(members, support), members.sum(dim=-2)
    prototypes = class_means(support, support_labels, n_way)
    biases = prototypes.new_zeros(prototypes.shape[:2])
    tiny = torch.finfo(query.dtype).tiny
    for _ in range(n_updates):
        plan = (lam * similarities(query, prototypes) + biases[:, None, :]).softmax(dim=-1)
        biases = size_weight * plan.mean(dim=-2).clamp_min(tiny).log()
        sums = support_sums + weighted_sums(plan, query)
        prototypes = sums / (shots + plan.sum(dim=-2))[..., None]
    scores = lam * similarities(query, prototypes) + biases[:, None, :]
    return make_assignment(
        scores.softmax(dim=-1),
        prototypes + shift,
        labels=scores.argmax(dim=-1),
        biases=biases,
        lam=lam,
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
        Pipeline.parse("power(0.5) | unit | center(support) | unit"),
        assign_paddle,
        knobs=(
            replace(SHARPNESS, default=SHARP, grid=(10, 20, 40, 80)),
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
