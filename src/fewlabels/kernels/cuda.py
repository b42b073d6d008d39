"""The classifiers of one episode in Gram space, compiled by Triton: one GPU block per episode.

The same mathematics as `kernels.cpu`, on arrays (W, n) whose rows are classes and whose columns are
all rows of the episode, support first. `members` holds class probabilities: ones for the support,
the plan for the queries; prototypes are members @ rows / their mass.

Where class sizes are estimated, three kernels run in turn: what `methods.estimation` finds from the
neighborhood features, MAP with equal class sizes, and the evidence for it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from fewlabels.kernels import codes
from fewlabels.kernels.codes import KERNELS
from fewlabels.methods.estimation import ESTIMATION, free_weight
from fewlabels.methods.kmeans import MAX_ITERATIONS as KMEANS_ITERATIONS
from fewlabels.transport.solver import SOLVER

SEARCHED_CELLS = 512  # numbers that a block of one warp, which never waits, searches at a time
WORDS_PER_THREAD = 32  # of an array, 4 bytes each
ROW_LIMIT, CELL_LIMIT = 512, 8192  # rows, and classes times rows, that a block has registers for


def fits(n_way: int, n_rows: int) -> bool:
    """Whether an episode fits into one block."""
    return (
        n_rows <= ROW_LIMIT
        and triton.next_power_of_2(n_way) * triton.next_power_of_2(n_rows) <= CELL_LIMIT
    )


class Estimates(NamedTuple):
    """The plans of E episodes where class sizes are estimated, and what weighs them."""

    plans: Tensor  # (3, E, W, Q): free, without class prior, with equal sizes
    biases: Tensor  # (E, W) of the last
    lam: Tensor  # (E,)
    gain: Tensor  # (E,); see `estimation.WeighedPlans`
    certainty: Tensor  # (E,), likewise

    def take(self, episodes: Tensor) -> "Estimates":
        """Some episodes."""
        return Estimates(self.plans[:, episodes], *(each[episodes] for each in self[1:]))

    @staticmethod
    def join(parts: Sequence["Estimates"]) -> "Estimates":
        """The episodes of all parts."""
        plans, *others = zip(*parts, strict=True)
        return Estimates(torch.cat(plans, dim=1), *(torch.cat(each) for each in others))


class Classified(NamedTuple):
    """The answer for E episodes."""

    labels: Tensor  # (E, Q) int32
    margins: Tensor  # (E,); -1 where a solve did not converge or a number is NaN or infinite
    estimates: Estimates | None = None  # where class sizes are estimated


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
    wides: Tensor | None = None,
) -> Classified:
    """Label the queries of E episodes from their preprocessed Gram matrices.

    Args:
        grams: (E, n, n) float32 or float64, support rows first.
        support_labels: (E, S) int32 ways.
        n_query: Q = n - S.
        n_way: W.
        classifier: Code of `kernels.codes`.
        lam: Inverse temperature; 0 to estimate it per episode.
        alpha: Step size of the prototypes.
        n_steps: Number of steps of the prototypes.
        target: Class masses, (E, W) or (1, W).
        tol: Fraction of misplaced mass at which a solve ends.
        wides: Gram matrices of the neighborhood features, (E, n, n), where class sizes or lam are
            estimated.
    """
    n_episodes, n, _ = grams.shape
    estimating = classifier == codes.ESTIMATE
    width, length = max(2, triton.next_power_of_2(n_way)), max(32, triton.next_power_of_2(n))
    labels = torch.empty((n_episodes, n_query), dtype=torch.int32, device=grams.device)
    margins = grams.new_empty(n_episodes)
    plans = grams.new_empty(3, n_episodes if estimating else 0, n_way, n_query)
    biases = grams.new_empty(n_episodes if estimating else 0, n_way)
    evidence = grams.new_empty(2, n_episodes)  # for the free plan and for the balanced one
    lams = grams.new_full(
        (n_episodes if wides is not None else 1,), lam if lam > 0 else ESTIMATION.lam_target
    )
    # one number in the precision of the matrices: Triton passes Python's in float32
    alphas = grams.new_full((1,), 1.0 if classifier == codes.KMEANS else alpha)
    scratch = grams.new_empty(n_episodes, length, width)
    sizes = (n - n_query, n_query, n_way)
    solves = (tol, SOLVER.damping(grams.dtype))
    words = width * length * grams.itemsize // 4  # of an array
    n_warps = max(1, min(8, words // (32 * WORDS_PER_THREAD)))
    of_estimate = min(8, n_warps * 2)  # it holds more arrays
    block = {"W": width, "N": length}
    if wides is not None:
        _estimate_kernel[(n_episodes,)](
            *(wides, support_labels, scratch, *sizes),
            *(alphas, lams, plans[0], plans[1], evidence[0]),
            ROUNDS=ESTIMATION.lam_rounds if lam <= 0 and n_way > 1 else 0,
            PLANS=estimating,
            num_warps=of_estimate,
            **block,
        )
    _classify_kernel[(n_episodes,)](
        *(grams, support_labels, scratch, *sizes),
        *(alphas, lams, target, labels, margins, plans[2], biases),
        {codes.NEAREST: 0, codes.KMEANS: KMEANS_ITERATIONS}.get(classifier, n_steps),
        *solves,
        0 if wides is None else 1,
        target.shape[1] if len(target) > 1 else 0,
        KIND=codes.MASS if estimating else classifier,
        PLANS=estimating,
        num_warps=n_warps,
        **block,
    )
    if not estimating:
        return Classified(labels, margins)
    _evidence_kernel[(n_episodes,)](
        *(wides, support_labels, scratch, *sizes),
        *(lams, plans[2], evidence[1]),
        *solves,
        num_warps=n_warps,
        **block,
    )
    mass = plans.sum(dim=-1)  # (3, E, W)
    # the part of `estimation.log_evidence` that Triton has no function for
    rest = torch.lgamma(mass[::2] + (ESTIMATION.prior_count + 1)).sum(dim=-1)
    for_free, for_balanced = evidence + rest
    gain = for_free - for_balanced
    weight = free_weight(mass[1], gain, n_query)
    return _blend(Estimates(plans, biases, lams, gain, weight), margins)


def kth_largest(x: Tensor, ranks: Sequence[int]) -> list[Tensor]:
    """`smoothing.kth_largest`, (E, r, n) -> (E, r) each, by bisection."""
    x = x.contiguous()
    n_rows, n = x.shape[0] * x.shape[1], x.shape[2]
    found = x.new_empty(len(ranks), *x.shape[:2])
    length = max(32, triton.next_power_of_2(n))
    rows = max(1, SEARCHED_CELLS // length)
    for kth, to in zip(ranks, found, strict=True):
        _kth_kernel[(triton.cdiv(n_rows, rows),)](
            x, to, n_rows, n, kth, R=rows, N=length, num_warps=1
        )
    return list(found)


def _blend(found: Estimates, margins: Tensor) -> Classified:
    """The answer by the weighted mean of the free and the balanced plan."""
    plan = torch.lerp(found.plans[2], found.plans[0], found.certainty[:, None, None])
    first, labels = plan.max(dim=1)
    second = plan.scatter(1, labels[:, None], -1.0).amax(dim=1)
    solved = (margins >= 0) & found.certainty.isfinite()
    return Classified(labels.int(), torch.where(solved, (first - second).amin(dim=-1), -1.0), found)


# Triton reads global numbers only as constexpr.
HALVINGS = tl.constexpr(56)  # of the range of a row: down to the last digit of a float64
HARD = tl.constexpr(codes.KMEANS)  # this code and below
FREE, MASS, MINIMUM = (
    tl.constexpr(codes.FREE),
    tl.constexpr(codes.MASS),
    tl.constexpr(codes.MINIMUM),
)
ERROR_DECREASE, STEP_LIMIT = tl.constexpr(SOLVER.error_decrease), tl.constexpr(SOLVER.step_limit)
DAMPING_FACTOR = tl.constexpr(SOLVER.damping_factor)
NEWTON_ITERATIONS = tl.constexpr(KERNELS.newton_iterations)
UNROLLED = tl.constexpr(4)  # rows of a product that are loaded at a time
MASS_FLOOR, EMPTY_SCORE = tl.constexpr(KERNELS.mass_floor), tl.constexpr(KERNELS.empty_score)
FREE_STEPS, NORM_WEIGHT = (
    tl.constexpr(ESTIMATION.free_steps),
    tl.constexpr(ESTIMATION.norm_weight),
)
OWN_WEIGHT_LIMIT, PRIOR_COUNT = (
    tl.constexpr(ESTIMATION.own_weight_limit),
    tl.constexpr(ESTIMATION.prior_count),
)
LAM_TARGET, LAM_FACTOR = (
    tl.constexpr(ESTIMATION.lam_target),
    tl.constexpr(ESTIMATION.lam_factor),
)
LAM_MINIMUM, LAM_MAXIMUM = (
    tl.constexpr(ESTIMATION.lam_minimum),
    tl.constexpr(ESTIMATION.lam_maximum),
)
CLASS_FLOOR = tl.constexpr(ESTIMATION.mass_floor)


@triton.jit
def find_kth(values, kth, used):  # type: ignore[no-untyped-def]
    """The k-th largest number of each row by bisection, (R, N) -> (R,); `used` tells which rows."""
    high = tl.max(tl.where(values > -float("inf"), tl.abs(values), 0.0), axis=1)
    low = -2.0 * high - 1.0  # below all but -infinity
    done = tl.where(used, 0, 1)
    step, going = 0, 1
    while (step < HALVINGS) & (going > 0):
        middle = (low + high) * 0.5
        count = tl.sum((values > middle[:, None]).to(tl.int32), axis=1)
        low = tl.where(count >= kth, middle, low)
        high = tl.where(count >= kth, high, middle)
        done = tl.where(count == kth, 1, done)
        going = 1 - tl.min(done, axis=0)
        step += 1
    return tl.min(tl.where(values > low[:, None], values, float("inf")), axis=1)


@triton.jit
def _kth_kernel(x, found, n_rows, n, kth, R: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    col = tl.arange(0, N)
    used = (row < n_rows)[:, None] & (col < n)[None, :]
    values = tl.load(x + row[:, None] * n + col[None, :], mask=used, other=-float("inf"))
    last = find_kth(values, kth, row < n_rows)
    tl.store(found + row, last, mask=row < n_rows)


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
    for first in range(0, n_rows, UNROLLED):
        for offset in tl.static_range(UNROLLED):
            k = first + offset
            row = tl.load(g + k * n + col, mask=(col < n) & (k < n_rows), other=0.0)
            member = tl.load(scratch + k * W + way, mask=(way < W) & (k < n_rows), other=0.0)
            total += member[:, None] * row[None, :]
    return total


@triton.jit
def _overlaps(plan, other, n_way, W: tl.constexpr):  # type: ignore[no-untyped-def]
    """Plan @ other^T, (W, N) and (W, N) -> (W, W)."""
    way = tl.arange(0, W)
    result = tl.zeros([W, W], dtype=plan.dtype)
    for j in range(n_way):
        one = tl.sum(tl.where((way == j)[:, None], other, 0.0), axis=0)
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
def _balance(  # type: ignore[no-untyped-def]
    scores,
    biases,
    mass_wanted,
    allowed,
    is_query,
    n_query,
    n_way,
    tol,
    first_damping,
    solved,
    KIND: tl.constexpr,
    W: tl.constexpr,
):
    """`transport.solver.solve_biases`: plan, (W, N), biases, (W,), and `solved`, 0 if it failed."""
    way = tl.arange(0, W)
    zero = tl.sum(tl.zeros([W], dtype=scores.dtype), axis=0)
    plan = tl.zeros_like(scores)
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
        better = (unconditional > 0) | (new_error < ERROR_DECREASE * error) | (slope > 0.0)
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
        if going > 0:  # the next biases
            free = allowed
            if KIND == MINIMUM:
                free = allowed & (missing != 0.0)
            both = free[:, None] & free[None, :]
            hessian = -_overlaps(plan, plan, n_way, W)
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
            biases = proposal
    return plan, biases, solved


@triton.jit
def _means(members, h, scratch, n, W: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """<c, row> for the class means c of the members, (W, N), and the class masses, (W,)."""
    total = tl.maximum(tl.sum(members, axis=1), MASS_FLOOR)
    return _products(members, h, scratch, n, n, W, N) / total[:, None], total


@triton.jit
def _free_plan(  # type: ignore[no-untyped-def]
    h,
    scratch,
    shots,
    squared,
    lam,
    alpha,
    n_support,
    n,
    n_way,
    with_prior,
    W: tl.constexpr,
    N: tl.constexpr,
):
    """`estimation.free_plan`, (W, N)."""
    way, col = tl.arange(0, W), tl.arange(0, N)
    real_way, is_query = way < n_way, (col >= n_support) & (col < n)
    count = tl.maximum(tl.sum(shots, axis=1), 1.0)
    weights = shots / count[:, None]
    near = _products(weights, h, scratch, n_support, n, W, N)
    between = tl.sum(weights * near, axis=1) - tl.sum(shots * squared[None, :], axis=1) / (
        count * count
    )
    pairs = tl.maximum(tl.sum(count - 1.0, axis=0), 1.0)
    average = tl.sum(between * count, axis=0) / pairs
    norms = NORM_WEIGHT * (between + average / count)
    own = tl.zeros_like(near)
    biases = tl.zeros_like(norms)
    plan = tl.zeros_like(near)
    for step in range(FREE_STEPS + 1):
        inner = _without_own(near, own, squared)
        scores = tl.where(real_way[:, None], lam * (2.0 * inner - norms[:, None]), EMPTY_SCORE)
        plan = _plan(scores, biases, is_query)
        biases = tl.where(with_prior, tl.log(tl.sum(plan, axis=1) + PRIOR_COUNT), 0.0)
        if step < FREE_STEPS:
            means, total = _means(shots + plan, h, scratch, n, W, N)
            near += alpha * (means - near)
            own += alpha * (plan / total[:, None] - own)
    return plan


@triton.jit
def _without_own(near, own, squared):  # type: ignore[no-untyped-def]
    """<c', row> with c' the prototype c without the row, of weight `own` in c, (W, N)."""
    return (near - own * squared[None, :]) / tl.maximum(1.0 - own, OWN_WEIGHT_LIMIT)


@triton.jit
def _gaussian_lam(  # type: ignore[no-untyped-def]
    h, scratch, shots, squared, plan, n_support, n, n_way, W: tl.constexpr, N: tl.constexpr
):
    """`estimation._gaussian_lam`."""
    way, col = tl.arange(0, W), tl.arange(0, N)
    used = (way < n_way)[:, None] & ((col >= n_support) & (col < n))[None, :]
    near, total = _means(shots + plan, h, scratch, n, W, N)
    inner = tl.where(used, _without_own(near, plan / total[:, None], squared), 0.0)
    inner = tl.where(used, inner - (tl.sum(inner, axis=0) / n_way)[None, :], 0.0)
    mass = tl.where(way < n_way, tl.maximum(tl.sum(plan, axis=1), CLASS_FLOOR), 0.0)
    means = _overlaps(plan, inner, n_way, W) / tl.maximum(mass, CLASS_FLOOR)[:, None]
    explained = tl.sum(tl.sum(mass[:, None] * means * means, axis=1), axis=0)
    within = (tl.sum(tl.sum(inner * inner, axis=1), axis=0) - explained) / (n - n_support)
    diagonal = way[:, None] == way[None, :]
    own = tl.sum(tl.where(diagonal, means, 0.0), axis=1)
    weight = tl.where(diagonal, 0.0, mass[:, None] * mass[None, :])
    # the sum over pairs of m_aa - m_ab + m_bb - m_ba, each of which is in it twice
    apart = 2.0 * tl.sum(tl.sum(weight * (own[:, None] - means), axis=1), axis=0)
    weights = tl.sum(tl.sum(weight, axis=1), axis=0)
    return apart / weights * ((n_way - 1) / 4.0) / within


@triton.jit
def _evidence(scores, biases, plan, shots, is_query):  # type: ignore[no-untyped-def]
    """`estimation.log_evidence` but for the log gamma of the class sizes."""
    shifted = scores + biases[:, None]
    top = tl.max(shifted, axis=0)
    fits = top + tl.log(tl.sum(tl.exp(shifted - top[None, :]), axis=0))
    labelled = tl.sum(tl.sum(tl.where(shots > 0.0, scores, 0.0), axis=1), axis=0)
    fit = tl.sum(tl.where(is_query, fits, 0.0), axis=0)
    return labelled + fit - tl.sum(tl.sum(plan, axis=1) * biases, axis=0)


@triton.jit
def _scores(  # type: ignore[no-untyped-def]
    h, scratch, shots, plan, lam, n, n_way, W: tl.constexpr, N: tl.constexpr
):
    """Scores lam (2 <c, row> - |c|^2) for the class means c of support and plan, (W, N)."""
    members = shots + plan
    near, total = _means(members, h, scratch, n, W, N)
    norms = tl.sum(members * near, axis=1) / total
    real_way = tl.arange(0, W) < n_way
    return tl.where(real_way[:, None], lam * (2.0 * near - norms[:, None]), EMPTY_SCORE)


@triton.jit
def _shots(support_labels, episode, n_support, like, W: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """Members of the support, (W, N) zeros and ones."""
    way, col = tl.arange(0, W), tl.arange(0, N)
    given = tl.load(support_labels + episode * n_support + col, mask=col < n_support, other=-1)
    return tl.where(way[:, None] == given[None, :], 1.0, 0.0).to(like.dtype.element_ty)


@triton.jit
def _estimate_kernel(  # type: ignore[no-untyped-def]
    wides,
    support_labels,
    scratch,
    n_support,
    n_query,
    n_way,
    alphas,
    lams,
    plans,
    plans_without_prior,
    evidence,
    ROUNDS: tl.constexpr,
    PLANS: tl.constexpr,
    W: tl.constexpr,
    N: tl.constexpr,
):
    """Find lam, the free plan and its evidence, and the plan without class prior."""
    episode = tl.program_id(0).to(tl.int64)
    n = n_support + n_query
    way, col = tl.arange(0, W), tl.arange(0, N)
    real_way, is_query = way < n_way, (col >= n_support) & (col < n)
    h = wides + episode * n * n
    scratch += episode * (N * W)
    shots = _shots(support_labels, episode, n_support, wides, W, N)
    squared = tl.load(h + col * (n + 1), mask=col < n, other=0.0)
    alpha = tl.load(alphas)
    lam = tl.load(lams + episode)
    plan = tl.zeros_like(shots)
    place = (episode * n_way + way[:, None]) * n_query + (col - n_support)[None, :]
    used = real_way[:, None] & is_query[None, :]
    # One loop for `ROUNDS` fits that find lam, the fit without class prior and the one with it: the
    # compiler would take minutes for several copies of the fit.
    for fit in range(ROUNDS + 2 if PLANS else ROUNDS):
        plan = _free_plan(
            h, scratch, shots, squared, lam, alpha, n_support, n, n_way, fit != ROUNDS, W, N
        )
        if ROUNDS > 0:
            if fit < ROUNDS:
                found = LAM_FACTOR * _gaussian_lam(
                    h, scratch, shots, squared, plan, n_support, n, n_way, W, N
                )
                known = (found > 0.0) & (found < float("inf"))
                found = tl.minimum(tl.maximum(found, LAM_MINIMUM), LAM_MAXIMUM)
                lam = tl.where(known, found, LAM_TARGET)
            if fit == ROUNDS - 1:
                lam = tl.sqrt(LAM_TARGET * lam)
        if PLANS:
            tl.store(plans_without_prior + place, plan, mask=used & (fit == ROUNDS))
    tl.store(lams + episode, lam)
    if PLANS:
        tl.store(plans + place, plan, mask=used)
        scores = _scores(h, scratch, shots, plan, lam, n, n_way, W, N)
        biases = tl.log(tl.sum(plan, axis=1) + PRIOR_COUNT)
        tl.store(evidence + episode, _evidence(scores, biases, plan, shots, is_query))


@triton.jit
def _evidence_kernel(  # type: ignore[no-untyped-def]
    wides,
    support_labels,
    scratch,
    n_support,
    n_query,
    n_way,
    lams,
    plans,
    evidence,
    tol,
    first_damping,
    W: tl.constexpr,
    N: tl.constexpr,
):
    """The evidence for the balanced plan; NaN where a solve failed."""
    episode = tl.program_id(0).to(tl.int64)
    n = n_support + n_query
    way, col = tl.arange(0, W), tl.arange(0, N)
    real_way, is_query = way < n_way, (col >= n_support) & (col < n)
    h = wides + episode * n * n
    scratch += episode * (N * W)
    shots = _shots(support_labels, episode, n_support, wides, W, N)
    plan = tl.load(
        plans + (episode * n_way + way[:, None]) * n_query + (col - n_support)[None, :],
        mask=real_way[:, None] & is_query[None, :],
        other=0.0,
    )
    lam = tl.load(lams + episode)
    scores = _scores(h, scratch, shots, plan, lam, n, n_way, W, N)
    mass = tl.sum(plan, axis=1)
    _, biases, solved = _balance(
        scores,
        tl.zeros_like(mass),
        mass,
        mass > 0.0,
        is_query,
        n_query,
        n_way,
        tol,
        first_damping,
        (tl.sum(mass, axis=0) > 0.0).to(tl.int32),  # NaN is not
        MASS,
        W,
    )
    found = _evidence(scores, biases, plan, shots, is_query)
    tl.store(evidence + episode, tl.where(solved > 0, found, float("nan")))


@triton.jit
def _classify_kernel(  # type: ignore[no-untyped-def]
    grams,
    support_labels,
    scratch,
    n_support,
    n_query,
    n_way,
    alphas,
    lams,
    target,
    labels,
    margins,
    plans,
    plan_biases,
    n_steps,
    tol,
    first_damping,
    lam_stride,
    target_stride,
    KIND: tl.constexpr,
    PLANS: tl.constexpr,
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
    shots = _shots(support_labels, episode, n_support, grams, W, N)
    members = shots
    alpha = tl.load(alphas)
    lam = tl.load(lams + episode * lam_stride)
    mass_wanted = tl.load(target + episode * target_stride + way, mask=real_way, other=0.0)
    allowed = real_way
    if KIND == MASS:
        allowed = mass_wanted > 0.0

    inverse = 1.0 / tl.maximum(tl.sum(members, axis=1), 1.0)
    weights = members * inverse[:, None]  # prototype = weights @ rows
    near = _products(weights, g, scratch, n_support, n, W, N)  # <prototype, row>
    norms = tl.sum(weights * near, axis=1)  # |prototype|^2; kept up to date only for PLANS
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
                plan, biases, solved = _balance(
                    scores,
                    biases,
                    mass_wanted,
                    allowed,
                    is_query,
                    n_query,
                    n_way,
                    tol,
                    first_damping,
                    solved,
                    KIND,
                    W,
                )
        if step < n_steps:
            members = shots + plan
            inverse = 1.0 / tl.maximum(tl.sum(members, axis=1), 1e-6)
            means = _products(members, g, scratch, n, n, W, N) * inverse[:, None]
            if PLANS:  # |(1 - alpha) c + alpha m|^2 with m the class mean
                across = tl.sum(members * near, axis=1) * inverse
                of_means = tl.sum(members * means, axis=1) * inverse
                norms = (1.0 - alpha) * ((1.0 - alpha) * norms + 2.0 * alpha * across)
                norms += alpha * alpha * of_means
            near += alpha * (means - near)
            if KIND != MASS:
                weights += alpha * (members * inverse[:, None] - weights)
        step += 1

    total = tl.sum(tl.sum(plan, axis=1), axis=0)
    solved = tl.where(total < float("inf"), solved, 0)
    plan = tl.where(plan == plan, plan, 0.0)
    best = tl.argmax(plan, axis=0)
    if PLANS:
        tl.store(
            plans + (episode * n_way + way[:, None]) * n_query + (col - n_support)[None, :],
            plan,
            mask=real_way[:, None] & is_query[None, :],
        )
        # of scores with the squared norms of the prototypes, as `methods.map` gives them
        full = biases + lam * norms
        tl.store(plan_biases + episode * n_way + way, full, mask=real_way)
    tl.store(labels + episode * n_query + col - n_support, best.to(tl.int32), mask=is_query)
    if KIND > HARD:
        first = tl.max(plan, axis=0)
        second = tl.max(tl.where(way[:, None] == best[None, :], 0.0, plan), axis=0)
        closest = tl.min(tl.where(is_query, first - second, 1.0), axis=0)
    tl.store(margins + episode, tl.where(solved > 0, closest, -1.0))
