"""K-Means seeded by the labelled samples: the paper's PT+K-Means."""

import torch
from torch import Tensor

from fewlabels.methods.assignment import (
    Assignment,
    class_means,
    one_hot,
    prepare_episode,
    similarities,
    weighted_sums,
)

MAX_ITERATIONS = 100  # real episodes settle in about ten


def assign_kmeans(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    max_iterations: int = MAX_ITERATIONS,
) -> Assignment:
    """Lloyd's iterations from the support means until no query changes its class.

    (E, S, D), (E, S) and (E, Q, D) -> Assignment. Means are taken over support and queries; a support
    row never leaves its class, so that no class can become empty. Each episode stops on its own.
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
        means = (support_sums + weighted_sums(chosen, query)) / (shots + chosen.sum(dim=-2))[
            ..., None
        ]
        prototypes = torch.where(converged[:, None, None], prototypes, means)
        new_labels = similarities(query, prototypes).argmax(dim=-1)
        converged = converged | (new_labels == labels).all(dim=-1)
        labels = new_labels
        if converged.all():
            break
    return Assignment(
        labels=labels,
        plan=one_hot(labels, n_way, query.dtype),
        prototypes=prototypes + shift,
        biases=query.new_zeros(len(query), n_way),
        n_iterations=n_iterations,
        converged=converged,
        lam=query.new_zeros(len(query)),
        certainty=query.new_zeros(len(query)),
    )
