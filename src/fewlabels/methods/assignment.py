"""What every method takes and gives: support, query, and an Assignment of queries to classes.

Shapes: E episodes, S support rows, Q query rows, D feature dim, W ways (classes).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fewlabels.errors import InputError


class Assignment(NamedTuple):
    """Which class each query belongs to, and the evidence for it; see `make_assignment`.

    >>> plan, prototypes = torch.tensor([[[0.9, 0.1], [0.3, 0.7]]]), torch.eye(2)[None]
    >>> found = make_assignment(plan, prototypes)
    >>> found.labels, found.proportions
    (tensor([[0, 1]]), tensor([[0.6000, 0.4000]]))
    """

    labels: Tensor  # (E, Q) the decision: class numbers 0..W-1
    plan: Tensor  # (E, Q, W) probability of each class for each query; rows sum to 1
    prototypes: Tensor  # (E, W, D)
    biases: Tensor  # (E, W) added to lam * (2 <x, c> - |c|^2); zero where no size is imposed
    n_iterations: Tensor  # (E,) iterations of the innermost solver, summed over the steps
    converged: Tensor  # (E,) bool
    lam: Tensor  # (E,) the inverse temperature, given or estimated; 0 where the method has none
    certainty: Tensor  # (E,) where sizes are estimated: weight of unequal sizes, 0 to 1; else 0
    calibrated: Tensor  # (E,) bool: whether the plan holds calibrated probabilities
    # (E, S, W) probabilities of each support row when its label was hidden, NaN where it was not;
    # None for methods that hide none.
    held_out: Tensor | None = None

    @property
    def proportions(self) -> Tensor:
        """Part of the queries that each class received, (E, W)."""
        return self.plan.mean(dim=-2)

    @property
    def imbalance(self) -> Tensor:
        """How far the classes are from equal sizes, (E,).

        The part of the queries that would have to change class to make all classes equally large.
        """
        return (self.proportions - 1 / self.plan.shape[-1]).abs().sum(dim=-1) / 2


def make_assignment(
    plan: Tensor,
    prototypes: Tensor,
    *,
    labels: Tensor | None = None,
    biases: Tensor | None = None,
    n_iterations: Tensor | None = None,
    converged: Tensor | None = None,
    lam: Tensor | float = 0.0,
    certainty: Tensor | None = None,
    held_out: Tensor | None = None,
) -> Assignment:
    """An Assignment from a plan, (E, Q, W), and prototypes, (E, W, D).

    What is left out: labels are the plan's largest entries, no biases, no iterations, converged.
    Later rows are decided by lam * (2 <x, c> - |c|^2) + biases.

    >>> plan, prototypes = torch.tensor([[[0.9, 0.1], [0.3, 0.7]]]), torch.eye(2)[None]
    >>> make_assignment(plan, prototypes, lam=10.0).labels
    tensor([[0, 1]])
    """
    n_episodes, _, n_way = plan.shape
    zero = plan.new_zeros(n_episodes)
    return Assignment(
        labels=plan.argmax(dim=-1) if labels is None else labels,
        plan=plan,
        prototypes=prototypes,
        biases=plan.new_zeros(n_episodes, n_way) if biases is None else biases,
        n_iterations=zero.long() if n_iterations is None else n_iterations,
        converged=zero == 0 if converged is None else converged,
        lam=lam if isinstance(lam, Tensor) else zero + lam,
        certainty=zero if certainty is None else certainty,
        calibrated=zero > 0,
        held_out=held_out,
    )


def prepare_episode(
    support: Tensor, support_labels: Tensor, query: Tensor, n_way: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Refuse what no method can use; support and query in one float type, less a shift (E, 1, D).

    A shift of all vectors changes no distance; without a large common part, inner products keep
    their digits.
    """
    _check_episode(support, support_labels, query, n_way)
    wide = torch.float64 in (support.dtype, query.dtype)
    support, query = (x.double() if wide else x.float() for x in (support, query))
    largest = torch.finfo(support.dtype).max ** 0.5 / (4 * support.shape[2])
    if max(support.abs().amax(), query.abs().amax()) > largest:
        raise InputError(
            f"support and query must stay below {largest:.2g} in size, or their squares overflow. "
            "Scale the features down."
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
            "support and query must have shapes (episodes, rows, features) with the same episodes "
            f"and features, got {tuple(support.shape)} and {tuple(query.shape)}."
        )
    if support_labels.shape != support.shape[:2]:
        raise InputError(
            f"support_labels must have shape {tuple(support.shape[:2])}, one label per support "
            f"row, got {tuple(support_labels.shape)}."
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
            f"support_labels must lie in 0..{n_way - 1}, "
            f"got {int(support_labels.min())}..{int(support_labels.max())}."
        )
    missing = shot_counts(support_labels, n_way) == 0
    if missing.any():
        episode, way = missing.nonzero()[0].tolist()
        raise InputError(
            f"every class must have at least one support row, got none for class {way} in "
            f"episode {episode}."
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
    """2 <x, c> - |c|^2, (E, N, D) and (E, W, D) -> (E, N, W).

    The negative squared distances but for |x|^2, which is the same for all classes.
    """
    if prototypes.shape[-2] == 1:  # as in weighted_sums
        inner = (x * prototypes).sum(dim=-1, keepdim=True)
    else:
        inner = x @ prototypes.mT
    return 2 * inner - (prototypes * prototypes).sum(dim=-1)[:, None, :]
