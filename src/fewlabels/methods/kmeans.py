"""K-Means started from the labelled samples: the paper's PT+K-Means (Section 4.2, Table 5).

From the support means c, until no query changes its class (Lloyd's algorithm):

    label of a query x = argmin_j |x - c_j|^2
    c_j = mean of the support rows of class j and of the queries labelled j

Support rows keep their class, as in Basu et al. (2002), "Semi-supervised clustering by seeding".
"""

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
from fewlabels.preprocess.pipeline import PAPER

MAX_ITERATIONS = 100  # real episodes need about ten


def assign_kmeans(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    max_iterations: int = MAX_ITERATIONS,
) -> Assignment:
    """Lloyd's iterations from the support means until no query changes its class.

    (E, S, D), (E, S) and (E, Q, D) -> Assignment. A support row never leaves its class, so that no
    class can become empty. Each episode stops by itself.
    """
    support, query, shift = prepare_episode(support, support_labels, query, n_way)
    members = one_hot(support_labels, n_way, support.dtype)
    support_sums, shots = weighted_sums(members, support), members.sum(dim=-2)
    prototypes = class_means(support, support_labels, n_way)
    labels = similarities(query, prototypes).argmax(dim=-1)
    n_iterations = torch.zeros(len(query), dtype=torch.long, device=query.device)
    converged = torch.zeros(len(query), dtype=torch.bool, device=query.device)
    for _ in range(max_iterations):
        n_iterations += ~converged
        chosen = one_hot(labels, n_way, query.dtype)
        sums, sizes = support_sums + weighted_sums(chosen, query), shots + chosen.sum(dim=-2)
        prototypes = torch.where(converged[:, None, None], prototypes, sums / sizes[..., None])
        new_labels = similarities(query, prototypes).argmax(dim=-1)
        converged = converged | (new_labels == labels).all(dim=-1)
        labels = new_labels
        if converged.all():
            break
    return make_assignment(
        one_hot(labels, n_way, query.dtype),
        prototypes + shift,
        labels=labels,
        n_iterations=n_iterations,
        converged=converged,
    )


register(
    Method(
        "kmeans",
        "PT+K-Means",
        Reference(
            "Basu, Banerjee, Mooney",
            2002,
            "Semi-supervised Clustering by Seeding",
            "https://dl.acm.org/doi/10.5555/645531.656012",
        ),
        PAPER,
        assign_kmeans,
        knobs=(
            Knob(
                "max_iterations",
                "most iterations of Lloyd's algorithm",
                default=MAX_ITERATIONS,
                low=1,
                whole=True,
            ),
        ),
        kernel="kmeans",
    )
)
