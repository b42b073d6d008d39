"""DSN-MR, deep subspace networks with mean refinement (Simon et al., CVPR 2020).

    m_j = mean of the support of class j,  B_j = orthonormal basis of its K - 1 centered rows
    d_j(x) = |r|² - |B_j r|²,  r = f(x) - m_j:  squared distance to the class's affine subspace
    logit_j(x) = -d_j(x) / temperature
    loss = CE(queries) + apart * mean over i ≠ j of |B_i B_jᵀ|²

The subspace has all K - 1 dimensions; with one support row it is a point, as in ProtoNet. In tests
each support image and its mirror image are two rows, so one shot has a line, and a query is the
mean of its two views. Mean refinement repeats, over the queries of the episode:

    p_j(x) = softmax_j(logit_j(x)),  m_j = (sum of support + sum_x p_j(x) f(x)) / (K + sum_x p_j(x))

The temperature is learned. B_j is found by the Cholesky factor of the rows' inner products.
"""

from dataclasses import dataclass
from math import log

import torch
from torch import Tensor, nn

from fewlabels.errors import InputError
from fewlabels.training.systems.base import (
    SYSTEMS,
    Shape,
    System,
    both_views,
    pair_views,
    query_loss,
    split_rows,
    widen,
)

RIDGE = 1e-3  # of the mean squared length of centered rows: a basis for equal rows too


@dataclass(frozen=True)
class DsnSettings:
    """Settings of DSN-MR."""

    temperature: float = 16.0  # initial value
    apart: float = 0.03  # weight of the overlap of subspaces
    refinements: int = 1  # of the means, in tests; 0 for plain DSN
    mirror: bool = True  # whether tests use mirror images

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise InputError(f"temperature must be positive, got {self.temperature}.")
        if self.apart < 0 or self.refinements < 0:
            raise InputError("apart and refinements must not be negative.")


@SYSTEMS.register
class SubspaceNetwork(System):
    """The nearest affine subspace."""

    name, title = "dsn", "DSN-MR"
    reference = "Simon et al. 2020, Adaptive subspaces for few-shot learning"
    Settings = DsnSettings

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self.log_temperature = nn.Parameter(torch.tensor(log(self.settings.temperature)))

    def represent(self, images: Tensor) -> Tensor:
        """Features of the views, (N, 3, S, S) -> (N, V, D): one in training, two in tests."""
        if self.training or not self.settings.mirror:
            return super().represent(images).unsqueeze(1)
        return pair_views(super().represent(both_views(images)))

    def answer(self, support: Tensor, query: Tensor) -> Tensor:
        """(E, W, K, V, D) and (E, Q, V, D) -> (E, Q, W)."""
        rows, query = support.flatten(2, 3), query.mean(dim=2)
        means, basis = rows.mean(dim=2), find_basis(rows)
        n_rows = rows.shape[2]
        for _ in range(0 if self.training else self.settings.refinements):
            p = self._logits(query, means, basis).softmax(dim=-1)  # (E, Q, W)
            total = n_rows + p.sum(dim=1)  # (E, W)
            means = (rows.sum(dim=2) + p.mT @ query) / total.unsqueeze(-1)
        return self._logits(query, means, basis)

    def forward(self, images: Tensor, labels: Tensor, shape: Shape) -> Tensor:  # noqa: ARG002
        """Training loss with the overlap of the subspaces."""
        rows = widen(self.represent(images))
        with torch.autocast(rows.device.type, enabled=False):
            support, query = split_rows(rows, shape)
            loss = query_loss(self.answer(support, query), shape)
            if shape.n_shot > 1 and self.settings.apart:
                loss = loss + self.settings.apart * overlap(find_basis(support.flatten(2, 3)))
            return loss

    def _logits(self, query: Tensor, means: Tensor, basis: Tensor) -> Tensor:
        return -subspace_distances(query, means, basis) / self.log_temperature.exp()


def find_basis(rows: Tensor) -> Tensor:
    """Orthonormal basis of the span of centered rows, (E, W, K, D) -> (E, W, K - 1, D)."""
    centered = (rows - rows.mean(dim=2, keepdim=True))[:, :, :-1]  # the last follows from these
    if not centered.shape[2]:
        return centered
    products = centered @ centered.mT  # (E, W, K - 1, K - 1)
    mean_square = products.diagonal(dim1=-2, dim2=-1).mean(dim=-1)[..., None, None]
    identity = torch.eye(products.shape[-1], device=rows.device, dtype=rows.dtype)
    factor = torch.linalg.cholesky(products + (RIDGE * mean_square + 1e-9) * identity)
    basis: Tensor = torch.linalg.solve_triangular(factor, centered, upper=False)
    return basis


def subspace_distances(query: Tensor, means: Tensor, basis: Tensor) -> Tensor:
    """Squared distances to affine subspaces, (E, Q, D), (E, W, D), (E, W, n, D) -> (E, Q, W)."""
    residual = query.unsqueeze(1) - means.unsqueeze(2)  # (E, W, Q, D)
    inside = residual @ basis.mT  # (E, W, Q, n)
    return (residual.square().sum(dim=-1) - inside.square().sum(dim=-1)).mT


def overlap(basis: Tensor) -> Tensor:
    """Mean of |B_i B_jᵀ|² over episodes and pairs of different classes, (E, W, n, D) -> number."""
    n_way, n = basis.shape[1:3]
    flat = basis.flatten(1, 2)  # (E, W * n, D)
    squares = (flat @ flat.mT).square().view(-1, n_way, n, n_way, n)
    between = squares.sum(dim=(2, 4))  # (E, W, W)
    own = between.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    return ((between.sum(dim=(1, 2)) - own) / (n_way * max(1, n_way - 1))).mean()
