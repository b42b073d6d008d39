"""Multinomial logistic regression on the support: what most people would use instead.

    log p_j(x) = w_j' x + b_j + constant

    minimise  - sum_i v_i log p_{y_i}(x_i) + sum_j |w_j|^2 / (2 C)

over the labelled rows i, with weights v_i such that every class counts alike, however many labels
it has: a person's labels are no fair sample of the classes. The unlabelled rows take no part.
"""

import inspect
from dataclasses import dataclass

import torch
from torch import Tensor

from fewlabels.methods.assignment import (
    Assignment,
    make_assignment,
    one_hot,
    prepare_episode,
)
from fewlabels.methods.base import Method, Reference, register
from fewlabels.methods.parts import linear_rules
from fewlabels.preprocess.pipeline import Pipeline

LAM = 10.0  # scale of the prototypes that stand for linear functions; any positive number does


@dataclass(frozen=True)
class LogisticConstants:
    """Numbers of the regression, for vectors of norm 1 (benchmarks/sensitivity.py folder)."""

    inverse_penalty: float = 30.0  # C
    n_iterations: int = 60  # most, of the solver (L-BFGS, Liu and Nocedal 1989)
    gradient_tolerance: float = 1e-4  # at which it stops
    history: int = 10  # steps that the solver remembers


LOGISTIC = LogisticConstants()


class Solver(torch.optim.LBFGS):
    """L-BFGS that does not import torch's compiler, which takes two seconds and is not used."""

    add_param_group = inspect.unwrap(torch.optim.LBFGS.add_param_group)


def fit_regression(x: Tensor, labels: Tensor, n_way: int) -> tuple[Tensor, Tensor]:
    """Slopes (D, W) and offsets (W,) of the log probabilities, from (S, D) and (S,)."""
    members = one_hot(labels, n_way, x.dtype)
    row_weights = (len(labels) / n_way / members.sum(dim=0))[labels]
    parameters = torch.zeros(x.shape[1] + 1, n_way, dtype=x.dtype, device=x.device)
    parameters.requires_grad_()
    solver = Solver(
        [parameters],
        max_iter=LOGISTIC.n_iterations,
        history_size=LOGISTIC.history,
        tolerance_grad=LOGISTIC.gradient_tolerance,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        parameters.grad = None
        log = (x @ parameters[:-1] + parameters[-1]).log_softmax(dim=-1)
        fit = -(row_weights * (members * log).sum(dim=-1)).sum()
        value = fit + (parameters[:-1] ** 2).sum() / (2 * LOGISTIC.inverse_penalty)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        solver.step(loss)  # type: ignore[no-untyped-call]
    found = parameters.detach()
    return found[:-1], found[-1]


def learn_regression(x: Tensor, labels: Tensor, n_way: int) -> tuple[Tensor, Tensor]:
    """Prototypes (W, D) and biases (W,) of the regression, from (S, D) and (S,)."""
    slopes, offsets = fit_regression(x, labels.long(), n_way)
    return linear_rules(slopes.T, offsets, LAM)


def assign_logistic(
    support: Tensor, support_labels: Tensor, query: Tensor, *, n_way: int
) -> Assignment:
    """Labels by logistic regression, (E, S, D), (E, S) and (E, Q, D) -> Assignment."""
    support, query, shift = prepare_episode(support, support_labels, query, n_way)
    plans, rules = [], []
    for x, labels, rows, common in zip(support, support_labels, query, shift, strict=True):
        slopes, offsets = fit_regression(x + common, labels.long(), n_way)
        plans.append(((rows + common) @ slopes + offsets).softmax(dim=-1))
        rules.append(linear_rules(slopes.T, offsets, LAM))
    prototypes, biases = (torch.stack(each) for each in zip(*rules, strict=True))
    return make_assignment(torch.stack(plans), prototypes, biases=biases, lam=LAM)


register(
    Method(
        "logistic",
        "Logistic regression",
        Reference(
            "Cox",
            1958,
            "The regression analysis of binary sequences",
            "https://doi.org/10.1111/j.2517-6161.1958.tb00292.x",
        ),
        Pipeline.parse("power(auto) | unit | center(joint) | unit"),
        assign_logistic,
        learn=learn_regression,
    )
)
