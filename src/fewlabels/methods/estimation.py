"""MAP when nobody knows how many queries each class has.

The problem: with free class sizes, a class whose few labels happen to lie well attracts queries, its
prototype becomes a cleaner mean, and it attracts more; with equal sizes imposed, PT-MAP is the best
method known where they are equal and falls below nearest class mean where they are not. No
likelihood of isotropic classes tells the true sizes: on real features the true labels are less
likely than what a free fit finds, by tens of nats. So both answers are computed, each in the way
that is least fooled, and weighed:

- *free*: mixture proportions are fitted with the prototypes, but the fit stays near the labels.
  Four things keep it from feeding itself: few steps; a query's own share of a prototype is left out of
  its score; the length of a prototype, which shrinks as a class grows, is read from the labels alone
  and only half believed; vectors are seen as their neighbours show them (`smoothing`).
- *equal*: PT-MAP.

The weight of *free* grows with how uneven the classes look before any prior favours the large
ones, plus what the evidence says per query for the free partition against the equal one.
"""

import warnings
from math import log, sqrt

import torch
from torch import Tensor

from fewlabels.methods.assignment import Assignment, one_hot, similarities, weighted_sums
from fewlabels.methods.nearest import assign_nearest
from fewlabels.transport.solver import solve_biases

# Chosen on validation classes of five feature families: CIFAR-FS in two WRNs and a ResNet12, CUB in EfficientNet-Lite0 and a ResNet18.
FREE_STEPS = (
    4  # of the free fit; with 20 it loses 1 to 5 points, because prototypes leave their labels
)
LENGTH_TRUST = 0.5  # in a class's own |prototype|^2; 0 suits one family, 1 the other, 0.5 loses under 0.3 points on either
UNEVEN_AT = 0.15  # evidence and spread at which "free" and "equal" weigh the same, for five classes of endless size
OF_SMALL_CLASSES = 2.1  # times 1 / sqrt(queries a class), more: what chance makes of even classes
OF_MANY_CLASSES = 0.075  # times log(classes / 5), more: likewise, where there are more than five
SHARPNESS_OF_WEIGHT = 10.0  # how fast the weight changes there: from 0.1 to 0.9 within 0.44
PRIOR_COUNT = 1.0  # queries that each class has before any is seen (a uniform Dirichlet)
OWN_SHARE = 0.5  # most of a prototype that one query can be when it is left out


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
        support: Preprocessed labelled vectors, centered so that the origin means something: by the support's mean.
        support_labels: Class numbers.
        query: Preprocessed unlabelled vectors.
        wide: Both, as `smoothing.beside_neighbors` gives them.
        n_way: Number of classes.
        lam: Sharpness of each episode, (E,).
        alpha: How far the prototypes move in a step.
        equal: The answer with equal class sizes.

    With fewer queries than classes there is nothing to estimate: nearest class mean, with a warning.
    """
    if query.shape[1] < n_way:
        warnings.warn(
            f"proportions='estimate' needs at least as many queries as classes, got {query.shape[1]} for {n_way}: "
            "each query goes to the nearest class mean.",
            stacklevel=3,
        )
        return assign_nearest(support, support_labels, query, n_way=n_way)
    members = one_hot(support_labels, n_way, support.dtype)
    wide_support, wide_query = wide
    free = free_shares(wide_support, members, wide_query, lam=lam, alpha=alpha)
    flat = free_shares(wide_support, members, wide_query, lam=lam, alpha=alpha, prior=False)
    size = query.shape[1] / n_way
    spread = ((flat.sum(dim=-2) / size - 1) ** 2).mean(dim=-1).sqrt()  # (E,)
    for_free = evidence(wide_support, members, wide_query, free, lam=lam, solve=False)
    for_equal = evidence(wide_support, members, wide_query, equal.plan, lam=lam, solve=True)
    gap = (for_free - for_equal).clamp_min(0.0) / query.shape[1]
    unevenness = spread + gap
    certainty = torch.sigmoid(SHARPNESS_OF_WEIGHT * (unevenness - uneven_at(query.shape[1], n_way)))
    plan = certainty[:, None, None] * free + (1 - certainty)[:, None, None] * equal.plan
    prototypes = plan_means(support, members, query, plan)
    scores = lam[:, None, None] * similarities(query, prototypes)
    solved = solve_biases(
        scores, plan.sum(dim=-2)
    )  # biases with which later points are decided in these proportions
    return Assignment(
        labels=plan.argmax(dim=-1),
        plan=plan,
        prototypes=prototypes,
        biases=solved.biases,
        n_iterations=equal.n_iterations + solved.n_iterations,
        converged=equal.converged,
        certainty=certainty,
        lam=lam,
    )


def uneven_at(n_query: int, n_way: int) -> float:
    """Unevenness at which "free" and "equal" weigh the same.

    >>> round(uneven_at(75, 5), 2), round(uneven_at(5000, 20), 2)
    (0.69, 0.39)
    """
    return (
        UNEVEN_AT
        + OF_SMALL_CLASSES * sqrt(n_way / n_query)
        + OF_MANY_CLASSES * log(max(n_way / 5, 1.0))
    )


def free_shares(
    support: Tensor,
    members: Tensor,
    query: Tensor,
    *,
    lam: Tensor,
    alpha: float,
    prior: bool = True,
) -> Tensor:
    """Shares of the classes in each query with free class sizes, (E, Q, W).

    Args:
        support: (E, S, D), and `members` (E, S, W) its classes.
        members: Zeros and ones.
        query: (E, Q, D).
        lam: (E,).
        alpha: Step of the prototypes.
        prior: Whether large classes are more probable, in proportion to their size so far.
    """
    shots = members.sum(dim=-2)
    sums = weighted_sums(members, support)
    prototypes = sums / shots[..., None]
    lengths = LENGTH_TRUST * _shrunken_lengths(support, members, prototypes)
    own = query.new_zeros(
        *query.shape[:2], members.shape[-1]
    )  # share of each query in each prototype
    squared = (query * query).sum(dim=-1, keepdim=True)
    log_prior = query.new_zeros(len(query), 1, members.shape[-1])
    for step in range(FREE_STEPS + 1):
        near = 0.5 * (
            similarities(query, prototypes) + (prototypes * prototypes).sum(dim=-1)[:, None, :]
        )
        near = (near - own * squared) / (1 - own).clamp_min(OWN_SHARE)
        shares = (lam[:, None, None] * (2 * near - lengths[:, None, :]) + log_prior).softmax(dim=-1)
        mass = shares.sum(dim=-2)
        if prior:
            log_prior = (mass + PRIOR_COUNT).log()[:, None, :]
        if step < FREE_STEPS:
            total = shots + mass
            prototypes = prototypes + alpha * (
                (sums + weighted_sums(shares, query)) / total[..., None] - prototypes
            )
            own = own + alpha * (shares / total[:, None, :] - own)
    return shares


def _shrunken_lengths(support: Tensor, members: Tensor, prototypes: Tensor) -> Tensor:
    """Squared lengths of the class means without what noise adds, (E, W): each k-shot class's own for 1 - 1/k, the average for 1/k."""
    shots = members.sum(dim=-2)
    squared = weighted_sums(members, (support * support).sum(dim=-1, keepdim=True))[..., 0]
    between = (prototypes * prototypes).sum(
        dim=-1
    ) - squared / shots**2  # (1 - 1/k) times the mean product of two labels of a class
    pairs = shots - 1
    average = (between * shots).sum(dim=-1, keepdim=True) / pairs.sum(
        dim=-1, keepdim=True
    ).clamp_min(1)
    return between + average / shots


def plan_means(support: Tensor, members: Tensor, query: Tensor, plan: Tensor) -> Tensor:
    """Class means of support and shared-out queries, (E, W, D)."""
    total = members.sum(dim=-2) + plan.sum(dim=-2)
    means: Tensor = (weighted_sums(members, support) + weighted_sums(plan, query)) / total[
        ..., None
    ]
    return means


def evidence(
    support: Tensor, members: Tensor, query: Tensor, plan: Tensor, *, lam: Tensor, solve: bool
) -> Tensor:
    """Log evidence of a plan at its own class means, up to what all plans of an episode share, (E,).

    sum_i log sum_j exp(s_ij + g_j) - N . g + support's own scores + log Dirichlet-multinomial(N; 2), with
    N the class sizes of the plan and g = log(N + 1), or the biases that give exactly these sizes.
    """
    prototypes = plan_means(support, members, query, plan)
    scores = lam[:, None, None] * similarities(query, prototypes)
    own = lam * (similarities(support, prototypes) * members).sum(dim=(-2, -1))
    mass = plan.sum(dim=-2)
    biases = solve_biases(scores, mass).biases if solve else (mass + PRIOR_COUNT).log()
    fit = (scores + biases[:, None, :]).logsumexp(dim=-1).sum(dim=-1) - (mass * biases).sum(dim=-1)
    return fit + own + torch.lgamma(mass + 2).sum(dim=-1)


SHRINK_TO = 10.0  # the paper's sharpness, towards which an estimate from one small episode is drawn
CALIBRATION = 0.5  # of the moments' sharpness: classes are no round Gaussians, and the posterior of such is overconfident twofold
WIDEST = (1.0, 1000.0)  # range of what moments may say, against episodes with no spread at all
ROUNDS = 2  # fits of the memberships, then the sharpness


def estimate_lam(
    support: Tensor, support_labels: Tensor, query: Tensor, *, n_way: int, alpha: float
) -> Tensor:
    """Sharpness from the spread of the features, (E, S, D), (E, S) and (E, Q, D) -> (E,).

    The vectors are expected as `smoothing.beside_neighbors` gives them. For two Gaussian classes of one
    covariance, the log odds grow along c_a - c_b with the slope distance of the means / variance within,
    both measured along that direction. Summed over pairs,

        2 lam = sum_ab (m_aa - m_ab + m_bb - m_ba) / sum_ab var(z_a - z_b),   z_a = <x, c_a>

    with m_ab the mean of z_b in class a. Memberships are those of the free fit, z leaves a query's own
    share out, and the estimate is drawn half-way (in logs) to the paper's 10.
    """
    members = one_hot(support_labels, n_way, support.dtype)
    fallback = support.new_full((len(support),), SHRINK_TO)
    if n_way < 2 or query.shape[1] < n_way:
        return fallback
    lam = fallback
    for _ in range(ROUNDS):
        shares = free_shares(support, members, query, lam=lam, alpha=alpha)
        found = CALIBRATION * _sharpness(support, members, query, shares)
        lam = torch.where(found.isfinite() & (found > 0), found, fallback).clamp(*WIDEST)
    return (SHRINK_TO * lam).sqrt()


def _sharpness(support: Tensor, members: Tensor, query: Tensor, shares: Tensor) -> Tensor:
    """The moments' sharpness, given the memberships, (E,)."""
    n_way, n_query = shares.shape[-1], query.shape[1]
    prototypes = plan_means(support, members, query, shares)
    own = shares / (members.sum(dim=-2) + shares.sum(dim=-2))[:, None, :]
    near = 0.5 * (
        similarities(query, prototypes) + (prototypes * prototypes).sum(dim=-1)[:, None, :]
    )
    near = (near - own * (query * query).sum(dim=-1, keepdim=True)) / (1 - own).clamp_min(OWN_SHARE)
    near = near - near.mean(dim=-1, keepdim=True)
    mass = shares.sum(dim=-2).clamp_min(1e-6)
    means = weighted_sums(shares, near) / mass[..., None]  # (E, W, W) class, prototype
    within = (
        (near * near).sum(dim=(-2, -1)) - (mass[..., None] * means * means).sum(dim=(-2, -1))
    ) / n_query
    own_mean = means.diagonal(dim1=1, dim2=2)
    apart = (own_mean[:, :, None] - means) + (own_mean[:, None, :] - means.mT)
    weight = (
        mass[:, :, None]
        * mass[:, None, :]
        * (1 - torch.eye(n_way, dtype=near.dtype, device=near.device))
    )
    distance = (
        (apart * weight).sum(dim=(-2, -1)) / weight.sum(dim=(-2, -1)) * (n_way * (n_way - 1) / 2)
    )
    return distance / (2 * n_way * within)
