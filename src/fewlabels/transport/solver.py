"""Entropic transport between samples and classes: who belongs where, when class sizes are prescribed.

The problem (Eq. 3 of the paper, with the sign of the entropy that its results fit):

    minimise over M   sum_ij M_ij L_ij - H(M) / lam
    subject to        row i of M sums to p_i,  column j of M sums to q_j  (or to at least q_j)

Its solution is M_ij = p_i softmax_j(-lam L_ij + g_j): all that the column constraints do is to shift
each class by one bias g_j. The biases minimise the convex function

    F(g) = sum_i p_i logsumexp_j(-lam L_ij + g_j) - q . g
    gradient = column sums - q,   Hessian = diag(column sums) - sum_i p_i pi_i pi_i^T

so that a few damped Newton steps replace the hundreds of Sinkhorn sweeps. A lower bound instead of
an equality adds g_j >= 0 with equality wherever the class is large enough by itself.
`lam` is the inverse temperature: `reg = 1 / lam` in POT.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fewlabels.errors import InputError, unknown_choice

METHODS = ("newton", "sinkhorn")
MAX_ITERATIONS = {"newton": 200, "sinkhorn": 1000}  # 1000: the cap of the authors' script
TOLERANCE = {
    torch.float32: 1e-5,
    torch.float64: 1e-10,
}  # misplaced share of all mass; a few ulps of its sum

# How a Newton step is kept honest. None of these changes the answer, only the way to it.
ENOUGH = 0.9  # a step must reduce the misplaced mass to this part of it, or end where F still falls
FIRST_DAMPING = {
    torch.float32: 1e-6,
    torch.float64: 1e-10,
}  # relative to the class masses: the Hessian's roundings
DAMPING_FACTOR = (
    30.0  # how fast damping grows after a refused step and shrinks after an accepted one
)
LONGEST_STEP = 5.0  # e^5 in odds: farther away the quadratic model of F is worth nothing
EASY_SPREAD = (
    40.0  # scores of one sample that differ by no more need no annealing (the paper's: about 20)
)
ANNEALING_TOLERANCE, ANNEALING_ITERATIONS = 1e-4, 50  # an annealing stage need not be exact


class Plan(NamedTuple):
    """A transport plan and the evidence for it."""

    plan: Tensor  # (E, N, W) mass moved from sample to class
    biases: Tensor  # (E, W) the class biases g; -inf for a class that must stay empty
    n_iterations: Tensor  # (E,)
    converged: Tensor  # (E,) bool
    error: Tensor  # (E,) misplaced share of the mass


def solve_transport(
    cost: Tensor,
    *,
    lam: float,
    row_mass: Tensor | None = None,
    column_mass: Tensor | None = None,
    column_minimum: Tensor | None = None,
    method: str = "newton",
    tol: float | None = None,
    max_iterations: int | None = None,
) -> Plan:
    """The entropic plan of each episode, (E, N, W) -> Plan; each episode converges on its own.

    Args:
        cost: Cost of giving sample i to class j, finite.
        lam: Inverse temperature, positive.
        row_mass: Mass of each sample, (E, N) or (N,), positive; ones by default.
        column_mass: Mass of each class, (E, W) or (W,), not negative, with the total of the rows;
            equal shares by default.
        column_minimum: Instead of `column_mass`: the least mass of each class.
        method: "newton", or "sinkhorn" for the classical alternating scaling.
        tol: Misplaced share of the mass at which an episode stops; 1e-10 in float64, 1e-5 in float32.
        max_iterations: After which an episode is returned with `converged` false.

    >>> solve_transport(torch.tensor([[[0.0, 1.0], [0.4, 1.0]]]), lam=100.0).plan.round(decimals=3)
    tensor([[[1., 0.],
             [0., 1.]]])
    """
    cost = cost if cost.dtype == torch.float64 else cost.float()
    if cost.ndim != 3 or 0 in cost.shape:
        raise InputError(
            f"solve_transport: cost must have shape (episodes, samples, classes), none of them 0, got {tuple(cost.shape)}."
        )
    bad = ~cost.isfinite().all(dim=-1).all(dim=-1)
    if bad.any():
        raise InputError(
            f"solve_transport: cost must be finite, got NaN or infinity in episode {int(bad.nonzero()[0, 0])}."
        )
    check_lam(lam)
    if method not in METHODS:
        raise unknown_choice("method", method, METHODS)
    if column_mass is not None and column_minimum is not None:
        raise InputError("solve_transport: give column_mass or column_minimum, not both.")
    n_episodes, n_samples, n_classes = cost.shape
    if row_mass is None:
        row_mass = cost.new_ones(n_episodes, n_samples)
    row_mass = _fit(row_mass, cost, (n_episodes, n_samples), "row_mass")
    if not ((row_mass > 0) & row_mass.isfinite()).all():
        raise InputError("solve_transport: row_mass must be positive and finite.")
    total = row_mass.sum(dim=-1, keepdim=True)
    minimum = column_minimum is not None
    target = column_minimum if minimum else column_mass
    target = total / n_classes if target is None else target
    target = _fit(
        target, cost, (n_episodes, n_classes), "column_minimum" if minimum else "column_mass"
    )
    check_column_mass(target, total, minimum=minimum)
    return solve_biases(
        -lam * cost,
        target,
        row_mass=row_mass,
        minimum=minimum,
        method=method,
        tol=tol,
        max_iterations=max_iterations,
    )


def _fit(mass: Tensor, cost: Tensor, shape: tuple[int, int], name: str) -> Tensor:
    """Masses in the shape and dtype of the problem, laid out in full: torch adds up an expanded tensor in another order."""
    try:
        return mass.to(cost).expand(shape).contiguous()
    except RuntimeError:
        raise InputError(
            f"solve_transport: {name} must have shape {shape} or {shape[1:]}, got {tuple(mass.shape)}."
        ) from None


def check_lam(lam: float) -> None:
    """Refuse an inverse temperature that is not a positive, finite number."""
    if not 0 < lam < float("inf"):
        raise InputError(f"lam must be a positive, finite number, got {lam}. The paper uses 10.")


def check_column_mass(target: Tensor, total: Tensor, *, minimum: bool) -> None:
    """Refuse class masses, (E, W), that do not fit the total mass of the samples, (E, 1)."""
    if not (target.isfinite() & (target >= 0)).all():
        bad = target[~(target.isfinite() & (target >= 0))]
        raise InputError(f"class masses must be finite and not negative, got {float(bad[0]):g}.")
    sums = target.sum(dim=-1, keepdim=True)
    slack = 1e-4 * total
    if minimum and (sums > total * (1 + 1e-6)).any():
        most, asked = float(total.max()), float(sums.max())
        raise InputError(
            f"the lower bounds of the classes must sum to at most {most:g}, got {asked:g}, {asked - most:g} too many."
        )
    if not minimum and ((sums - total).abs() > slack).any():
        worst = (sums - total).abs().argmax()
        excess = float(sums[worst] - total[worst])
        raise InputError(
            f"class masses must sum to {float(total[worst]):g}, the mass of the samples, got {float(sums[worst]):g}: "
            f"{abs(excess):g} too {'many' if excess > 0 else 'few'}."
        )


def solve_biases(
    scores: Tensor,
    target: Tensor,
    *,
    row_mass: Tensor | None = None,
    minimum: bool = False,
    start: Tensor | None = None,
    method: str = "newton",
    tol: float | None = None,
    max_iterations: int | None = None,
) -> Plan:
    """Class biases that give the classes their mass, (E, N, W) and (E, W) -> Plan; nothing is checked.

    Each iteration proposes a Newton step (or, for "sinkhorn", a scaling sweep). A step that neither
    reduces the misplaced mass nor ends where F still falls along it (F is convex: then it has fallen
    all the way) is taken back, a sweep is made instead, which increases neither, and damping grows.

    Args:
        scores: -lam * cost, up to a constant per row.
        target: Mass of each class, or its lower bound.
        row_mass: As in `solve_transport`.
        minimum: Whether `target` is a lower bound.
        start: Biases to start from, such as those of a slightly different problem.
        method: As in `solve_transport`; so are `tol` and `max_iterations`.
    """
    tol = TOLERANCE[scores.dtype] if tol is None else tol
    max_iterations = MAX_ITERATIONS[method] if max_iterations is None else max_iterations
    row_mass = scores.new_ones(scores.shape[:2]) if row_mass is None else row_mass
    if start is None and method == "newton":
        start = _anneal(scores, target, row_mass, minimum)
    log_row_mass = row_mass.log()[..., None]
    total = row_mass.sum(dim=-1)
    empty = (target == 0) & (not minimum)  # (E, W) classes that must get nothing
    scores = scores.masked_fill(empty[:, None, :], -torch.inf)
    log_target = target.log()

    accepted = scores.new_zeros(target.shape) if start is None else start.masked_fill(empty, 0.0)
    proposal, swept = accepted, accepted
    error = scores.new_full(total.shape, torch.inf)  # of the accepted biases
    sure = torch.ones_like(error, dtype=torch.bool)  # proposals that are taken whatever their error
    first_damping = FIRST_DAMPING[scores.dtype]
    damping = scores.new_full(total.shape, first_damping)
    n_iterations = torch.zeros_like(error, dtype=torch.long)
    converged = torch.zeros_like(sure)
    while True:
        shares = (scores + proposal[:, None, :]).log_softmax(dim=-1)  # (E, N, W) log of pi
        log_mass = (log_row_mass + shares).logsumexp(dim=-2)  # (E, W)
        mass = log_mass.exp()
        missing = target - mass
        slope = -(missing * (proposal - accepted)).sum(dim=-1)  # of F, where the step ends
        if minimum:  # a class above its bound is at fault only as far as its bias is what lifts it
            missing = torch.where((proposal > 0) | (missing > 0), missing, 0.0)
        new_error = missing.abs().sum(dim=-1) / (2 * total)
        running = ~converged
        better = running & (sure | (new_error < ENOUGH * error) | (slope < 0))
        accepted = torch.where(better[:, None], proposal, accepted)
        error = torch.where(better, new_error, error)
        converged = converged | (error <= tol)
        if bool((converged | (n_iterations >= max_iterations)).all()):
            break
        sweep = torch.where(empty, 0.0, proposal + log_target - log_mass)
        sweep = sweep.clamp_min(0.0) if minimum else sweep
        swept = torch.where(better[:, None], sweep, swept)
        if method == "sinkhorn":
            proposal = torch.where(better[:, None], swept, proposal)
        else:
            shrunk = torch.where(sure, damping, (damping / DAMPING_FACTOR).clamp_min(first_damping))
            damping = torch.where(better, shrunk, damping * DAMPING_FACTOR)
            newton = proposal + _newton_step(
                shares.exp(), row_mass, mass, missing, damping, empty, minimum
            )
            newton = newton.clamp_min(0.0) if minimum else newton
            proposal = torch.where(better[:, None], newton, swept)
            sure = ~better
        n_iterations = n_iterations + (~converged & (n_iterations < max_iterations))
    log_plan = (scores + accepted[:, None, :]).log_softmax(dim=-1)
    return Plan(
        row_mass[..., None] * log_plan.exp(),
        accepted.masked_fill(empty, -torch.inf),
        n_iterations,
        converged,
        error,
    )


def _anneal(scores: Tensor, target: Tensor, row_mass: Tensor, minimum: bool) -> Tensor:
    """Biases to start from, (E, W): solved roughly at a low sharpness that is doubled up to the real one."""
    spread = (scores.amax(dim=-1) - scores.amin(dim=-1)).amax(dim=-1)
    n_doublings = (spread / EASY_SPREAD).log2().ceil().clamp_min(0)  # (E,)
    start = scores.new_zeros(target.shape)
    for stage in range(int(n_doublings.max()), 0, -1):
        hard = (n_doublings >= stage).nonzero()[:, 0]  # the others begin later or not at all
        easier = solve_biases(
            scores[hard] / 2.0**stage,
            target[hard],
            row_mass=row_mass[hard],
            minimum=minimum,
            start=start[hard],
            tol=ANNEALING_TOLERANCE,
            max_iterations=ANNEALING_ITERATIONS,
        )
        start[hard] = 2 * easier.biases.nan_to_num(neginf=0.0)
    return start


def _newton_step(
    shares: Tensor,
    row_mass: Tensor,
    mass: Tensor,
    missing: Tensor,
    damping: Tensor,
    empty: Tensor,
    minimum: bool,
) -> Tensor:
    """Damped Newton step of the biases, (E, W): (Hessian + damping diag(mass)) step = missing."""
    hessian = torch.diag_embed((1 + damping[:, None]) * mass) - shares.mT @ (
        row_mass[..., None] * shares
    )
    if minimum:  # classes that rest on g = 0 with enough mass stay there
        fixed = empty | (missing == 0)
        free = (~fixed).to(hessian)
        hessian = hessian * free[:, :, None] * free[:, None, :]
    else:  # adding the same number to all biases changes nothing: pin that direction down
        fixed = empty
        free = (~fixed).to(hessian)
        hessian = hessian + mass.mean(dim=-1)[:, None, None] * free[:, :, None] * free[:, None, :]
    hessian = hessian + torch.diag_embed(fixed.to(hessian))
    step, _ = torch.linalg.solve_ex(hessian, missing[..., None])
    step = step[..., 0]
    shrunk: Tensor = step * (
        LONGEST_STEP / step.abs().amax(dim=-1, keepdim=True).clamp_min(LONGEST_STEP)
    )
    return shrunk
