"""Neighborhood features: within-class whitening, and the mean over neighbors appended.

One labelled row tells little about its class. All rows of an episode, labelled or not, tell more,
through the k-nearest-neighbor graph:

- *Within-class whitening* (relevant component analysis, Bar-Hillel et al., 2005). Nearest rows are
  mostly of one class, so the directions in which they differ say nothing about classes. They are
  scaled down: x' = (1 + V)^-1/2 x, with V the covariance of the differences of nearest rows. A row
  that is a neighbor of few others may have its own nearest rows in other classes, for example the
  label of a class without queries. Its differences count less.
- *Neighbor means* (simplified graph convolution, SGC, Wu et al., 2019). The mean over neighbors and
  their neighbors is appended to the vector, with weight 1 / (labels per class): with several labels
  the class mean is smooth already.

No labels are used. Small episodes are computed exactly. In large ones the graph is sparse and V is
estimated from a sample of the rows. Code that classifies the same rows several times keeps the
`Neighborhood`.

Bar-Hillel, Hertz, Shental, Weinshall: Learning a Mahalanobis metric from equivalence constraints.
JMLR 6, 2005. Wu et al.: Simplifying graph convolutional networks. ICML 2019.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fewlabels.preprocess.neighbors import find_nearest, join_nearest


@dataclass(frozen=True)
class SmoothingConstants:
    """Hand-set numbers of the neighborhood features.

    Chosen on the validation classes of the feature sets of `methods.estimation`, or by run time.
    """

    neighbor_minimum: int = 2  # neighbors per row; with one the graph falls apart
    neighbor_limit: int = 20  # neighbors per row; more do not improve the mean
    own_weight: float = 0.5  # weight of the row in a mean; those of its neighbors sum to about 1
    hops: int = 2  # graph products: neighbors, and their neighbors
    whitening_neighbors: int = 3  # nearest rows in V; fewer are noisy, more are of other classes
    # Mean variance of V, next to the 1. At 0.1 imbalanced episodes lose 0.5 points, at 1 balanced
    # ones lose more.
    whitening_variance: float = 1 / 3
    variance_floor: float = 1e-9  # squared distance; below it all rows count as identical
    # Of the squared norm, if above 1; keeps products of dependent rows factorable.
    diagonal_jitter: float = 1e-10
    dense_rows: int = 1000  # rows per episode up to which all products are kept; memory
    sampled_rows: int = 1000  # rows that V is estimated from in large episodes; 300 cost 0.5 points


SMOOTHING = SmoothingConstants()


class Smoothing(NamedTuple):
    """How the rows of an episode are smoothed."""

    neighbors: int  # per row
    weight: float  # of the neighbor means, next to 1 for the vector


class Neighborhood(NamedTuple):
    """The two parts of neighborhood features, rows of norm 1, (E, N, D) each."""

    whitened: Tensor
    means: Tensor  # over neighbors and their neighbors
    graph: Tensor | None = None  # sparse, (E N, E N); `find_neighborhood` has it

    def products(self, *, weight: float) -> Tensor:
        """Inner products of the rows that `join` gives, (E, N, N)."""
        of_means = self.means @ self.means.mT
        part = 1 / (1 + weight)
        joined: Tensor = torch.baddbmm(
            of_means, self.whitened, self.whitened.mT, beta=part * weight, alpha=part
        )
        return joined

    def join(self, *, weight: float) -> Tensor:
        """Both parts side by side, (E, N, 2 D), the means with a weight; norms are 1."""
        parts = torch.cat([self.whitened, weight**0.5 * self.means], dim=-1)
        joined: Tensor = parts / (1 + weight) ** 0.5
        return joined

    def take(self, rows: Tensor) -> "Neighborhood":
        """Some rows, as they were among all."""
        return Neighborhood(self.whitened[:, rows], self.means[:, rows])

    def split(self, known: Tensor, *, n_way: int) -> tuple[Tensor, Tensor]:
        """Joined features of the labelled and of the other rows, (E, S, 2 D) and (E, Q, 2 D)."""
        joined = self.join(weight=n_way / int(known.sum()))
        return joined[:, known], joined[:, ~known]


def plan_smoothing(n_support: int, n_query: int, n_way: int) -> Smoothing | None:
    """Neighbors per row (the rows per class if all are equally large) and weight of the means.

    None in episodes of too few rows.
    """
    rows = n_support + n_query
    neighbors = min(SMOOTHING.neighbor_limit, max(SMOOTHING.neighbor_minimum, rows // n_way))
    if rows > SMOOTHING.dense_rows:
        neighbors = SMOOTHING.neighbor_limit
    fits = rows > SMOOTHING.whitening_neighbors and neighbors < rows
    return Smoothing(neighbors, n_way / n_support) if fits else None


def kth_largest(x: Tensor, ranks: Sequence[int]) -> list[Tensor]:
    """The k-th largest number of each row, for some k, (..., n) -> (...) each."""
    largest = x.topk(max(ranks), dim=-1).values
    return [largest[..., k - 1] for k in ranks]


Kth = Callable[[Tensor, Sequence[int]], list[Tensor]]  # `kth_largest`, or a kernel for it


def append_neighbor_means(
    support: Tensor, query: Tensor, *, n_way: int, kth: Kth = kth_largest
) -> tuple[Tensor, Tensor]:
    """Neighborhood features, (E, S, D) and (E, Q, D) -> (E, S, D') and (E, Q, D'); norms are 1.

    The graph joins each row to its nearest by cosine, where that is positive. The means are the
    directions of (W + 1/2)^2 x, with W = D^-1/2 A D^-1/2 of the symmetrized weights A.
    """
    n_support = support.shape[1]
    smoothing = plan_smoothing(n_support, query.shape[1], n_way)
    if smoothing is None:
        return support, query
    x = torch.cat([support, query], dim=1)
    if x.shape[1] > SMOOTHING.dense_rows:
        found = find_neighborhood(x)
    else:
        found = find_neighborhood_exactly(x, smoothing.neighbors, kth)
    joined = found.join(weight=smoothing.weight).to(support.dtype)
    return joined[:, :n_support], joined[:, n_support:]


def find_neighborhood(
    x: Tensor, *, whitening_variance: float | None = None, n_neighbors: int | None = None
) -> Neighborhood:
    """Neighborhood features of a large episode, (E, N, D).

    The same rows in another order get the same features, up to rounding.

    Args:
        whitening_variance: Mean variance of the whitening; that of `SMOOTHING` by default.
        n_neighbors: Neighbors per row, at most N - 1; the limit of `SMOOTHING` by default.
    """
    n_rows = x.shape[1]
    n_neighbors = min(n_neighbors or SMOOTHING.neighbor_limit, n_rows - 1)
    n_nearest = min(SMOOTHING.whitening_neighbors, n_neighbors)
    x = _unit(x)
    n_sampled = min(SMOOTHING.sampled_rows, n_rows)
    # Evenly from the rows in order of their sums of sizes, which do not depend on their places.
    order = x.abs().sum(dim=-1, dtype=torch.float64).argsort(dim=-1, stable=True)
    sample = order[:, torch.arange(n_sampled, device=x.device) * n_rows // n_sampled]
    near = find_nearest(x, n_neighbors, of=sample).rows
    ones = x.new_ones(1).expand(len(x), near[0].numel())
    in_degree = x.new_zeros(x.shape[:2]).scatter_add(1, near.flatten(1), ones)
    in_degree = in_degree.gather(1, sample) * (n_rows / n_sampled)
    nearest = near[..., :n_nearest].flatten(1)
    differences = _take(x, sample.repeat_interleave(n_nearest, dim=1)) - _take(x, nearest)
    weights = _row_weights(in_degree, n_neighbors)
    differences *= weights.sqrt().repeat_interleave(n_nearest, dim=1)[..., None]
    whitened = _unit(_whiten_within(x, differences.mT @ differences, whitening_variance))
    graph = join_nearest(find_nearest(whitened, n_neighbors))
    means = whitened
    for _ in range(SMOOTHING.hops):
        neighbor_sums = torch.sparse.mm(graph, means.flatten(0, 1)).view_as(means)
        means = neighbor_sums + SMOOTHING.own_weight * means
    return Neighborhood(whitened, _unit(means), graph)


def _take(x: Tensor, rows: Tensor) -> Tensor:
    """Some rows of each episode, (E, N, D) and (E, n) -> (E, n, D)."""
    return x.gather(1, rows[..., None].expand(-1, -1, x.shape[2]))


def find_neighborhood_exactly(x: Tensor, neighbors: int, kth: Kth) -> Neighborhood:
    """The same for small episodes, in float64, (E, N, D) -> (E, N, D') with D' = min(N, D)."""
    x = _rotate(x.double())
    x = _unit(_whiten_within(x, _difference_covariance(x, neighbors, kth)))
    near = (x @ x.mT).clamp_min(0.0)
    near.diagonal(dim1=1, dim2=2).zero_()
    (least,) = kth(near, [neighbors])
    near = torch.where(near >= least[..., None], near, 0.0)
    near = near + near.mT  # twice the weights, which does not change the graph
    scale = near.sum(dim=-1).clamp_min(torch.finfo(x.dtype).tiny ** 0.5).rsqrt()
    graph = near.mul_(scale[:, :, None]).mul_(scale[:, None, :])
    means = x
    for _ in range(SMOOTHING.hops):
        means = torch.baddbmm(means, graph, means, beta=SMOOTHING.own_weight)
    return Neighborhood(x, _unit(means))


def _rotate(x: Tensor) -> Tensor:
    """Rows in a basis of their span, (E, N, D) -> (E, N, min(N, D)); inner products are kept."""
    if x.shape[2] <= x.shape[1]:
        return x
    return rows_of_products(x @ x.mT)


def rows_of_products(products: Tensor) -> Tensor:
    """Rows with these inner products, (E, N, N) -> (E, N, N)."""
    products = products.clone()
    diagonal = products.diagonal(dim1=1, dim2=2)
    largest = diagonal.amax(dim=1, keepdim=True).clamp_min(1.0)  # rounding errors grow with it
    diagonal.add_(SMOOTHING.diagonal_jitter * largest)
    rows: Tensor = torch.linalg.cholesky_ex(products).L
    return rows


def _difference_covariance(x: Tensor, neighbors: int, kth: Kth) -> Tensor:
    """Sum of w_ij (x_i - x_j)(x_i - x_j)^T over nearest rows, (E, N, D) -> (E, D, D)."""
    n_nearest = SMOOTHING.whitening_neighbors
    cosines = x @ x.mT
    cosines.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    least, least_nearest = kth(cosines, [neighbors, n_nearest])
    in_degree = (cosines >= least[..., None]).sum(dim=-2)  # (E, N)
    weights = _row_weights(in_degree.to(x), neighbors)
    edges = (cosines >= least_nearest[..., None]) * (weights / 2)[:, :, None]
    edges = edges + edges.mT
    degrees = edges.sum(dim=-1)
    laplacian = edges.neg_()
    laplacian.diagonal(dim1=1, dim2=2).add_(degrees)
    return x.mT @ (laplacian @ x)


def _row_weights(in_degree: Tensor, neighbors: int) -> Tensor:
    """Weights of the differences of rows, by how many have the row as neighbor, (E, N)."""
    return (in_degree / neighbors).clamp_max(1.0).sqrt()


def _whiten_within(x: Tensor, covariance: Tensor, variance: float | None = None) -> Tensor:
    """(1 + V)^-1/2 x, with V the covariance in its scale, (E, N, D) and (E, D, D) -> (E, N, D)."""
    mean_variance = SMOOTHING.whitening_variance if variance is None else variance
    dim, floor = x.shape[2], SMOOTHING.variance_floor
    total = covariance.diagonal(dim1=1, dim2=2).sum(dim=-1)
    scale = torch.where(total > floor, mean_variance * dim / total.clamp_min(floor), 0.0)
    ones = torch.eye(dim, dtype=x.dtype, device=x.device)
    root = torch.linalg.cholesky_ex(ones + scale[:, None, None] * covariance).L
    whitened: Tensor = torch.linalg.solve_triangular(root, x.mT, upper=False).mT
    return whitened


def _unit(x: Tensor) -> Tensor:
    """Rows of norm 1; zero rows stay zero."""
    norm = x.norm(dim=-1, keepdim=True)
    return torch.where(norm > 0, x / norm, 0.0)
