"""protoLP: MAP whose plan is smoothed by label propagation through the prototypes.

    Z = balanced plan of the rows (lam = sharpness / 2), support rows one-hot
    d = column sums of Z;   W = Z'Z diag(1/d);   A = (Zs'Zs + propagation (I - W))^-1 Zs'Y
    F = Z A, scaled to rows 1 and equal classes, support rows one-hot
    c <- c + alpha (mean of the rows under 0.6 F + 0.4 Z  -  c)

from the unit support means, with Zs the support rows of Z and Y their labels; F of the last
prototypes decides. Rows are projected to their first 40 singular directions, then centered by their
joint mean and scaled to norm 1. All algebra of the propagation is W x W. Published: 100 updates,
alpha 0.2, sharpness 20, propagation 1. With fewer queries than classes no sizes are imposed.

Zhu and Koniusz (2023); published: about one point above PT+MAP (the figures are not known here).
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
    weighted_sums,
)
from fewlabels.methods.base import Knob, Method, Reference, register
from fewlabels.methods.parts import N_UPDATES, SHARPNESS, lift, principal_axes
from fewlabels.preprocess.pipeline import Pipeline
from fewlabels.preprocess.steps import unit
from fewlabels.transport.prior import Uniform
from fewlabels.transport.solver import solve_biases

SHARP = 20.0  # lam 10
UPDATES = 100
ALPHA = 0.2
N_DIMS = 40
PROPAGATED = 0.6  # weight of F in the prototypes


def assign_protolp(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    sharpness: float = SHARP,
    n_updates: int = UPDATES,
    propagation: float = 1.0,
) -> Assignment:
    """MAP with a propagated plan, (E, S, D), (E, S) and (E, Q, D) -> Assignment."""
    support, query, shift = prepare_episode(support, support_labels, query, n_way)
    lam, n_support = sharpness / 2, support.shape[1]
    axes = principal_axes(torch.cat([support, query], dim=1) + shift, N_DIMS)
    projected = torch.cat([support, query], dim=1) @ axes
    mean = projected.mean(dim=1, keepdim=True)
    rows = unit(projected - mean)
    query = rows[:, n_support:]
    truth = one_hot(support_labels, n_way, rows.dtype)
    shots = torch.diag_embed(truth.sum(dim=-2))  # Zs'Zs = Zs'Y
    prototypes = unit(class_means(rows[:, :n_support], support_labels, n_way))
    sizes = Uniform().masses(query.shape[1], n_way)
    mass = None if sizes is None else sizes.mass.to(rows).expand(len(rows), -1).contiguous()
    identity = torch.eye(n_way, dtype=rows.dtype, device=rows.device)
    tiny = torch.finfo(rows.dtype).tiny
    converged = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    first: Tensor | None = None  # biases of the last step, where the next solve starts
    biases = first
    for step in range(n_updates + 1):
        z, first, solved = _balance(lam * similarities(query, prototypes), mass, first)
        converged = converged & solved
        whole = torch.cat([truth, z], dim=1)
        walk = (whole.mT @ whole) / whole.sum(dim=-2)[:, None, :]
        spread = torch.linalg.solve(shots + propagation * (identity - walk), shots)
        logs = (z @ spread).clamp_min(tiny).log()
        f, biases, solved = _balance(logs, mass, biases)
        converged = converged & solved
        if step < n_updates:
            mixed = torch.cat([truth, PROPAGATED * f + (1 - PROPAGATED) * z], dim=1)
            means = weighted_sums(mixed, rows) / mixed.sum(dim=-2)[..., None]
            prototypes = prototypes + ALPHA * (means - prototypes)
    labels = (logs if biases is None else logs + biases[:, None, :]).argmax(dim=-1)
    found = make_assignment(f, prototypes, labels=labels, converged=converged, lam=lam)
    return lift(found, axes, shift + (mean @ axes.mT), projected - mean)


def _balance(
    scores: Tensor, mass: Tensor | None, start: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Plan (E, Q, W) with the class masses, its biases, and whether they were met."""
    if mass is None:
        zero = scores.new_zeros(len(scores), scores.shape[-1])
        return scores.softmax(dim=-1), zero, zero[:, 0] == 0
    solved = solve_biases(scores, mass, start=start)
    return solved.plan, solved.biases, solved.converged


register(
    Method(
        "protolp",
        "PT+protoLP",
        Reference(
            "Zhu, Koniusz",
            2023,
            "Transductive Few-Shot Learning with Prototype-Based Label Propagation by Iterative "
            "Graph Refinement",
            "https://arxiv.org/abs/2304.11598",
        ),
        Pipeline.parse("power(0.5) | unit"),
        assign_protolp,
        knobs=(
            replace(SHARPNESS, default=SHARP, grid=(10, 15, 20, 30)),
            replace(N_UPDATES, default=UPDATES),
            Knob(
                "propagation",
                "weight of the propagation against the labels",
                default=1.0,
                low=0,
                grid=(0, 0.3, 1, 3),
                symbol="propagation",
            ),
        ),
    )
)
