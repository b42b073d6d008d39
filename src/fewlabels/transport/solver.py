"""Entropic optimal transport between samples and classes of prescribed sizes.

The problem (Eq. 3 of the paper, with the sign of the entropy that its results fit):

    minimize over M   sum_ij M_ij L_ij - H(M) / lam
    subject to        row i of M sums to p_i,  column j of M sums to q_j  (or to at least q_j)

Its solution is M_ij = p_i softmax_j(-lam L_ij + g_j): the column constraints add one bias g_j per
class. The biases minimize the convex function

    F(g) = sum_i p_i logsumexp_j(-lam L_ij + g_j) - q . g
    gradient = column sums - q,   Hessian = diag(column sums) - sum_i p_i pi_i pi_i^T

so a few damped Newton steps replace hundreds of Sinkhorn iterations (Sinkhorn and Knopp, 1967;
Cuturi, 2013). A lower bound instead of an equality adds the constraint g_j >= 0, with g_j = 0 where
the class is larger than its bound. `lam` is the inverse temperature: `reg = 1 / lam` in POT.

A batch gives each episode the plan that it gets alone, within 1e-3 in float32 and 1e-6 in float64:
the libraries that multiply matrices may add in another order.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fewlabels.errors import InputError, unknown_choice

METHODS = ("newton", "sinkhorn")


@dataclass(frozen=True)
class SolverConstants:
    """Hand-set numbers of the solver.

    The tolerances bound the error of the solution. All others change only how fast it is found.
    """

    float32_tolerance: float = 1e-5  # fraction of the total mass; a few roundings of its sum
    float64_tolerance: float = 1e-10  # likewise
    newton_iterations: int = 200  # limit per solve; far above what any tested problem needed
    sinkhorn_iterations: int = 1000  # limit per solve; the limit of the authors' script
    error_decrease: float = 0.9  # new error over old error of an accepted Newton step; by trial
    float32_damping: float = 1e-6  # fraction of the class masses; the rounding of the Hessian
    float64_damping: float = 1e-10  # likewise
    damping_factor: float = 30.0  # ratio; up after a refused step, down after an accepted one
    step_limit: float = 5.0  # change of a log odds; beyond it the quadratic model of F is not valid
    easy_spread: float = 40.0  # range of one sample's scores; above it, annealing. The paper's: 20
    annealing_tolerance: float = 1e-4  # fraction of the total mass; a stage need not be exact
    annealing_iterations: int = 50  # limit per stage; likewise
    mass_slack: float = 1e-4  # fraction of the total; masses given in float32 need not sum exactly
    bound_slack: float = 1e-6  # likewise, for lower bounds that use up the total

    def tolerance(self, dtype: torch.dtype) -> float:
        """Fraction of the mass that may be misplaced, by precision."""
        return self.float32_tolerance if dtype == torch.float32 else self.float64_tolerance

    def damping(self, dtype: torch.dtype) -> float:
        """Smallest damping of the Hessian, by precision."""
        return self.float32_damping if dtype == torch.float32 else self.float64_damping

    def iterations(self, method: str) -> int:
        """Limit of the iterations of a solve, by method."""
        return self.newton_iterations if method == "newton" else self.sinkhorn_iterations


SOLVER = SolverConstants()


class Plan(NamedTuple):
    """A transport plan, and how well it meets its constraints."""

    plan: Tensor  # (E, N, W) mass moved from sample to class
    biases: Tensor  # (E, W) the class biases g; -inf for a class that must stay empty
    n_iterations: Tensor  # (E,)
    converged: Tensor  # (E,) bool
    error: Tensor  # (E,) fraction of the mass that is in the wrong class


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
    """The entropic plan of each episode, (E, N, W) -> Plan; each episode converges separately.

    Args:
        cost: Cost of giving sample i to class j, finite.
        lam: Inverse temperature, positive.
        row_mass: Mass of each sample, (E, N) or (N,), positive; ones by default.
        column_mass: Mass of each class, (E, W) or (W,), not negative, with the total of the rows;
            equal masses by default.
        column_minimum: Instead of `column_mass`: the least mass of each class.
        method: "newton", or "sinkhorn" for alternating scaling.
        tol: Fraction of misplaced mass at which an episode stops; by default 1e-10 in float64,
            1e-5 in float32.
        max_iterations: Limit after which an episode is returned with `converged` false.

    >>> solve_transport(torch.tensor([[[0.0, 1.0], [0.4, 1.0]]]), lam=100.0).plan.round(decimals=3)
    tensor([[[1., 0.],
             [0., 1.]]])
    """
    cost = cost if cost.dtype == torch.float64 else cost.float()
    if cost.ndim != 3 or 0 in cost.shape:
        raise InputError(
            "solve_transport: cost must have shape (episodes, samples, classes), none of them 0, "
            f"got {tuple(cost.shape)}."
        )
    bad = ~cost.isfinite().all(dim=-1).all(dim=-1)
    if bad.any():
        raise InputError(
            "solve_transport: cost must be finite, got NaN or infinity in episode "
            f"{int(bad.nonzero()[0, 0])}."
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
    name = "column_minimum" if minimum else "column_mass"
    target = _fit(target, cost, (n_episodes, n_classes), name)
    check_column_mass(target, total, minimum=minimum)
    how: Any = {"method": method, "tol": tol, "max_iterations": max_iterations}
    return solve_biases(-lam * cost, target, row_mass=row_mass, minimum=minimum, **how)


def _fit(mass: Tensor, cost: Tensor, shape: tuple[int, int], name: str) -> Tensor:
    """Masses in the shape and dtype of the problem."""
    try:  # contiguous, because torch sums an expanded tensor in another order
        return mass.to(cost).expand(shape).contiguous()
    except RuntimeError:
        raise InputError(
            f"solve_transport: {name} must have shape {shape} or {shape[1:]}, "
            f"got {tuple(mass.shape)}."
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
    if minimum and (sums > total * (1 + SOLVER.bound_slack)).any():
        most, asked = float(total.max()), float(sums.max())
        raise InputError(
            f"the lower bounds of the classes must sum to at most {most:g}, got {asked:g}, "
            f"{asked - most:g} too many."
        )
    if not minimum and ((sums - total).abs() > SOLVER.mass_slack * total).any():
        worst = (sums - total).abs().argmax()
        excess = float(sums[worst] - total[worst])
        raise InputError(
            f"class masses must sum to {float(total[worst]):g}, the mass of the samples, "
            f"got {float(sums[worst]):g}: {abs(excess):g} too {'many' if excess > 0 else 'few'}."
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
    """Class biases that give the classes their mass, (E, N, W) and (E, W) -> Plan; no checks.

    Each iteration proposes a Newton step (or, for "sinkhorn", a scaling step). A Newton step is
    accepted if it reduces the misplaced mass, or if F still decreases at its end (F is convex, so
    it has decreased all the way). Else a scaling step, which increases neither, replaces it, and
    the damping grows.

    Args:
        scores: -lam * cost, up to a constant per row.
        target: Mass of each class, or its lower bound.
        row_mass: As in `solve_transport`.
        minimum: Whether `target` is a lower bound.
        start: Initial biases, such as those of a similar problem.
        method: As in `solve_transport`; so are `tol` and `max_iterations`.
    """
    tol = SOLVER.tolerance(scores.dtype) if tol is None else tol
    max_iterations = SOLVER.iterations(method) if max_iterations is None else max_iterations
    row_mass = scores.new_ones(scores.shape[:2]) if row_mass is None else row_mass
    if start is None and method == "newton":
        start = _anneal(scores, target, row_mass, minimum)
    log_row_mass = row_mass.log()[..., None]
    total = row_mass.sum(dim=-1)
    empty = (target == 0) & (not minimum)  # (E, W) classes that must get nothing
    scores = scores.masked_fill(empty[:, None, :], -torch.inf)
    log_target = target.log()

    accepted = scores.new_zeros(target.shape) if start is None else start.masked_fill(empty, 0.0)
    proposal, scaled = accepted, accepted
    error = scores.new_full(total.shape, torch.inf)  # of the accepted biases
    unconditional = torch.ones_like(error, dtype=torch.bool)  # accept whatever the error
    first_damping = SOLVER.damping(scores.dtype)
    damping = scores.new_full(total.shape, first_damping)
    n_iterations = torch.zeros_like(error, dtype=torch.long)
    converged = torch.zeros_like(unconditional)
    while True:
        log_pi = (scores + proposal[:, None, :]).log_softmax(dim=-1)  # (E, N, W)
        log_mass = (log_row_mass + log_pi).logsumexp(dim=-2)  # (E, W)
        mass = log_mass.exp()
        missing = target - mass
        slope = -(missing * (proposal - accepted)).sum(dim=-1)  # of F at the end of the step
        if minimum:  # mass above the bound is an error only where a positive bias causes it
            missing = torch.where((proposal > 0) | (missing > 0), missing, 0.0)
        new_error = missing.abs().sum(dim=-1) / (2 * total)
        running = ~converged
        smaller = new_error < SOLVER.error_decrease * error
        better = running & (unconditional | smaller | (slope < 0))
        accepted = torch.where(better[:, None], proposal, accepted)
        error = torch.where(better, new_error, error)
        converged = converged | (error <= tol)
        if bool((converged | (n_iterations >= max_iterations)).all()):
            break
        scaling = torch.where(empty, 0.0, proposal + log_target - log_mass)
        scaling = scaling.clamp_min(0.0) if minimum else scaling
        scaled = torch.where(better[:, None], scaling, scaled)
        if method == "sinkhorn":
            proposal = torch.where(better[:, None], scaled, proposal)
        else:
            shrunk = (damping / SOLVER.damping_factor).clamp_min(first_damping)
            shrunk = torch.where(unconditional, damping, shrunk)
            damping = torch.where(better, shrunk, damping * SOLVER.damping_factor)
            at = (log_pi.exp(), row_mass, mass, missing, damping, empty, minimum)
            newton = proposal + _newton_step(*at)
            newton = newton.clamp_min(0.0) if minimum else newton
            proposal = torch.where(better[:, None], newton, scaled)
            unconditional = ~better
        n_iterations = n_iterations + (~converged & (n_iterations < max_iterations))
    log_plan = (scores + accepted[:, None, :]).log_softmax(dim=-1)
    plan, biases = row_mass[..., None] * log_plan.exp(), accepted.masked_fill(empty, -torch.inf)
    return Plan(plan, biases, n_iterations, converged, error)


def _anneal(scores: Tensor, target: Tensor, row_mass: Tensor, minimum: bool) -> Tensor:
    """Initial biases, (E, W), from a solve at low `lam`, which is doubled up to the real one."""
    spread = (scores.amax(dim=-1) - scores.amin(dim=-1)).amax(dim=-1)
    n_doublings = (spread / SOLVER.easy_spread).log2().ceil().clamp_min(0)  # (E,)
    start = scores.new_zeros(target.shape)
    for stage in range(int(n_doublings.max()), 0, -1):
        hard = (n_doublings >= stage).nonzero()[:, 0]  # the others start later
        easier = solve_biases(
            scores[hard] / 2.0**stage,
            target[hard],
            row_mass=row_mass[hard],
            minimum=minimum,
            start=start[hard],
            tol=SOLVER.annealing_tolerance,
            max_iterations=SOLVER.annealing_iterations,
        )
        start[hard] = 2 * easier.biases.nan_to_num(neginf=0.0)
    return start


def _newton_step(
    pi: Tensor,
    row_mass: Tensor,
    mass: Tensor,
    missing: Tensor,
    damping: Tensor,
    empty: Tensor,
    minimum: bool,
) -> Tensor:
    """Damped Newton step of the biases, (E, W): (Hessian + damping diag(mass)) step = missing."""
    hessian = torch.diag_embed((1 + damping[:, None]) * mass) - pi.mT @ (row_mass[..., None] * pi)
    if minimum:  # classes with g = 0 and enough mass keep g = 0
        fixed = empty | (missing == 0)
        free = (~fixed).to(hessian)
        hessian = hessian * free[:, :, None] * free[:, None, :]
    else:  # the Hessian is singular: adding one number to all biases changes nothing
        fixed = empty
        free = (~fixed).to(hessian)
        hessian = hessian + mass.mean(dim=-1)[:, None, None] * free[:, :, None] * free[:, None, :]
    hessian = hessian + torch.diag_embed(fixed.to(hessian))
    step, _ = torch.linalg.solve_ex(hessian, missing[..., None])
    step = step[..., 0]
    largest = step.abs().amax(dim=-1, keepdim=True).clamp_min(SOLVER.step_limit)
    shrunk: Tensor = step * (SOLVER.step_limit / largest)
    return shrunk
