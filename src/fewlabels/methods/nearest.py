"""Nearest class mean: the inductive baseline, and the paper's PT+NCM when the features were power-transformed."""

import torch
from torch import Tensor

from fewlabels.methods.assignment import (
    Assignment,
    class_means,
    one_hot,
    prepare_episode,
    similarities,
)


def assign_nearest(
    support: Tensor, support_labels: Tensor, query: Tensor, *, n_way: int
) -> Assignment:
    """Give each query to the class whose mean support vector is nearest (Euclidean).

    (E, S, D), (E, S) and (E, Q, D) -> Assignment. Each query is decided alone; the plan holds ones and zeros.
    """
    support, query, shift = prepare_episode(support, support_labels, query, n_way)
    prototypes = class_means(support, support_labels, n_way)
    labels = similarities(query, prototypes).argmax(dim=-1)
    n_episodes = support.shape[0]
    return Assignment(
        labels=labels,
        plan=one_hot(labels, n_way, query.dtype),
        prototypes=prototypes + shift,
        biases=query.new_zeros(n_episodes, n_way),
        n_iterations=torch.zeros(n_episodes, dtype=torch.long, device=query.device),
        converged=torch.ones(n_episodes, dtype=torch.bool, device=query.device),
        lam=query.new_zeros(n_episodes),
        certainty=query.new_zeros(n_episodes),
    )
