"""The classifiers of one episode, compiled for the CPU: all cores, one episode in cache at a time.

The same code works in two spaces. The coordinates of a vector are its features, or (in Gram space)
its inner products with the n = S + Q rows of the episode. Prototypes are means of rows, so their
coordinates are means of the coordinates of rows in either space. Gram space costs n^2 D once and
then nothing that depends on D; feature space costs n W D per step. `prefers_gram` compares them.

Rows 0..S-1 are the support, rows S..n-1 the queries; a Gram matrix is padded with zeros to a
multiple of 8. Classes come first in every array (W, Q): loops then run along the samples.

Rounding errors of MAP grow from step to step as the moves of the prototypes do: both are multiplied
by the same derivative. An error of one unit per step has become `growth` units at the last step,
where growth_t = growth_(t-1) |move_t| / |move_(t-1)| + 1. Where prototypes leave a saddle point
late, it is large.

No library is called, so the order of every sum is fixed when the code is compiled: in one process
an episode has the same bits alone as in any batch, on any thread, wherever its rows lie in memory.
Another process may have linked the code in another way; its numbers can differ by roundings.
"""

import math
from typing import NamedTuple

import numpy as np

from fewlabels.kernels._estimate import blend_plans, estimate_lam, weigh_plans
from fewlabels.kernels._math import Array, accumulate, dot, fast_jit, gram
from fewlabels.kernels._preprocess import center_gram, center_rows, normalize_gram, normalize_rows
from fewlabels.kernels._smoothing import append_neighbor_means, count_votes
from fewlabels.kernels._transport import EMPTY_SCORE, fill_plan, solve_biases
from fewlabels.kernels.codes import (
    ESTIMATE,
    FREE,
    KERNELS,
    KMEANS,
    MASS,
    MINIMUM,
    NEAREST,
    UNIT,
)
from fewlabels.methods.kmeans import MAX_ITERATIONS as KMEANS_ITERATIONS
from fewlabels.methods.refinement import VOTERS

PADDING = 8  # rows of an episode are rounded up to a full vector register
SHORTEST_MOVE = 1e-30  # a divisor where the prototypes stand still
KMEANS_STEPS = 10  # of K-Means in a real episode, about
PLAIN_VOTERS, SMOOTH_VOTERS = VOTERS
FLOAT64_GAP = KERNELS.float64_gap


class Kept(NamedTuple):
    """What the network of `methods.refinement` needs of E episodes; filled in."""

    products: Array  # (E, 2, n, n)
    votes: Array  # (E, 2, Q, n)
    plans: Array  # (E, 3, W, Q): free, without class prior, with equal sizes
    biases: Array  # (E, W) of the last
    numbers: Array  # (E, 3): lam, gain, certainty


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
    kept: Kept | None,
    labels: Array,
    margins: Array,
    growths: Array,
) -> None:
    """Label the queries of E episodes, in place.

    Args:
        x: Row-wise preprocessed vectors of the data set, (N, D).
        products: Inner products of the rows of each episode, (E, n, n) with n padded; (0, n, n) to
            keep none.
        known: Whether `products` are given; else they are filled in, for the next method.
        support: Rows of x, (E, S).
        support_labels: Their ways, (E, S).
        query: Rows of x, (E, Q).
        n_way: W.
        in_gram_space: Whether to work on inner products rather than on vectors.
        steps: Episodic steps, as codes.
        classifier: As code.
        lam: Inverse temperature; 0 to estimate it per episode (in Gram space).
        alpha: Step size of the prototypes.
        n_steps: Number of steps of the prototypes.
        target: Class masses, (E, W), or (1, W) for all episodes; for MASS, MINIMUM and ESTIMATE.
        tol: Fraction of misplaced mass at which a solve ends.
        smoothing: Where class sizes or lam are estimated: neighbors per row (0 for none) and weight
            of the neighbor means. Else None: the estimation is then not compiled, which halves the
            time to compile.
        kept: Out, where class sizes are estimated and the plans are refined; else None.
        labels: Out, (E, Q).
        margins: Out, (E,): smallest difference of the two largest probabilities of a query (of two
            squared distances for NEAREST and KMEANS). Labels are not valid where it is 0 (float32
            cannot tell the neighbors of rows) or -1 (a solve did not converge, float64 cannot tell
            the neighbors of rows, or features or their squares are NaN or infinite).
        growths: Out, (E,): how far errors of one unit per step have grown; 1 without steps.
    """
    n_episodes, n_support = support.shape
    n_query = query.shape[1]
    n = (n_support + n_query + PADDING - 1) // PADDING * PADDING
    rows = np.empty(n_support + n_query, np.int64)
    coordinates = np.empty((n, n) if in_gram_space else (n_support + n_query, x.shape[1]), x.dtype)
    wide = np.empty((n, n) if smoothing is not None else (0, 0), x.dtype)
    plan = np.empty((n_way, n_query), x.dtype)
    free, without_prior = np.empty_like(plan), np.empty_like(plan)
    biases = np.empty(n_way)
    growths.fill(1)
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
        finite = _has_finite_norms(coordinates) if in_gram_space else _gather(x, rows, coordinates)
        if not finite:
            labels[episode].fill(0)
            margins[episode] = -1.0
            continue
        for step in steps:
            if step == UNIT:
                if in_gram_space:
                    normalize_gram(coordinates)
                else:
                    normalize_rows(coordinates)
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
            given = support_labels[episode]
            used_lam, gap = lam, np.inf
            if smoothing is not None:
                if smoothing[0] > 0:
                    gap = append_neighbor_means(
                        coordinates,
                        n_support + n_query,
                        x.shape[1],
                        smoothing[0],
                        smoothing[1],
                        wide,
                    )
                else:
                    _copy(coordinates, wide)
                if not gap >= (1 if x.itemsize == 4 else FLOAT64_GAP):  # rows may be copies
                    labels[episode].fill(0)
                    margins[episode] = 0.0 if x.itemsize == 4 else -1.0
                    continue
                if lam <= 0:
                    used_lam = estimate_lam(wide, given, n_way, n_query, alpha)
            kind = MASS if classifier == ESTIMATE else classifier
            growth = _assign_soft(
                coordinates,
                in_gram_space,
                given,
                n_query,
                n_way,
                kind,
                used_lam,
                alpha,
                n_steps,
                masses,
                tol,
                kept is not None,
                plan,
                biases,
            )
            solved = growth >= 0
            # Two tests: the compiler leaves out a branch only on a test of None alone.
            if smoothing is not None:  # noqa: SIM102
                if solved and classifier == ESTIMATE:
                    gain, certainty = weigh_plans(
                        wide, given, plan, used_lam, alpha, tol, free, without_prior
                    )
                    solved = certainty >= 0
                    if kept is not None:
                        _copy(coordinates, kept.products[episode, 0])
                        _copy(wide, kept.products[episode, 1])
                        _copy(free, kept.plans[episode, 0])
                        _copy(without_prior, kept.plans[episode, 1])
                        _copy(plan, kept.plans[episode, 2])
                        for j in range(n_way):
                            kept.biases[episode, j] = biases[j]
                        kept.numbers[episode, 0] = used_lam
                        kept.numbers[episode, 1] = gain
                        kept.numbers[episode, 2] = certainty
                        rows_used = n_support + n_query
                        votes = kept.votes[episode]
                        count_votes(coordinates, n_support, rows_used, PLAIN_VOTERS, votes[0])
                        count_votes(wide, n_support, rows_used, SMOOTH_VOTERS, votes[1])
                    blend_plans(plan, free, certainty)
            margin = _decide(plan, labels[episode])
            margins[episode] = margin if solved else -1.0
            growths[episode] = growth


@fast_jit
def _has_finite_norms(g: Array) -> bool:
    """Whether all vectors of a Gram matrix have a finite norm."""
    finite = True
    for i in range(len(g)):
        finite &= g[i, i] < np.inf  # NaN is not
    return finite


@fast_jit
def _gather(x: Array, rows: Array, to: Array) -> bool:
    """Copy some rows, (N, D) and (n,) -> (n, D), in place; returns whether norms are finite."""
    finite = True
    for i in range(len(rows)):
        row, copy = x[rows[i]], to[i]
        squared = x.dtype.type(0)
        for k in range(len(row)):
            copy[k] = row[k]
            squared += row[k] * row[k]
        finite &= squared < np.inf
    return finite


@fast_jit
def _copy(x: Array, to: Array) -> None:
    """Fill a matrix from the upper left of another; slices would take seconds to compile."""
    for i in range(to.shape[0]):
        for k in range(to.shape[1]):
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
def _inner_products(
    prototypes: Array, x: Array, in_gram_space: bool, n_support: int, inner: Array
) -> None:
    """<prototype, query>, (W, m) and (n, m) -> (W, Q), in place."""
    n_way, n_query = inner.shape
    if in_gram_space:
        for j in range(n_way):
            for i in range(n_query):
                inner[j, i] = prototypes[j, n_support + i]
        return
    for i in range(n_query):
        row = x[n_support + i]
        for j in range(n_way):
            inner[j, i] = dot(prototypes[j], row)


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
    """Nearest class mean (no rounds), or K-Means from it; returns the smallest margin."""
    n_support = len(support_labels)
    sums = np.empty((n_way, x.shape[1]), x.dtype)
    prototypes = np.empty((n_way, x.shape[1]), x.dtype)
    inner = np.empty((n_way, n_query), x.dtype)
    shots = np.empty(n_way, x.dtype)
    counts = np.empty(n_way, x.dtype)
    squared = np.empty(n_way, x.dtype)  # |prototype|^2
    _support_sums(x, support_labels, sums, shots)
    labels.fill(-1)
    smallest = np.inf
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
        _inner_products(prototypes, x, in_gram_space, n_support, inner)
        changed = False
        for i in range(n_query):
            best, first, second = 0, -np.inf, -np.inf
            for j in range(n_way):
                value = 2 * inner[j, i] - squared[j]
                if value > first:
                    best, first, second = j, value, first
                elif value > second:
                    second = value
            if not abs(first) < np.inf:
                return -1.0
            smallest = min(smallest, first - second)
            changed |= best != labels[i]
            labels[i] = best
        if not changed:
            break
    return smallest


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
    with_biases: bool,
    plan: Array,
    biases: Array,
) -> float:
    """MAP and soft K-Means as `assign_map`: the plan, (W, Q), in place.

    The biases, (W,), too: in Gram space as `assign_map` gives them, if `with_biases`; else MASS
    leaves out the squared norms of the prototypes, which its biases absorb.

    Returns:
        The growth of errors; -1 where a solve did not converge.
    """
    n_support, m = len(support_labels), x.shape[1]
    queries = x[n_support : n_support + n_query]
    sums = np.empty((n_way, m), x.dtype)
    prototypes = np.empty((n_way, m), x.dtype)
    moved = np.empty((n_way, m), x.dtype)  # sums of the new members
    track_weights = in_gram_space and (classifier != MASS or with_biases)  # for |c|^2
    weights = np.zeros((n_way, m if track_weights else 0), x.dtype)  # prototype = weights @ rows
    members = np.zeros((n_way, m if track_weights else 0), x.dtype)  # probability of each row
    inner = np.empty((n_way, n_query), x.dtype)
    scores = np.empty((n_way, n_query), x.dtype)
    shots = np.empty(n_way, x.dtype)
    squared = np.zeros(n_way, x.dtype)
    inverse = np.empty(n_way, x.dtype)
    mass = np.empty(n_way, np.float64)
    biases.fill(0)
    solver = np.empty((n_way + 4, n_way), np.float64)
    largest = np.empty((2, n_query), x.dtype)
    scale, fraction = x.dtype.type(lam), x.dtype.type(alpha)
    _support_sums(x, support_labels, sums, shots)
    for j in range(n_way):
        for k in range(m):
            prototypes[j, k] = sums[j, k] / shots[j]
    if track_weights:
        for i in range(n_support):
            weights[support_labels[i], i] = 1 / shots[support_labels[i]]
            members[support_labels[i], i] = 1
    growth, last_length = 1.0, np.inf
    for step in range(n_steps + 1):
        _inner_products(prototypes, x, in_gram_space, n_support, inner)
        if classifier != MASS:
            for j in range(n_way):
                squared[j] = dot(weights[j] if in_gram_space else prototypes[j], prototypes[j])
        _score(inner, scale, squared, scores)
        if classifier == MASS:
            for j in range(n_way):
                if target[j] <= 0:
                    scores[j].fill(EMPTY_SCORE)
        if classifier == FREE:
            fill_plan(scores, biases, plan, mass, largest)
        elif not solve_biases(
            scores, target, classifier == MINIMUM, tol, biases, plan, mass, solver, largest
        ):
            return -1.0
        if step < n_steps:
            accumulate(plan, queries, sums, moved)
            for j in range(n_way):
                inverse[j] = 1 / (shots[j] + mass[j])
            length = _move(prototypes, moved, inverse, fraction)
            growth = growth * length / last_length + 1
            last_length = max(length, SHORTEST_MOVE)
            if track_weights:
                for j in range(n_way):
                    for i in range(n_query):
                        members[j, n_support + i] = plan[j, i]
                _move(weights, members, inverse, fraction)
    if with_biases and in_gram_space and classifier == MASS:
        for j in range(n_way):
            biases[j] += lam * dot(weights[j], prototypes[j])
    return growth


@fast_jit
def _decide(plan: Array, labels: Array) -> float:
    """Classes of largest probability, (W, Q) -> (Q,), in place; returns the smallest margin."""
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
def _score(inner: Array, lam: float, squared: Array, scores: Array) -> None:
    """Fill scores = lam (2 <c, x> - |c|^2), (W, Q)."""
    for j in range(scores.shape[0]):
        less = squared[j]
        for i in range(scores.shape[1]):
            scores[j, i] = lam * (2 * inner[j, i] - less)


@fast_jit
def _move(x: Array, sums: Array, inverse: Array, fraction: float) -> float:
    """Move the rows of x, (W, m), by a fraction of the way to the means sums * inverse.

    Returns:
        The length of the move.
    """
    squared = x.dtype.type(0)
    for j in range(x.shape[0]):
        scale = inverse[j]
        for k in range(x.shape[1]):
            move = fraction * (sums[j, k] * scale - x[j, k])
            squared += move * move
            x[j, k] += move
    return math.sqrt(squared)
