"""`unit`, `center` and the neighborhood features of many episodes in Gram space, in torch."""

import torch
from torch import Tensor

from fewlabels.kernels.codes import KERNELS
from fewlabels.preprocess import smoothing, steps


def normalize(g: Tensor) -> Tensor:
    """Unit norm: divide by the norms of both vectors, (E, n, n) -> (E, n, n); zero stays zero."""
    squared = g.diagonal(dim1=-2, dim2=-1)
    scale = torch.where(squared > KERNELS.squared_norm_floor, squared.rsqrt(), 0.0)
    return (g * scale[:, :, None]).mul_(scale[:, None, :])


def center(
    g: Tensor,
    *,
    n_support: int,
    jointly: bool,
    by_support: bool = False,
    weight: float | Tensor = 1.0,
) -> Tensor:
    """Subtract the mean of each side, of both or of the support, (E, n, n) -> (E, n, n).

    Support rows come first. Where one mean is subtracted from all rows, it is taken times `weight`,
    a number or (E,). With m(i) what is subtracted from row i:
    <x_i - m(i), x_k - m(k)> = g_ik - <x_i, m(k)> - <m(i), x_k> + <m(i), m(k)>.
    """
    n = g.shape[-1]
    weights = g.new_zeros(2, n)  # of the rows in the mean of each side
    for side, part in enumerate((slice(0, n_support), slice(n_support, n))):
        part = slice(0, n_support) if by_support else part
        alone = part.stop - part.start <= 1  # as in `preprocess.steps.separate_means`
        weights[side, slice(0, n) if jointly or alone else part] = 1.0
    weights /= weights.sum(dim=1, keepdim=True)
    toward = g @ weights.mT  # (E, n, 2) <x_i, mean of side>
    if jointly or by_support:  # one mean
        times = torch.as_tensor(weight).to(g).expand(len(g))[:, None]
        of_mean = times * toward[..., 0]
        half = of_mean - times * (of_mean @ weights[0])[:, None] / 2
        return g.sub(half[:, :, None]).sub_(half[:, None, :])
    side_of_row = (torch.arange(n, device=g.device) >= n_support).long()
    toward = toward[..., side_of_row]  # (E, n, n) <x_i, m(k)>
    between = weights[side_of_row] @ toward  # (E, n, n) <m(i), m(k)>
    return g - toward - toward.mT + between


def shrunk_part(g: Tensor, n_support: int) -> Tensor:
    """The weight of the mean of the support in the step center(shrunk), (E, n, n) -> (E,)."""
    squared = g.diagonal(dim1=1, dim2=2).mean(dim=1)
    return steps.shrunk_part(n_support, g.shape[1], g.mean(dim=(1, 2)), squared)


def append_neighbor_means(
    g: Tensor, *, n_support: int, n_way: int, kth: smoothing.Kth = smoothing.kth_largest
) -> Tensor:
    """Inner products of the neighborhood features, (E, n, n) -> (E, n, n), support rows first.

    The features depend on inner products alone, so any rows with these products will do. Their
    number of dimensions counts too: the vectors must have n or more.
    """
    planned = smoothing.plan_smoothing(n_support, g.shape[1] - n_support, n_way)
    if planned is None:
        return g
    rows = smoothing.rows_of_products(g)
    found = smoothing.find_neighborhood_exactly(rows, planned.neighbors, kth)
    return found.products(weight=planned.weight).to(g.dtype)
