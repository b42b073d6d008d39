"""What every classifier takes and gives: support, query, and an Assignment of queries to classes.

Shapes: E episodes, S support rows, Q query rows, D feature dim, W ways (classes).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fewlabels.errors import InputError


class Assignment(NamedTuple):
    """Which class each query belongs to, and the evidence for it."""

    labels: Tensor  # (E, Q) the decision: class numbers 0..W-1
    plan: Tensor  # (E, Q, W) share of each class in each query; rows sum to 1
    prototypes: Tensor  # (E, W, D)
    biases: Tensor  # (E, W) added to the scores lam * (2 <x, c> - |c|^2); zero where no class size is imposed
    n_iterations: Tensor  # (E,) iterations of the innermost solver, summed over the steps
    converged: Tensor  # (E,) bool
    lam: Tensor  # (E,) the sharpness that was used or estimated; 0 where the classifier has none
    certainty: Tensor  # (E,) where proportions are estimated: weight of the hypothesis that they are not equal, 0 to 1; else 0

    @property
    def proportions(self) -> Tensor:
        """Share of the queries that each class received, (E, W)."""
        return self.plan.mean(dim=-2)

    @property
    def imbalance(self) -> Tensor:
        """How far the classes are from equally large, (E,): the share of the queries that equal classes would hold elsewhere."""
        return (self.proportions - 1 / self.plan.shape[-1]).abs().sum(dim=-1) / 2


def prepare_episode(
    support: Tensor, support_labels: Tensor, query: Tensor, n_way: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Refuse what no classifier can use; give support and query in one float type, less a common shift (E, 1, D).

    A shift of all vectors changes no distance; without a large common part, inner products keep their digits.
    """
    _check_episode(support, support_labels, query, n_way)
    wide = torch.float64 in (support.dtype, query.dtype)
    support, query = (x.double() if wide else x.float() for x in (support, query))
    largest = torch.finfo(support.dtype).max ** 0.5 / (4 * support.shape[2])
    if max(support.abs().amax(), query.abs().amax()) > largest:
        raise InputError(
            f"support and query must stay below {largest:.2g} in size, or their squares overflow. Scale the features down."
        )
    shift = support.mean(dim=-2, keepdim=True)
    return support - shift, query - shift, shift


def _check_episode(support: Tensor, support_labels: Tensor, query: Tensor, n_way: int) -> None:
    if (
        support.ndim != 3
        or query.ndim != 3
        or support.shape[0] != query.shape[0]
        or support.shape[2] != query.shape[2]
    ):
        raise InputError(
            "support and query must have shapes (episodes, rows, features) with the same episodes and features, "
            f"got {tuple(support.shape)} and {tuple(query.shape)}."
        )
    if support_labels.shape != support.shape[:2]:
        raise InputError(
            f"support_labels must have shape {tuple(support.shape[:2])}, one label per support row, got {tuple(support_labels.shape)}."
        )
    if 0 in support.shape or 0 in query.shape:
        raise InputError(
            "support and query must each have at least one episode, row and feature, "
            f"got shapes {tuple(support.shape)} and {tuple(query.shape)}."
        )
    if support_labels.is_floating_point() or support_labels.is_complex():
        raise InputError(f"support_labels must be whole numbers, got dtype {support_labels.dtype}.")
    if support_labels.min() < 0 or support_labels.max() >= n_way:
        raise InputError(
            f"support_labels must lie in 0..{n_way - 1}, got {int(support_labels.min())}..{int(support_labels.max())}."
        )
    missing = shot_counts(support_labels, n_way) == 0
    if missing.any():
        episode, way = missing.nonzero()[0].tolist()
        raise InputError(
            f"every class must have at least one support row, got none for class {way} in episode {episode}."
        )
    for name, x in (("support", support), ("query", query)):
        if not x.isfinite().all():
            episode, row = (~x.isfinite().all(dim=-1)).nonzero()[0].tolist()
            raise InputError(
                f"{name} must be finite, got NaN or infinity in row {row} of episode {episode}."
            )


def one_hot(labels: Tensor, n_way: int, dtype: torch.dtype) -> Tensor:
    """(E, S) class numbers -> (E, S, W) zeros and ones."""
    return torch.nn.functional.one_hot(labels.long(), n_way).to(dtype)


def shot_counts(support_labels: Tensor, n_way: int) -> Tensor:
    """Support rows of each class, (E, S) -> (E, W)."""
    return one_hot(support_labels, n_way, torch.int64).sum(dim=-2)


def weighted_sums(weights: Tensor, x: Tensor) -> Tensor:
    """Sums of vectors weighted per class, (E, N, W) and (E, N, D) -> (E, W, D)."""
    if (
        weights.shape[-1] == 1
    ):  # torch multiplies by a vector in another order alone than in a batch
        return (weights * x).sum(dim=-2, keepdim=True)
    return weights.mT @ x


def class_means(support: Tensor, support_labels: Tensor, n_way: int) -> Tensor:
    """Mean support vector of each class, (E, S, D) and (E, S) -> (E, W, D)."""
    members = one_hot(support_labels, n_way, support.dtype)
    return weighted_sums(members, support) / members.sum(dim=-2)[..., None]


def similarities(x: Tensor, prototypes: Tensor) -> Tensor:
    """Negative squared distances but for the constant |x|^2, (E, N, D) and (E, W, D) -> (E, N, W): 2 <x, c> - |c|^2."""
    if prototypes.shape[-2] == 1:  # as in weighted_sums
        inner = (x * prototypes).sum(dim=-1, keepdim=True)
    else:
        inner = x @ prototypes.mT
    return 2 * inner - (prototypes * prototypes).sum(dim=-1)[:, None, :]
