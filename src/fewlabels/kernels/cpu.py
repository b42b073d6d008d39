"""The classifiers of one episode, compiled for the CPU: all cores, one episode in cache at a time.

Two spaces, one code. A vector has coordinates: its features, or (Gram space) its inner products with
the n = S + Q rows of the episode. Prototypes are means of rows, so their coordinates are means of the
rows' coordinates in either space. Gram space costs n^2 D once and then nothing that depends on D;
feature space costs n W D a step. `prefers_gram` counts which is less.

Rows 0..S-1 are the support, rows S..n-1 the queries; a Gram matrix is padded with zeros to a multiple of 8.
Classes come first in every array (W, Q): loops then run along the samples.
"""

import numpy as np

from fewlabels.kernels._estimate import estimate_lam, weigh
from fewlabels.kernels._math import Array, accumulate, dot, fast_jit, gram
from fewlabels.kernels._preprocess import center_gram, center_rows, normalise_gram, normalise_rows
from fewlabels.kernels._smoothing import beside_neighbors
from fewlabels.kernels._transport import NOTHING, share, solve_biases
from fewlabels.kernels.codes import (
    ESTIMATE,
    FREE,
    KMEANS,
    KMEANS_ITERATIONS,
    MASS,
    MINIMUM,
    NEAREST,
    UNIT,
)

PADDING = 8  # rows of an episode are rounded up to a full vector register
KMEANS_STEPS = 10  # that K-Means takes as a rule


def prefers_gram(n_rows: int, dim: int, n_way: int, classifier: int, n_steps: int) -> bool:
    """Whether Gram space needs fewer products than feature space."""
    steps = {NEAREST: 1, KMEANS: KMEANS_STEPS}.get(classifier, n_steps + 1)
    return n_rows * (dim / 2 + steps * n_way) <= 2 * n_way * dim * steps


def pad(n_rows: int) -> int:
    """Rows of an episode's Gram matrix."""
    return (n_rows + PADDING - 1) // PADDING * PADDING


@fast_jit
def classify_episodes(
    x: Array,
    products: Array,
    known: bool,
    support: Array,
    support_labels: Array,
    query: Array,
    n_way: int,
    in_gram_space: bool,
    steps: Array,
    classifier: int,
    lam: float,
    alpha: float,
    n_steps: int,
    target: Array,
    tol: float,
    smoothing: tuple[int, float] | None,
    labels: Array,
    margins: Array,
) -> None:
    """Label the queries of E episodes, in place.

    Args:
        x: Row-wise preprocessed vectors of the data set, (N, D).
        products: Inner products of each episode's rows, (E, n, n) with n padded; (0, n, n) to keep none.
        known: Whether `products` are given; else they are filled in, for the next method.
        support: Rows of x, (E, S); `support_labels` their ways, `query` likewise (E, Q).
        support_labels: (E, S).
        query: (E, Q).
        n_way: W.
        in_gram_space: Whether to work on inner products rather than on the vectors themselves.
        steps: Episodic steps, codes above.
        classifier: Code above.
        lam: Inverse temperature, `alpha` and `n_steps` as in `assign_map`; 0 for one from each episode's features (in Gram space).
        alpha: Step size of the centers.
        n_steps: Steps of the centers.
        target: Class masses, (E, W), or (1, W) for all episodes; used by MASS and MINIMUM.
        tol: Misplaced share of the mass at which a solve ends.
        smoothing: Where sizes or sharpness are estimated, how many neighbours a row has (0 for none) and the weight of its
            smoothed copy. None where nothing is: what estimates is then not even compiled, which halves the time of it.
        labels: Out, (E, Q).
        margins: Out, (E,): by how much the closest decision was decided; -1 where a solve did not converge.
    """
    n_episodes, n_support = support.shape
    n_query = query.shape[1]
    n = (n_support + n_query + PADDING - 1) // PADDING * PADDING
    rows = np.empty(n_support + n_query, np.int64)
    coordinates = np.empty((n, n) if in_gram_space else (n_support + n_query, x.shape[1]), x.dtype)
    wide = np.empty((n, n) if smoothing is not None else (0, 0), x.dtype)
    plan = np.empty((n_way, n_query), x.dtype)
    for episode in range(n_episodes):
        for i in range(n_support):
            rows[i] = support[episode, i]
        for i in range(n_query):
            rows[n_support + i] = query[episode, i]
        if in_gram_space and known:
            _copy(products[episode], coordinates)
        elif in_gram_space:
            gram(x, rows, coordinates)
            if len(products) > 0:
                _copy(coordinates, products[episode])
        else:
            for i in range(len(rows)):
                for k in range(x.shape[1]):
                    coordinates[i, k] = x[rows[i], k]
        for step in steps:
            if step == UNIT:
                if in_gram_space:
                    normalise_gram(coordinates)
                else:
                    normalise_rows(coordinates)
            elif in_gram_space:
                center_gram(coordinates, n_support, n_query, step)
            else:
                center_rows(coordinates, n_support, n_query, step)
        masses = target[min(episode, len(target) - 1)]
        if classifier in (NEAREST, KMEANS):
            rounds = KMEANS_ITERATIONS if classifier == KMEANS else 0
            margins[episode] = _assign_hard(
                coordinates,
                in_gram_space,
                support_labels[episode],
                n_query,
                n_way,
                rounds,
                labels[episode],
            )
        else:
            shown = support_labels[episode]
            sharp, closest = lam, np.inf
            if smoothing is not None:
                if smoothing[0] > 0:
                    closest = beside_neighbors(
                        coordinates,
                        n_support + n_query,
                        x.shape[1],
                        smoothing[0],
                        smoothing[1],
                        wide,
                    )
                else:
                    _copy(coordinates, wide)
                if lam <= 0:
                    sharp = estimate_lam(wide, shown, n_way, n_query, alpha)
            kind = MASS if classifier == ESTIMATE else classifier
            solved = _assign_soft(
                coordinates,
                in_gram_space,
                shown,
                n_query,
                n_way,
                kind,
                sharp,
                alpha,
                n_steps,
                masses,
                tol,
                plan,
            )
            if smoothing is not None:  # noqa: SIM102 - the compiler leaves out a branch only on this test alone
                if solved and classifier == ESTIMATE:
                    solved = weigh(wide, shown, plan, sharp, alpha, tol) >= 0
            margin = _decide(plan, labels[episode])
            if closest < 1 and x.itemsize == 4:
                margin = 0.0
            margins[episode] = margin if solved else -1.0


@fast_jit
def _copy(x: Array, to: Array) -> None:
    """Fill a matrix with another; assigning slices would take seconds to compile."""
    for i in range(x.shape[0]):
        for k in range(x.shape[1]):
            to[i, k] = x[i, k]


@fast_jit
def _support_sums(x: Array, support_labels: Array, sums: Array, shots: Array) -> None:
    """Sum of each class's support, (W, m), and its number of shots, (W,)."""
    sums.fill(0)
    shots.fill(0)
    for i in range(len(support_labels)):
        shots[support_labels[i]] += 1
        to, row = sums[support_labels[i]], x[i]
        for k in range(len(row)):
            to[k] += row[k]


@fast_jit
def _near(prototypes: Array, x: Array, in_gram_space: bool, n_support: int, near: Array) -> None:
    """<prototype, query>, (W, m) and (n, m) -> (W, Q): a coordinate in Gram space, a product in feature space."""
    n_way, n_query = near.shape
    if in_gram_space:
        for j in range(n_way):
            for i in range(n_query):
                near[j, i] = prototypes[j, n_support + i]
        return
    for i in range(n_query):
        row = x[n_support + i]
        for j in range(n_way):
            near[j, i] = dot(prototypes[j], row)


@fast_jit
def _assign_hard(
    x: Array,
    in_gram_space: bool,
    support_labels: Array,
    n_query: int,
    n_way: int,
    rounds: int,
    labels: Array,
) -> float:
    """Nearest class mean (no rounds), or K-Means from it until nothing changes; returns the closest call."""
    n_support = len(support_labels)
    sums = np.empty((n_way, x.shape[1]), x.dtype)
    prototypes = np.empty((n_way, x.shape[1]), x.dtype)
    near = np.empty((n_way, n_query), x.dtype)
    shots = np.empty(n_way, x.dtype)
    counts = np.empty(n_way, x.dtype)
    squared = np.empty(n_way, x.dtype)  # |prototype|^2
    _support_sums(x, support_labels, sums, shots)
    labels.fill(-1)
    closest = np.inf
    for _ in range(rounds + 1):
        for j in range(n_way):
            counts[j] = shots[j]
            for k in range(x.shape[1]):
                prototypes[j, k] = sums[j, k]
        for i in range(n_query):
            if labels[i] >= 0:
                counts[labels[i]] += 1
                to, row = prototypes[labels[i]], x[n_support + i]
                for k in range(len(row)):
                    to[k] += row[k]
        squared.fill(0)
        for j in range(n_way):
            inverse = x.dtype.type(1 / counts[j])
            for k in range(x.shape[1]):
                prototypes[j, k] *= inverse
            if not in_gram_space:
                squared[j] = dot(prototypes[j], prototypes[j])
        if in_gram_space:  # |c|^2 is the mean of <c, member>
            for i in range(n_support):
                squared[support_labels[i]] += (
                    prototypes[support_labels[i], i] / counts[support_labels[i]]
                )
            for i in range(n_query):
                if labels[i] >= 0:
                    squared[labels[i]] += prototypes[labels[i], n_support + i] / counts[labels[i]]
        _near(prototypes, x, in_gram_space, n_support, near)
        changed = False
        for i in range(n_query):
            best, first, second = 0, -np.inf, -np.inf
            for j in range(n_way):
                value = 2 * near[j, i] - squared[j]
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
    x: Array,
    in_gram_space: bool,
    support_labels: Array,
    n_query: int,
    n_way: int,
    classifier: int,
    lam: float,
    alpha: float,
    n_steps: int,
    target: Array,
    tol: float,
    plan: Array,
) -> bool:
    """MAP and soft K-Means, as `assign_map`: fills the plan, (W, Q); returns whether it was solved."""
    n_support, m = len(support_labels), x.shape[1]
    queries = x[n_support : n_support + n_query]
    sums = np.empty((n_way, m), x.dtype)
    prototypes = np.empty((n_way, m), x.dtype)
    moved = np.empty((n_way, m), x.dtype)  # sums of the new members
    track_weights = (
        in_gram_space and classifier != MASS
    )  # for |c|^2, which for MASS the bias absorbs
    weights = np.zeros((n_way, m if track_weights else 0), x.dtype)  # prototype = weights @ rows
    members = np.zeros(
        (n_way, m if track_weights else 0), x.dtype
    )  # share of each row in the class
    near = np.empty((n_way, n_query), x.dtype)
    scores = np.empty((n_way, n_query), x.dtype)
    shots = np.empty(n_way, x.dtype)
    squared = np.zeros(n_way, x.dtype)
    inverse = np.empty(n_way, x.dtype)
    mass = np.empty(n_way, np.float64)
    biases = np.zeros(n_way, np.float64)
    solver = np.empty((n_way + 4, n_way), np.float64)
    largest = np.empty((2, n_query), x.dtype)
    sharp, move = x.dtype.type(lam), x.dtype.type(alpha)
    _support_sums(x, support_labels, sums, shots)
    for j in range(n_way):
        for k in range(m):
            prototypes[j, k] = sums[j, k] / shots[j]
    if track_weights:
        for i in range(n_support):
            weights[support_labels[i], i] = 1 / shots[support_labels[i]]
            members[support_labels[i], i] = 1
    for step in range(n_steps + 1):
        _near(prototypes, x, in_gram_space, n_support, near)
        if classifier != MASS:
            for j in range(n_way):
                squared[j] = dot(weights[j] if in_gram_space else prototypes[j], prototypes[j])
        _score(near, sharp, squared, scores)
        if classifier == MASS:
            for j in range(n_way):
                if target[j] <= 0:
                    scores[j].fill(NOTHING)
        if classifier == FREE:
            share(scores, biases, plan, mass, largest)
        elif not solve_biases(
            scores, target, classifier == MINIMUM, tol, biases, plan, mass, solver, largest
        ):
            return False
        if step < n_steps:
            accumulate(plan, queries, sums, moved)
            for j in range(n_way):
                inverse[j] = 1 / (shots[j] + mass[j])
            _approach(prototypes, moved, inverse, move)
            if track_weights:
                for j in range(n_way):
                    for i in range(n_query):
                        members[j, n_support + i] = plan[j, i]
                _approach(weights, members, inverse, move)
    return True


@fast_jit
def _decide(plan: Array, labels: Array) -> float:
    """The largest share of each query, (W, Q) -> (Q,), in place; returns the smallest margin."""
    n_way, n_query = plan.shape
    smallest = 1.0
    for i in range(n_query):
        best, first, second = 0, plan.dtype.type(-1), plan.dtype.type(-1)
        for j in range(n_way):
            if plan[j, i] > first:
                best, first, second = j, plan[j, i], first
            elif plan[j, i] > second:
                second = plan[j, i]
        labels[i] = best
        smallest = min(smallest, first - max(second, 0))
    return smallest


@fast_jit
def _score(near: Array, sharp: float, squared: Array, scores: Array) -> None:
    """Fill scores = lam (2 <c, x> - |c|^2), (W, Q)."""
    for j in range(scores.shape[0]):
        less = squared[j]
        for i in range(scores.shape[1]):
            scores[j, i] = sharp * (2 * near[j, i] - less)


@fast_jit
def _approach(x: Array, sums: Array, inverse: Array, move: float) -> None:
    """Move each row of x, (W, m), by the share `move` towards the mean sums * inverse."""
    for j in range(x.shape[0]):
        scale = inverse[j]
        for k in range(x.shape[1]):
            x[j, k] += move * (sums[j, k] * scale - x[j, k])
