"""Priors: what is known about the class sizes among the queries.

A prior is a class here and a word on the command line. MAP asks it for the mass of each class,
given two integers: how many queries and how many classes there are. A new rule is one subclass.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from fewlabels.errors import InputError
from fewlabels.transport.solver import check_column_mass

SUM_TOLERANCE = 1e-4  # of the sum of sizes, relative: what rounding to four digits may cost


class ClassMass(NamedTuple):
    """Mass that the classes must receive (or receive at least), (E, W) or (1, W), float64."""

    mass: Tensor
    minimum: bool = False


class Prior(ABC):
    """What is known about the class sizes among the queries.

    >>> Sizes([0.5, 0.25, 0.25]).masses(n_query=8, n_way=3).mass.tolist()
    [[4.0, 2.0, 2.0]]
    """

    word: ClassVar[str] = ""  # as which it is written; "" where it is written otherwise
    form: ClassVar[str] = ""  # how it is written, for lists of choices
    estimated: ClassVar[bool] = False  # whether the sizes are found from the queries
    needs_truth: ClassVar[bool] = False  # whether only an evaluation can know them
    known: ClassVar[list[type["Prior"]]] = []

    def __init_subclass__(cls) -> None:
        if cls.word and cls.word in {each.word for each in Prior.known}:
            raise InputError(f"two priors are written '{cls.word}'. Give one of them another word.")
        Prior.known.append(cls)

    @abstractmethod
    def masses(self, n_query: int, n_way: int) -> ClassMass | None:
        """The class masses for n_query queries of n_way classes; None where none is imposed."""

    def take(self, episodes: Any) -> "Prior":  # noqa: ARG002 - sizes per episode need it
        """The same prior for some of the episodes, by their numbers."""
        return self

    def __str__(self) -> str:
        return self.word


@dataclass(frozen=True)
class Uniform(Prior):
    """All classes equally large, as the paper assumes.

    With fewer queries than classes equal sizes are impossible (one query would be spread evenly
    over all classes), so that nothing is imposed then.

    >>> Uniform().masses(75, 5).mass.tolist()
    [[15.0, 15.0, 15.0, 15.0, 15.0]]
    """

    word: ClassVar[str] = "uniform"

    def masses(self, n_query: int, n_way: int) -> ClassMass | None:
        """See `Prior`."""
        if n_query < n_way:
            return None
        return ClassMass(torch.full((1, n_way), n_query / n_way, dtype=torch.float64))


@dataclass(frozen=True)
class Estimated(Prior):
    """Found from the queries (`methods.estimation`); the first hypothesis is `Uniform`.

    >>> Estimated().masses(75, 5).mass.tolist(), str(Estimated())
    ([[15.0, 15.0, 15.0, 15.0, 15.0]], 'estimate')
    """

    word: ClassVar[str] = "estimate"
    estimated: ClassVar[bool] = True

    def masses(self, n_query: int, n_way: int) -> ClassMass | None:
        """See `Prior`."""
        return Uniform().masses(n_query, n_way)


@dataclass(frozen=True)
class Free(Prior):
    """Nothing is imposed: MAP becomes soft K-Means.

    >>> Free().masses(75, 5) is None
    True
    """

    word: ClassVar[str] = "free"

    def masses(self, n_query: int, n_way: int) -> None:
        """See `Prior`."""


@dataclass(frozen=True)
class Truth(Prior):
    """The true sizes of each episode, which only an evaluation knows."""

    word: ClassVar[str] = "truth"
    needs_truth: ClassVar[bool] = True

    def masses(self, n_query: int, n_way: int) -> ClassMass | None:  # noqa: ARG002
        """See `Prior`."""
        raise InputError(
            "prior 'truth' is for evaluations, which know the true labels. "
            "Give the class sizes, or 'estimate'."
        )


@dataclass(frozen=True, eq=False)
class Sizes(Prior):
    """Given class sizes: fractions that sum to 1, or counts that sum to the number of queries.

    Args:
        sizes: One number per class; an (E, W) tensor gives each episode its own.

    >>> Sizes([0.5, 0.25, 0.25]).masses(8, 3).mass.tolist()
    [[4.0, 2.0, 2.0]]
    """

    form: ClassVar[str] = "one number per class such as 0.5,0.3,0.2"

    sizes: Sequence[float] | Tensor
    _numbers: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_numbers", _as_sizes(self.sizes))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and torch.equal(self._numbers, other._numbers)

    def __hash__(self) -> int:
        return hash(tuple(self._numbers.reshape(-1).tolist()))

    def masses(self, n_query: int, n_way: int) -> ClassMass | None:
        """See `Prior`."""
        mass = _fit_classes(self._numbers, n_way)
        sums = mass.sum(dim=-1, keepdim=True)
        if n_query > 1 and ((sums - 1).abs() <= SUM_TOLERANCE).all():
            mass = mass / sums * n_query
        elif ((sums - n_query).abs() > SUM_TOLERANCE * n_query).any() and (mass >= 0).all():
            wrong = float(sums[(sums - n_query).abs().argmax()])
            raise InputError(
                f"prior must sum to {n_query}, as counts of the queries, or to 1, as fractions, "
                f"got {wrong:g}."
            )
        check_column_mass(mass, torch.full_like(sums, n_query), minimum=False)
        return ClassMass(mass * (n_query / mass.sum(dim=-1, keepdim=True)))

    def take(self, episodes: Any) -> "Prior":
        """See `Prior`."""
        return type(self)(self._numbers[episodes]) if len(self._numbers) > 1 else self

    def __str__(self) -> str:
        sizes = self._numbers[0].tolist()
        return ",".join(f"{size:.0f}" if size.is_integer() else repr(size) for size in sizes)


@dataclass(frozen=True, eq=False)
class AtLeast(Sizes):
    """Lower bounds on the number of queries of each class: the paper's q = [30, 30].

    >>> str(AtLeast([30, 30]))
    'at-least:30,30'
    """

    form: ClassVar[str] = "lower bounds such as at-least:30,30"

    def masses(self, n_query: int, n_way: int) -> ClassMass | None:
        """See `Prior`."""
        mass = _fit_classes(self._numbers, n_way)
        check_column_mass(mass, torch.full((len(mass), 1), float(n_query)), minimum=True)
        return ClassMass(mass, minimum=True)

    def __str__(self) -> str:
        return AT_LEAST + super().__str__()


AT_LEAST = "at-least:"


def as_prior(value: object) -> Prior:
    """A prior from a Prior, its word, or one number per class.

    >>> as_prior("estimate"), str(as_prior("at-least:30,30")), str(as_prior([1, 3]))
    (Estimated(), 'at-least:30,30', '1,3')
    """
    if isinstance(value, Prior):
        return value
    if not isinstance(value, str):
        return Sizes(value)  # type: ignore[arg-type]
    words = {each.word: each for each in Prior.known if each.word}
    if value in words:
        return words[value]()
    kind: Callable[[Sequence[float]], Prior] = AtLeast if value.startswith(AT_LEAST) else Sizes
    try:
        sizes = [float(part) for part in value.removeprefix(AT_LEAST).split(",")]
    except ValueError:
        sizes = []
    if len(sizes) < 2:
        raise InputError(f"prior must be one of {choices()}, got '{value}'.")
    return kind(sizes)


def choices() -> str:
    """How priors are written, as a list."""
    return ", ".join(each.word or each.form for each in Prior.known)


def _as_sizes(sizes: object) -> Tensor:
    """Sizes as float64, (1, W) or (E, W)."""
    try:
        numbers = torch.as_tensor(sizes, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"prior must hold one number per class, got {sizes!r}.") from None
    if numbers.ndim not in (1, 2) or numbers.numel() == 0:
        raise InputError(f"prior must hold one number per class, got {sizes!r}.")
    if not (numbers.isfinite() & (numbers >= 0)).all():
        raise InputError(f"prior must not be negative nor infinite, got {sizes!r}.")
    return numbers.reshape(-1, numbers.shape[-1])


def _fit_classes(numbers: Tensor, n_way: int) -> Tensor:
    if numbers.shape[1] != n_way:
        raise InputError(
            f"prior must hold one number for each of the {n_way} classes, got {numbers.shape[1]}."
        )
    return numbers
