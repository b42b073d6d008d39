"""iLPC: label propagation, equal class sizes, and the cleanest pseudo-labels join the support.

    A    = cos^3 of each row and its nearest rows, symmetrized;   E = D^-1/2 A D^-1/2
    F    = (I - spread E)^-1 Y, negative entries 0, rows scaled to sum 1
    P    = F^3, scaled to rows 1 and the class sizes that are left
    loss = mean over epochs of -log q_y of a linear classifier that is trained on all rows, y the
           largest entry of P, from the class means
    per class, the 3 queries of the smallest loss join the support with their y

in rounds until every query could have joined; the y of the last round decides. Class sizes are
equal, as published for balanced episodes. Published: 20 neighbors, spread 0.8, 1000 epochs of
gradient descent; 100 epochs here, all rows at once. With fewer queries than classes no sizes are
imposed. Later rows go to the nearest mean of the labelled rows.

Lazarou, Stathaki and Avrithis (2021); published, WRN, 1 / 5 shots: miniImageNet 83.05 / 88.82,
tieredImageNet 88.50 / 92.46.
"""

from dataclasses import replace

import torch
from torch import Tensor

from fewlabels.methods.assignment import Assignment, make_assignment, one_hot
from fewlabels.methods.base import Knob, Method, Reference, register
from fewlabels.methods.estimation import plan_means
from fewlabels.methods.parts import N_NEIGHBORS, check_pairs, check_rows
from fewlabels.preprocess.neighbors import find_nearest
from fewlabels.preprocess.pipeline import Pipeline
from fewlabels.transport.solver import solve_biases

NEIGHBORS = 20  # as published
SPREAD = 0.8  # likewise
SHARPENING = 3  # power of cosines and of F, as published
JOINING = 3  # queries per class and round, as published
EPOCHS = 100  # of 1000 published
RATE = 0.1  # as published
MOMENTUM = 0.9  # likewise
DECAY = 5e-4  # likewise
SMALLEST = 1e-30  # of F: logarithms stay finite
CERTAIN = 40.0  # log odds of a query that joined the support


def assign_ilpc(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    n_neighbors: int = NEIGHBORS,
    spread: float = SPREAD,
    n_epochs: int = EPOCHS,
) -> Assignment:
    """Propagated labels in rounds, (E, S, D), (E, S) and (E, Q, D) -> Assignment."""
    support, query = check_rows(support, support_labels, query, n_way)
    rows = torch.cat([support, query], dim=1).double()
    check_pairs(rows, "ilpc")
    n_support, n_query = support.shape[1], query.shape[1]
    near = find_nearest(rows, min(n_neighbors, rows.shape[1] - 1))
    graph = rows.new_zeros(len(rows), rows.shape[1], rows.shape[1])
    graph.scatter_(2, near.rows, near.cosines.clamp_min(0).to(graph) ** SHARPENING)
    graph = (graph + graph.mT) / 2
    scale = graph.sum(dim=-1).rsqrt()
    scale = torch.where(scale.isfinite(), scale, 0.0)  # a row without neighbors
    identity = torch.eye(rows.shape[1], dtype=rows.dtype, device=rows.device)
    reach = torch.linalg.inv(identity - spread * graph * scale[:, :, None] * scale[:, None, :])
    truth, products = one_hot(support_labels, n_way, rows.dtype), rows @ rows.mT
    joined = rows.new_zeros(len(rows), n_query, n_way)  # labels of queries that joined the support
    size = query.new_full((len(rows), n_way), n_query / n_way, dtype=rows.dtype)
    converged = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    for _ in range(max(-(-n_query // (JOINING * n_way)), 1)):
        reached = (reach @ torch.cat([truth, joined], dim=1))[:, n_support:]
        scores = SHARPENING * reached.clamp_min(SMALLEST).log()
        # a query that joined keeps its label and takes its part of the size of its class
        scores = torch.where(joined.any(dim=-1, keepdim=True), CERTAIN * joined, scores)
        plan = scores.softmax(dim=-1)
        if n_query >= n_way:
            solved = solve_biases(scores, size)
            plan, converged = solved.plan, converged & solved.converged
        guess = one_hot(plan.argmax(dim=-1), n_way, rows.dtype)
        losses = _mean_losses(products, torch.cat([truth, guess], dim=1), n_epochs)[:, n_support:]
        joined = joined + _cleanest(losses, guess, joined)
    means = plan_means(support, truth.to(support), query, plan.to(query))
    return make_assignment(plan.to(query), means, labels=guess.argmax(dim=-1), converged=converged)


def _mean_losses(products: Tensor, truth: Tensor, n_epochs: int) -> Tensor:
    """Mean loss of each row while a linear classifier is trained, (E, N, N) -> (E, N).

    Its weights are sums of rows, so that inner products of rows are all it takes.
    """
    weights = (truth / truth.sum(dim=-2, keepdim=True).clamp_min(1)).mT  # (E, W, N)
    speed, total = torch.zeros_like(weights), truth.new_zeros(truth.shape[:2])
    for _ in range(n_epochs):
        logs = (products @ weights.mT).log_softmax(dim=-1)
        total = total - (truth * logs).sum(dim=-1)
        slope = (logs.exp() - truth).mT / truth.shape[1] + DECAY * weights
        speed = MOMENTUM * speed + slope
        weights = weights - RATE * speed
    return total / n_epochs


def _cleanest(losses: Tensor, guess: Tensor, joined: Tensor) -> Tensor:
    """One-hot labels of the queries of the smallest losses per class, (E, Q, W), else 0."""
    free = guess.bool() & ~joined.any(dim=-1, keepdim=True)
    ranked = torch.where(free, losses[..., None], torch.inf)
    order = ranked.argsort(dim=1, stable=True).argsort(dim=1, stable=True)
    return (free & (order < JOINING)).to(guess.dtype)


register(
    Method(
        "ilpc",
        "PT+iLPC",
        Reference(
            "Lazarou, Stathaki, Avrithis",
            2021,
            "Iterative label cleaning for transductive and semi-supervised few-shot learning",
            "https://arxiv.org/abs/2012.07962",
        ),
        Pipeline.parse("power(0.5) | unit | center(joint) | unit"),
        assign_ilpc,
        knobs=(
            replace(N_NEIGHBORS, default=NEIGHBORS, grid=(5, 10, 15, 20, 30), symbol="neighbors"),
            Knob(
                "spread",
                "part of a label that comes from other rows",
                default=SPREAD,
                low=0,
                high=0.99,
                grid=(0.5, 0.7, 0.8, 0.9),
                symbol="spread",
            ),
            Knob("n_epochs", "epochs that tell clean labels", default=EPOCHS, low=1, whole=True),
        ),
    )
)
