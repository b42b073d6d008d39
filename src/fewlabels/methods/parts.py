"""What several methods of the literature share: knobs, checks, and rules for later rows."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fewlabels.errors import InputError
from fewlabels.methods.assignment import Assignment, prepare_episode
from fewlabels.methods.base import Knob
from fewlabels.preprocess.bpa import MOST_ROWS
from fewlabels.preprocess.steps import unit

FORGETTING = (0.9, 0.999)  # Adam's, of the gradient and of its square
ADAM_EPS = 1e-8
ROUNDING = 1e-10  # part of the squared size of rows below which a direction is rounding

SHARPNESS = Knob(
    "sharpness",
    "how sharply the similarity to a prototype decides",
    low=0,
    above_low=True,
    symbol="sharpness",
)
N_UPDATES = Knob("n_updates", "updates of the prototypes or labels", low=0, whole=True)
N_NEIGHBORS = Knob("n_neighbors", "nearest rows that a row is joined to", low=1, whole=True)


@dataclass(frozen=True)
class ByShots:
    """The default of a knob that was published for one shot and for more."""

    one: float
    more: float

    def __call__(self, n_shot: int, dataset: str | None = None) -> float:  # noqa: ARG002
        """See `Knob`."""
        return self.one if n_shot == 1 else self.more


class Adam:
    """Steps of Adam (Kingma and Ba 2015), for one parameter."""

    def __init__(self, rate: float) -> None:
        self.rate, self.n_steps = rate, 0
        self.mean, self.square = torch.zeros(()), torch.zeros(())

    def change(self, gradient: Tensor) -> Tensor:
        """What the next step adds to the parameter."""
        self.n_steps += 1
        self.mean = FORGETTING[0] * self.mean.to(gradient) + (1 - FORGETTING[0]) * gradient
        self.square = FORGETTING[1] * self.square.to(gradient) + (1 - FORGETTING[1]) * gradient**2
        size = (self.square / (1 - FORGETTING[1] ** self.n_steps)).sqrt() + ADAM_EPS
        return -self.rate * self.mean / (1 - FORGETTING[0] ** self.n_steps) / size


def check_rows(
    support: Tensor, support_labels: Tensor, query: Tensor, n_way: int
) -> tuple[Tensor, Tensor]:
    """Refuse what no method can use; support and query in one float type, for cosines."""
    support, query, shift = prepare_episode(support, support_labels, query, n_way)
    return support + shift, query + shift


def check_pairs(rows: Tensor, name: str) -> None:
    """Refuse more rows, (E, N, D), than pairs can be held of."""
    if rows.shape[1] > MOST_ROWS:
        raise InputError(
            f"method '{name}' compares all pairs of rows and takes up to {MOST_ROWS:,} rows, got "
            f"{rows.shape[1]:,}. Label fewer rows at a time, or use method 'map'."
        )


def cosines(x: Tensor, prototypes: Tensor) -> Tensor:
    """Cosines of rows and prototypes, (E, N, D) and (E, W, D) -> (E, N, W)."""
    # summed by broadcasting for one class, as `assignment.similarities` explains
    x, prototypes = unit(x), unit(prototypes)
    if prototypes.shape[-2] == 1:
        return (x * prototypes).sum(dim=-1, keepdim=True)
    return x @ prototypes.mT


def linear_rules(slopes: Tensor, offsets: Tensor, lam: float) -> tuple[Tensor, Tensor]:
    """Prototypes (..., W, D) and biases (..., W) of linear scores <x, slope> + offset.

    Later rows are decided by lam (2 <x, c> - |c|^2) + bias, which is any linear function of x.
    """
    prototypes = slopes / (2 * lam)
    return prototypes, offsets + lam * (prototypes * prototypes).sum(dim=-1)


def principal_axes(rows: Tensor, n_dims: int, *, like: Tensor | None = None) -> Tensor:
    """Leading right singular vectors of rows, (E, N, D) -> (E, D, min(n_dims, N, D)).

    The longest first. Where the rank is lower, the rest are zero vectors. Computed in float64 from
    the smaller of the two inner product matrices: a float32 axis would depend on the order of sums
    where two singular values are close.

    Args:
        like: Rows, (E, M, D), whose size tells which singular values are rounding; by default
            the rows themselves.
    """
    x, whole = rows.double(), (rows if like is None else like).double()
    n_dims = min(n_dims, *x.shape[1:])
    narrow = x.shape[1] >= x.shape[2]
    squares, found = torch.linalg.eigh(x.mT @ x if narrow else x @ x.mT)
    squares, found = squares.flip(-1)[:, :n_dims], found.flip(-1)[..., :n_dims]
    axes = found if narrow else unit((x.mT @ found).mT).mT
    largest_rounding = ROUNDING * (whole * whole).sum(dim=(1, 2))
    axes = torch.where((squares > largest_rounding[:, None])[:, None, :], axes, 0.0)
    return axes.to(rows)


def lift(found: Assignment, axes: Tensor, mean: Tensor, projected: Tensor) -> Assignment:
    """An answer in few dimensions, z = unit(axes' (x - mean)), for later rows x of all dimensions.

    The norm of a later row is replaced by a typical one, so that its scores are linear in x.

    Args:
        found: Of rows z, with prototypes (E, W, d) and one lam for all episodes.
        axes: (E, D, d).
        mean: (E, 1, D).
        projected: Rows before `unit`, (E, N, d).
    """
    length = torch.linalg.vector_norm(projected, dim=-1).mean(dim=-1)[:, None, None]
    lam = float(found.lam[0])
    tiny = torch.finfo(length.dtype).tiny
    slopes = 2 * lam * (found.prototypes / length.clamp_min(tiny**0.5)) @ axes.mT
    offsets = found.biases - lam * (found.prototypes**2).sum(dim=-1)
    offsets = offsets - (slopes * mean).sum(dim=-1)
    prototypes, biases = linear_rules(slopes, offsets, lam)
    return found._replace(prototypes=prototypes, biases=biases)
