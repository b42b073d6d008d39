"""Principal components of rows, by a randomised range finder (Halko, Martinsson and Tropp 2011)."""

import torch
from torch import Tensor

OVERSAMPLING = 10  # directions beyond those wanted
POWER_ITERATIONS = 2  # products with the rows that sharpen the range


def principal_components(x: Tensor, n: int, *, seed: int = 0) -> Tensor:
    """The coordinates of centered rows on their first principal axes, (N, D) -> (N, min(n, N, D)).

    Rows that have no more dimensions than that are only centered.
    """
    centered = x - x.mean(dim=0)
    if x.shape[1] <= n + OVERSAMPLING:
        return centered
    if len(x) <= n + OVERSAMPLING:
        rotated, sizes, _ = torch.linalg.svd(centered, full_matrices=False)
        whole: Tensor = rotated[:, :n] * sizes[:n]
        return whole
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(x.shape[1], n + OVERSAMPLING, generator=generator).to(x)
    basis = torch.linalg.qr(centered @ start).Q
    for _ in range(POWER_ITERATIONS):
        basis = torch.linalg.qr(centered @ (centered.T @ basis)).Q
    _, _, axes = torch.linalg.svd(basis.T @ centered, full_matrices=False)
    coordinates: Tensor = centered @ axes[:n].T
    return coordinates
