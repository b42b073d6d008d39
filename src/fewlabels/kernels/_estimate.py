"""Unknown class sizes and sharpness of one episode, compiled: `methods.estimation` in Gram space, classes first, (W, Q).

Rows 0..S-1 of a Gram matrix are the support, rows S..S+Q-1 the queries, zeros beyond.
"""

import math

import numpy as np

from fewlabels.kernels._math import Array, accumulate, fast_jit
from fewlabels.kernels._transport import share, solve_biases
from fewlabels.kernels.codes import (
    CALIBRATION,
    FREE_STEPS,
    LENGTH_TRUST,
    LONGEST_LAM,
    OF_MANY_CLASSES,
    OF_SMALL_CLASSES,
    OWN_SHARE,
    PRIOR_COUNT,
    ROUNDS,
    SHARPNESS_OF_WEIGHT,
    SHORTEST_LAM,
    SHRINK_TO,
    UNEVEN_AT,
)


@fast_jit
def plan_means(
    g: Array, support_labels: Array, plan: Array, coordinates: Array, totals: Array
) -> None:
    """Coordinates <c, x> of the class means of support and shared-out queries, (W, n), and their masses, (W,)."""
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
def free_shares(
    g: Array,
    support_labels: Array,
    n_way: int,
    n_query: int,
    lam: float,
    alpha: float,
    prior: bool,
    plan: Array,
) -> None:
    """Shares with free class sizes, (W, Q), in place: `methods.estimation.free_shares`."""
    n_support, m = len(support_labels), g.shape[1]
    nothing = np.zeros((n_way, n_query), g.dtype)
    prototypes, moved = np.empty((n_way, m), g.dtype), np.empty((n_way, m), g.dtype)
    shots, totals, mass = np.zeros(n_way), np.empty(n_way), np.empty(n_way)
    plan_means(g, support_labels, nothing, prototypes, shots)
    lengths = np.zeros(n_way)
    for i in range(n_support):
        j = support_labels[i]
        lengths[j] += prototypes[j, i] / shots[j] - g[i, i] / shots[j] ** 2
    average = (lengths * shots).sum() / max((shots - 1).sum(), 1.0)
    for j in range(n_way):
        lengths[j] = LENGTH_TRUST * (lengths[j] + average / shots[j])
    own = np.zeros((n_way, n_query), g.dtype)
    scores = np.empty((n_way, n_query), g.dtype)
    biases = np.zeros(n_way)
    largest = np.empty((2, n_query), g.dtype)
    sharp, move, least = g.dtype.type(lam), g.dtype.type(alpha), g.dtype.type(OWN_SHARE)
    one = g.dtype.type(1)
    for step in range(FREE_STEPS + 1):
        for j in range(n_way):
            length = g.dtype.type(lengths[j])
            for i in range(n_query):
                near = prototypes[j, n_support + i] - own[j, i] * g[n_support + i, n_support + i]
                scores[j, i] = sharp * (2 * near / max(one - own[j, i], least) - length)
        share(scores, biases, plan, mass, largest)
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
    """Sharpness from the spread of the features: `methods.estimation.estimate_lam`."""
    lam = SHRINK_TO
    if n_way < 2 or n_query < n_way:
        return lam
    plan = np.empty((n_way, n_query), g.dtype)
    for _ in range(ROUNDS):
        free_shares(g, support_labels, n_way, n_query, lam, alpha, True, plan)
        found = CALIBRATION * _sharpness(g, support_labels, plan)
        lam = min(max(found, SHORTEST_LAM), LONGEST_LAM) if 0 < found < np.inf else SHRINK_TO
    return math.sqrt(SHRINK_TO * lam)


@fast_jit
def _sharpness(g: Array, support_labels: Array, plan: Array) -> float:
    n_way, n_query = plan.shape
    n_support = len(support_labels)
    coordinates, totals = np.empty((n_way, g.shape[1]), g.dtype), np.empty(n_way)
    plan_means(g, support_labels, plan, coordinates, totals)
    means, mass, near = np.zeros((n_way, n_way)), np.full(n_way, 0.0), np.empty(n_way)
    squared = 0.0
    for i in range(n_query):
        middle = 0.0
        for j in range(n_way):
            own = plan[j, i] / totals[j]
            near[j] = (coordinates[j, n_support + i] - own * g[n_support + i, n_support + i]) / max(
                1 - own, OWN_SHARE
            )
            middle += near[j] / n_way
        for j in range(n_way):
            near[j] -= middle
            squared += near[j] * near[j]
        for j in range(n_way):
            mass[j] += plan[j, i]
            for k in range(n_way):
                means[j, k] += plan[j, i] * near[k]
    within = squared
    for j in range(n_way):
        mass[j] = max(mass[j], 1e-6)
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
def _evidence(
    g: Array, support_labels: Array, plan: Array, lam: float, solve: bool, tol: float
) -> float:
    """`methods.estimation.evidence`; NaN where the biases were not found."""
    n_way, n_query = plan.shape
    n_support = len(support_labels)
    coordinates, totals = np.empty((n_way, g.shape[1]), g.dtype), np.empty(n_way)
    plan_means(g, support_labels, plan, coordinates, totals)
    lengths, mass, biases = np.zeros(n_way), np.zeros(n_way), np.empty(n_way)
    for i in range(n_support):
        lengths[support_labels[i]] += coordinates[support_labels[i], i] / totals[support_labels[i]]
    for j in range(n_way):
        for i in range(n_query):
            mass[j] += plan[j, i]
            lengths[j] += plan[j, i] * coordinates[j, n_support + i] / totals[j]
        biases[j] = math.log(mass[j] + PRIOR_COUNT)
    scores = np.empty((n_way, n_query), g.dtype)
    sharp = g.dtype.type(lam)
    for j in range(n_way):
        length = g.dtype.type(lengths[j])
        for i in range(n_query):
            scores[j, i] = sharp * (2 * coordinates[j, n_support + i] - length)
    if solve:
        solver, spare = np.empty((n_way + 4, n_way)), np.empty((n_way, n_query), g.dtype)
        reached, largest = np.empty(n_way), np.empty((2, n_query), g.dtype)
        biases.fill(0)
        if not solve_biases(scores, mass, False, tol, biases, spare, reached, solver, largest):
            return np.nan
    total = 0.0
    for i in range(n_support):
        j = support_labels[i]
        total += lam * (2 * coordinates[j, i] - lengths[j])
    for i in range(n_query):
        top = -1e300
        for j in range(n_way):
            top = max(top, scores[j, i] + biases[j])
        summed = 0.0
        for j in range(n_way):
            summed += math.exp(scores[j, i] + biases[j] - top)
        total += top + math.log(summed)
    for j in range(n_way):
        total += math.lgamma(mass[j] + 2) - mass[j] * biases[j]
    return total


@fast_jit
def weigh(
    g: Array, support_labels: Array, equal: Array, lam: float, alpha: float, tol: float
) -> float:
    """Turn the plan of equal classes into the estimated one, (W, Q), in place; returns the weight of "free", NaN if unsolved."""
    n_way, n_query = equal.shape
    flat, free = np.empty((n_way, n_query), g.dtype), np.empty((n_way, n_query), g.dtype)
    free_shares(g, support_labels, n_way, n_query, lam, alpha, False, flat)
    free_shares(g, support_labels, n_way, n_query, lam, alpha, True, free)
    spread = 0.0
    for j in range(n_way):
        mass = 0.0
        for i in range(n_query):
            mass += flat[j, i]
        spread += (mass * n_way / n_query - 1) ** 2 / n_way
    for_free = _evidence(g, support_labels, free, lam, False, tol)
    for_equal = _evidence(g, support_labels, equal, lam, True, tol)
    unevenness = math.sqrt(spread) + max(for_free - for_equal, 0.0) / n_query
    threshold = (
        UNEVEN_AT
        + OF_SMALL_CLASSES * math.sqrt(n_way / n_query)
        + OF_MANY_CLASSES * math.log(max(n_way / 5, 1.0))
    )
    certainty = 1 / (1 + math.exp(-SHARPNESS_OF_WEIGHT * (unevenness - threshold)))
    weight = g.dtype.type(certainty)
    rest = g.dtype.type(1 - certainty)
    for j in range(n_way):
        for i in range(n_query):
            equal[j, i] = weight * free[j, i] + rest * equal[j, i]
    return certainty if for_equal == for_equal else -1.0
