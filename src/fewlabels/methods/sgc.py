"""Transfer+SGC: features smoothed over the graph of the episode, then logistic regression.

    a_ik = cos(x_i, x_k) if k is one of the nearest rows of i, or i of k; else 0
    E    = D^-1/2 A D^-1/2,   D = row sums of A
    X'   = (self_weight I + E)^n_hops X

Negative cosines count 0. The support rows of X' train logistic regression (`logistic`), which
labels the queries. Published: 10 neighbors, self_weight 0.5, 3 hops. An episode with fewer rows
joins each row to all others. Later rows have no neighbors: they go to the nearest mean of
the labelled rows.

Hu, Gripon and Pateux (2020); published, miniImageNet, WRN: 76.47 / 85.23 at 1 / 5 shots.
"""

from dataclasses import replace

import torch
from torch import Tensor

from fewlabels.methods.assignment import Assignment, make_assignment, one_hot
from fewlabels.methods.base import Knob, Method, Reference, register
from fewlabels.methods.estimation import plan_means
from fewlabels.methods.logistic import LAM, assign_logistic
from fewlabels.methods.parts import N_NEIGHBORS, check_pairs, check_rows
from fewlabels.preprocess.neighbors import find_nearest
from fewlabels.preprocess.pipeline import Pipeline

NEIGHBORS = 10  # as published
SELF_WEIGHT = 0.5  # likewise
HOPS = 3  # likewise


def smooth(rows: Tensor, *, n_neighbors: int, self_weight: float, n_hops: int) -> Tensor:
    """Unit rows smoothed over their graph, (E, N, D) -> (E, N, D)."""
    near = find_nearest(rows, min(n_neighbors, rows.shape[1] - 1))
    graph = rows.new_zeros(*rows.shape[:2], rows.shape[1])
    graph.scatter_(2, near.rows, near.cosines.clamp_min(0))
    graph = torch.maximum(graph, graph.mT)
    scale = graph.sum(dim=-1).rsqrt()
    scale = torch.where(scale.isfinite(), scale, 0.0)  # a row without neighbors
    graph = graph * scale[:, :, None] * scale[:, None, :]
    for _ in range(n_hops):
        rows = self_weight * rows + graph @ rows
    return rows


def assign_sgc(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    n_neighbors: int = NEIGHBORS,
    self_weight: float = SELF_WEIGHT,
    n_hops: int = HOPS,
) -> Assignment:
    """Regression on smoothed rows, (E, S, D), (E, S) and (E, Q, D) -> Assignment."""
    support, query = check_rows(support, support_labels, query, n_way)
    rows = torch.cat([support, query], dim=1)
    check_pairs(rows, "sgc")
    rows = smooth(rows, n_neighbors=n_neighbors, self_weight=self_weight, n_hops=n_hops)
    smoothed = rows[:, : support.shape[1]], rows[:, support.shape[1] :]
    found = assign_logistic(smoothed[0], support_labels, smoothed[1], n_way=n_way)
    members = one_hot(support_labels, n_way, support.dtype)
    means = plan_means(support, members, query, found.plan)
    return make_assignment(found.plan, means, lam=LAM)


register(
    Method(
        "sgc",
        "PT+SGC",
        Reference(
            "Hu, Gripon, Pateux",
            2020,
            "Exploiting Unsupervised Inputs for Accurate Few-Shot Classification",
            "https://arxiv.org/abs/2001.09849",
        ),
        Pipeline.parse("power(0.5) | unit | center(joint) | unit"),
        assign_sgc,
        knobs=(
            replace(N_NEIGHBORS, default=NEIGHBORS),
            Knob("self_weight", "weight of a row beside its neighbors", default=0.5, low=0),
            Knob("n_hops", "steps over the graph", default=HOPS, low=0, whole=True),
        ),
    )
)
