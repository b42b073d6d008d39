"""Principal components by randomised subspace iteration (Halko, Martinsson and Tropp 2011)."""

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
    # In float64: the products square the singular values, and float32 would lose the small ones.
    centered = centered.double()
    generator = torch.Generator().manual_seed(seed)
    axes = torch.randn(x.shape[1], n + OVERSAMPLING, generator=generator).to(centered)
    for _ in range(POWER_ITERATIONS):
        axes = torch.linalg.qr(centered.T @ (centered @ axes)).Q
    coordinates = centered @ axes
    # Eigenvectors in the order of falling eigenvalues.
    rotation = torch.linalg.eigh(coordinates.T @ coordinates).eigenvectors.flip(1)
    main: Tensor = (coordinates @ rotation[:, :n]).to(x)
    return main
