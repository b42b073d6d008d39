"""Sinkhorn-MAP (Algorithm 1 of the paper) and soft K-Means, which is the same without class sizes."""

import torch
from torch import Tensor

from fewlabels.errors import InputError, unknown_choice
from fewlabels.methods.assignment import (
    Assignment,
    class_means,
    one_hot,
    prepare_episode,
    similarities,
    weighted_sums,
)
from fewlabels.methods.estimation import assign_estimated, estimate_lam
from fewlabels.preprocess.smoothing import beside_neighbors
from fewlabels.transport.prior import Proportions, class_mass
from fewlabels.transport.solver import Plan, check_lam, solve_biases

LAM = 10.0  # Section 4.2 of the paper, all data sets
ALPHA, N_STEPS = 0.2, 20  # Section 4.2, 5-shot


def assign_map(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    lam: float | str = LAM,
    alpha: float = ALPHA,
    n_steps: int = N_STEPS,
    proportions: Proportions = "uniform",
    wide: tuple[Tensor, Tensor] | None = None,
) -> Assignment:
    """Class centers and class memberships, each from the other, under given class sizes.

    (E, S, D), (E, S) and (E, Q, D) -> Assignment. From the support means c, `n_steps` times:

        L_ij = |f_i - c_j|^2                              squared distances
        M    = argmin <M, L> - H(M) / lam                 rows 1, columns the class sizes   (Eq. 3)
        mu_j = mean of the vectors, weighted by M_ij      support rows count 1              (Eq. 5)
        c    = c + alpha (mu - c)                                                           (Eq. 6)

    As in the authors' script, and unlike the paper's text, M is computed once more from the last
    centers, and that plan decides; `lam` multiplies the distances.

    Args:
        support: Preprocessed labelled vectors.
        support_labels: Class numbers 0..n_way-1; classes may have different numbers of rows.
        query: Preprocessed unlabelled vectors.
        n_way: Number of classes.
        lam: Inverse temperature: how sharply distance decides. Its scale is that of unit vectors;
            vectors a thousand times shorter need a `lam` a million times larger. "auto" reads it from
            the spread of the features (`estimate.estimate_lam`).
        alpha: How far the centers move in a step, 0 < alpha <= 1.
        n_steps: Number of steps; 0 decides from the support means.
        proportions: Class sizes among the queries, see `Proportions`; "estimate" expects vectors
            centered by the support's mean, as `methods.configure` arranges.
        wide: Support and query beside their neighbours, where `smoothing` was asked about them before; it is asked
            wherever something is to be estimated.
    """
    check_settings(lam=lam, alpha=alpha, n_steps=n_steps)
    estimating = isinstance(proportions, str) and proportions == "estimate"
    if lam != "auto" and not estimating:
        return _assign(
            support,
            support_labels,
            query,
            n_way=n_way,
            lam=float(lam),
            alpha=alpha,
            n_steps=n_steps,
            proportions=proportions,
        )
    prepare_episode(support, support_labels, query, n_way)
    exact = torch.float64 in (support.dtype, query.dtype)
    support, query = (x.double() if exact else x.float() for x in (support, query))
    wide = beside_neighbors(support, query, n_way=n_way) if wide is None else wide
    sharp = (
        estimate_lam(wide[0], support_labels, wide[1], n_way=n_way, alpha=alpha)
        if lam == "auto"
        else support.new_full((len(support),), float(lam))
    )
    imposed: Proportions = "uniform" if estimating else proportions
    found = _assign(
        support,
        support_labels,
        query,
        n_way=n_way,
        lam=sharp,
        alpha=alpha,
        n_steps=n_steps,
        proportions=imposed,
    )
    if estimating:
        return assign_estimated(
            support,
            support_labels,
            query,
            wide=wide,
            n_way=n_way,
            lam=sharp,
            alpha=alpha,
            equal=found,
        )
    return found


def _assign(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    lam: float | Tensor,
    alpha: float,
    n_steps: int,
    proportions: Proportions,
) -> Assignment:
    """MAP with class sizes and sharpness known; a sharpness may be each episode's own, (E,)."""
    support, query, shift = prepare_episode(support, support_labels, query, n_way)
    sharp = lam[:, None, None] if isinstance(lam, Tensor) else lam
    imposed = class_mass(proportions, query, n_way=n_way)
    members = one_hot(support_labels, n_way, support.dtype)
    support_sums, shots = weighted_sums(members, support), members.sum(dim=-2)

    prototypes = class_means(support, support_labels, n_way)
    biases: Tensor | None = None
    n_iterations = torch.zeros(len(query), dtype=torch.long, device=query.device)
    converged = torch.ones(len(query), dtype=torch.bool, device=query.device)
    for step in range(n_steps + 1):
        scores = sharp * similarities(query, prototypes)  # (E, Q, W)
        if imposed is None:
            solved = _free_plan(scores)
        else:
            solved = solve_biases(scores, imposed.mass, minimum=imposed.minimum, start=biases)
        biases = solved.biases
        n_iterations = n_iterations + solved.n_iterations
        converged = converged & solved.converged
        if step < n_steps:
            sums = support_sums + weighted_sums(solved.plan, query)
            means = sums / (shots + solved.plan.sum(dim=-2))[..., None]
            prototypes = prototypes + alpha * (means - prototypes)
    return Assignment(
        labels=(scores + solved.biases[:, None, :]).argmax(
            dim=-1
        ),  # the plan's largest, told apart even where shares round alike
        plan=solved.plan,
        prototypes=prototypes + shift,
        biases=solved.biases,
        n_iterations=n_iterations,
        converged=converged,
        lam=lam if isinstance(lam, Tensor) else query.new_full((len(query),), lam),
        certainty=query.new_zeros(len(query)),
    )


def check_settings(*, lam: float | str, alpha: float, n_steps: int) -> None:
    """Refuse settings of MAP that are out of range."""
    if isinstance(lam, str):
        if lam != "auto":
            raise unknown_choice("lam", lam, ("auto", "a positive number"))
    else:
        check_lam(lam)
    if not 0 < alpha <= 1:
        raise InputError(
            f"alpha must satisfy 0 < alpha <= 1, got {alpha}. The paper uses 0.2 to 0.4."
        )
    if n_steps < 0:
        raise InputError(f"n_steps must be 0 or more, got {n_steps}. The paper uses 20 or 30.")


def assign_soft_kmeans(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    lam: float | str = LAM,
    alpha: float = ALPHA,
    n_steps: int = N_STEPS,
) -> Assignment:
    """MAP with class sizes left free: each query is shared out by softmax(-lam |f - c|^2) alone."""
    return assign_map(
        support,
        support_labels,
        query,
        n_way=n_way,
        lam=lam,
        alpha=alpha,
        n_steps=n_steps,
        proportions="free",
    )


def _free_plan(scores: Tensor) -> Plan:
    """The plan where no class size is imposed: all biases zero."""
    n_episodes, _, n_way = scores.shape
    zero = scores.new_zeros(n_episodes)
    return Plan(
        scores.softmax(dim=-1), scores.new_zeros(n_episodes, n_way), zero.long(), zero == 0, zero
    )
