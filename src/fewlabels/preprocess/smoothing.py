"""Vectors as their neighbours show them: directions in which a class varies count less, and neighbours stand by.

One labelled image is a poor picture of its class; all images of the episode, labelled or not, say two
things more, through the graph that joins each to its nearest:

- *What varies within a class.* Nearest rows are mostly of one class. The directions in which they differ
  say nothing about classes, and are shortened: x' = (1 + V)^-1/2 x, with V the covariance of the
  differences of nearest rows.
- *What a class looks like around here.* The mean over neighbours, and theirs, is set beside the vector, not in
  its place, and with a weight that falls as labels become more: with five labels a class, the mean of the
  labels is already smooth.

A label whose class has no other image looks for its nearest elsewhere and would be drawn there. It is
nobody's neighbour in return: differences count by how often their row is one.

None of this needs the labels. Small episodes are treated whole and exactly; in large ones the graph is sparse,
differences are looked at in a sample, and whoever labels the same rows again and again keeps the `Neighborhood`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fewlabels.preprocess.neighbors import find_nearest, join_nearest

MOST_NEIGHBORS = 20  # a class larger than this is known well enough from a part of it
OWN_WEIGHT = 0.5  # of the row itself beside its neighbours, whose weights sum to about 1
HOPS = 2  # neighbours, and theirs
CLOSEST = 3  # rows whose differences show what varies within a class; fewer see too little, more see other classes
WITHIN = (
    1 / 3
)  # mean variance of V beside the 1; at 0.1 uneven classes lose half a point, at 1 classes that are all there lose more
DENSE_ROWS = 1000  # up to which products of all rows with all rows are kept
MOST_ROWS = 20_000  # the graph costs rows^2, seven seconds of two cores here; beyond, rows are left as they are
SAMPLED_ROWS = 1000  # of a large episode, whose differences from their nearest are looked at; 300 lose half a point
SAME = 1e-9  # sum of squared differences of nearest rows below which all rows are taken for one
ROUNDINGS = 1e-10  # added to unit norms before a factorisation, for products of dependent rows


class Smoothing(NamedTuple):
    """How an episode of some size is smoothed."""

    neighbors: int  # of a row
    weight: float  # of the smoothed copy beside the vector


class Neighborhood(NamedTuple):
    """Rows of norm 1 as their neighbours show them, (E, N, D) each."""

    short: Tensor  # shortened where nearest rows differ
    around: Tensor  # the mean over neighbours, and theirs

    def beside(self, *, weight: float) -> Tensor:
        """Both side by side, (E, N, 2 D), the second with a weight; norms are 1."""
        both: Tensor = (
            torch.cat([self.short, weight**0.5 * self.around], dim=-1) / (1 + weight) ** 0.5
        )
        return both


def plan_smoothing(n_support: int, n_query: int, n_way: int) -> Smoothing | None:
    """As many neighbours as a class has rows if all are equally large, one over the labels of a class as weight; None in huge episodes."""
    rows = n_support + n_query
    neighbors = MOST_NEIGHBORS if rows > DENSE_ROWS else max(2, min(MOST_NEIGHBORS, rows // n_way))
    return (
        Smoothing(neighbors, n_way / n_support)
        if rows > CLOSEST and neighbors < rows <= MOST_ROWS
        else None
    )


def beside_neighbors(support: Tensor, query: Tensor, *, n_way: int) -> tuple[Tensor, Tensor]:
    """Shortened vectors beside their smoothed copies, (E, S, D) and (E, Q, D) -> (E, S, D') and (E, Q, D'); norms are 1.

    The graph of the copies joins each row to its nearest by cosine, where that is positive; W = D^-1/2 A D^-1/2 of
    the symmetrised weights A, and the copy is the direction of (W + 1/2)^2 x.
    """
    n_support = support.shape[1]
    smoothing = plan_smoothing(n_support, query.shape[1], n_way)
    if smoothing is None:
        return support, query
    x = torch.cat([support, query], dim=1)
    found = (
        look_around(x) if x.shape[1] > DENSE_ROWS else _look_around_exactly(x, smoothing.neighbors)
    )
    both = found.beside(weight=smoothing.weight).to(support.dtype)
    return both[:, :n_support], both[:, n_support:]


def look_around(x: Tensor) -> Neighborhood:
    """The neighbourhood of each row of a large episode, (E, N, D); time grows with N^2, memory with N."""
    n_rows = x.shape[1]
    x = _unit(x)
    sample = (
        torch.arange(min(SAMPLED_ROWS, n_rows), device=x.device)
        * n_rows
        // min(SAMPLED_ROWS, n_rows)
    )  # evenly, from sorted classes too
    near = find_nearest(x, MOST_NEIGHBORS, of=sample).rows
    chosen_by = x.new_zeros(x.shape[:2]).scatter_add(
        1, near.flatten(1), x.new_ones(1).expand(len(x), near[0].numel())
    )
    chosen_by = chosen_by[:, sample] * (n_rows / len(sample))
    closest = near[..., :CLOSEST].flatten(1)
    differences = x[:, sample].repeat_interleave(CLOSEST, dim=1) - x.gather(
        1, closest[..., None].expand(-1, -1, x.shape[2])
    )
    differences *= (
        _trust(chosen_by, MOST_NEIGHBORS).sqrt().repeat_interleave(CLOSEST, dim=1)[..., None]
    )
    short = _unit(_shorten(x, differences.mT @ differences))
    graph = join_nearest(find_nearest(short, MOST_NEIGHBORS))
    copy = short
    for _ in range(HOPS):
        copy = torch.sparse.mm(graph, copy.flatten(0, 1)).view_as(copy) + OWN_WEIGHT * copy
    return Neighborhood(short, _unit(copy))


def _look_around_exactly(x: Tensor, neighbors: int) -> Neighborhood:
    """The same for small episodes, in double precision and, if possible, fewer coordinates, (E, N, D) -> (E, N, D')."""
    x = _unit(_shorten_within(_turn(x.double()), neighbors))
    near = (x @ x.mT).clamp_min(0.0)
    near.diagonal(dim1=1, dim2=2).zero_()
    near = torch.where(near >= near.topk(neighbors, dim=-1).values[..., -1:], near, 0.0)
    near = (near + near.mT) / 2
    scale = near.sum(dim=-1).clamp_min(torch.finfo(x.dtype).tiny ** 0.5).rsqrt()
    graph = near * scale[:, :, None] * scale[:, None, :]
    copy = x
    for _ in range(HOPS):
        copy = graph @ copy + OWN_WEIGHT * copy
    return Neighborhood(x, _unit(copy))


def _turn(x: Tensor) -> Tensor:
    """Rows in coordinates of their own, (E, N, D) -> (E, N, min(N, D)): all products stay."""
    if x.shape[2] <= x.shape[1]:
        return x
    products = x @ x.mT
    products.diagonal(dim1=1, dim2=2).add_(ROUNDINGS)
    turned: Tensor = torch.linalg.cholesky_ex(products).L
    return turned


def _shorten_within(x: Tensor, neighbors: int) -> Tensor:
    """Vectors, shortened where nearest rows differ, (E, N, D) -> (E, N, D)."""
    cosines = x @ x.mT
    cosines.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    nearest = cosines.topk(max(neighbors, CLOSEST), dim=-1).values
    chosen_by = (cosines >= nearest[..., neighbors - 1, None]).sum(
        dim=-2
    )  # (E, N) whose neighbour a row is
    edges = (cosines >= nearest[..., CLOSEST - 1, None]) * _trust(chosen_by.to(x), neighbors)[
        :, :, None
    ]
    edges = (edges + edges.mT) / 2
    return _shorten(
        x, x.mT @ (edges.sum(dim=-1, keepdim=True) * x - edges @ x)
    )  # sum of edge times (x_i - x_j)(x_i - x_j)^T


def _trust(chosen_by: Tensor, neighbors: int) -> Tensor:
    """How much the differences of a row count, by how many have it for a neighbour, (E, N) -> (E, N)."""
    return (chosen_by / neighbors).clamp_max(1.0).sqrt()


def _shorten(x: Tensor, spread: Tensor) -> Tensor:
    """(1 + V)^-1/2 x, with V the spread of differences on its scale, (E, N, D) and (E, D, D) -> (E, N, D)."""
    dim = x.shape[2]
    total = spread.diagonal(dim1=1, dim2=2).sum(dim=-1)
    scale = torch.where(total > SAME, WITHIN * dim / total.clamp_min(SAME), 0.0)
    ones = torch.eye(dim, dtype=x.dtype, device=x.device)
    root = torch.linalg.cholesky_ex(ones + scale[:, None, None] * spread).L
    shortened: Tensor = torch.linalg.solve_triangular(root, x.mT, upper=False).mT
    return shortened


def _unit(x: Tensor) -> Tensor:
    """Rows of norm 1; zero rows stay."""
    length = x.norm(dim=-1, keepdim=True)
    return torch.where(length > 0, x / length, 0.0)
