"""Vectors beside their neighbours: each row of an episode, and what its nearest rows look like on average.

One labelled image is a poor picture of its class; its neighbours among all images of the episode,
labelled or not, are a better one. The smoothed copy is set beside the vector, not in its place, and
with a weight that falls as labels become more: with five labels a class, the mean of the labels is
already smooth.
"""

import torch
from torch import Tensor

MOST_NEIGHBORS = 20  # a class larger than this is known well enough from a part of it
OWN_WEIGHT = 0.5  # of the row itself beside its neighbours, whose weights sum to about 1
SMOOTHED_ROWS = 1000  # the graph costs rows^2; so many unlabelled rows speak for themselves


def count_neighbors(n_support: int, n_query: int, n_way: int) -> int:
    """Neighbours of a row: as many as a class has rows if all are equally large."""
    return max(2, min(MOST_NEIGHBORS, (n_support + n_query) // n_way))


def smoothing_weight(n_support: int, n_query: int, n_way: int) -> float:
    """Weight of the smoothed copy beside the vector itself: one over the labels of a class, none in large episodes."""
    rows = n_support + n_query
    return n_way / n_support if count_neighbors(n_support, n_query, n_way) < rows <= SMOOTHED_ROWS else 0.0


def beside_neighbors(support: Tensor, query: Tensor, *, n_way: int) -> tuple[Tensor, Tensor]:
    """Vectors and their smoothed copies, (E, S, D) and (E, Q, D) -> (E, S, 2 D) and (E, Q, 2 D); norms stay 1.

    The graph joins each row to its nearest by cosine, where that is positive; W = D^-1/2 A D^-1/2 of
    the symmetrised weights A, and the copy is the direction of (W + 1/2) x.
    """
    n_support, n_query = support.shape[1], query.shape[1]
    weight = smoothing_weight(n_support, n_query, n_way)
    if weight == 0:
        return support, query
    x = torch.cat([support, query], dim=1)
    near = (x @ x.mT).clamp_min(0.0)
    near.diagonal(dim1=1, dim2=2).zero_()
    last = near.topk(count_neighbors(n_support, n_query, n_way), dim=-1).values[..., -1:]
    near = torch.where(near >= last, near, 0.0)
    near = (near + near.mT) / 2
    scale = near.sum(dim=-1).clamp_min(torch.finfo(x.dtype).tiny ** 0.5).rsqrt()
    smoothed = (near * scale[:, :, None] * scale[:, None, :]) @ x + OWN_WEIGHT * x
    length = smoothed.norm(dim=-1, keepdim=True)
    smoothed = torch.where(length > 0, smoothed / length, 0.0)
    both = torch.cat([x, weight**0.5 * smoothed], dim=-1) / (1 + weight) ** 0.5
    return both[:, :n_support], both[:, n_support:]
