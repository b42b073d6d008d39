"""What several methods of the literature share: knobs, checks, and rules for later rows."""

import torch
from torch import Tensor

from fewlabels.errors import InputError
from fewlabels.methods.assignment import prepare_episode
from fewlabels.methods.base import Knob
from fewlabels.preprocess.steps import unit

MOST_ROWS = 10_000  # of a method that holds a number for every pair of rows: 800 MB in float64

SHARPNESS = Knob(
    "sharpness",
    "how sharply the similarity to a prototype decides",
    low=0,
    above_low=True,
    symbol="sharpness",
)
N_UPDATES = Knob("n_updates", "updates of the prototypes or labels", low=0, whole=True)
N_NEIGHBORS = Knob("n_neighbors", "nearest rows that a row is joined to", low=1, whole=True)


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
    """Prototypes (E, W, D) and biases (E, W) of linear scores <x, slope> + offset.

    Later rows are decided by lam (2 <x, c> - |c|^2) + bias, which is any linear function of x.
    """
    prototypes = slopes / (2 * lam)
    return prototypes, offsets + lam * (prototypes * prototypes).sum(dim=-1)


def principal_axes(rows: Tensor, n_dims: int) -> Tensor:
    """Leading right singular vectors of rows, (E, N, D) -> (E, D, min(n_dims, N, D)).

    Computed in float64 from the smaller of the two inner product matrices: a float32 axis would
    depend on the order of sums where two singular values are close.
    """
    x = rows.double()
    n_dims = min(n_dims, *x.shape[1:])
    if x.shape[1] >= x.shape[2]:
        axes: Tensor = torch.linalg.eigh(x.mT @ x).eigenvectors[..., -n_dims:]
    else:
        left = torch.linalg.eigh(x @ x.mT).eigenvectors[..., -n_dims:]
        axes = unit((x.mT @ left).mT).mT
    return axes.to(rows)
