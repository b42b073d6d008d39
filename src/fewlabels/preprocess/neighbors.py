"""The graph that joins rows to their nearest, for episodes of any size: products are taken block by block, and what is kept is sparse."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

ROWS_AT_ONCE = 1024  # of the products of all rows with all rows


class Nearest(NamedTuple):
    """The nearest others of rows, the nearest first, (E, n, k) each."""

    cosines: Tensor
    rows: Tensor


def find_nearest(
    x: Tensor, k: int, *, of: Tensor | None = None, on_step: Callable[[], None] = lambda: None
) -> Nearest:
    """The k rows that are nearest to each by cosine, itself left out, (E, N, D) unit vectors -> (E, n, k).

    Args:
        x: The rows.
        k: At most N - 1.
        of: Numbers of the rows that are asked about, (n,); all by default.
        on_step: Called now and then; what it raises ends the search.

    >>> find_nearest(torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]]), 1).rows.tolist()
    [[[2], [2], [1]]]
    """
    asked = torch.arange(x.shape[1], device=x.device) if of is None else of
    found = []
    for first in range(0, len(asked), ROWS_AT_ONCE):
        on_step()
        block = asked[first : first + ROWS_AT_ONCE]
        near = x[:, block] @ x.mT
        near[:, torch.arange(len(block), device=x.device), block] = -torch.inf
        found.append(near.topk(k, dim=-1))
    cosines, rows = (torch.cat(each, dim=1) for each in zip(*found, strict=True))
    return Nearest(cosines, rows)


def join_nearest(nearest: Nearest) -> Tensor:
    """The graph of all rows and their nearest where the cosine is positive, a sparse matrix (E N, E N): D^-1/2 A D^-1/2.

    A holds the cosines, symmetrised, and D their sums. All episodes are blocks of one matrix.
    """
    n_episodes, n_rows, _ = nearest.rows.shape
    device = nearest.rows.device
    block = n_rows * torch.arange(n_episodes, device=device)[:, None, None]
    rows = (
        (block + torch.arange(n_rows, device=device)[:, None]).expand_as(nearest.rows).reshape(-1)
    )
    columns = (block + nearest.rows).reshape(-1)
    both = torch.stack([torch.cat([rows, columns]), torch.cat([columns, rows])])
    halves = nearest.cosines.clamp_min(0.0).reshape(-1).repeat(2) / 2
    size = n_episodes * n_rows
    scale = torch.zeros(size, dtype=halves.dtype, device=device).index_add(0, both[0], halves)
    scale = scale.clamp_min(torch.finfo(halves.dtype).tiny ** 0.5).rsqrt()
    return torch.sparse_coo_tensor(
        both, halves * scale[both[0]] * scale[both[1]], (size, size), check_invariants=False
    ).coalesce()
