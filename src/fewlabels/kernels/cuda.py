"""The classifiers of one episode in Gram space, compiled by Triton: one GPU block per episode.

The same mathematics as `kernels.cpu`, on arrays (W, n) whose rows are classes and whose columns are
all rows of the episode, support first. `members` holds class probabilities: ones for the support,
the plan for the queries; prototypes are members @ rows / their mass.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from fewlabels.kernels import codes
from fewlabels.kernels.codes import KERNELS
from fewlabels.methods.kmeans import MAX_ITERATIONS as KMEANS_ITERATIONS
from fewlabels.transport.solver import SOLVER

ROW_LIMIT, CELL_LIMIT = 512, 8192  # rows, and classes times rows, that a block has registers for


def fits(n_way: int, n_rows: int) -> bool:
    """Whether an episode fits into one block."""
    return (
        n_rows <= ROW_LIMIT
        and triton.next_power_of_2(n_way) * triton.next_power_of_2(n_rows) <= CELL_LIMIT
    )


def classify_grams(
    grams: Tensor,
    support_labels: Tensor,
    *,
    n_query: int,
    n_way: int,
    classifier: int,
    lam: float,
    alpha: float,
    n_steps: int,
    target: Tensor,
    tol: float,
) -> tuple[Tensor, Tensor]:
    """Label the queries of E episodes from their preprocessed Gram matrices.

    Args:
        grams: (E, n, n) float32 or float64, support rows first.
        support_labels: (E, S) int32 ways.
        n_query: Q = n - S.
        n_way: W.
        classifier: Code of `kernels.codes`.
        lam: Inverse temperature.
        alpha: Step size of the prototypes.
        n_steps: Number of steps of the prototypes.
        target: Class masses, (E, W) or (1, W).
        tol: Fraction of misplaced mass at which a solve ends.

    Returns:
        Labels, (E, Q) int32, and margins, (E,); a margin is -1 where a solve did not converge or a
        number is NaN or infinite.
    """
    n_episodes, n, _ = grams.shape
    labels = torch.empty((n_episodes, n_query), dtype=torch.int32, device=grams.device)
    margins = torch.empty(n_episodes, dtype=grams.dtype, device=grams.device)
    width, length = max(2, triton.next_power_of_2(n_way)), max(32, triton.next_power_of_2(n))
    _classify_kernel[(n_episodes,)](
        grams,
        support_labels,
        target,
        labels,
        margins,
        torch.empty((n_episodes, length, width), dtype=grams.dtype, device=grams.device),
        n - n_query,
        n_query,
        n_way,
        lam,
        1.0 if classifier == codes.KMEANS else alpha,
        {codes.NEAREST: 0, codes.KMEANS: KMEANS_ITERATIONS}.get(classifier, n_steps),
        tol,
        target.shape[1] if len(target) > 1 else 0,
        SOLVER.damping(grams.dtype),
        KIND=classifier,
        W=width,
        N=length,
        num_warps=max(1, min(8, width * length // 1024)),  # 32 numbers of an array in each thread
    )
    return labels, margins


# Triton reads global numbers only as constexpr.
HARD = tl.constexpr(codes.KMEANS)  # this code and below
FREE, MASS, MINIMUM = (
    tl.constexpr(codes.FREE),
    tl.constexpr(codes.MASS),
    tl.constexpr(codes.MINIMUM),
)
ERROR_DECREASE, STEP_LIMIT = tl.constexpr(SOLVER.error_decrease), tl.constexpr(SOLVER.step_limit)
DAMPING_FACTOR = tl.constexpr(SOLVER.damping_factor)
NEWTON_ITERATIONS = tl.constexpr(KERNELS.newton_iterations)
MASS_FLOOR, EMPTY_SCORE = tl.constexpr(KERNELS.mass_floor), tl.constexpr(KERNELS.empty_score)


@triton.jit
def _plan(scores, biases, is_query):  # type: ignore[no-untyped-def]
    """Softmax over the classes of scores + biases, (W, N), zero outside the queries."""
    shifted = scores + biases[:, None]
    powers = tl.exp(shifted - tl.max(shifted, axis=0)[None, :])
    return tl.where(is_query[None, :], powers / tl.sum(powers, axis=0)[None, :], 0.0)


@triton.jit
def _products(members, g, scratch, n_rows, n, W: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """Members @ G, (W, N) and (n, n) -> (W, N), row by row; members pass through a scratch."""
    way, col = tl.arange(0, W), tl.arange(0, N)
    tl.debug_barrier()  # the last reading of the scratch is over
    tl.store(scratch + col[None, :] * W + way[:, None], members)
    tl.debug_barrier()
    total = tl.zeros([W, N], dtype=members.dtype)
    for k in range(n_rows):
        row = tl.load(g + k * n + col, mask=col < n, other=0.0)
        member = tl.load(scratch + k * W + way)
        total += member[:, None] * row[None, :]
    return total


@triton.jit
def _overlaps(plan, n_way, W: tl.constexpr):  # type: ignore[no-untyped-def]
    """Plan @ plan^T, (W, N) -> (W, W)."""
    way = tl.arange(0, W)
    result = tl.zeros([W, W], dtype=plan.dtype)
    for j in range(n_way):
        one = tl.sum(tl.where((way == j)[:, None], plan, 0.0), axis=0)
        result = tl.where((way == j)[None, :], tl.sum(plan * one[None, :], axis=1)[:, None], result)
    return result


@triton.jit
def _solve(matrix, right, n_way, W: tl.constexpr):  # type: ignore[no-untyped-def]
    """Gauss-Jordan elimination of a symmetric positive definite (W, W) system, without pivoting."""
    i = tl.arange(0, W)
    for k in range(n_way):
        here = i == k
        row = tl.sum(tl.where(here[:, None], matrix, 0.0), axis=0)
        pivot = tl.sum(tl.where(here, row, 0.0), axis=0)
        column = tl.sum(tl.where(here[None, :], matrix, 0.0), axis=1)
        factor = tl.where(here, 0.0, column / pivot)
        value = tl.sum(tl.where(here, right, 0.0), axis=0)
        matrix = matrix - factor[:, None] * row[None, :]
        right = right - factor * value
    diagonal = tl.sum(tl.where(i[:, None] == i[None, :], matrix, 0.0), axis=1)
    return right / diagonal


@triton.jit
def _classify_kernel(  # type: ignore[no-untyped-def]
    grams,
    support_labels,
    target,
    labels,
    margins,
    scratch,
    n_support,
    n_query,
    n_way,
    lam,
    alpha,
    n_steps,
    tol,
    target_stride,
    first_damping,
    KIND: tl.constexpr,
    W: tl.constexpr,
    N: tl.constexpr,
):
    episode = tl.program_id(0).to(tl.int64)
    n = n_support + n_query
    way = tl.arange(0, W)
    col = tl.arange(0, N)
    real_way = way < n_way
    is_query = (col >= n_support) & (col < n)
    g = grams + episode * n * n
    scratch += episode * (N * W)
    given = tl.load(support_labels + episode * n_support + col, mask=col < n_support, other=-1)
    shots = tl.where(way[:, None] == given[None, :], 1.0, 0.0).to(
        grams.dtype.element_ty
    )  # (W, N) members of the support
    members = shots
    mass_wanted = tl.load(target + episode * target_stride + way, mask=real_way, other=0.0)
    allowed = real_way
    if KIND == MASS:
        allowed = mass_wanted > 0.0

    inverse = 1.0 / tl.maximum(tl.sum(members, axis=1), 1.0)
    weights = members * inverse[:, None]  # prototype = weights @ rows
    near = _products(weights, g, scratch, n_support, n, W, N)  # <prototype, row>
    biases = tl.zeros([W], dtype=near.dtype)
    plan = tl.zeros([W, N], dtype=near.dtype)
    zero = tl.sum(biases, axis=0)  # in the precision of the Gram matrix
    # Comparisons are written so that NaN fails them; tl.max, tl.min and tl.maximum drop NaN.
    squared = tl.load(g + col * (n + 1), mask=col < n, other=0.0)
    solved = (tl.sum((squared < float("inf")).to(tl.int32), axis=0) == N).to(tl.int32)
    closest = zero + 1e30
    changed = 1
    step = 0
    while (step <= n_steps) & (changed > 0):
        scores = 2.0 * near
        if KIND != MASS:  # there the bias absorbs it
            scores -= tl.sum(weights * near, axis=1)[:, None]
        if KIND <= HARD:  # the nearest prototype takes all
            decided = real_way[:, None] & is_query[None, :]
            total = tl.sum(tl.sum(tl.where(decided, tl.abs(scores), 0.0), axis=1), axis=0)
            solved = tl.where(total < float("inf"), solved, 0)
            scores = tl.where(real_way[:, None] & (scores == scores), scores, -1e30)
            first = tl.max(scores, axis=0)
            winner = tl.argmax(scores, axis=0)
            second = tl.max(tl.where(way[:, None] == winner[None, :], -1e30, scores), axis=0)
            closest = tl.minimum(closest, tl.min(tl.where(is_query, first - second, 1e30), axis=0))
            chosen = tl.where((way[:, None] == winner[None, :]) & is_query[None, :], 1.0, 0.0).to(
                near.dtype
            )
            changed = (tl.sum(tl.abs(chosen - plan)) > 0.0).to(tl.int32)
            plan = chosen
        else:
            scores = tl.where(allowed[:, None], lam * scores, EMPTY_SCORE)
            if KIND == FREE:
                plan = _plan(scores, biases, is_query)
            else:
                accepted = biases
                accepted_mass = mass_wanted
                error = zero + 1e30
                damping = first_damping + zero
                unconditional = 1
                going = 1
                iteration = 0
                while going > 0:
                    plan = _plan(scores, biases, is_query)
                    mass = tl.sum(plan, axis=1)
                    gap = tl.where(allowed, mass_wanted - mass, 0.0)
                    slope = tl.sum(gap * (biases - accepted), axis=0)
                    missing = gap
                    if KIND == MINIMUM:
                        missing = tl.where((biases > 0.0) | (gap > 0.0), gap, 0.0)
                    new_error = tl.sum(tl.abs(missing), axis=0) / (2.0 * n_query)
                    iteration += 1
                    reached = new_error <= tol
                    going = tl.where(reached | (iteration >= NEWTON_ITERATIONS), 0, 1)
                    solved = tl.where(reached | (going > 0), solved, 0)
                    better = (
                        (unconditional > 0) | (new_error < ERROR_DECREASE * error) | (slope > 0.0)
                    )
                    damping = tl.where(
                        better,
                        tl.where(
                            unconditional > 0,
                            damping,
                            tl.maximum(damping / DAMPING_FACTOR, first_damping),
                        ),
                        damping * DAMPING_FACTOR,
                    )
                    accepted = tl.where(better, biases, accepted)
                    accepted_mass = tl.where(better, mass, accepted_mass)
                    error = tl.where(better, new_error, error)
                    free = allowed
                    if KIND == MINIMUM:
                        free = allowed & (missing != 0.0)
                    both = free[:, None] & free[None, :]
                    hessian = -_overlaps(plan, n_way, W)
                    if KIND == MASS:
                        hessian += tl.sum(mass, axis=0) / n_way
                    diagonal = way[:, None] == way[None, :]
                    hessian = tl.where(both, hessian, 0.0) + tl.where(
                        diagonal, tl.where(free, (1.0 + damping) * mass, 1.0)[:, None], 0.0
                    )
                    move = _solve(hessian, tl.where(free, missing, 0.0), n_way, W)
                    longest = tl.max(tl.abs(move), axis=0)
                    finite = tl.sum(tl.abs(move), axis=0) < 1e30
                    move = move * tl.minimum(1.0, STEP_LIMIT / tl.maximum(longest, 1e-30))
                    scaling = tl.where(
                        allowed & (mass_wanted > 0.0),
                        tl.log(mass_wanted / tl.maximum(accepted_mass, MASS_FLOOR)),
                        0.0,
                    )
                    good = better & finite
                    proposal = accepted + tl.where(good, move, scaling)
                    if KIND == MINIMUM:
                        proposal = tl.maximum(proposal, 0.0)
                    unconditional = tl.where(good, 0, 1)
                    biases = tl.where(going > 0, proposal, biases)
        if step < n_steps:
            members = shots + plan
            inverse = 1.0 / tl.maximum(tl.sum(members, axis=1), 1e-6)
            near += alpha * (_products(members, g, scratch, n, n, W, N) * inverse[:, None] - near)
            if KIND != MASS:
                weights += alpha * (members * inverse[:, None] - weights)
        step += 1

    total = tl.sum(tl.sum(plan, axis=1), axis=0)
    solved = tl.where(total < float("inf"), solved, 0)
    plan = tl.where(plan == plan, plan, 0.0)
    best = tl.argmax(plan, axis=0)
    tl.store(labels + episode * n_query + col - n_support, best.to(tl.int32), mask=is_query)
    if KIND > HARD:
        first = tl.max(plan, axis=0)
        second = tl.max(tl.where(way[:, None] == best[None, :], 0.0, plan), axis=0)
        closest = tl.min(tl.where(is_query, first - second, 1.0), axis=0)
    tl.store(margins + episode, tl.where(solved > 0, closest, -1.0))
