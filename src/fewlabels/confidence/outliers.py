"""Outliers: the probability that a query belongs to no class of the support.

Prototypes do not help, because outliers among the queries move them. Instead, labels are
propagated over the k-nearest-neighbor graph with decay 0.85 (label spreading, Zhou et al., 2004).
Queries of a known class receive much label mass, queries of other classes receive little. The
logarithm of the mass that a query receives is compared with two distributions of the episode:

- inliers: labelled rows, each without the mass of its own label. Every class counts alike, and no
  class gives mass to more rows than the median class has labels: a class with many labels must
  not make the others look like outliers. The median of all queries stands for a class whose only
  label cannot be left out;
- a left-out class: queries without the mass of the labels of their class. Such a class is a
  compact cluster. Real outliers are scattered and lie closer, about half way to the inliers.

Both are normal distributions of equal spread. The fraction of outliers and their mean are then
estimated from the queries by expectation maximization, as class priors are (Saerens et al., 2002),
starting from few outliers.
With one label per class the median of all queries replaces all inliers, and with many outliers the
probabilities are too low. Their order remains valid.

The labels of a class give as much mass as those of any other, so a row of a class ten times as
large receives a tenth. With masses in proportion to the class sizes found, large classes do not
look like outliers; but outliers are counted to a class, too, which makes it look larger than it is.
So the probability is computed in both ways and averaged, where that lowers it.

Zhou, Bousquet, Lal, Weston, Schölkopf: Learning with local and global consistency. NIPS 2004.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fewlabels.methods.assignment import one_hot, prepare_episode
from fewlabels.preprocess.neighbors import find_nearest, join_nearest


@dataclass(frozen=True)
class OutlierConstants:
    """Hand-set numbers of the outlier model.

    Chosen on validation classes of CIFAR-FS and CUB and on validation folders;
    `benchmarks/sensitivity.py outliers` tells what each is worth there. A spread is a standard
    deviation of the logarithm of the label mass.
    """

    neighbor_limit: int = 15  # neighbors per row; with 30 the score of sensitivity.py falls by 0.8
    neighbor_minimum: int = 2  # neighbors per row; with one the graph falls apart
    decay: float = 0.85  # fraction of the mass that moves on; 0.8 suits many outliers, 0.9 few
    steps: int = 30  # propagation steps; less than 1 % of the mass is still moving
    mean_position: float = 0.5  # of outliers, from left-out class (0) to inliers (1)
    mean_rows: float = 100.0  # outliers that this position counts for
    spread_factor: float = 0.75  # spread of inliers and of outliers over that of left-out classes
    spread_minimum: float = 0.3  # a smaller one raises false alarms where queries are few
    distance_limit: float = 6.0  # spreads from inliers to left-out classes, which may lie far apart
    inlier_count: float = 9.0  # before any query is seen, beside one outlier: a Beta distribution
    left_out_rows: int = 200  # labelled rows that are left out; each adds a column of masses
    rounds: int = 30  # of expectation maximization
    size_rounds: int = 4  # in which the outliers found before count to no class
    sized_weight: float = 0.75  # of class sizes as found; the rest: all classes are equally large
    mass_floor: float = 1e-9  # label mass of a query that no label reaches; keeps its log finite


OUTLIERS = OutlierConstants()


def outlier_probabilities(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    found: Tensor,
    *,
    on_step: Callable[[], None] = lambda: None,
) -> Tensor:
    """Probability to be an outlier, (E, S, D), (E, S), (E, Q, D) and (E, Q) -> (E, Q).

    With a single class there is no other class to leave out: all probabilities are 0.

    Args:
        support: As the classifier had it.
        support_labels: Class numbers.
        query: As the classifier had it.
        found: Class numbers that the classifier found for the queries.
        on_step: Called once per step; an exception that it raises ends the work.

    >>> import torch
    >>> from fewlabels.methods.nearest import assign_nearest
    >>> noise = torch.randn(1, 36, 3, generator=torch.Generator().manual_seed(0))
    >>> x = torch.eye(3).repeat_interleave(12, dim=0) + 0.1 * noise  # 12 rows each of 3 classes
    >>> support, labels = x[:, [0, 1, 2, 12, 13, 14]], torch.tensor([[0, 0, 0, 1, 1, 1]])
    >>> query = x[:, [10, 11, 22, 23, 32, 33, 34, 35]]  # four of them of the class without labels
    >>> found = assign_nearest(support, labels, query, n_way=2).labels
    >>> (outlier_probabilities(support, labels, query, found) > 0.5).int().tolist()
    [[0, 0, 0, 0, 1, 1, 1, 1]]
    """
    n_way = int(support_labels.max()) + 1  # each class has a label
    prepare_episode(support, support_labels, query, n_way)
    if n_way == 1:
        return query.new_zeros(query.shape[:2])
    received = _spread_from_labels(support, support_labels, query, n_way, on_step)
    members = one_hot(found, n_way, received.of_queries.dtype)
    equal = _fit(_compare(received, members, torch.ones_like(received.counts)))
    sized = torch.zeros_like(equal)
    for _ in range(OUTLIERS.size_rounds):
        sizes = received.counts + (members * (1 - sized)[..., None]).sum(dim=-2)
        sized = _fit(_compare(received, members, sizes))
    return torch.minimum(equal, equal.lerp(sized, OUTLIERS.sized_weight))


def _fit(masses: "_Masses") -> Tensor:
    """Probability to be an outlier, by two normal distributions of label masses, (E, Q)."""
    left_out, received = _fit_normal(masses.left_out), _fit_normal(masses.query)
    known = masses.weights.sum(dim=-1, keepdim=True)
    total = (masses.weights * masses.inlier).sum(dim=-1, keepdim=True)
    inlier_mean = total + (1 - known) * received.median
    spread = torch.minimum(OUTLIERS.spread_factor * left_out.spread, received.spread)
    spread = spread.clamp_min(OUTLIERS.spread_minimum)  # counts as one labelled row
    squared = (masses.weights * (masses.inlier - inlier_mean) ** 2).sum(dim=-1, keepdim=True)
    variance = (masses.n_used * squared + spread**2) / (masses.n_used * known + 1)
    nearest = inlier_mean - OUTLIERS.distance_limit * variance.sqrt()
    # With one label per class no labelled row tells the spread, so it limits nothing.
    lowest = torch.where(known > 0, left_out.median.maximum(nearest), left_out.median)
    expected = outlier_mean = lowest + OUTLIERS.mean_position * (inlier_mean - lowest)
    prior = torch.full_like(inlier_mean, 1 / (1 + OUTLIERS.inlier_count))
    for _ in range(OUTLIERS.rounds):
        # Two normal distributions of equal spread: their log ratio is linear in the mass.
        distance = (inlier_mean - outlier_mean).clamp_min(0.0)
        log_ratio = distance * ((inlier_mean + outlier_mean) / 2 - masses.query) / variance
        probabilities = torch.sigmoid(log_ratio + prior.logit())
        count = probabilities.sum(dim=-1, keepdim=True)
        prior = (count + 1) / (masses.query.shape[-1] + 1 + OUTLIERS.inlier_count)
        total = (probabilities * masses.query).sum(dim=-1, keepdim=True)
        outlier_mean = (total + OUTLIERS.mean_rows * expected) / (count + OUTLIERS.mean_rows)
    return probabilities


class _Normal(NamedTuple):
    """A normal distribution fitted by quantiles, which outliers hardly move, (E, 1) each."""

    median: Tensor
    spread: Tensor


def _fit_normal(x: Tensor) -> _Normal:
    low, median, high = x.quantile(x.new_tensor([0.16, 0.5, 0.84]), dim=-1)[..., None]
    return _Normal(median, (high - low) / 2)


class _Received(NamedTuple):
    """Label masses, of which each class gives as much, and R labelled rows to be left out."""

    of_queries: Tensor  # (E, Q, W) from each class
    of_rows: Tensor  # (E, R, W) likewise
    own: Tensor  # (E, R) from their own label
    classes: Tensor  # (E, R, W) of these rows, one-hot
    sources: Tensor  # (E, R) whether their label gives mass
    shots: Tensor  # (E, R) labels of their class that give mass
    counts: Tensor  # (E, W) labels per class


class _Masses(NamedTuple):
    """Logarithms of label masses; other labels make up for the mass of those left out."""

    inlier: Tensor  # (E, R) of labelled rows without their own label
    weights: Tensor  # (E, R) of these; 1 / W in all for a class, 0 for one whose only label it is
    n_used: Tensor  # (E, 1) labelled rows of weight above 0
    left_out: Tensor  # (E, Q) of queries without the labels of their class
    query: Tensor  # (E, Q) of queries


def _spread_from_labels(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    n_way: int,
    on_step: Callable[[], None],
) -> _Received:
    n_support = support.shape[1]
    n_rows = min(n_support, OUTLIERS.left_out_rows)
    rows = torch.linspace(0, n_support - 1, n_rows, device=support.device).round().long()
    dtype = torch.float64 if torch.float64 in (support.dtype, query.dtype) else torch.float32
    x = torch.cat([support.to(dtype), query.to(dtype)], dim=1)
    x = torch.nn.functional.normalize(x, dim=-1)
    members = one_hot(support_labels, n_way, x.dtype)
    counts = members.sum(dim=-2)
    n_sources = torch.minimum(counts, counts.median(dim=-1, keepdim=True).values)
    rank = (members.cumsum(dim=-2) * members).sum(dim=-1)  # (E, S) of a label in its class, from 1
    shots = (members * n_sources[:, None]).sum(dim=-1)
    sources = (rank <= shots).to(x)
    initial = x.new_zeros(*x.shape[:2], n_way + n_rows)
    initial[:, :n_support, :n_way] = members * (sources / shots)[..., None]
    initial[:, rows, n_way:] = torch.diag_embed((sources / shots)[:, rows])
    n_neighbors = x.shape[1] // (n_way + 1)  # rows per class, if the outliers are one more class
    n_neighbors = max(n_neighbors, OUTLIERS.neighbor_minimum)
    n_neighbors = min(n_neighbors, OUTLIERS.neighbor_limit, x.shape[1] - 1)
    masses = _spread_labels(x, initial, n_neighbors=n_neighbors, on_step=on_step)
    return _Received(
        of_queries=masses[:, n_support:, :n_way],
        of_rows=masses[:, rows, :n_way],
        own=masses[:, rows, n_way:].diagonal(dim1=1, dim2=2),
        classes=members[:, rows],
        sources=sources[:, rows],
        shots=shots[:, rows],
        counts=counts,
    )


def _compare(received: _Received, members: Tensor, sizes: Tensor) -> _Masses:
    """The masses where each class gives as much as its size, (E, W), says.

    `members`: classes found for the queries, (E, Q, W).
    """
    of_queries, of_rows, own, classes, sources, shots, _ = received
    n_way = sizes.shape[-1]
    given = (sizes / sizes.mean(dim=-1, keepdim=True))[:, None]  # by each class
    of_queries, of_rows, own = of_queries * given, of_rows * given, own * (classes * given).sum(-1)
    from_class = (classes * of_rows).sum(dim=-1) - own
    without_own = of_rows.sum(dim=-1) - own + sources * from_class / (shots - 1).clamp_min(1)
    used = 1 - sources * (shots == 1)  # the only source of a class cannot be left out
    per_class = (classes * used[..., None]).sum(dim=-2)
    weights = used * (classes / per_class.clamp_min(1)[:, None]).sum(dim=-1) / n_way
    others = 1 - members
    without_class = (of_queries * others).sum(dim=-1) * n_way / (others * given).sum(dim=-1)
    inlier, left_out, query = (
        mass.clamp_min(OUTLIERS.mass_floor).log()
        for mass in (without_own, without_class, of_queries.sum(dim=-1))
    )
    return _Masses(inlier, weights, used.sum(dim=-1, keepdim=True), left_out, query)


def _spread_labels(
    x: Tensor, initial: Tensor, *, n_neighbors: int, on_step: Callable[[], None]
) -> Tensor:
    """Label spreading on the graph of rows of norm 1, (E, N, D) and (E, N, C) -> (E, N, C)."""
    graph = join_nearest(find_nearest(x, n_neighbors, on_step=on_step))
    start = initial.reshape(len(graph), -1)
    masses = start
    for _ in range(OUTLIERS.steps):
        on_step()
        masses = OUTLIERS.decay * torch.sparse.mm(graph, masses) + (1 - OUTLIERS.decay) * start
    return masses.reshape(initial.shape)
