"""`transport.solver` of one episode, compiled, with classes first, (W, Q)."""

import math

import numpy as np

from fewlabels.kernels._math import Array, dot, exp, fast_jit, solve_in_place
from fewlabels.kernels.codes import KERNELS
from fewlabels.transport.solver import SOLVER

NEWTON_ITERATIONS, MASS_FLOOR = KERNELS.newton_iterations, KERNELS.mass_floor
EMPTY_SCORE = KERNELS.empty_score
ERROR_DECREASE, STEP_LIMIT = SOLVER.error_decrease, SOLVER.step_limit
FLOAT32_DAMPING, FLOAT64_DAMPING = SOLVER.float32_damping, SOLVER.float64_damping
DAMPING_FACTOR = SOLVER.damping_factor
SUM_LENGTH = 256  # probabilities that are added in float32, before the sum is added in float64


@fast_jit
def fill_plan(scores: Array, biases: Array, plan: Array, mass: Array, largest: Array) -> None:
    """Fill plan = softmax over the classes of scores + biases, (W, Q), and mass, its sums, (W,)."""
    n_way, n_query = scores.shape
    top, inverse = largest[0], largest[1]
    for i in range(n_query):
        top[i] = -np.inf
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
        mass[j] = 0.0
        for first in range(0, n_query, SUM_LENGTH):
            total = scores.dtype.type(0)
            for i in range(first, min(first + SUM_LENGTH, n_query)):
                p = plan[j, i] * inverse[i]
                plan[j, i] = p
                total += p
            mass[j] += total


@fast_jit
def solve_biases(
    scores: Array,
    target: Array,
    minimum: bool,
    tol: float,
    biases: Array,
    plan: Array,
    mass: Array,
    solver: Array,
    largest: Array,
) -> bool:
    """`transport.solver.solve_biases` of one episode; returns whether it converged.

    Args:
        scores: (W, Q).
        target: Mass of each class, or its lower bound, (W,).
        minimum: Whether `target` is a lower bound.
        tol: Fraction of misplaced mass at which the solve ends.
        biases: In: a start, out: the solution, (W,).
        plan: Out, (W, Q).
        mass: Out: sums of the plan, (W,).
        solver: Workspace, (W + 4, W).
        largest: Workspace, (2, Q).
    """
    n_way, n_query = scores.shape
    hessian, missing, accepted, accepted_mass = (
        solver[:n_way],
        solver[n_way],
        solver[n_way + 1],
        solver[n_way + 2],
    )
    step = solver[n_way + 3]
    first_damping = FLOAT32_DAMPING if scores.itemsize == 4 else FLOAT64_DAMPING
    error, damping, unconditional = np.inf, first_damping, True
    for _ in range(NEWTON_ITERATIONS):
        fill_plan(scores, biases, plan, mass, largest)
        new_error, mean_mass, slope = 0.0, 0.0, 0.0
        for j in range(n_way):
            missing[j] = target[j] - mass[j]
            if not unconditional and target[j] > 0:
                slope += missing[j] * (biases[j] - accepted[j])
            if (minimum and biases[j] <= 0 and missing[j] < 0) or (not minimum and target[j] <= 0):
                missing[j] = 0.0
            new_error += abs(missing[j])
            mean_mass += mass[j] / n_way
        new_error /= 2 * n_query
        if new_error <= tol:
            return True
        if unconditional or new_error < ERROR_DECREASE * error or slope > 0:
            if not unconditional:
                damping = max(damping / DAMPING_FACTOR, first_damping)
            error, unconditional = new_error, False
            for j in range(n_way):
                accepted[j], accepted_mass[j], step[j] = biases[j], mass[j], missing[j]
                for k in range(j + 1):
                    hessian[j, k] = -dot(plan[j], plan[k])
                    if not minimum and target[j] > 0 and target[k] > 0:
                        hessian[j, k] += mean_mass  # else singular, as in `transport.solver`
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
                shrink = min(1.0, STEP_LIMIT / longest) if longest > 0 else 1.0
                for j in range(n_way):
                    biases[j] = accepted[j] + shrink * step[j]
                    if minimum:
                        biases[j] = max(biases[j], 0.0)
                continue
        damping *= DAMPING_FACTOR
        unconditional = True
        for j in range(n_way):
            if target[j] > 0:
                biases[j] = accepted[j] + math.log(target[j] / max(accepted_mass[j], MASS_FLOOR))
            if minimum:
                biases[j] = max(biases[j], 0.0)
    return False
