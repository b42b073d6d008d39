"""BMS and BMS*: MAP on the sphere, with lower bounds on class sizes or with equal sizes.

    score_ij = sharpness cos(x_i, c_j)
    P   = softmax_j(score_ij + g_j), g such that every class has at least m queries      (BMS)
                                     or all classes have equally many                    (BMS*)
    c_j = unit(sum of support rows of class j + sum_i P_ij x_i)

from the support means, for a fixed number of updates; one more P decides. In BMS, m is 0 at first
(support rows take part in the published count, where m is the number of shots) and then the size of
the smallest class by the largest entries of P. Rows are preprocessed by PEME: power, unit, one
mean of all rows subtracted, unit. The published boost of the centers by gradient descent is left
out. Published: sharpness 8.5, 20 updates, 50 scaling iterations, which are done to the end here.

Hu, Pateux and Gripon (2022); published with the boost, WRN, 1 / 5 shots, equal sizes (BMS*):
miniImageNet 83.35 / 89.53, CUB 91.91 / 94.62, CIFAR-FS 87.83 / 91.20.
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
from fewlabels.methods.base import Method, Reference, register
from fewlabels.methods.parts import N_UPDATES, SHARPNESS, check_rows, cosines
from fewlabels.preprocess.pipeline import Pipeline
from fewlabels.preprocess.steps import unit
from fewlabels.transport.prior import Uniform
from fewlabels.transport.solver import solve_biases

SHARP = 8.5  # as published
UPDATES = 20  # likewise


def assign_bms(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    sharpness: float = SHARP,
    n_updates: int = UPDATES,
    equal: bool = False,
) -> Assignment:
    """Unit prototypes and bounded class sizes, (E, S, D), (E, S), (E, Q, D) -> Assignment.

    Args:
        equal: Whether all classes are equally large (BMS*). With fewer queries than classes that
            is impossible, and no sizes are imposed.
    """
    support, query = check_rows(support, support_labels, query, n_way)
    support_sums = weighted_sums(one_hot(support_labels, n_way, support.dtype), support)
    prototypes = unit(class_means(support, support_labels, n_way))
    mass = query.new_zeros(len(query), n_way)  # lower bounds: none at first
    sizes = Uniform().masses(query.shape[1], n_way) if equal else None
    if sizes is not None:
        mass = mass + sizes.mass.to(query)
    n_iterations = torch.zeros(len(query), dtype=torch.long, device=query.device)
    converged = torch.ones(len(query), dtype=torch.bool, device=query.device)
    for step in range(n_updates + 1):
        scores = sharpness * cosines(query, prototypes)
        solved = solve_biases(scores, mass, minimum=sizes is None)
        n_iterations, converged = n_iterations + solved.n_iterations, converged & solved.converged
        labels = (scores + solved.biases[:, None, :]).argmax(dim=-1)
        if step < n_updates:
            prototypes = unit(support_sums + weighted_sums(solved.plan, query))
            if not equal:
                smallest = one_hot(labels, n_way, mass.dtype).sum(dim=-2).amin(dim=-1)
                mass = smallest[:, None].expand(-1, n_way).contiguous()
    return make_assignment(
        solved.plan,
        prototypes,
        labels=labels,
        biases=solved.biases,
        n_iterations=n_iterations,
        converged=converged,
        lam=sharpness / 2,
    )


REFERENCE = Reference(
    "Hu, Pateux, Gripon",
    2022,
    "Squeezing Backbone Feature Distributions to the Max for Efficient Few-Shot Learning",
    "https://arxiv.org/abs/2110.09446",
)
PIPELINE = Pipeline.parse("power(0.5) | unit | center(joint) | unit")
KNOBS = (
    replace(SHARPNESS, default=SHARP, grid=(5, 7, 8.5, 10, 15, 20)),
    replace(N_UPDATES, default=UPDATES),
)
register(
    Method("bms", "PT+BMS", REFERENCE, PIPELINE, assign_bms, KNOBS, fixed={"equal": False}),
    Method("bms-equal", "PT+BMS*", REFERENCE, PIPELINE, assign_bms, KNOBS, fixed={"equal": True}),
)
