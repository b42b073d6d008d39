"""Sinkhorn-MAP (Algorithm 1 of the paper), and what differs from it by its prior alone.

From the support means c, `n_steps` times:

    L_ij = |f_i - c_j|^2                              squared distances
    M    = argmin <M, L> - H(M) / lam                 rows 1, columns the class sizes   (Eq. 3)
    mu_j = mean of the vectors, weighted by M_ij      support rows count 1              (Eq. 5)
    c    = c + alpha (mu - c)                                                           (Eq. 6)

As in the authors' script, and unlike the paper's text, M is computed once more from the last
centers, and that plan decides; `lam` multiplies the distances.

map          the paper's PT+MAP; `prior` says what is known about class sizes, equal by default
map-folder   class sizes and lam estimated (`estimation`), all rows centered by one mean, for a
             folder whose labels change
map-truth    told the true class sizes of each episode, which only an evaluation knows
soft-kmeans  class sizes left free: each query by softmax(-lam |f - c|^2)
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fewlabels.errors import InputError
from fewlabels.methods.assignment import (
    Assignment,
    class_means,
    make_assignment,
    one_hot,
    prepare_episode,
    similarities,
    weighted_sums,
)
from fewlabels.methods.base import Knob, Method, PriorKnob, Reference, register
from fewlabels.methods.estimation import assign_estimated, estimate_lam
from fewlabels.preprocess.pipeline import PAPER, Pipeline
from fewlabels.preprocess.smoothing import (
    SMOOTHING,
    Neighborhood,
    append_neighbor_means,
    find_neighborhood,
)
from fewlabels.preprocess.steps import AUTO
from fewlabels.transport.prior import Estimated, Free, Prior, Truth, Uniform, as_prior, choices
from fewlabels.transport.solver import Plan, solve_biases

LAM = 10.0  # Section 4.2 of the paper, all data sets
SMALL_ALPHA_DATASETS = ("tiered-imagenet", "cifar-fs")  # Section 4.3: 0.3 at 1 shot, else 0.4


def paper_alpha(n_shot: int, dataset: str | None = None) -> float:
    """The paper's step size (Sections 4.2 and 4.3)."""
    if n_shot > 1:
        return 0.2
    return 0.3 if dataset in SMALL_ALPHA_DATASETS else 0.4


def paper_n_steps(n_shot: int, dataset: str | None = None) -> int:  # noqa: ARG001
    """The paper's number of steps (Section 4.2)."""
    return 30 if n_shot == 1 else 20


LAM_KNOB = Knob(
    "lam",
    "inverse temperature of MAP; auto reads it from the features",
    default=LAM,
    low=0,
    above_low=True,
    also=(AUTO,),
    note="The paper uses 10.",
    grid=(1, 2, 3, 5, 7.5, 10, 12.5, 15, 20, 30, 40),  # Figure 4 (3), finer about its peak
    symbol="sharpness λ",
)
ALPHA_KNOB = Knob(
    "alpha",
    "step size of the class centers",
    default=paper_alpha,
    low=0,
    above_low=True,
    high=1,
    note="The paper uses 0.2 to 0.4.",
    grid=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1),  # Figure 4 (4)
    symbol="step size α",
)
N_STEPS_KNOB = Knob(
    "n_steps",
    "steps of MAP",
    default=paper_n_steps,
    low=0,
    whole=True,
    note="The paper uses 20 or 30.",
)
PRIOR_KNOB = PriorKnob("prior", f"what is known about class sizes: {choices()}", default=Uniform())


def assign_map(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    n_way: int,
    lam: float | str = LAM,
    alpha: float = paper_alpha(5),
    n_steps: int = paper_n_steps(5),
    prior: Prior | str = Uniform.word,
    neighborhood: tuple[Tensor, Tensor] | None = None,
) -> Assignment:
    """Class centers and class memberships, each from the other, under given class sizes.

    (E, S, D), (E, S) and (E, Q, D) -> Assignment.

    Args:
        support: Preprocessed labelled vectors.
        support_labels: Class numbers 0..n_way-1; classes may have different numbers of rows.
        query: Preprocessed unlabelled vectors.
        n_way: Number of classes.
        lam: Inverse temperature: how sharply distance decides. Its scale is that of unit vectors;
            vectors a thousand times shorter need a `lam` a million times larger. "auto" reads it
            from the spread of the features (`estimation.estimate_lam`).
        alpha: How far the centers move in a step, 0 < alpha <= 1.
        n_steps: Number of steps; 0 decides from the support means.
        prior: Class sizes among the queries. `Estimated` expects vectors that are not centered by
            the mean of the queries, as `Method.configure` arranges; with fewer queries than
            classes there is nothing to estimate, and no sizes are imposed.
        neighborhood: Support and query with their neighbourhood means, (E, S, D') and (E, Q, D'),
            where they were computed before; needed only where something is estimated.
    """
    for knob, value in ((LAM_KNOB, lam), (ALPHA_KNOB, alpha), (N_STEPS_KNOB, n_steps)):
        knob.check(value)
    prior = as_prior(prior)
    if lam != AUTO and not prior.estimated:
        return assign_known(
            support, support_labels, query, n_way, float(lam), alpha, n_steps, prior
        )
    prepare_episode(support, support_labels, query, n_way)  # refuses what cannot be used
    exact = torch.float64 in (support.dtype, query.dtype)
    support, query = (x.double() if exact else x.float() for x in (support, query))
    wide = (
        append_neighbor_means(support, query, n_way=n_way) if neighborhood is None else neighborhood
    )
    sharp = (
        estimate_lam(wide[0], support_labels, wide[1], n_way=n_way, alpha=alpha)
        if lam == AUTO
        else support.new_full((len(support),), float(lam))
    )
    estimating = prior.estimated and query.shape[1] >= n_way
    assumed = prior if estimating or not prior.estimated else Free()
    found = assign_known(support, support_labels, query, n_way, sharp, alpha, n_steps, assumed)
    if not estimating:
        return found
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


def assign_known(
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    n_way: int,
    lam: float | Tensor,
    alpha: float,
    n_steps: int,
    prior: Prior,
) -> Assignment:
    """MAP with class sizes and lam known; lam may be each episode's own, (E,)."""
    support, query, shift = prepare_episode(support, support_labels, query, n_way)
    sharp = lam[:, None, None] if isinstance(lam, Tensor) else lam
    imposed = prior.masses(query.shape[1], n_way)
    if imposed is not None and len(imposed.mass) not in (1, len(query)):
        raise InputError(
            f"prior must hold one row of sizes for all {len(query)} episodes or for each of them, "
            f"got {len(imposed.mass)} rows."
        )
    # laid out in full: torch adds up an expanded tensor in another order
    mass = None if imposed is None else imposed.mass.to(query).expand(len(query), -1).contiguous()
    members = one_hot(support_labels, n_way, support.dtype)
    support_sums, shots = weighted_sums(members, support), members.sum(dim=-2)

    prototypes = class_means(support, support_labels, n_way)
    biases: Tensor | None = None
    n_iterations = torch.zeros(len(query), dtype=torch.long, device=query.device)
    converged = torch.ones(len(query), dtype=torch.bool, device=query.device)
    for step in range(n_steps + 1):
        scores = sharp * similarities(query, prototypes)  # (E, Q, W)
        if imposed is None or mass is None:
            solved = _free_plan(scores)
        else:
            solved = solve_biases(scores, mass, minimum=imposed.minimum, start=biases)
        biases = solved.biases
        n_iterations = n_iterations + solved.n_iterations
        converged = converged & solved.converged
        if step < n_steps:
            sums = support_sums + weighted_sums(solved.plan, query)
            means = sums / (shots + solved.plan.sum(dim=-2))[..., None]
            prototypes = prototypes + alpha * (means - prototypes)
    return make_assignment(
        solved.plan,
        prototypes + shift,
        # by scores rather than by the plan, whose entries may round to the same number
        labels=(scores + solved.biases[:, None, :]).argmax(dim=-1),
        biases=solved.biases,
        n_iterations=n_iterations,
        converged=converged,
        lam=lam,
    )


def keep_neighborhood(x: Tensor) -> Neighborhood | None:
    """The neighborhood of many rows, (N, D); None of few, which are computed quickly each time."""
    return find_neighborhood(x[None]) if len(x) > SMOOTHING.dense_rows else None


def _free_plan(scores: Tensor) -> Plan:
    """The plan where no class size is imposed: all biases zero."""
    n_episodes, _, n_way = scores.shape
    zero = scores.new_zeros(n_episodes)
    return Plan(
        scores.softmax(dim=-1), scores.new_zeros(n_episodes, n_way), zero.long(), zero == 0, zero
    )


def assign_soft_kmeans(
    support: Tensor, support_labels: Tensor, query: Tensor, *, n_way: int, **settings: Any
) -> Assignment:
    """MAP with class sizes left free: each query by softmax(-lam |f - c|^2) alone."""
    return assign_map(support, support_labels, query, n_way=n_way, prior=Free(), **settings)


def _center_for(pipeline: Pipeline, settings: Mapping[str, Any]) -> Pipeline:
    """Centered by the support where sizes are estimated: the queries' mean depends on the sizes."""
    return pipeline.with_centering("support") if settings["prior"].estimated else pipeline


REFERENCE = Reference(
    "Hu, Gripon, Pateux",
    2021,
    "Leveraging the Feature Distribution in Transfer-based Few-Shot Learning",
    "https://arxiv.org/abs/2006.03806",
)
STEPS = (ALPHA_KNOB, N_STEPS_KNOB)
ESTIMATED = {"lam": AUTO, "prior": Estimated()}
register(
    Method(
        "soft-kmeans",
        "PT+soft K-Means",
        REFERENCE,
        PAPER,
        assign_map,
        knobs=(LAM_KNOB, *STEPS),
        fixed={"prior": Free()},
        kernel="map",
    ),
    Method(
        "map",
        "PT+MAP",
        REFERENCE,
        PAPER,
        assign_map,
        knobs=(LAM_KNOB, *STEPS, PRIOR_KNOB),
        kernel="map",
        adapt=_center_for,
        prepare_rows=keep_neighborhood,
    ),
    # A person's labels are no fair sample of the classes, and vectors that do not depend on the
    # labels are computed once while the labels change: hence one mean for all rows.
    Method(
        "map-folder",
        "PT+MAP for folders",
        REFERENCE,
        Pipeline.parse("power(auto) | unit | center(joint) | unit"),
        assign_map,
        knobs=(
            replace(LAM_KNOB, default=AUTO, grid=()),
            *STEPS,
            replace(PRIOR_KNOB, default=Estimated()),
        ),
        kernel="map",
        prepare_rows=keep_neighborhood,
    ),
    Method(
        "map-truth",
        "PT+MAP, told the truth",
        REFERENCE,
        PAPER,
        assign_map,
        knobs=(LAM_KNOB, *STEPS),
        fixed={"prior": Truth()},
        kernel="map",
    ),
)
