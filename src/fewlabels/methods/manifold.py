"""AM and alpha-AM: labels that spread over a graph which is fitted to the episode.

    nodes: the class centroids c (first the support means), the labelled rows, the queries
    d_ik = |x_i - x_k| / (standard deviation of all distances);   a_ik = exp(-g_ik d_ik), a_ii = 0
    every row keeps the n_neighbors largest of its a_ik, a centroid keeps none of its own
    (and is preferred to a row at the same place)
    W = b * (A + A') / 2, elementwise;   S = D^-1/2 W D^-1/2,   D = row sums of W
    Z = scale (I - spread S)^-1 [I_W; 0; 0],      p_ij = softmax_j(z_ij)
    minimise over c, g and b   mean_S(-log p_{i y_i}) - balance H(mean_Q p) + mean_Q H(p)

from g = 1 and b = spread, by a fixed number of steps of Adam. H is Shannon's entropy with
balance 10 (AM), or Tsallis' of order a, (1 - sum p^a) / (a - 1), with balance 1 (alpha-AM), which
rewards equal class sizes less. The largest z_ij is the label. With fewer queries than classes the
entropy of the mean is left out, as in `tim`. A query that no centroid reaches goes to the nearest
one; so do later rows. All pairs of rows are held in memory. Computed in float64; rounding grows in
the fit, and rows in float32 get other labels in about 2 of 1,000 queries (benchmarks/oracles.py).

Published: spread 0.8 and 20 neighbors at 1 shot, 0.9 and 10 at 5; order 2 and 5; scale 15; 1,000
steps of 1e-4. Here 100 steps of 1e-3.

Lazarou, Avrithis, Stathaki (2023). Published accuracies are not known here.
"""

from dataclasses import replace

import torch
from torch import Tensor

from fewlabels.methods.assignment import (
    Assignment,
    class_means,
    make_assignment,
    one_hot,
    prepare_episode,
    similarities,
)
from fewlabels.methods.base import Knob, Method, Reference, register
from fewlabels.methods.parts import N_NEIGHBORS, N_UPDATES, Adam, ByShots, check_pairs
from fewlabels.methods.tim import ORDER, entropy
from fewlabels.preprocess.pipeline import Pipeline

UPDATES = 100
RATE = 1e-3
SCALE = 15.0
SAME = 1e-12  # squared distance below which two nodes are one; its root has no slope there
PREFERENCE = 1e-9  # part by which a centroid is taken as nearer than a row at the same place


def assign_manifold(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    n_neighbors: int = 20,
    spread: float = 0.8,
    n_updates: int = UPDATES,
    rate: float = RATE,
    balance: float = 10.0,
    order: float = 1.0,
) -> Assignment:
    """Labels over a fitted graph, (E, S, D), (E, S) and (E, Q, D) -> Assignment.

    Args:
        balance: Weight of the entropy of the mean.
        order: Of the entropies; 1 is Shannon's.
    """
    support, query, shift = prepare_episode(support, support_labels, query, n_way)
    rows = torch.cat([support, query], dim=1).double()
    check_pairs(rows, "alpha-am")
    truth = one_hot(support_labels, n_way, rows.dtype)
    n_nodes, n_support = n_way + rows.shape[1], support.shape[1]
    ones = rows.new_ones(len(rows), n_nodes, n_nodes)
    fitted = [class_means(support.double(), support_labels, n_way), ones, spread * ones]
    solvers = [Adam(rate) for _ in fitted]
    for _ in range(n_updates):
        with torch.enable_grad():
            found = [each.detach().requires_grad_() for each in fitted]
            z = _spread(rows, *found, n_neighbors=n_neighbors, spread=spread)
            log = z.log_softmax(dim=-1)
            p = log[:, n_support:].exp()
            loss = entropy(p, order).mean(dim=-1) - (truth * log[:, :n_support]).sum(dim=(1, 2)) / (
                n_support
            )
            if query.shape[1] >= n_way:
                loss = loss - balance * entropy(p.mean(dim=-2), order)
            slopes = torch.autograd.grad(loss.sum(), found, allow_unused=True)
        fitted = [
            each if slope is None else each + solver.change(slope)
            for each, slope, solver in zip(fitted, slopes, solvers, strict=True)
        ]
    z = _spread(rows, *fitted, n_neighbors=n_neighbors, spread=spread)[:, n_support:]
    centroids = fitted[0]
    nearest = SCALE * one_hot(
        similarities(rows[:, n_support:], centroids).argmax(dim=-1), n_way, z.dtype
    )
    z = torch.where((z != 0).any(dim=-1, keepdim=True), z, nearest)
    plan = z.softmax(dim=-1).to(query)
    return make_assignment(plan, centroids.to(query) + shift, labels=z.argmax(dim=-1))


def _spread(
    rows: Tensor,
    centroids: Tensor,
    widths: Tensor,
    strengths: Tensor,
    *,
    n_neighbors: int,
    spread: float,
) -> Tensor:
    """Scores of the rows, (E, N, D) -> (E, N, W)."""
    n_way = centroids.shape[1]
    nodes = torch.cat([centroids, rows], dim=1)
    squares = (nodes * nodes).sum(dim=-1)
    squares = squares[:, :, None] + squares[:, None, :] - 2 * nodes @ nodes.mT
    apart = squares > SAME
    distances = torch.where(apart, torch.where(apart, squares, 1.0).sqrt(), 0.0)
    deviation = distances.std(dim=(1, 2), keepdim=True)
    near = (-widths * distances / torch.where(deviation > 0, deviation, 1.0)).exp()
    itself = torch.eye(nodes.shape[1], dtype=torch.bool, device=rows.device)
    near = near.masked_fill(itself, 0.0)
    # With one label a centroid begins at its labelled row: it is preferred, not left to rounding.
    wanted = near[:, n_way:].detach().clone()
    wanted[..., :n_way] *= 1 + PREFERENCE
    best = wanted.topk(min(n_neighbors, nodes.shape[1] - 1), dim=-1).indices
    kept = torch.zeros_like(near[:, n_way:]).scatter_(-1, best, 1.0)
    near = torch.nn.functional.pad(near[:, n_way:] * kept, (0, 0, n_way, 0))
    weights = strengths * (near + near.mT) / 2
    total = weights.sum(dim=-1)
    scale = torch.where(total > 0, torch.where(total > 0, total, 1.0).rsqrt(), 0.0)
    graph = scale[:, :, None] * weights * scale[:, None, :]
    identity = torch.eye(nodes.shape[1], dtype=rows.dtype, device=rows.device)
    start = SCALE * identity[:, :n_way].expand(len(rows), -1, -1)
    found: Tensor = torch.linalg.solve(identity - spread * graph, start)
    return found[:, n_way:]


REFERENCE = Reference(
    "Lazarou, Avrithis, Stathaki",
    2023,
    "Adaptive manifold for imbalanced transductive few-shot learning",
    "https://arxiv.org/abs/2304.14281",
)
PIPELINE = Pipeline.parse("power(0.5) | unit | center(joint) | unit")
KNOBS = (
    replace(N_NEIGHBORS, default=ByShots(20, 10)),
    Knob(
        "spread",
        "part of a label that comes from other rows",
        default=ByShots(0.8, 0.9),
        low=0,
        high=0.99,
        grid=(0.5, 0.7, 0.8, 0.9),
        symbol="spread",
    ),
    replace(N_UPDATES, default=UPDATES),
    Knob("rate", "step size of the gradient", default=RATE, low=0, above_low=True),
    Knob("balance", "weight of the entropy of the mean", default=10.0, low=0),
)
register(
    Method(
        "am",
        "PT+AM",
        REFERENCE,
        PIPELINE,
        assign_manifold,
        KNOBS,
        fixed={"order": 1.0},
    ),
    Method(
        "alpha-am",
        "PT+alpha-AM",
        REFERENCE,
        PIPELINE,
        assign_manifold,
        (
            *KNOBS[:-1],
            replace(KNOBS[-1], default=1.0),
            replace(ORDER, default=ByShots(2.0, 5.0)),
        ),
    ),
)
