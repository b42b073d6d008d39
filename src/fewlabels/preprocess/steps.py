"""Pure functions on feature vectors: power, unit norm, centering. Input untouched, any leading axes."""

import torch
from torch import Tensor

from fewlabels.errors import InputError

POWER_EPS = 1e-6  # Eq. (1): keeps v + eps strictly positive, so that logs and negative powers exist


def power(x: Tensor, *, beta: float) -> Tensor:
    """Tukey's ladder of powers, (..., D) -> (..., D); Eq. (1) of the paper without its norm.

    (x + eps)^beta, and log(x + eps) at beta = 0. Features must not be negative unless beta is 1.

    >>> power(torch.tensor([[4.0, 9.0]]), beta=0.5).round(decimals=3)
    tensor([[2., 3.]])
    """
    if not -10 <= beta <= 10:  # also catches NaN; beyond it float32 overflows on ordinary features
        raise InputError(f"power: beta must be a number from -10 to 10, got {beta}.")
    if beta == 1:
        return torch.add(x, POWER_EPS)
    if x.numel() and x.min() < 0:
        raise InputError(
            f"power: features must not be negative for beta = {beta:g}, got a smallest value of {float(x.min()):.4g}. "
            "Use features taken after a ReLU, or a pipeline without the power, such as 'unit | center | unit'."
        )
    shifted: Tensor = x + POWER_EPS
    if beta == 0.5:
        return torch.sqrt(shifted)
    # exp(beta log x) rather than x ** beta: torch's vectorised pow rounds differently at the end of
    # an array, and an episode's bits would depend on its place in the batch.
    logs = torch.log(shifted)
    return logs if beta == 0 else torch.exp(beta * logs)


def signed_power(x: Tensor, *, beta: float) -> Tensor:
    """Power of the sizes with the signs kept, (..., D) -> (..., D): for features that may be negative; beta > 0.

    >>> signed_power(torch.tensor([[-4.0, 9.0]]), beta=0.5)
    tensor([[-2.,  3.]])
    """
    if not 0 < beta <= 10:
        raise InputError(f"signed_power: beta must be a number above 0, up to 10, got {beta}.")
    size = x.abs()
    raised = torch.sqrt(size) if beta == 0.5 else torch.exp(beta * torch.log(size))
    return torch.copysign(torch.where(size > 0, raised, 0.0), x)


def unit(x: Tensor) -> Tensor:
    """Scale each vector to Euclidean norm 1, (..., D) -> (..., D); a zero vector stays zero."""
    tiny = torch.finfo(x.dtype).tiny
    norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    if not (
        (norm > tiny**0.4) & (norm < tiny**-0.4)
    ).all():  # squares may have overflowed or vanished
        exponent = torch.frexp(x.abs().amax(dim=-1, keepdim=True)).exponent
        x = torch.ldexp(
            x, -exponent
        )  # exact, so that a vector's bits do not depend on its neighbours
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / norm.clamp_min(tiny)


def separate_means(support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    """What the paper's "trans-mean-sub" subtracts, (..., S, D) and (..., Q, D) -> (..., 1, D) each.

    The support's mean from the support, the query's mean from the query. A side of one row equals
    its own mean and would vanish, so it is centered by the mean of all rows instead.
    """
    joint = joint_mean(support, query)
    support_mean = support.mean(dim=-2, keepdim=True) if support.shape[-2] > 1 else joint
    query_mean = query.mean(dim=-2, keepdim=True) if query.shape[-2] > 1 else joint
    return support_mean, query_mean


def support_mean(support: Tensor, query: Tensor) -> Tensor:
    """The mean of the support, which holds every class alike whatever the queries hold, (..., S, D) and (..., Q, D) -> (..., 1, D).

    A support of one row would vanish, so the mean of all rows stands in for it.
    """
    return (
        support.mean(dim=-2, keepdim=True) if support.shape[-2] > 1 else joint_mean(support, query)
    )


def joint_mean(support: Tensor, query: Tensor) -> Tensor:
    """The mean of all rows of both sides, (..., S, D) and (..., Q, D) -> (..., 1, D)."""
    return torch.cat([support, query], dim=-2).mean(dim=-2, keepdim=True)


def center(support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    """Subtract each side's own mean, (..., S, D) and (..., Q, D) -> the same; see `separate_means`."""
    support_mean, query_mean = separate_means(support, query)
    return support - support_mean, query - query_mean


def center_jointly(support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    """Subtract the mean of all rows from both sides, (..., S, D) and (..., Q, D) -> the same."""
    joint = joint_mean(support, query)
    return support - joint, query - joint
