"""A small network that refines a plan where class sizes are unknown.

No criterion made by hand tells the sizes of the classes well (docs/rivals.md). So the step from
what can be measured of an episode to the class probabilities is fitted (amortized inference), on
episodes with equal, uneven and absent classes. From P, the plan of `estimation.weigh_plans`, for
query i and class j,

    s_ij = relu(A f_ij + a)                                      z = log P

and in every round, with weights of its own,

    u_ij = relu(M s_ij + B g_ij(P) + sum_k N_k sum_l V^k_il s_lj + b
                + C [mean_i s; sum_i P_ij s_ij / (1 + sum_i P_ij); mean_ij s]
                + D [mean_j s; sum_j P_ij s_ij])
    z_ij = z_ij + c . u_ij          s_ij = s_ij + O u_ij          P_ij = softmax_j(z_ij)

V^1 and V^2 are means over the 5 and 10 nearest rows, of which the queries are used. As sums over
queries and classes are all that joins them (Deep Sets, Zaheer et al., 2017), any number of both can
be used, in any order. g has eight numbers (`describe_plan`): z; inner product with the class mean
of P and its squared norm, as is and with neighbor means; votes of the nearest rows; the size of the
class. f has the same numbers for the three plans that `estimation` computes, the inner products
with the means of the labels, the biases that equal sizes need, and numbers of the whole episode,
such as the imbalance score. All of it follows from inner products: features may have any dimension.

**Faint classes.** Where the inner products with the class means of the labels hardly differ from
class to class, as in rows of counts of words or rows that are mostly noise, the network has seen
nothing like it, and is far less accurate than P (by 40 points in the worst case). So its answer is
averaged with P, with a weight that falls with the standard deviation of these products
(`find_trust`).

The weights (`WEIGHTS`) were fitted by benchmarks/refinement.py to base and validation classes of
CIFAR-FS and CUB, with features of networks that were not trained on them. Most rows were centered
as those of `map-auto` are, the others by a mean from outside too; the mean inner product of the
labelled rows tells which.

Zaheer et al.: Deep Sets. NeurIPS 2017.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from math import log
from typing import NamedTuple

import torch
from safetensors.torch import load
from torch import Tensor

from fewlabels.methods.estimation import ESTIMATION, WeighedPlans
from fewlabels.preprocess.smoothing import Kth, kth_largest

WEIGHTS = "refinement.safetensors"  # beside this file
VOTERS = (5, 10)  # nearest rows, by vectors as they are and with neighbor means
OWN_LIMIT = ESTIMATION.own_weight_limit
# The next numbers were fixed when the network was fitted; others would need another fit.
SMALLEST = 1e-5  # probability, in logarithms
VOTE_FLOOR = 0.03  # part of the votes, likewise
TIE = 1e-9  # difference of cosines that is rounding
LARGEST_INPUT = 6.0  # standard deviations of f
LARGEST_LOG_ODDS = 30.0  # of g
# Standard deviation of 2 lam <x, mean of labels>, less its mean over classes: at most the first one
# the answer is P, from the second one on the network's. benchmarks/faint.py chose them.
FAINT, CLEAR = 0.5, 2.0
N_PLAN = 8  # numbers per query and class of one plan
N_WHOLE = 15  # numbers of a whole episode
N_INPUTS = 3 * N_PLAN + 2 + 1 + N_WHOLE  # f; see `describe_episodes`
OF_LABELS = 3 * N_PLAN  # the place in f of 2 lam <x, mean of labels>
Weights = Mapping[str, Tensor]


class Clues(NamedTuple):
    """What is known of E episodes before the network decides."""

    members: Tensor  # (E, S, W) labels, zeros and ones
    lam: Tensor  # (E,)
    products: Tensor  # (E, 2, N, N) inner products of all rows, as they are and with neighbor means
    votes: Tensor  # (E, 2, Q, N) weights of the nearest rows, sums 1
    inputs: Tensor  # (E, Q, W, N_INPUTS) f
    plan: Tensor  # (E, Q, W) to be refined


def describe_episodes(
    products: Tensor,
    votes: Tensor,
    members: Tensor,
    *,
    lam: Tensor,
    equal: Tensor,
    biases: Tensor,
    found: WeighedPlans,
) -> Clues:
    """What the network is told.

    Args:
        products: (E, 2, N, N); see `Clues`.
        votes: (E, 2, Q, N); see `Clues` and `nearest_votes`.
        members: (E, S, W); see `Clues`.
        lam: Inverse temperatures, (E,).
        equal: The plan with equal sizes, (E, Q, W).
        biases: Its biases, (E, W).
        found: The free plans, and what weighs them.
    """
    free, unweighted, gain, certainty, plan = found
    n_support = members.shape[1]
    clues = Clues(members, lam, products, votes, plan[..., None], plan)
    plans = (free, unweighted, equal)
    of_plans = [describe_plan(each, log_odds(each), clues) for each in plans]

    means = members / members.sum(dim=1, keepdim=True)
    labelled = products[:, :, n_support:, :n_support] @ means[:, None]  # (E, 2, Q, W)
    of_pairs = torch.cat(
        [
            2 * lam[:, None, None, None] * _centered(labelled),
            _spread_to(_centered(biases), plan)[:, None],
        ],
        dim=1,
    )
    whole = describe_whole(
        *(*plans, biases, products[:, 0, :n_support, :n_support]),
        lam=lam,
        gain=gain,
        certainty=certainty,
    )
    inputs = [*of_plans, of_pairs.movedim(1, -1), whole[:, None, None].expand(*plan.shape, -1)]
    return clues._replace(inputs=torch.cat(inputs, dim=-1))


def describe_whole(
    free: Tensor,
    unweighted: Tensor,
    equal: Tensor,
    biases: Tensor,
    labelled: Tensor,
    *,
    lam: Tensor,
    gain: Tensor,
    certainty: Tensor,
) -> Tensor:
    """Fifteen numbers of a whole episode, (E, 15), from its plans, (E, Q, W) each, and biases.

    `labelled`: inner products of the labelled rows as they are, (E, S, S). Their mean is zero where
    the rows are centered by the support alone.
    """
    (n_query, n_way), plans = free.shape[1:], (free, unweighted, equal)
    n_support = labelled.shape[1]
    spreads = [(n_way * each.mean(dim=1)).std(dim=-1, correction=0) for each in (unweighted, free)]
    doubts = [-torch.special.xlogy(each, each).sum(dim=-1).mean(dim=1) for each in plans]
    agree = (free * equal).sum(dim=-1).mean(dim=1)
    gap = gain / n_query
    counts = [torch.full_like(lam, log(n)) for n in (n_way, n_support / n_way, n_query / n_way)]
    return torch.stack(
        [
            *(certainty, gap, gap.clamp_min(0), *spreads, lam.log(), *counts),
            *(biases.std(dim=-1, correction=0), *doubts, agree, labelled.mean(dim=(1, 2))),
        ],
        dim=-1,
    )


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


def refine_logits(clues: Clues, weights: Weights) -> list[Tensor]:
    """The logits after each round, (E, Q, W) each."""
    n_episodes, n_query, n_way = clues.plan.shape
    n_rounds, width = weights["c"].shape
    inputs = (clues.inputs - weights["mean"]) / weights["scale"]
    state = inputs.clamp(-LARGEST_INPUT, LARGEST_INPUT) @ weights["A"] + weights["a"]
    state = torch.relu(state)
    among = clues.votes[..., clues.members.shape[1] :].unbind(dim=1)  # (E, Q, Q) each
    flat, by_episode = (-1, width), (n_episodes, n_query, n_way * width)
    logits, rounds = log_odds(clues.plan), []
    for number in range(n_rounds):
        m, b, c, d = (weights[name][number] for name in "MBCD")
        plan = logits.softmax(dim=-1)
        described = describe_plan(plan, logits, clues).clamp(-LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)
        change = torch.addmm((state.view(flat) @ m), described.reshape(-1, N_PLAN), b)
        change = change.view(by_episode)
        for near, n in zip(among, weights["N"][number].chunk(len(VOTERS), dim=1), strict=True):
            change = torch.baddbmm(change, near, (state @ n).view(by_episode))
        by_class, by_query = state.mean(dim=1, keepdim=True), state.mean(dim=2, keepdim=True)
        share = (plan / (1 + plan.sum(dim=1, keepdim=True)))[..., None]
        of_members = (share * state).sum(dim=1, keepdim=True)
        of_own = (plan[..., None] * state).sum(dim=2, keepdim=True)
        overall = by_class.mean(dim=2, keepdim=True).expand_as(by_class)
        of_classes = torch.cat([by_class, of_members, overall], dim=-1) @ c + weights["b"][number]
        of_queries = torch.cat([by_query, of_own], dim=-1) @ d
        change = change.view_as(state).add_(of_classes).add_(of_queries).relu_()
        logits = logits + change @ weights["c"][number]
        rounds.append(logits)
        if number < n_rounds - 1:
            moved = torch.addmm(state.view(flat), change.view(flat), weights["O"][number])
            state = moved.view_as(state)
    return rounds


def refine_plan(clues: Clues) -> Tensor:
    """Class probabilities of the queries, (E, Q, W)."""
    weights = {name: each.to(clues.plan) for name, each in load_weights().items()}
    refined = refine_logits(clues, weights)[-1].softmax(dim=-1)
    trust = find_trust(clues.inputs[..., OF_LABELS])
    return torch.lerp(clues.plan, refined, trust[:, None, None])


def find_trust(of_labels: Tensor) -> Tensor:
    """Weight of the network's answer in each episode, (E, Q, W) -> (E,).

    Args:
        of_labels: 2 lam <x, mean of labels> of each query and class, less its mean over classes.
    """
    signal = of_labels.std(dim=(-2, -1), correction=0)
    return ((signal - FAINT) / (CLEAR - FAINT)).clamp(0, 1)


def nearest_votes(
    products: Tensor, n_support: int, n_nearest: int, kth: Kth = kth_largest
) -> Tensor:
    """Equal weights of the rows of largest cosine to each query, (E, N, N) -> (E, Q, N)."""
    n_rows = products.shape[1]
    scale = products.diagonal(dim1=1, dim2=2).clamp_min(torch.finfo(products.dtype).tiny).rsqrt()
    cosines = products * scale[:, :, None] * scale[:, None, :]
    cosines.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    cosines = cosines[:, n_support:]
    (least,) = kth(cosines, [min(n_nearest, n_rows - 1)])
    near = (cosines >= least[..., None] - TIE).to(
        products
    )  # more rows where several are equally near
    return near / near.sum(dim=-1, keepdim=True)


def log_odds(plan: Tensor) -> Tensor:
    """Logarithms of probabilities."""
    return plan.clamp_min(SMALLEST).log()


@cache
def load_weights() -> dict[str, Tensor]:
    """The fitted weights, by the names of the formulas."""
    found = load((files(__package__) / WEIGHTS).read_bytes())
    return {name: each.float() for name, each in found.items()}


def _centered(x: Tensor) -> Tensor:
    """Less the mean over classes, the last dimension."""
    return x - x.mean(dim=-1, keepdim=True)


def _spread_to(x: Tensor, plan: Tensor) -> Tensor:
    """A number per class for each query, (E, W) -> (E, Q, W)."""
    return x[:, None].expand_as(plan)
