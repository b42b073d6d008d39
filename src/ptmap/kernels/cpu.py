"""The classifiers of one episode in Gram space, compiled for the CPU: all cores, one episode in cache at a time.

Prototypes stay weighted sums of the episode's vectors, c_j = sum_i A_ji x_i, so that inner products
G = X X^T of the n = S + Q rows are all that is needed; what a step costs does not depend on the
feature dim. Rows 0..S-1 are the support, rows S..n-1 the queries; n is padded with zero rows to a
multiple of 8. Classes come first in every array (W, Q): loops then run along the samples.
"""

import math

import numpy as np

from ptmap.kernels._math import Array, exp, fast_jit, gram, solve_in_place
from ptmap.kernels.codes import (
    CENTER_JOINTLY,
    DAMPING_FACTOR,
    ENOUGH,
    FIRST_DAMPING,
    FIRST_DAMPING_EXACT,
    FREE,
    KMEANS,
    KMEANS_ITERATIONS,
    LONGEST_STEP,
    MASS,
    MINIMUM,
    NEAREST,
    NEWTON_ITERATIONS,
    UNIT,
)

PADDING = 8  # rows of an episode are rounded up to a full vector register
GROUP = 5  # classes whose sums are formed together; papers have 5, 10 or 20
NOTHING = -1e30  # the score of a class that must stay empty


@fast_jit
def classify_episodes(
    x: Array,
    support: Array,
    support_labels: Array,
    query: Array,
    n_way: int,
    steps: Array,
    classifier: int,
    lam: float,
    alpha: float,
    n_steps: int,
    target: Array,
    tol: float,
    labels: Array,
    margins: Array,
) -> None:
    """Label the queries of E episodes, in place.

    Args:
        x: Row-wise preprocessed vectors of the data set, (N, D).
        support: Rows of x, (E, S); `support_labels` their ways, `query` likewise (E, Q).
        support_labels: (E, S).
        query: (E, Q).
        n_way: W.
        steps: Episodic steps, codes above.
        classifier: Code above.
        lam: Inverse temperature, `alpha` and `n_steps` as in `assign_map`.
        alpha: Step size of the centers.
        n_steps: Steps of the centers.
        target: Class masses, (E, W), or (1, W) for all episodes; used by MASS and MINIMUM.
        tol: Misplaced share of the mass at which a solve ends.
        labels: Out, (E, Q).
        margins: Out, (E,): by how much the closest decision was decided; -1 where a solve did not converge.
    """
    n_episodes, n_support = support.shape
    n_query = query.shape[1]
    n = (n_support + n_query + PADDING - 1) // PADDING * PADDING
    rows = np.zeros((n, x.shape[1]), x.dtype)
    g = np.empty((n, n), x.dtype)
    for episode in range(n_episodes):
        for i in range(n_support):
            rows[i] = x[support[episode, i]]
        for i in range(n_query):
            rows[n_support + i] = x[query[episode, i]]
        gram(rows, g)
        for step in steps:
            if step == UNIT:
                _normalise(g)
            else:
                _center(g, n_support, n_query, step == CENTER_JOINTLY)
        masses = target[min(episode, len(target) - 1)]
        if classifier in (NEAREST, KMEANS):
            rounds = KMEANS_ITERATIONS if classifier == KMEANS else 0
            margins[episode] = _assign_hard(g, support_labels[episode], n_query, n_way, rounds, labels[episode])
        else:
            margins[episode] = _assign_soft(
                g, support_labels[episode], n_query, n_way, classifier, lam, alpha, n_steps, masses, tol, labels[episode]
            )


@fast_jit
def _normalise(g: Array) -> None:
    """Unit norm in Gram space: divide by the norms of row and column."""
    n = len(g)
    scale = np.empty(n, g.dtype)
    for i in range(n):
        scale[i] = 1.0 / math.sqrt(g[i, i]) if g[i, i] > 1e-30 else 0.0
    for i in range(n):
        for j in range(n):
            g[i, j] *= scale[i] * scale[j]


@fast_jit
def _center(g: Array, n_support: int, n_query: int, jointly: bool) -> None:
    """Centering in Gram space: each side's mean, or the joint one, leaves rows and columns."""
    n = n_support + n_query
    one = g.dtype.type(1)
    toward = np.zeros((2, len(g)), g.dtype)  # <x_i, mean of side>
    for side in range(2):
        first, last = (0, n_support) if side == 0 else (n_support, n)
        if jointly or last - first <= 1:  # a side of one row is centered by the mean of all, as in `center`
            first, last = 0, n
        means, inverse = toward[side], one / (last - first)
        for i in range(first, last):
            row = g[i]
            for k in range(n):
                means[k] += row[k] * inverse
    between = np.zeros((2, 2), g.dtype)  # <mean of side, mean of side>
    for a in range(2):
        for b in range(2):
            first, last = (0, n_support) if b == 0 else (n_support, n)
            if jointly or last - first <= 1:
                first, last = 0, n
            for k in range(first, last):
                between[a, b] += toward[a, k] * (one / (last - first))
    for i in range(n):
        a = 0 if i < n_support else 1
        row, its_side = g[i], toward[a]
        to_support, to_query = between[a, 0] - toward[0, i], between[a, 1] - toward[1, i]
        for k in range(n_support):
            row[k] += to_support - its_side[k]
        for k in range(n_support, n):
            row[k] += to_query - its_side[k]


@fast_jit
def _support_sums(g: Array, support_labels: Array, sums: Array, shots: Array) -> None:
    """<sum of the class's support, every row>, (W, n), and the number of shots, (W,)."""
    sums.fill(0)
    shots.fill(0)
    for i in range(len(support_labels)):
        j = support_labels[i]
        shots[j] += 1
        for k in range(g.shape[1]):
            sums[j, k] += g[i, k]


@fast_jit
def _assign_hard(g: Array, support_labels: Array, n_query: int, n_way: int, rounds: int, labels: Array) -> float:
    """Nearest class mean (no rounds), or K-Means from it until nothing changes; returns the closest call."""
    n_support = len(support_labels)
    sums = np.empty((n_way, g.shape[1]), g.dtype)
    near = np.empty((n_way, g.shape[1]), g.dtype)  # <prototype, row>
    shots = np.empty(n_way, g.dtype)
    counts = np.empty(n_way, g.dtype)
    squared = np.empty(n_way, g.dtype)  # |prototype|^2
    _support_sums(g, support_labels, sums, shots)
    labels.fill(-1)
    closest = np.inf
    for _ in range(rounds + 1):
        for j in range(n_way):
            counts[j] = shots[j]
            for k in range(g.shape[1]):
                near[j, k] = sums[j, k]
        for i in range(n_query):
            j = labels[i]
            if j >= 0:
                counts[j] += 1
                for k in range(g.shape[1]):
                    near[j, k] += g[n_support + i, k]
        for j in range(n_way):
            for k in range(g.shape[1]):
                near[j, k] /= counts[j]
        squared.fill(0)
        for i in range(n_support):
            squared[support_labels[i]] += near[support_labels[i], i]
        for i in range(n_query):
            if labels[i] >= 0:
                squared[labels[i]] += near[labels[i], n_support + i]
        changed = False
        for i in range(n_query):
            best, first, second = 0, -np.inf, -np.inf
            for j in range(n_way):
                value = 2 * near[j, n_support + i] - squared[j] / counts[j]
                if value > first:
                    best, first, second = j, value, first
                elif value > second:
                    second = value
            closest = min(closest, first - second)
            changed |= best != labels[i]
            labels[i] = best
        if not changed:
            break
    return closest


@fast_jit
def _assign_soft(
    g: Array,
    support_labels: Array,
    n_query: int,
    n_way: int,
    classifier: int,
    lam: float,
    alpha: float,
    n_steps: int,
    target: Array,
    tol: float,
    labels: Array,
) -> float:
    """MAP and soft K-Means, `assign_map` in Gram space; returns the smallest margin of the plan, -1 if unsolved."""
    n_support, n = len(support_labels), g.shape[1]
    queries = g[n_support : n_support + n_query]
    sums = np.empty((n_way, n), g.dtype)
    near = np.empty((n_way, n), g.dtype)  # <prototype, row>
    moved = np.empty((n_way, n), g.dtype)  # the same of the new means
    weights = np.zeros((n_way, n), g.dtype)  # prototype = weights @ rows
    members = np.zeros((n_way, n), g.dtype)  # share of each row in the class
    scores = np.empty((n_way, n_query), g.dtype)
    plan = np.empty((n_way, n_query), g.dtype)
    shots = np.empty(n_way, g.dtype)
    mass = np.empty(n_way, np.float64)
    biases = np.zeros(n_way, np.float64)
    solver = np.empty((n_way + 4, n_way), np.float64)
    largest = np.empty((2, n_query), g.dtype)
    sharp, move = g.dtype.type(lam), g.dtype.type(alpha)
    _support_sums(g, support_labels, sums, shots)
    for j in range(n_way):
        for k in range(n):
            near[j, k] = sums[j, k] / shots[j]
    for i in range(n_support):
        weights[support_labels[i], i] = 1 / shots[support_labels[i]]
        members[support_labels[i], i] = 1
    for step in range(n_steps + 1):
        for j in range(n_way):
            if classifier == MASS and target[j] <= 0:
                scores[j].fill(NOTHING)
            else:
                squared = g.dtype.type(0) if classifier == MASS else _dot(weights[j], near[j])  # MASS: the bias absorbs it
                _score(near[j, n_support : n_support + n_query], sharp, squared, scores[j])
        if classifier == FREE:
            _share(scores, biases, plan, mass, largest)
        elif not _solve_biases(scores, target, classifier == MINIMUM, tol, biases, plan, mass, solver, largest):
            return -1.0
        if step < n_steps:
            _accumulate(plan, queries, sums, moved)
            for j in range(n_way):
                inverse = g.dtype.type(1 / (shots[j] + mass[j]))
                _approach(near[j], moved[j], inverse, move)
                if classifier != MASS:
                    members[j, n_support : n_support + n_query] = plan[j]
                    _approach(weights[j], members[j], inverse, move)
    smallest = 1.0
    for i in range(n_query):
        best, first, second = 0, g.dtype.type(-1), g.dtype.type(-1)
        for j in range(n_way):
            if plan[j, i] > first:
                best, first, second = j, plan[j, i], first
            elif plan[j, i] > second:
                second = plan[j, i]
        labels[i] = best
        smallest = min(smallest, first - max(second, 0))
    return smallest


@fast_jit
def _dot(a: Array, b: Array) -> float:
    total = a.dtype.type(0)
    for k in range(len(a)):
        total += a[k] * b[k]
    return total


@fast_jit
def _score(near: Array, sharp: float, squared: float, scores: Array) -> None:
    """Fill scores = lam (2 <c, x> - |c|^2)."""
    for i in range(len(scores)):
        scores[i] = sharp * (2 * near[i] - squared)


@fast_jit
def _approach(x: Array, sums: Array, inverse: float, move: float) -> None:
    """Move x by the share `move` towards the mean sums * inverse."""
    for k in range(len(x)):
        x[k] += move * (sums[k] * inverse - x[k])


@fast_jit
def _accumulate(plan: Array, queries: Array, sums: Array, moved: Array) -> None:
    """Fill moved = sums + plan @ queries, (W, Q) and (Q, n) -> (W, n).

    Five classes by two queries at a time: what is loaded once is used for ten products.
    """
    n_way, n_query = plan.shape
    n = queries.shape[1]
    for j in range(n_way):
        for k in range(n):
            moved[j, k] = sums[j, k]
    grouped = n_way // GROUP * GROUP
    for j in range(0, grouped, GROUP):
        m0, m1, m2, m3, m4 = moved[j], moved[j + 1], moved[j + 2], moved[j + 3], moved[j + 4]
        for i in range(0, n_query - 1, 2):
            qa, qb = queries[i], queries[i + 1]
            a0, a1, a2, a3, a4 = plan[j, i], plan[j + 1, i], plan[j + 2, i], plan[j + 3, i], plan[j + 4, i]
            b0, b1, b2, b3, b4 = plan[j, i + 1], plan[j + 1, i + 1], plan[j + 2, i + 1], plan[j + 3, i + 1], plan[j + 4, i + 1]
            for k in range(n):
                m0[k] += a0 * qa[k] + b0 * qb[k]
                m1[k] += a1 * qa[k] + b1 * qb[k]
                m2[k] += a2 * qa[k] + b2 * qb[k]
                m3[k] += a3 * qa[k] + b3 * qb[k]
                m4[k] += a4 * qa[k] + b4 * qb[k]
    for j in range(n_way):
        to = moved[j]
        for i in range(n_query // 2 * 2 if j < grouped else 0, n_query):
            p, q = plan[j, i], queries[i]
            for k in range(n):
                to[k] += p * q[k]


@fast_jit
def _share(scores: Array, biases: Array, plan: Array, mass: Array, largest: Array) -> None:
    """Plan = softmax over the classes of scores + biases, (W, Q), and the mass of each class, (W,)."""
    n_way, n_query = scores.shape
    top, inverse = largest[0], largest[1]
    for i in range(n_query):
        top[i] = 2 * NOTHING
        inverse[i] = 0
    for j in range(n_way):
        bias = scores.dtype.type(biases[j])
        for i in range(n_query):
            top[i] = max(top[i], scores[j, i] + bias)
    for j in range(n_way):
        bias = scores.dtype.type(biases[j])
        for i in range(n_query):
            e = exp(scores[j, i] + bias - top[i])
            plan[j, i] = e
            inverse[i] += e
    for i in range(n_query):
        inverse[i] = 1 / inverse[i]
    for j in range(n_way):
        total = scores.dtype.type(0)
        for i in range(n_query):
            p = plan[j, i] * inverse[i]
            plan[j, i] = p
            total += p
        mass[j] = total


@fast_jit
def _solve_biases(
    scores: Array, target: Array, minimum: bool, tol: float, biases: Array, plan: Array, mass: Array, solver: Array, largest: Array
) -> bool:
    """`classifiers.transport.solve_biases` for one episode: biases (in: a start, out: the answer), plan and mass."""
    n_way, n_query = scores.shape
    hessian, missing, accepted, accepted_mass = solver[:n_way], solver[n_way], solver[n_way + 1], solver[n_way + 2]
    step = solver[n_way + 3]
    first_damping = FIRST_DAMPING if scores.itemsize == 4 else FIRST_DAMPING_EXACT
    error, damping, sure = np.inf, first_damping, True
    for _ in range(NEWTON_ITERATIONS):
        _share(scores, biases, plan, mass, largest)
        new_error, mean_mass, slope = 0.0, 0.0, 0.0
        for j in range(n_way):
            missing[j] = target[j] - mass[j]
            if not sure and target[j] > 0:
                slope += missing[j] * (biases[j] - accepted[j])
            if (minimum and biases[j] <= 0 and missing[j] < 0) or (not minimum and target[j] <= 0):
                missing[j] = 0.0
            new_error += abs(missing[j])
            mean_mass += mass[j] / n_way
        new_error /= 2 * n_query
        if new_error <= tol:
            return True
        if sure or new_error < ENOUGH * error or slope > 0:
            if not sure:
                damping = max(damping / DAMPING_FACTOR, first_damping)
            error, sure = new_error, False
            for j in range(n_way):
                accepted[j], accepted_mass[j], step[j] = biases[j], mass[j], missing[j]
                for k in range(j + 1):
                    hessian[j, k] = -_dot(plan[j], plan[k])
                    if not minimum and target[j] > 0 and target[k] > 0:
                        hessian[j, k] += mean_mass  # pins down the direction in which nothing changes
                hessian[j, j] += (1 + damping) * mass[j]
                if (minimum and missing[j] == 0) or (not minimum and target[j] <= 0):
                    hessian[j, j] = 1.0
                    for k in range(j):
                        hessian[j, k] = 0.0
            if minimum:
                for j in range(n_way):
                    for k in range(j):
                        if missing[k] == 0:
                            hessian[j, k] = 0.0
            if solve_in_place(hessian, step):
                longest = 0.0
                for j in range(n_way):
                    longest = max(longest, abs(step[j]))
                shrink = min(1.0, LONGEST_STEP / longest) if longest > 0 else 1.0
                for j in range(n_way):
                    biases[j] = accepted[j] + shrink * step[j]
                    if minimum:
                        biases[j] = max(biases[j], 0.0)
                continue
        damping *= DAMPING_FACTOR
        sure = True
        for j in range(n_way):
            if target[j] > 0:
                biases[j] = accepted[j] + math.log(target[j] / max(accepted_mass[j], 1e-30))
            if minimum:
                biases[j] = max(biases[j], 0.0)
    return False
