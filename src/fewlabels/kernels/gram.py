"""Preprocessing of many episodes in Gram space, in torch: what `center` and `unit` do to inner products."""

import torch
from torch import Tensor


def normalise(g: Tensor) -> Tensor:
    """Unit norm: divide by the norms of row and column, (E, n, n) -> (E, n, n); a zero vector stays zero."""
    squared = g.diagonal(dim1=-2, dim2=-1)
    scale = torch.where(squared > 1e-30, squared.rsqrt(), 0.0)
    return g * scale[:, :, None] * scale[:, None, :]


def center(g: Tensor, *, n_support: int, jointly: bool, by_support: bool = False) -> Tensor:
    """Subtract each side's mean, the joint one or the support's, (E, n, n) -> (E, n, n); support rows come first.

    With m(i) the mean that row i loses: <x_i - m(i), x_k - m(k)>
    = g_ik - <x_i, m(k)> - <m(i), x_k> + <m(i), m(k)>.
    """
    n = g.shape[-1]
    averaging = g.new_zeros(2, n)  # side -> weights of its mean
    for side, part in enumerate((slice(0, n_support), slice(n_support, n))):
        part = slice(0, n_support) if by_support else part
        alone = part.stop - part.start <= 1  # as in `preprocess.steps.separate_means`
        averaging[side, slice(0, n) if jointly or alone else part] = 1.0
    averaging /= averaging.sum(dim=1, keepdim=True)
    means = averaging[
        (torch.arange(n, device=g.device) >= n_support).long()
    ]  # (n, n): row i -> weights of m(i)
    toward = g @ averaging.mT  # (E, n, 2) <x_i, mean of side>
    toward = torch.cat(
        [toward[..., :1].expand(-1, -1, n_support), toward[..., 1:].expand(-1, -1, n - n_support)],
        dim=-1,
    )
    between = means @ toward  # (E, n, n) <m(i), m(k)>
    return g - toward - toward.mT + between
