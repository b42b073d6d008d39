"""`methods.estimation` of one episode, compiled, in Gram space, with classes first, (W, Q).

Rows 0..S-1 of a Gram matrix are the support, rows S..S+Q-1 the queries, zeros beyond.
"""

import math

import numpy as np

from fewlabels.kernels._math import Array, accumulate, fast_jit
from fewlabels.kernels._transport import fill_plan, solve_biases
from fewlabels.methods.estimation import ESTIMATION

FREE_STEPS, NORM_WEIGHT = ESTIMATION.free_steps, ESTIMATION.norm_weight
OWN_WEIGHT_LIMIT, PRIOR_COUNT = ESTIMATION.own_weight_limit, ESTIMATION.prior_count
IMBALANCE_THRESHOLD, SAMPLING_NOISE = ESTIMATION.imbalance_threshold, ESTIMATION.sampling_noise
WAY_NOISE, REFERENCE_WAY = ESTIMATION.way_noise, ESTIMATION.reference_way
WEIGHT_SLOPE, MASS_FLOOR = ESTIMATION.weight_slope, ESTIMATION.mass_floor
LAM_TARGET, LAM_FACTOR = ESTIMATION.lam_target, ESTIMATION.lam_factor
LAM_MINIMUM, LAM_MAXIMUM = ESTIMATION.lam_minimum, ESTIMATION.lam_maximum
LAM_ROUNDS = ESTIMATION.lam_rounds


@fast_jit
def plan_means(
    g: Array, support_labels: Array, plan: Array, coordinates: Array, totals: Array
) -> None:
    """Fill in <c, x> for the class means c of support and plan, (W, n), and their masses, (W,)."""
    n_way, n_query = plan.shape
    n_support = len(support_labels)
    sums = np.zeros(coordinates.shape, g.dtype)
    totals.fill(0)
    for i in range(n_support):
        totals[support_labels[i]] += 1
        for k in range(g.shape[1]):
            sums[support_labels[i], k] += g[i, k]
    accumulate(plan, g[n_support : n_support + n_query], sums, coordinates)
    for j in range(n_way):
        for i in range(n_query):
            totals[j] += plan[j, i]
        inverse = g.dtype.type(1 / totals[j])
        for k in range(g.shape[1]):
            coordinates[j, k] *= inverse


@fast_jit
def free_plan(
    g: Array,
    support_labels: Array,
    n_way: int,
    n_query: int,
    lam: float,
    alpha: float,
    prior: bool,
    plan: Array,
) -> None:
    """`methods.estimation.free_plan`, (W, Q), in place."""
    n_support, m = len(support_labels), g.shape[1]
    no_plan = np.zeros((n_way, n_query), g.dtype)
    prototypes, moved = np.empty((n_way, m), g.dtype), np.empty((n_way, m), g.dtype)
    shots, totals, mass = np.zeros(n_way), np.empty(n_way), np.empty(n_way)
    plan_means(g, support_labels, no_plan, prototypes, shots)
    norms = np.zeros(n_way)
    for i in range(n_support):
        j = support_labels[i]
        norms[j] += prototypes[j, i] / shots[j] - g[i, i] / shots[j] ** 2
    average = (norms * shots).sum() / max((shots - 1).sum(), 1.0)
    for j in range(n_way):
        norms[j] = NORM_WEIGHT * (norms[j] + average / shots[j])
    own = np.zeros((n_way, n_query), g.dtype)
    scores = np.empty((n_way, n_query), g.dtype)
    biases = np.zeros(n_way)
    largest = np.empty((2, n_query), g.dtype)
    scale, move, least = g.dtype.type(lam), g.dtype.type(alpha), g.dtype.type(OWN_WEIGHT_LIMIT)
    one = g.dtype.type(1)
    for step in range(FREE_STEPS + 1):
        for j in range(n_way):
            norm = g.dtype.type(norms[j])
            for i in range(n_query):
                inner = prototypes[j, n_support + i] - own[j, i] * g[n_support + i, n_support + i]
                scores[j, i] = scale * (2 * inner / max(one - own[j, i], least) - norm)
        fill_plan(scores, biases, plan, mass, largest)
        if prior:
            for j in range(n_way):
                biases[j] = math.log(mass[j] + PRIOR_COUNT)
        if step < FREE_STEPS:
            plan_means(g, support_labels, plan, moved, totals)
            for j in range(n_way):
                inverse = g.dtype.type(1 / totals[j])
                for k in range(m):
                    prototypes[j, k] += move * (moved[j, k] - prototypes[j, k])
                for i in range(n_query):
                    own[j, i] += move * (plan[j, i] * inverse - own[j, i])


@fast_jit
def estimate_lam(g: Array, support_labels: Array, n_way: int, n_query: int, alpha: float) -> float:
    """`methods.estimation.estimate_lam`."""
    lam = LAM_TARGET
    if n_way < 2 or n_query < n_way:
        return lam
    plan = np.empty((n_way, n_query), g.dtype)
    for _ in range(LAM_ROUNDS):
        free_plan(g, support_labels, n_way, n_query, lam, alpha, True, plan)
        found = LAM_FACTOR * _gaussian_lam(g, support_labels, plan)
        lam = min(max(found, LAM_MINIMUM), LAM_MAXIMUM) if 0 < found < np.inf else LAM_TARGET
    return math.sqrt(LAM_TARGET * lam)


@fast_jit
def _gaussian_lam(g: Array, support_labels: Array, plan: Array) -> float:
    """`methods.estimation._gaussian_lam`; 0 where it is not defined."""
    n_way, n_query = plan.shape
    n_support = len(support_labels)
    coordinates, totals = np.empty((n_way, g.shape[1]), g.dtype), np.empty(n_way)
    plan_means(g, support_labels, plan, coordinates, totals)
    means, mass, inner = np.zeros((n_way, n_way)), np.full(n_way, 0.0), np.empty(n_way)
    squared = 0.0
    for i in range(n_query):
        mean = 0.0
        for j in range(n_way):
            own = plan[j, i] / totals[j]
            inner[j] = (
                coordinates[j, n_support + i] - own * g[n_support + i, n_support + i]
            ) / max(1 - own, OWN_WEIGHT_LIMIT)
            mean += inner[j] / n_way
        for j in range(n_way):
            inner[j] -= mean
            squared += inner[j] * inner[j]
        for j in range(n_way):
            mass[j] += plan[j, i]
            for k in range(n_way):
                means[j, k] += plan[j, i] * inner[k]
    within = squared
    for j in range(n_way):
        mass[j] = max(mass[j], MASS_FLOOR)
        for k in range(n_way):
            means[j, k] /= mass[j]
            within -= mass[j] * means[j, k] ** 2
    within /= n_query
    apart, weights = 0.0, 0.0
    for j in range(n_way):
        for k in range(n_way):
            if j != k:
                weight = mass[j] * mass[k]
                weights += weight
                apart += weight * (means[j, j] - means[j, k] + means[k, k] - means[k, j])
    if not (within > 0 and weights > 0):
        return 0.0
    return apart / weights * (n_way * (n_way - 1) / 2) / (2 * n_way * within)


@fast_jit
def _log_evidence(
    g: Array, support_labels: Array, plan: Array, lam: float, solve: bool, tol: float
) -> float:
    """`methods.estimation.log_evidence`; NaN where the biases were not found."""
    n_way, n_query = plan.shape
    n_support = len(support_labels)
    coordinates, totals = np.empty((n_way, g.shape[1]), g.dtype), np.empty(n_way)
    plan_means(g, support_labels, plan, coordinates, totals)
    norms, mass, biases = np.zeros(n_way), np.zeros(n_way), np.empty(n_way)
    for i in range(n_support):
        norms[support_labels[i]] += coordinates[support_labels[i], i] / totals[support_labels[i]]
    for j in range(n_way):
        for i in range(n_query):
            mass[j] += plan[j, i]
            norms[j] += plan[j, i] * coordinates[j, n_support + i] / totals[j]
        biases[j] = math.log(mass[j] + PRIOR_COUNT)
    scores = np.empty((n_way, n_query), g.dtype)
    scale = g.dtype.type(lam)
    for j in range(n_way):
        norm = g.dtype.type(norms[j])
        for i in range(n_query):
            scores[j, i] = scale * (2 * coordinates[j, n_support + i] - norm)
    if solve:
        solver, spare = np.empty((n_way + 4, n_way)), np.empty((n_way, n_query), g.dtype)
        reached, largest = np.empty(n_way), np.empty((2, n_query), g.dtype)
        biases.fill(0)
        if not solve_biases(scores, mass, False, tol, biases, spare, reached, solver, largest):
            return np.nan
    total = 0.0
    for i in range(n_support):
        j = support_labels[i]
        total += lam * (2 * coordinates[j, i] - norms[j])
    for i in range(n_query):
        top = -1e300
        for j in range(n_way):
            top = max(top, scores[j, i] + biases[j])
        summed = 0.0
        for j in range(n_way):
            summed += math.exp(scores[j, i] + biases[j] - top)
        total += top + math.log(summed)
    for j in range(n_way):
        total += math.lgamma(mass[j] + PRIOR_COUNT + 1) - mass[j] * biases[j]
    return total


@fast_jit
def weigh_plans(
    g: Array,
    support_labels: Array,
    equal: Array,
    lam: float,
    alpha: float,
    tol: float,
    free: Array,
    without_prior: Array,
) -> tuple[float, float]:
    """`methods.estimation.weigh_plans`: fills in both free plans, (W, Q).

    Returns the log evidence for the free plan less that for the balanced one, and the weight of the
    free plan, 0 to 1; -1 where a solve failed or a number is NaN.
    """
    n_way, n_query = equal.shape
    free_plan(g, support_labels, n_way, n_query, lam, alpha, False, without_prior)
    free_plan(g, support_labels, n_way, n_query, lam, alpha, True, free)
    spread = 0.0
    for j in range(n_way):
        mass = 0.0
        for i in range(n_query):
            mass += without_prior[j, i]
        spread += (mass * n_way / n_query - 1) ** 2 / n_way
    for_free = _log_evidence(g, support_labels, free, lam, False, tol)
    for_equal = _log_evidence(g, support_labels, equal, lam, True, tol)
    gain = for_free - for_equal
    score = math.sqrt(spread) + (0.0 if gain < 0 else gain) / n_query  # NaN stays
    threshold = (
        IMBALANCE_THRESHOLD
        + SAMPLING_NOISE * math.sqrt(n_way / n_query)
        + WAY_NOISE * math.log(max(n_way / REFERENCE_WAY, 1.0))
    )
    certainty = 1 / (1 + math.exp(-WEIGHT_SLOPE * (score / threshold - 1)))
    return gain, certainty if score >= 0 else -1.0  # NaN is not


@fast_jit
def blend_plans(plan: Array, free: Array, certainty: float) -> None:
    """Turn the balanced plan into the estimated one, (W, Q), in place."""
    weight, rest = plan.dtype.type(certainty), plan.dtype.type(1 - certainty)
    for j in range(plan.shape[0]):
        for i in range(plan.shape[1]):
            plan[j, i] = weight * free[j, i] + rest * plan[j, i]
