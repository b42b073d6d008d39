"""Steps of preprocessing: pure functions on feature vectors, and `Step`, which names one of them.

Inputs are left untouched. Any leading axes are allowed.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, Self

import torch
from torch import Tensor

from fewlabels.errors import InputError

POWER_EPS = 1e-6  # Eq. (1): keeps v + eps strictly positive, so that logs and negative powers exist
LARGEST_POWER = 10.0  # beyond it float32 overflows on ordinary features
AUTO = "auto"  # a power that is read from the features (`power_rule`)
SUPPORT, SUPPORT_AND_MEAN = "support", "support+mean"  # centerings
MOST_MEASUREMENTS = 32  # columns; features of networks have at least 64 (Conv4)
OUTSIDE_ROWS = 10.0  # rows of the support that a mean from outside counts as, in that centering
WIDTHS = re.compile(r"[1-9]\d{0,8}(\+[1-9]\d{0,8})+")  # of the parts of a vector


def power(x: Tensor, *, beta: float) -> Tensor:
    """Tukey's ladder of powers, (..., D) -> (..., D); Eq. (1) of the paper without its norm.

    (x + eps)^beta, and log(x + eps) at beta = 0. Features must not be negative unless beta is 1.

    >>> power(torch.tensor([[4.0, 9.0]]), beta=0.5).round(decimals=3)
    tensor([[2., 3.]])
    """
    _check_power("power", beta)
    if beta == 1:
        return torch.add(x, POWER_EPS)
    if x.numel() and x.min() < 0:
        raise InputError(
            f"power: features must not be negative for beta = {beta:g}, got a smallest value of "
            f"{float(x.min()):.4g}. Give beta=auto, which keeps the signs, or use features taken "
            "after a ReLU, or a pipeline without the power, such as 'unit | center | unit'."
        )
    shifted: Tensor = x + POWER_EPS
    if beta == 0.5:
        return torch.sqrt(shifted)
    # exp(beta log x) rather than x ** beta: torch's vectorised pow rounds differently at the end
    # of an array, and an episode's values would depend on its place in the batch.
    logs = torch.log(shifted)
    return logs if beta == 0 else torch.exp(beta * logs)


def signed_power(x: Tensor, *, beta: float) -> Tensor:
    """Power of the absolute values with the signs kept, (..., D) -> (..., D); beta > 0.

    >>> signed_power(torch.tensor([[-4.0, 9.0]]), beta=0.5)
    tensor([[-2.,  3.]])
    """
    _check_power("signed_power", beta)
    size = x.abs()
    raised = torch.sqrt(size) if beta == 0.5 else torch.exp(beta * torch.log(size))
    return torch.copysign(torch.where(size > 0, raised, 0.0), x)


def _check_power(name: str, beta: float) -> None:
    if name == "signed_power" and not 0 < beta <= LARGEST_POWER:
        raise InputError(f"signed_power: beta must be a number above 0, up to 10, got {beta}.")
    if not -LARGEST_POWER <= beta <= LARGEST_POWER:  # also refuses NaN
        raise InputError(f"power: beta must be a number from -10 to 10, got {beta}.")


def unit(x: Tensor) -> Tensor:
    """Scale each vector to Euclidean norm 1, (..., D) -> (..., D); a zero vector stays zero."""
    tiny = torch.finfo(x.dtype).tiny
    norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    if not ((norm > tiny**0.4) & (norm < tiny**-0.4)).all():  # squares overflow or vanish
        exponent = torch.frexp(x.abs().amax(dim=-1, keepdim=True)).exponent
        x = torch.ldexp(x, -exponent)  # exact: a vector's values do not depend on other vectors
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / norm.clamp_min(tiny)


def separate_means(support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    """What the paper's "trans-mean-sub" subtracts, (..., S, D), (..., Q, D) -> (..., 1, D) each.

    The mean of the support from the support, the mean of the queries from the queries. A side of
    one row equals its own mean and would vanish, so the mean of all rows is used for it.
    """
    joint = joint_mean(support, query)
    by_support = support.mean(dim=-2, keepdim=True) if support.shape[-2] > 1 else joint
    by_query = query.mean(dim=-2, keepdim=True) if query.shape[-2] > 1 else joint
    return by_support, by_query


def support_mean(support: Tensor, query: Tensor) -> Tensor:
    """The mean of the support, (..., S, D) and (..., Q, D) -> (..., 1, D).

    It weighs all classes as the labels do, whatever the class sizes among the queries are. For a
    support of one row, which would vanish, the mean of all rows is used.
    """
    several = support.shape[-2] > 1
    return support.mean(dim=-2, keepdim=True) if several else joint_mean(support, query)


def center_row(x: Tensor) -> Tensor:
    """Each vector less the mean of its own values, (..., D) -> (..., D).

    Inner products of unit vectors are Pearson correlations then. How strongly an image activates
    the features as a whole tells little of its class. The mean of few measurements may tell much,
    so vectors of up to `MOST_MEASUREMENTS` values are left as they are.

    >>> center_row(torch.arange(40.0))[:2], center_row(torch.tensor([1.0, 3.0]))
    (tensor([-19.5000, -18.5000]), tensor([1., 3.]))
    """
    if x.shape[-1] <= MOST_MEASUREMENTS:
        return x
    exponent = torch.frexp(x.abs().amax(dim=-1, keepdim=True)).exponent
    small = torch.ldexp(x, -exponent)  # exact; its sum does not overflow
    return x - torch.ldexp(small.mean(dim=-1, keepdim=True), exponent)


def shrunk_mean(support: Tensor, query: Tensor) -> Tensor:
    """The mean of the support, shrunk toward zero (James and Stein, 1961), (..., 1, D).

    The mean of few rows has a large error: (variance of a row) / (number of rows). The mean of all
    classes is near zero where rows were centered by themselves (`center_row`), as the columns of a
    network are much alike. So it is shrunk as far as the rows tell; see `shrunk_part`.
    """
    rows = torch.cat([support, query], dim=-2)
    largest = rows.abs().amax(dim=(-2, -1), keepdim=True)
    small = rows / torch.where(largest > 0, largest, 1.0)  # so that no square overflows
    squared = small.square().sum(dim=-1, keepdim=True).mean(dim=-2, keepdim=True)
    of_mean = small.mean(dim=-2, keepdim=True).square().sum(dim=-1, keepdim=True)
    part = shrunk_part(support.shape[-2], rows.shape[-2], of_mean, squared)
    return part * support_mean(support, query)


def shrunk_part(n_support: int, n_rows: int, of_mean: Tensor, squared: Tensor) -> Tensor:
    """What `shrunk_mean` takes of the mean of the support: a posterior mean, (...) and (...).

    Args:
        n_support: Rows of the support; if fewer than two, the mean is that of all rows.
        n_rows: All rows.
        of_mean: Squared norm of the mean of all rows, the variance of the prior.
        squared: Mean squared norm of the rows.
    """
    within = (squared - of_mean).clamp_min(0) / (n_support if n_support > 1 else n_rows)
    return of_mean / (of_mean + within).clamp_min(torch.finfo(of_mean.dtype).tiny)


def mean_with_outside(support: Tensor, query: Tensor, given: Tensor) -> Tensor:
    """The mean of the support and of `OUTSIDE_ROWS` rows equal to a mean from outside, (..., 1, D).

    The mean of few rows is far from that of all classes; the one from outside may be of another
    kind of images. With one row of support the mean of all rows stands for it.
    """
    part = support_part(support.shape[-2])
    return part * support_mean(support, query) + (1 - part) * given


def support_part(n_support: int) -> float:
    """Weight of the support in `mean_with_outside`; that of the mean from outside is the rest.

    >>> support_part(10)
    0.5
    """
    return n_support / (n_support + OUTSIDE_ROWS)


def joint_mean(support: Tensor, query: Tensor) -> Tensor:
    """The mean of all rows of both sides, (..., S, D) and (..., Q, D) -> (..., 1, D)."""
    return torch.cat([support, query], dim=-2).mean(dim=-2, keepdim=True)


def joint_sizes(support: Tensor, query: Tensor) -> Tensor:
    """Root mean square of each column over all rows of both sides, (..., 1, D); 1 for zeros.

    After a centering that is the standard deviation, but it never divides by what rounding leaves
    of the deviation of a constant.
    """
    rows = torch.cat([support, query], dim=-2)
    found = rows.square().mean(dim=-2, keepdim=True).sqrt()
    return torch.where(found > 0, found, 1.0)


def lift(x: Tensor) -> Tensor:
    """A further value sqrt(D) for each vector, (..., D) -> (..., D + 1).

    The norm of a row of standardized columns is about that. So the direction of the longer vector
    tells the length of the row too, and a step `unit` behind it loses nothing.

    >>> lift(torch.tensor([[3.0, 4.0, 5.0, 6.0]]))
    tensor([[3., 4., 5., 6., 2.]])
    """
    return torch.nn.functional.pad(x, (0, 1), value=sqrt(x.shape[-1]))


def unit_parts(x: Tensor, widths: str) -> Tensor:
    """Each part of each vector to norm 1, (..., D) -> (..., D); parts of zeros stay so.

    >>> unit_parts(torch.tensor([[3.0, 4.0, 9.0]]), "2+1")
    tensor([[0.6000, 0.8000, 1.0000]])
    """
    sizes = [int(width) for width in widths.split("+")]
    if sum(sizes) != x.shape[-1]:
        raise InputError(
            f"unit({widths}): the widths of the parts must sum to that of the features, "
            f"{x.shape[-1]}, got {sum(sizes)}."
        )
    return torch.cat([unit(part) for part in torch.split(x, sizes, dim=-1)], dim=-1)


@dataclass(frozen=True)
class Step:
    """One step of a pipeline: a name and, where the step has one, a value.

    power(BETA)             Eq. (1) of the paper without its norm
    power(auto)             the power that suits the features (`power_rule`)
    signed_power(BETA)      power of the absolute values, signs kept
    unit                    each vector to norm 1
    unit(640+512)           each of its parts of so many values, as of features side by side
    center                  support and queries by their own means (the paper's)
    center(joint)           both by the mean of all rows
    center(support)         both by the mean of the support
    center(shrunk)          both by the mean of the support, shrunk toward zero (`shrunk_mean`)
    center(row)             each vector by the mean of its own values (`center_row`)
    center(mean)            both by a mean from outside, such as that of the base classes
    center(support+mean)    both by the mean of the support and of ten rows equal to that one
    scale(joint)            each column divided by its root mean square over all rows
    lift                    one value more, so that `unit` keeps the length of a row (`lift`)
    bpa                     each row as its affinities to the rows of the episode (`bpa`)

    >>> Step.parse("power(.50)"), str(Step("center", "joint"))
    (Step(name='power', value=0.5), 'center(joint)')
    """

    CHOICES: ClassVar[tuple[str, ...]] = (
        *("power(BETA)", "power(auto)", "unit", "center", "center(joint)", "center(support)"),
        *("center(shrunk)", "center(row)", "center(mean)", "center(support+mean)"),
        *("signed_power(BETA)", "unit(D1+D2+...)", "scale(joint)", "lift", "bpa"),
    )
    PLAIN: ClassVar[tuple[tuple[str, str | None], ...]] = (
        *(("unit", None), ("bpa", None), ("lift", None)),
        *(("power", AUTO), ("scale", "joint"), ("center", "row")),
    )
    MEANS: ClassVar[dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
        **{"joint": joint_mean, SUPPORT: support_mean, "shrunk": shrunk_mean},
    }
    CENTERINGS: ClassVar[tuple[str | None, ...]] = (*(None, *MEANS, "mean", SUPPORT_AND_MEAN),)

    name: str
    value: float | str | None = None

    def __post_init__(self) -> None:
        if self.name in ("power", "signed_power") and isinstance(self.value, int | float):
            _check_power(self.name, self.value)
        elif self.name == "unit" and isinstance(self.value, str) and WIDTHS.fullmatch(self.value):
            return
        elif not ((self.name, self.value) in self.PLAIN or self.is_centering):
            raise InputError(f"a step must be one of {', '.join(self.CHOICES)}, got '{self}'.")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a step from its text."""
        match = re.fullmatch(r"(\w+)(?:\(([^()]*)\))?", text.strip())
        if match is None:
            raise InputError(f"a step must be one of {', '.join(cls.CHOICES)}, got '{text}'.")
        name, value = match[1], match[2]
        if name not in ("power", "signed_power") or value in (None, "", AUTO):
            return cls(name, value)
        try:
            return cls(name, float(value))
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{name} must hold a number, got '{value}'.") from None

    def __str__(self) -> str:
        if self.value is None:
            return self.name
        return f"{self.name}({self.value if isinstance(self.value, str) else f'{self.value:.12g}'})"

    @property
    def is_power(self) -> bool:
        """Whether the step is a power, signed or not, decided or not."""
        return self.name in ("power", "signed_power")

    @property
    def is_centering(self) -> bool:
        """Whether the step subtracts one vector from all rows, or from all rows of a side."""
        return self.name == "center" and self.value in self.CENTERINGS

    @property
    def needs_mean(self) -> bool:
        """Whether a mean from outside must be given."""
        return self.name == "center" and self.value in ("mean", SUPPORT_AND_MEAN)

    @property
    def is_episodic(self) -> bool:
        """Whether the step needs the episode: its own means or sizes, or bpa."""
        return self.name in ("bpa", "scale") or (self.is_centering and self.value != "mean")

    def apply(self, x: Tensor) -> Tensor:
        """Apply a step that acts on single vectors, (..., D) -> (..., D)."""
        if self.name == "unit":
            return unit(x) if self.value is None else unit_parts(x, str(self.value))
        if self == LIFT:
            return lift(x)
        if self == ROW:
            return center_row(x)
        if isinstance(self.value, str):
            raise InputError(
                "the pipeline's power(auto) must be decided first: "
                "use pipeline.decide(features), or name a power."
            )
        raised = power if self.name == "power" else signed_power
        return raised(x, beta=float(self.value or 0))

    def means(self, support: Tensor, query: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
        """What a centering subtracts from the support and from the queries, (..., 1, D) each."""
        if self.value is None:
            return separate_means(support, query)
        if self.value == "mean":
            return given, given
        if self.value == SUPPORT_AND_MEAN:
            mean = mean_with_outside(support, query, given)
        else:
            mean = self.MEANS[str(self.value)](support, query)
        return mean, mean


UNIT = Step("unit")
LIFT = Step("lift")
ROW = Step("center", "row")
SHRUNK = Step("center", "shrunk")
WITH_OUTSIDE = Step("center", SUPPORT_AND_MEAN)
SCALE = Step("scale", "joint")
BPA = Step("bpa")
