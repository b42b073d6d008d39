"""MAP whose decision about class sizes was learned: a small network refines the plan of `map-auto`.

No criterion made by hand tells the sizes of the classes well (docs/rivals.md). So the step from
what can be measured of an episode to the class probabilities is fitted (amortized inference), on
episodes of validation classes with equal, uneven and absent classes. From P, the plan of
`map-auto`, in rounds with the same weights:

    h_ij = relu(A f_ij + B g_ij(P))
    k_ij = relu(C1 h_ij + C2 sum_l V_il h_lj + C3 mean_i h + C4 mean_j h + C5 mean_ij h
                + C6 sum_i P_ij h_ij / (1 + sum_i P_ij))
    z_ij = z_ij + c . k_ij                                       z = log P at first
    P_ij = softmax_j(z_ij)

for query i and class j, with V the means over the 10 nearest queries. As sums over queries and
classes are all that joins them (Deep Sets, Zaheer et al., 2017), any number of both can be used, in
any order. g has eight numbers (`describe_plan`): z; inner product with the class mean of P and its
squared norm, as is and with neighbor means; votes of the 5 and 10 nearest rows; the size of the
class. f has the same numbers for the three plans that `map-auto` computes (`estimation`), the inner
products with the means of the labels, the biases that equal sizes need, and numbers of the whole
episode, such as the imbalance score.

The weights are in learned.safetensors, written by benchmarks/learned.py.

Zaheer et al.: Deep Sets. NeurIPS 2017.
"""

from functools import cache
from importlib.resources import files
from math import log
from typing import Any, NamedTuple

import torch
from safetensors.torch import load
from torch import Tensor

from fewlabels.methods.assignment import Assignment, one_hot
from fewlabels.methods.base import Method, register
from fewlabels.methods.estimation import assign_plan, estimate_lam, weigh_plans
from fewlabels.methods.map import (
    REFERENCE,
    STEPS,
    assign_known,
    assign_map,
    paper_alpha,
    paper_n_steps,
)
from fewlabels.methods.parts import check_pairs, check_rows
from fewlabels.preprocess.pipeline import Pipeline
from fewlabels.preprocess.smoothing import append_neighbor_means, rows_of_products
from fewlabels.preprocess.steps import AUTO
from fewlabels.transport.prior import Estimated, Uniform

NAME = "map-learned"
WEIGHTS = "learned.safetensors"  # beside this file
N_ROUNDS = 4  # as in fitting
VOTERS = (5, 10)  # nearest rows, by vectors as they are and with neighbor means
OWN_LIMIT = 0.5  # largest fraction of a class mean that leaving a query out may remove
SMALLEST = 1e-5  # probability, in logarithms
VOTE_FLOOR = 0.03  # part of the votes, likewise
TIE = 1e-9  # difference of cosines that is rounding
LARGEST_INPUT = 6.0  # standard deviations
N_PLAN = 8  # numbers per query and class of one plan
N_INPUTS = 3 * N_PLAN + 2 + 1 + 14  # f; see `gather_clues`


class Clues(NamedTuple):
    """What is known of E episodes before the network decides."""

    members: Tensor  # (E, S, W) labels, zeros and ones
    lam: Tensor  # (E,)
    products: Tensor  # (E, 2, N, N) inner products of all rows, as they are and with neighbor means
    votes: Tensor  # (E, 2, Q, N) weights of the nearest rows, sums 1
    inputs: Tensor  # (E, Q, W, N_INPUTS) f
    plan: Tensor  # (E, Q, W) of map-auto
    certainty: Tensor  # (E,) of map-auto: the weight of unequal sizes


def gather_clues(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    alpha: float,
    n_steps: int,
) -> Clues:
    """The plans of `map-auto` and what the network is told about them; as `assign_learned`."""
    n_support, n_query = support.shape[1], query.shape[1]
    dtype = support.dtype
    rows = torch.cat([support, query], dim=1).double()
    plain = rows @ rows.mT
    if rows.shape[2] > rows.shape[1]:
        rows = rows_of_products(plain)
    joined = torch.cat(
        append_neighbor_means(rows[:, :n_support], rows[:, n_support:], n_way=n_way), dim=1
    )
    smooth = joined @ joined.mT
    if joined.shape[2] > joined.shape[1]:
        joined = rows_of_products(smooth)
    (support, query), wide = (
        (each[:, :n_support].to(dtype).contiguous(), each[:, n_support:].to(dtype).contiguous())
        for each in (rows, joined)
    )
    members = one_hot(support_labels, n_way, dtype)
    lam = estimate_lam(wide[0], support_labels, wide[1], n_way=n_way, alpha=alpha)
    equal = assign_known(support, support_labels, query, n_way, lam, alpha, n_steps, Uniform())
    found = weigh_plans(wide[0], members, wide[1], equal.plan, lam=lam, alpha=alpha)
    free, unweighted, gain, certainty, plan = found

    products = torch.stack([plain, smooth], dim=1).to(dtype)
    votes = torch.stack(
        [_nearest(each, n_support, k) for each, k in zip((plain, smooth), VOTERS, strict=True)],
        dim=1,
    ).to(dtype)
    clues = Clues(members, lam, products, votes, plan[..., None], plan, certainty)
    plans = (free, unweighted, equal.plan)
    of_plans = [describe_plan(each, _log_odds(each), clues) for each in plans]

    means = members / members.sum(dim=1, keepdim=True)
    labelled = products[:, :, n_support:, :n_support] @ means[:, None]  # (E, 2, Q, W)
    biases = equal.biases - equal.biases.mean(dim=-1, keepdim=True)
    of_pairs = torch.cat(
        [2 * lam[:, None, None, None] * _centered(labelled), _spread_to(biases, plan)[:, None]],
        dim=1,
    )
    spreads = [(n_way * each.mean(dim=1)).std(dim=-1, correction=0) for each in (unweighted, free)]
    doubts = [-torch.special.xlogy(each, each).sum(dim=-1).mean(dim=1) for each in plans]
    agree = (free * equal.plan).sum(dim=-1).mean(dim=1)
    gap = gain / n_query
    counts = [torch.full_like(lam, log(n)) for n in (n_way, n_support / n_way, n_query / n_way)]
    of_episode = torch.stack(
        [
            *(certainty, gap, gap.clamp_min(0), *spreads, lam.log(), *counts),
            *(biases.std(dim=-1, correction=0), *doubts, agree),
        ],
        dim=-1,
    )
    inputs = torch.cat(
        [
            *of_plans,
            of_pairs.movedim(1, -1),
            of_episode[:, None, None].expand(*plan.shape, -1),
        ],
        dim=-1,
    )
    return clues._replace(inputs=inputs)


def describe_plan(plan: Tensor, logits: Tensor, clues: Clues) -> Tensor:
    """Eight numbers of a plan for each query and class, (E, Q, W) -> (E, Q, W, 8).

    The logits, and 2 lam times the inner product with the class mean and half of its squared norm
    (all three less their mean over classes); the logarithms of the votes; that of the class size
    in parts of an equal one. A query is left out of the class mean that it is compared with.
    """
    n_support, (n_query, n_way) = clues.members.shape[1], plan.shape[1:]
    lam = clues.lam[:, None, None, None]
    whole = torch.cat([clues.members, plan], dim=1)
    weights = (whole / whole.sum(dim=1, keepdim=True))[:, None]  # (E, 1, N, W)
    own = weights[:, :, n_support:]
    inner = clues.products @ weights  # (E, 2, N, W)
    norms = lam * (weights * inner).sum(dim=2, keepdim=True)
    squared = clues.products.diagonal(dim1=2, dim2=3)[:, :, n_support:, None]
    inner = (inner[:, :, n_support:] - own * squared) / (1 - own).clamp_min(OWN_LIMIT)
    votes = (clues.votes @ whole[:, None] + VOTE_FLOOR).log()
    sizes = ((plan.sum(dim=1) + 1) / (n_query / n_way + 1)).log()
    found = [
        _centered(logits)[:, None],
        2 * lam * _centered(inner),
        _centered(norms).expand_as(inner),
        votes,
        _spread_to(sizes, plan)[:, None],
    ]
    return torch.cat(found, dim=1).movedim(1, -1)


def refine_logits(clues: Clues, weights: dict[str, Tensor]) -> list[Tensor]:
    """The logits after each round, (E, Q, W) each."""
    n_support = clues.members.shape[1]
    inputs = (clues.inputs - weights["mean"]) / weights["scale"]
    fixed = inputs.clamp(-LARGEST_INPUT, LARGEST_INPUT) @ weights["A"] + weights["a"]
    among = clues.votes[:, 1, :, n_support:]
    logits, rounds = _log_odds(clues.plan), []
    for _ in range(N_ROUNDS):
        plan = logits.softmax(dim=-1)
        h = torch.relu(fixed + describe_plan(plan, logits, clues) @ weights["B"])
        by_class, by_query = h.mean(dim=1, keepdim=True), h.mean(dim=2, keepdim=True)
        share = (plan / (1 + plan.sum(dim=1, keepdim=True)))[..., None]
        members = (share * h).sum(dim=1, keepdim=True)
        near = (among @ (h @ weights["C2"]).flatten(2)).view_as(h)
        k = h @ weights["C1"] + near + by_query @ weights["C4"]
        k = k + by_class @ weights["C3"] + by_class.mean(dim=2, keepdim=True) @ weights["C5"]
        k = torch.relu(k + members @ weights["C6"] + weights["b"])
        logits = logits + k @ weights["c"]
        rounds.append(logits)
    return rounds


def assign_learned(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    alpha: float = paper_alpha(5),
    n_steps: int = paper_n_steps(5),
) -> Assignment:
    """The plan of map-auto, refined by the network, (E, S, D), (E, S), (E, Q, D) -> Assignment.

    Args:
        support: Preprocessed labelled vectors, centered by the mean of the support.
        support_labels: Class numbers.
        query: Preprocessed unlabelled vectors.
        n_way: Number of classes. With one, or with fewer queries than classes, map-auto decides.
        alpha: Step size of the class centers.
        n_steps: Steps of MAP with equal sizes.
    """
    steps: Any = {"n_way": n_way, "alpha": alpha, "n_steps": n_steps}
    if n_way < 2 or query.shape[1] < n_way:
        return assign_map(support, support_labels, query, lam=AUTO, prior=Estimated(), **steps)
    support, query = check_rows(support, support_labels, query, n_way)
    check_pairs(torch.cat([support, query], dim=1), NAME)
    clues = gather_clues(support, support_labels, query, **steps)
    weights = {name: each.to(query) for name, each in load_weights().items()}
    plan = refine_logits(clues, weights)[-1].softmax(dim=-1)
    return assign_plan(
        support, clues.members, query, plan, lam=clues.lam, certainty=clues.certainty
    )


@cache
def load_weights() -> dict[str, Tensor]:
    """The fitted weights, by the names of the formulas."""
    found = load((files(__package__) / WEIGHTS).read_bytes())
    return {name: each.float() for name, each in found.items()}


def _nearest(products: Tensor, n_support: int, n_nearest: int) -> Tensor:
    """Equal weights of the rows of largest cosine to each query, (E, N, N) -> (E, Q, N)."""
    n_rows = products.shape[1]
    scale = products.diagonal(dim1=1, dim2=2).clamp_min(torch.finfo(products.dtype).tiny).rsqrt()
    cosines = products * scale[:, :, None] * scale[:, None, :]
    cosines.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    cosines = cosines[:, n_support:]
    least = cosines.topk(min(n_nearest, n_rows - 1), dim=-1).values[..., -1:]
    near = (cosines >= least - TIE).to(products)  # more rows where several are equally near
    return near / near.sum(dim=-1, keepdim=True)


def _log_odds(plan: Tensor) -> Tensor:
    return plan.clamp_min(SMALLEST).log()


def _centered(x: Tensor) -> Tensor:
    """Less the mean over classes, the last dimension."""
    return x - x.mean(dim=-1, keepdim=True)


def _spread_to(x: Tensor, plan: Tensor) -> Tensor:
    """A number per class for each query, (E, W) -> (E, Q, W)."""
    return x[:, None].expand_as(plan)


register(
    Method(
        NAME,
        "PT+MAP, learned",
        REFERENCE,
        Pipeline.parse("power(auto) | unit | center(support) | unit"),
        assign_learned,
        knobs=STEPS,
    )
)
