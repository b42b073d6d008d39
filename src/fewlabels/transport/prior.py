"""How large is each class among the queries? What a person says, turned into class masses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from fewlabels.errors import InputError, unknown_choice
from fewlabels.transport.solver import check_column_mass

CHOICES = ("uniform", "free", "estimate")


@dataclass(frozen=True)
class AtLeast:
    """Lower bounds on the number of queries of each class: the paper's q = [30, 30] is AtLeast([30, 30])."""

    counts: Sequence[float]


Proportions: TypeAlias = str | Sequence[float] | Tensor | AtLeast
"""`"uniform"`: all classes equally large, as the paper assumes. `"free"`: nothing is imposed.
`"estimate"`: found from the queries (`methods.estimation`).
Numbers, one a class: fractions if they sum to 1, counts if they sum to the number of queries;
an (E, W) tensor gives each episode its own. `AtLeast`: lower bounds on the counts."""


@dataclass(frozen=True)
class ClassMass:
    """Mass that the classes must receive (or receive at least), (E, W)."""

    mass: Tensor
    minimum: bool = False


def class_mass(proportions: Proportions, query: Tensor, *, n_way: int) -> ClassMass | None:
    """The class masses that `proportions` asks for, given (E, Q, D) queries; None where nothing is imposed.

    With fewer queries than classes, equal sizes are impossible (one query would be forced to spread
    evenly over all classes, whatever it looks like), so "uniform" then imposes nothing.
    """
    n_episodes, n_query = query.shape[:2]
    total = query.new_full((n_episodes, 1), n_query)
    if isinstance(proportions, str):
        if proportions not in CHOICES:
            raise unknown_choice(
                "proportions", proportions, (*CHOICES, "one number per class", "AtLeast(counts)")
            )
        if proportions == "free" or n_query < n_way:
            return None
        return ClassMass((total / n_way).expand(n_episodes, n_way).contiguous())
    minimum = isinstance(proportions, AtLeast)
    numbers = proportions.counts if isinstance(proportions, AtLeast) else proportions
    try:
        mass = torch.as_tensor(numbers).to(query)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            f"proportions must be {', '.join(CHOICES)}, one number per class or AtLeast(counts), got {numbers!r}."
        ) from None
    if mass.shape not in ((n_way,), (n_episodes, n_way)):
        raise InputError(
            f"proportions must hold one number for each of the {n_way} classes, got shape {tuple(mass.shape)}."
        )
    mass = mass.expand(
        n_episodes, n_way
    ).contiguous()  # torch adds up an expanded tensor in another order
    sums = mass.sum(dim=-1, keepdim=True)
    if not minimum and n_query > 1 and ((sums - 1).abs() <= 1e-4).all():
        mass = mass / sums * n_query
    elif not minimum and ((sums - n_query).abs() > 1e-4 * n_query).any() and (mass >= 0).all():
        wrong = float(sums[(sums - n_query).abs().argmax()])
        raise InputError(
            f"proportions must sum to {n_query}, as counts of the queries, or to 1, as fractions, got {wrong:g}."
        )
    check_column_mass(mass, total, minimum=minimum)
    return ClassMass(mass if minimum else mass * (total / mass.sum(dim=-1, keepdim=True)), minimum)
