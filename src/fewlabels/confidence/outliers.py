"""None of these: how probable it is that a query belongs to no class of the support.

A prototype is no help here: it is a mean of its queries, and outsiders among them pull it to themselves. So the
labels are let loose on the graph of nearest rows, where they walk from row to row and die out on the way: queries
of a named class are soon met, images of something else keep to themselves. How much of the labels a query meets is
compared with two things that the episode can show:

- insiders: labelled rows, each without its own label;
- outsiders: queries without the labels of their class. Such a class is a neat cluster apart; real outsiders are
  scattered and lie nearer, about half way to the insiders.

How many outsiders there are and where they lie is then read from the queries by expectation maximisation, starting
from few.
With one label a class no label can be left out: the middle of all queries stands for the insiders then, and where
there are many outsiders their probabilities are too low. Their order is what to trust.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fewlabels.methods.assignment import one_hot, prepare_episode
from fewlabels.preprocess.neighbors import find_nearest, join_nearest

# Chosen on validation classes of two feature families (CIFAR-FS val in a WRN, CUB val in EfficientNet-Lite0).
MOST_NEIGHBORS = 15  # of a row in the graph; 8 and 25 lose a point of AUROC each
LEAST_NEIGHBORS = 2  # or the graph falls apart
DECAY = 0.85  # part of a walk that goes on at each step; 0.8 suits many outsiders, 0.9 few
N_STEPS = 30  # after which less than 1 % still walks
HALF_WAY = (
    0.5  # where real outsiders lie from a class left out (0) to insiders (1); seen: 0.0 to 0.6
)
BELIEVED_ROWS = 20.0  # outsiders that this is worth beside those found; were it all, many of one kind would cost 4 times the false alarms
NARROWER = 0.75  # spread of insiders and of outsiders, each, beside that of classes left out
FARTHEST = 4.0  # spreads below a class left out at which a query counts as no farther: one that nothing reaches moves no mean
LEAST_SPREAD, MOST_SPREAD = (
    0.2,
    1.0,
)  # of the logarithms; seen: 0.3 to 0.9, but a few queries do not tell, nor classes that nothing joins
MOST_APART = 4.0  # spreads from a class left out to insiders; seen: 2 to 3
SPREAD_ROWS = 5.0  # labelled rows that these are worth beside those that can be left out
FEW_OUTSIDERS, MANY_INSIDERS = (
    1.0,
    9.0,
)  # queries of either kind before any is seen (a Beta distribution)
USUAL_ROWS = (
    2.0  # labelled rows that the middle of all queries counts for among those that can be left out
)
MOST_LEFT_OUT = 200  # labelled rows; each is a walk of its own
N_ROUNDS = 30  # of the estimate of how many outsiders there are
UNMET = 1e-9  # of the labels, for a query that no walk reaches


def outsider_shares(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    found: Tensor,
    *,
    on_step: Callable[[], None] = lambda: None,
) -> Tensor:
    """Probability that a query belongs to no class of the support, (E, S, D), (E, S), (E, Q, D) and (E, Q) -> (E, Q).

    With a single class there is no other that could play the outsider: all are 0.

    Args:
        support: As the classifier had it.
        support_labels: Class numbers.
        query: As the classifier had it.
        found: Class numbers that the classifier found for the queries.
        on_step: Called many times on the way; what it raises ends the work.

    >>> import torch
    >>> from fewlabels.methods.nearest import assign_nearest
    >>> noise = torch.randn(1, 36, 3, generator=torch.Generator().manual_seed(0))
    >>> x = torch.eye(3).repeat_interleave(12, dim=0) + 0.1 * noise  # twelve rows each of three classes
    >>> support, labels = x[:, [0, 1, 2, 12, 13, 14]], torch.tensor([[0, 0, 0, 1, 1, 1]])  # and two of them have labels
    >>> query = x[:, [10, 11, 22, 23, 32, 33, 34, 35]]
    >>> shares = outsider_shares(support, labels, query, assign_nearest(support, labels, query, n_way=2).labels)
    >>> (shares > 0.5).int().tolist()
    [[0, 0, 0, 0, 1, 1, 1, 1]]
    """
    n_way = int(support_labels.max()) + 1  # each has a label
    prepare_episode(support, support_labels, query, n_way)
    if n_way == 1:
        return query.new_zeros(query.shape[:2])
    insiders, asked, outsiders, met = _meetings(
        support, support_labels, query, found, n_way, on_step
    )
    apart, wide = _middle_and_spread(outsiders), _middle_and_spread(met)
    spread = torch.minimum(NARROWER * apart.spread, wide.spread).clamp(LEAST_SPREAD, MOST_SPREAD)
    insiders = torch.maximum(insiders, wide.middle - FARTHEST * spread)
    n_asked = asked.sum(dim=-1, keepdim=True)
    inside = ((insiders * asked).sum(dim=-1, keepdim=True) + USUAL_ROWS * wide.middle) / (
        n_asked + USUAL_ROWS
    )
    squared = (((insiders - inside) ** 2) * asked).sum(dim=-1, keepdim=True)
    spread = ((squared + SPREAD_ROWS * spread**2) / (n_asked + SPREAD_ROWS)).sqrt()
    middle = torch.maximum(apart.middle, inside - MOST_APART * spread)
    met = torch.maximum(met, middle - FARTHEST * spread)
    believed = outside = middle + HALF_WAY * (inside - middle)
    prior = torch.full_like(inside, FEW_OUTSIDERS / (FEW_OUTSIDERS + MANY_INSIDERS))
    for _ in range(N_ROUNDS):
        # Of two normal densities of one spread, the logarithm of their ratio falls steadily where insiders meet more labels.
        evidence = (inside - outside).clamp_min(0.0) * ((inside + outside) / 2 - met) / spread**2
        shares = torch.sigmoid(evidence + prior.logit())
        n_outside = shares.sum(dim=-1, keepdim=True)
        prior = (n_outside + FEW_OUTSIDERS) / (shares.shape[-1] + FEW_OUTSIDERS + MANY_INSIDERS)
        outside = ((shares * met).sum(dim=-1, keepdim=True) + BELIEVED_ROWS * believed) / (
            n_outside + BELIEVED_ROWS
        )
    return shares


class _Normal(NamedTuple):
    """A distribution in two numbers that a few odd values do not move, (E, 1) each."""

    middle: Tensor
    spread: Tensor  # the standard deviation where it is normal


def _middle_and_spread(x: Tensor) -> _Normal:
    low, middle, high = x.quantile(x.new_tensor([0.16, 0.5, 0.84]), dim=-1)[..., None]
    return _Normal(middle, (high - low) / 2)


def _meetings(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    labels: Tensor,
    n_way: int,
    on_step: Callable[[], None],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logarithms of how much of the labels is met; what is left out is made up for by the other labels of its class, or other classes.

    By labelled rows without their own label, (E, R), and which of them share their class with another, (E, R); by
    queries without the labels of their class, (E, Q); and by queries, (E, Q).
    """
    n_support = support.shape[1]
    left_out = (
        torch.linspace(0, n_support - 1, min(n_support, MOST_LEFT_OUT), device=support.device)
        .round()
        .long()
    )
    dtype = torch.float64 if torch.float64 in (support.dtype, query.dtype) else torch.float32
    x = torch.nn.functional.normalize(
        torch.cat([support.to(dtype), query.to(dtype)], dim=1), dim=-1
    )
    members = one_hot(support_labels, n_way, x.dtype)
    starts = x.new_zeros(*x.shape[:2], n_way + len(left_out))
    starts[:, :n_support, :n_way] = members
    starts[:, left_out, n_way:] = torch.eye(len(left_out), dtype=x.dtype, device=x.device)
    n_neighbors = x.shape[1] // (
        n_way + 1
    )  # rows of a class if all are equally large and the outsiders are one more
    n_neighbors = min(max(n_neighbors, LEAST_NEIGHBORS), MOST_NEIGHBORS, x.shape[1] - 1)
    ends = _walk(x, starts, n_neighbors=n_neighbors, on_step=on_step)
    of_rows, of_queries = ends[:, left_out, :n_way], ends[:, n_support:, :n_way]
    own = ends[:, left_out, n_way:].diagonal(dim1=1, dim2=2)
    classes = members[:, left_out]
    shots = (classes * members.sum(dim=-2, keepdim=True)).sum(dim=-1)
    from_class = (classes * of_rows).sum(dim=-1) - own
    without_own = of_rows.sum(dim=-1) - own + from_class / (shots - 1).clamp_min(1)
    without_class = (
        (of_queries * (1 - one_hot(labels, n_way, x.dtype))).sum(dim=-1) * n_way / (n_way - 1)
    )
    insiders, outsiders, met = (
        x.clamp_min(UNMET).log() for x in (without_own, without_class, of_queries.sum(dim=-1))
    )
    return insiders, (shots > 1).to(met), outsiders, met


def _walk(x: Tensor, starts: Tensor, *, n_neighbors: int, on_step: Callable[[], None]) -> Tensor:
    """Where walks that start from rows end, (E, N, D) unit vectors and (E, N, C) masses -> (E, N, C).

    A step leads along the graph of nearest rows, see `neighbors.join_nearest`.
    """
    step = join_nearest(find_nearest(x, n_neighbors, on_step=on_step))
    start = starts.reshape(len(step), -1)
    ends = start
    for _ in range(N_STEPS):
        on_step()
        ends = DECAY * torch.sparse.mm(step, ends) + (1 - DECAY) * start
    return ends.reshape(starts.shape)
