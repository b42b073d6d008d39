"""PT-MAP where the class sizes, or the inverse temperature `lam`, are unknown.

With equal sizes imposed, PT-MAP is the best known method where classes are equally large, and
falls below nearest class mean where they are not. With free sizes, a class that attracts queries
gets a less noisy prototype and so attracts more. The likelihood of isotropic classes does not
reveal the true sizes: on real features the true labels are less likely than the result of a free
fit, by tens of nats. So two plans are computed and averaged:

- *free*: class proportions are fitted together with the prototypes by expectation maximization
  (prior estimation, Saerens et al., 2002). Four measures keep the fit near the labels: few steps;
  a query is left out of the prototype that it is compared with; the norm of a prototype, which
  shrinks as a class grows, is read from the labels alone and counts half; vectors are
  neighborhood features (`preprocess.smoothing`).
- *balanced*: PT-MAP with equal class sizes.

The weight of *free* grows with an imbalance score: the spread of the class sizes in a fit without
class prior, plus the evidence per query for the free plan against the balanced one.

Saerens, Latinne, Decaestecker: Adjusting the outputs of a classifier to new a priori
probabilities. Neural Computation 14(1), 2002.
"""

from dataclasses import dataclass
from math import log, sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from fewlabels.methods.assignment import Assignment, one_hot, similarities, weighted_sums
from fewlabels.transport.solver import solve_biases


@dataclass(frozen=True)
class EstimationConstants:
    """Hand-set numbers of the estimation of class sizes and of `lam`.

    Chosen on the validation classes of five feature sets: CIFAR-FS in two WRN-28-10 and a
    ResNet12, CUB in EfficientNet-Lite0 and a ResNet18. Exceptions are named.
    """

    free_steps: int = 4  # prototype updates of the free fit; with 20 it loses 1 to 5 points
    norm_weight: float = 0.5  # factor of |prototype|^2; 0 and 1 suit one feature set each
    own_weight_limit: float = 0.5  # largest fraction of a prototype that leaving out may remove
    prior_count: float = 1.0  # queries per class before any is seen: the mode of a Dirichlet(2)
    imbalance_threshold: float = 0.15  # score of weight 1/2, five classes of unlimited size
    sampling_noise: float = 2.1  # added to it, times 1 / sqrt(queries per class)
    way_noise: float = 0.075  # added to it, times log(classes / reference_way)
    reference_way: int = 5  # classes up to which way_noise adds nothing; the paper's episodes
    # Of the weight by score / threshold. At 7 uneven classes lose 0.1 to 0.3 points; a slope by the
    # score alone costs 0.3 in episodes of 1,600 queries.
    weight_slope: float = 2.8
    lam_target: float = 10.0  # 1 / squared distance; the paper's lam (Section 4.2)
    lam_factor: float = 0.5  # of the lam of Gaussian classes, which is twice too sharp on real ones
    lam_minimum: float = 1.0  # 1 / squared distance; only for features without spread
    lam_maximum: float = 1000.0  # likewise
    lam_rounds: int = 2  # alternations of the free fit and the estimate of lam
    mass_floor: float = 1e-6  # queries; the divisor of the mean of an empty class


ESTIMATION = EstimationConstants()


def assign_estimated(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    wide: tuple[Tensor, Tensor],
    n_way: int,
    lam: Tensor,
    alpha: float,
    equal: Assignment,
) -> Assignment:
    """Labels without known class sizes, (E, S, D), (E, S) and (E, Q, D) -> Assignment.

    Args:
        support: Preprocessed labelled vectors. All rows are centered by a mean of these, which
            the largest class among the queries does not move.
        support_labels: Class numbers.
        query: Preprocessed unlabelled vectors.
        wide: Support and query as `smoothing.append_neighbor_means` returns them.
        n_way: Number of classes.
        lam: Inverse temperature of each episode, (E,).
        alpha: Step size of the prototypes.
        equal: The assignment with equal class sizes.

    In a batch, the plan is that of the episode alone within 1e-3 in float32, 1e-6 in float64.
    """
    members = one_hot(support_labels, n_way, support.dtype)
    found = weigh_plans(wide[0], members, wide[1], equal.plan, lam=lam, alpha=alpha)
    decided = assign_plan(support, members, query, found.plan, lam=lam, certainty=found.certainty)
    return decided._replace(
        n_iterations=equal.n_iterations + decided.n_iterations, converged=equal.converged
    )


class WeighedPlans(NamedTuple):
    """The plans without known class sizes, (E, Q, W) each, and what weighs them, (E,)."""

    free: Tensor
    without_prior: Tensor  # the free plan in which a class is not preferred for its size
    gain: Tensor  # log evidence for the free plan less that for the one with equal sizes
    certainty: Tensor  # weight of the free plan
    plan: Tensor  # the weighted mean of the free plan and the one with equal sizes


def weigh_plans(
    support: Tensor, members: Tensor, query: Tensor, equal: Tensor, *, lam: Tensor, alpha: float
) -> WeighedPlans:
    """Free plans beside the one with equal sizes, (E, S, D), (E, S, W), (E, Q, D), (E, Q, W)."""
    free, without_prior = (
        free_plan(support, members, query, lam=lam, alpha=alpha, prior=prior)
        for prior in (True, False)
    )
    for_free = log_evidence(support, members, query, free, lam=lam, solve=False)
    gain = for_free - log_evidence(support, members, query, equal, lam=lam, solve=True)
    certainty = free_weight(without_prior.sum(dim=-2), gain, query.shape[1])
    plan = certainty[:, None, None] * free + (1 - certainty)[:, None, None] * equal
    return WeighedPlans(free, without_prior, gain, certainty, plan)


def assign_plan(
    support: Tensor, members: Tensor, query: Tensor, plan: Tensor, *, lam: Tensor, certainty: Tensor
) -> Assignment:
    """The assignment of a plan, with what later rows are decided by, (E, Q, W) -> Assignment."""
    prototypes = plan_means(support, members, query, plan)
    scores = lam[:, None, None] * similarities(query, prototypes)
    solved = solve_biases(scores, plan.sum(dim=-2))  # to classify later rows in these proportions
    return Assignment(
        labels=plan.argmax(dim=-1),
        plan=plan,
        prototypes=prototypes,
        biases=solved.biases,
        n_iterations=solved.n_iterations,
        converged=solved.converged,
        certainty=certainty,
        calibrated=torch.zeros_like(solved.converged),
        lam=lam,
    )


def free_weight(mass: Tensor, gain: Tensor, n_query: int) -> Tensor:
    """Weight of the free plan, (E, W) and (E,) -> (E,).

    Args:
        mass: Class sizes of the fit without class prior.
        gain: Log evidence for the free plan less that for the balanced one.
        n_query: Number of queries.
    """
    n_way = mass.shape[-1]
    spread = ((mass / (n_query / n_way) - 1) ** 2).mean(dim=-1).sqrt()
    score = spread + gain.clamp_min(0.0) / n_query
    excess = score / imbalance_threshold(n_query, n_way) - 1
    return torch.sigmoid(ESTIMATION.weight_slope * excess)


def imbalance_threshold(n_query: int, n_way: int) -> float:
    """Imbalance score at which the free and the balanced plan have equal weight.

    >>> round(imbalance_threshold(75, 5), 2), round(imbalance_threshold(5000, 20), 2)
    (0.69, 0.39)
    """
    return (
        ESTIMATION.imbalance_threshold
        + ESTIMATION.sampling_noise * sqrt(n_way / n_query)
        + ESTIMATION.way_noise * log(max(n_way / ESTIMATION.reference_way, 1.0))
    )


def free_plan(
    support: Tensor,
    members: Tensor,
    query: Tensor,
    *,
    lam: Tensor,
    alpha: float,
    prior: bool = True,
) -> Tensor:
    """Class probabilities of the queries, class sizes free, (E, S, D), (E, Q, D) -> (E, Q, W).

    Args:
        support: Labelled vectors, (E, S, D).
        members: Their classes, zeros and ones, (E, S, W).
        query: Unlabelled vectors, (E, Q, D).
        lam: Inverse temperature, (E,).
        alpha: Step size of the prototypes.
        prior: Whether the prior of a class is proportional to its estimated size.
    """
    shots = members.sum(dim=-2)
    sums = weighted_sums(members, support)
    prototypes = sums / shots[..., None]
    norms = ESTIMATION.norm_weight * _squared_norms(support, members, prototypes)
    own = query.new_zeros(*query.shape[:2], members.shape[-1])  # weight of a query in a prototype
    squared = (query * query).sum(dim=-1, keepdim=True)
    log_prior = query.new_zeros(len(query), 1, members.shape[-1])
    for step in range(ESTIMATION.free_steps + 1):
        inner = _inner_without_own(query, prototypes, own, squared)
        logits = lam[:, None, None] * (2 * inner - norms[:, None, :]) + log_prior
        plan = logits.softmax(dim=-1)
        mass = plan.sum(dim=-2)
        if prior:
            log_prior = (mass + ESTIMATION.prior_count).log()[:, None, :]
        if step < ESTIMATION.free_steps:
            total = shots + mass
            means = (sums + weighted_sums(plan, query)) / total[..., None]
            prototypes = prototypes + alpha * (means - prototypes)
            own = own + alpha * (plan / total[:, None, :] - own)
    return plan


def _inner_without_own(query: Tensor, prototypes: Tensor, own: Tensor, squared: Tensor) -> Tensor:
    """<x, c'> with c' the prototype c without the query x, of weight `own` in c, (E, Q, W)."""
    norms = (prototypes * prototypes).sum(dim=-1)[:, None, :]
    inner = 0.5 * (similarities(query, prototypes) + norms)
    return (inner - own * squared) / (1 - own).clamp_min(ESTIMATION.own_weight_limit)


def _squared_norms(support: Tensor, members: Tensor, prototypes: Tensor) -> Tensor:
    """Squared norms of the class means without the part that noise adds, (E, W).

    With k labels in a class: its own value for 1 - 1/k, the average over classes for 1/k.
    """
    shots = members.sum(dim=-2)
    squared = weighted_sums(members, (support * support).sum(dim=-1, keepdim=True))[..., 0]
    # (1 - 1/k) times the mean inner product of two labelled rows of a class:
    between = (prototypes * prototypes).sum(dim=-1) - squared / shots**2
    pairs = (shots - 1).sum(dim=-1, keepdim=True).clamp_min(1)
    average = (between * shots).sum(dim=-1, keepdim=True) / pairs
    return between + average / shots


def plan_means(support: Tensor, members: Tensor, query: Tensor, plan: Tensor) -> Tensor:
    """Class means of the support and of the queries weighted by the plan, (E, W, D)."""
    total = members.sum(dim=-2) + plan.sum(dim=-2)
    sums = weighted_sums(members, support) + weighted_sums(plan, query)
    means: Tensor = sums / total[..., None]
    return means


def log_evidence(
    support: Tensor, members: Tensor, query: Tensor, plan: Tensor, *, lam: Tensor, solve: bool
) -> Tensor:
    """Log evidence of a plan at its own class means, up to a constant of the episode, (E,).

    sum_i log sum_j exp(s_ij + g_j) - N . g + scores of the support + log Dirichlet-multinomial(N),
    with N the class sizes of the plan, and g = log(N + 1) or the biases that give these sizes.
    The Dirichlet has concentration 2.
    """
    prototypes = plan_means(support, members, query, plan)
    scores = lam[:, None, None] * similarities(query, prototypes)
    own = lam * (similarities(support, prototypes) * members).sum(dim=(-2, -1))
    mass = plan.sum(dim=-2)
    smoothed = mass + ESTIMATION.prior_count
    biases = solve_biases(scores, mass).biases if solve else smoothed.log()
    fit = (scores + biases[:, None, :]).logsumexp(dim=-1).sum(dim=-1) - (mass * biases).sum(dim=-1)
    return fit + own + torch.lgamma(smoothed + 1).sum(dim=-1)


def estimate_lam(
    support: Tensor, support_labels: Tensor, query: Tensor, *, n_way: int, alpha: float
) -> Tensor:
    """Inverse temperature from the features, (E, S, D), (E, S) and (E, Q, D) -> (E,).

    The vectors are those of `smoothing.append_neighbor_means`. For two Gaussian classes of equal
    covariance, the log odds along c_a - c_b have the slope (distance of the means) / (variance
    within), both measured in that direction. Summed over pairs,

        2 lam = sum_ab (m_aa - m_ab + m_bb - m_ba) / sum_ab var(z_a - z_b),   z_a = <x, c_a>

    with m_ab the mean of z_b in class a. The class probabilities are those of `free_plan`, each
    query is left out of c. The result is the geometric mean of this estimate and the paper's 10.
    """
    members = one_hot(support_labels, n_way, support.dtype)
    target = support.new_full((len(support),), ESTIMATION.lam_target)
    if n_way < 2 or query.shape[1] < n_way:
        return target
    lam = target
    for _ in range(ESTIMATION.lam_rounds):
        plan = free_plan(support, members, query, lam=lam, alpha=alpha)
        found = ESTIMATION.lam_factor * _gaussian_lam(support, members, query, plan)
        lam = torch.where(found.isfinite() & (found > 0), found, target)
        lam = lam.clamp(ESTIMATION.lam_minimum, ESTIMATION.lam_maximum)
    return (ESTIMATION.lam_target * lam).sqrt()


def _gaussian_lam(support: Tensor, members: Tensor, query: Tensor, plan: Tensor) -> Tensor:
    """Inverse temperature of Gaussian classes with these class probabilities, (E,)."""
    n_way, n_query = plan.shape[-1], query.shape[1]
    prototypes = plan_means(support, members, query, plan)
    own = plan / (members.sum(dim=-2) + plan.sum(dim=-2))[:, None, :]
    squared = (query * query).sum(dim=-1, keepdim=True)
    inner = _inner_without_own(query, prototypes, own, squared)
    inner = inner - inner.mean(dim=-1, keepdim=True)
    mass = plan.sum(dim=-2).clamp_min(ESTIMATION.mass_floor)
    means = weighted_sums(plan, inner) / mass[..., None]  # (E, W, W) class, prototype
    between = (mass[..., None] * means * means).sum(dim=(-2, -1))
    within = ((inner * inner).sum(dim=(-2, -1)) - between) / n_query
    own_mean = means.diagonal(dim1=1, dim2=2)
    apart = (own_mean[:, :, None] - means) + (own_mean[:, None, :] - means.mT)
    others = 1 - torch.eye(n_way, dtype=inner.dtype, device=inner.device)
    weight = mass[:, :, None] * mass[:, None, :] * others
    mean_apart = (apart * weight).sum(dim=(-2, -1)) / weight.sum(dim=(-2, -1))
    return mean_apart * (n_way * (n_way - 1) / 2) / (2 * n_way * within)
