"""The published algorithm as one would write it from the paper: the baseline of speed.

Dense distances in feature space; Sinkhorn scaling in float32 until no row sum changes by more than
1e-6 anywhere in the batch, at most 1000 times. Nothing is reformulated, nothing is reused.
"""

import torch
from torch import Tensor


def plain_map(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    lam: float,
    alpha: float,
    n_steps: int,
) -> Tensor:
    """Labels of the queries, (E, S, D), (E, S), (E, Q, D) -> (E, Q); raw non-negative features."""
    support, query = (((x + 1e-6) ** 0.5) for x in (support, query))
    support, query = (x / x.norm(dim=-1, keepdim=True) for x in (support, query))
    support, query = (x - x.mean(dim=1, keepdim=True) for x in (support, query))
    support, query = (x / x.norm(dim=-1, keepdim=True) for x in (support, query))
    members = torch.nn.functional.one_hot(labels, n_way).to(support)
    centers = torch.einsum("esw,esd->ewd", members, support) / members.sum(dim=1)[..., None]
    for step in range(n_steps + 1):
        plan = plain_sinkhorn(((query[:, :, None] - centers[:, None]) ** 2).sum(dim=-1), lam)
        if step < n_steps:
            shares = torch.cat([members, plan], dim=1)
            means = (
                torch.einsum("enw,end->ewd", shares, torch.cat([support, query], dim=1))
                / shares.sum(dim=1)[..., None]
            )
            centers = centers + alpha * (means - centers)
    return plan.argmax(dim=-1)


def plain_sinkhorn(cost: Tensor, lam: float) -> Tensor:
    """Alternating scaling to rows of 1 and equal columns, (E, Q, W) -> (E, Q, W)."""
    n_query, n_way = cost.shape[1:]
    plan = torch.exp(-lam * cost)
    plan = plan / plan.sum(dim=(1, 2), keepdim=True)
    before = torch.zeros(cost.shape[:2])
    for _ in range(1000):
        rows = plan.sum(dim=2)
        if (rows - before).abs().max() < 1e-6:
            break
        before = rows
        plan = plan / rows[:, :, None]
        plan = plan * (n_query / n_way / plan.sum(dim=1, keepdim=True))
    return plan
