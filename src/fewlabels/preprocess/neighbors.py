"""The k-nearest-neighbor graph by cosine, computed in blocks of rows to bound the memory."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK_ROWS = 1024  # rows whose products with all rows are held at a time; memory


class Nearest(NamedTuple):
    """The nearest other rows, the nearest first, (E, n, k) each."""

    cosines: Tensor
    rows: Tensor


def find_nearest(
    x: Tensor, k: int, *, of: Tensor | None = None, on_step: Callable[[], None] = lambda: None
) -> Nearest:
    """The k rows nearest to each row by cosine, without itself, (E, N, D) -> (E, n, k).

    Args:
        of: Numbers of the rows whose neighbors are wanted, (E, n); all by default.
        on_step: Called once per block; an exception that it raises ends the search.

    >>> find_nearest(torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]]), 1).rows.tolist()
    [[[2], [2], [1]]]
    """
    wanted = torch.arange(x.shape[1], device=x.device).expand(len(x), -1) if of is None else of
    found = []
    for first in range(0, wanted.shape[1], BLOCK_ROWS):
        on_step()
        block = wanted[:, first : first + BLOCK_ROWS, None]
        cosines = x.gather(1, block.expand(-1, -1, x.shape[2])) @ x.mT
        cosines.scatter_(2, block, -torch.inf)
        found.append(cosines.topk(k, dim=-1))
    cosines, rows = (torch.cat(each, dim=1) for each in zip(*found, strict=True))
    return Nearest(cosines, rows)


def join_nearest(nearest: Nearest) -> Tensor:
    """The graph D^-1/2 A D^-1/2 of all rows, sparse, (E N, E N), with one block per episode.

    A holds the positive cosines of rows and their nearest, symmetrized; D holds the row sums of A.
    """
    n_episodes, n_rows, _ = nearest.rows.shape
    device = nearest.rows.device
    block = n_rows * torch.arange(n_episodes, device=device)[:, None, None]
    rows = block + torch.arange(n_rows, device=device)[:, None]
    rows = rows.expand_as(nearest.rows).reshape(-1)
    columns = (block + nearest.rows).reshape(-1)
    both = torch.stack([torch.cat([rows, columns]), torch.cat([columns, rows])])
    halves = nearest.cosines.clamp_min(0.0).reshape(-1).repeat(2) / 2
    size = n_episodes * n_rows
    scale = torch.zeros(size, dtype=halves.dtype, device=device).index_add(0, both[0], halves)
    scale = scale.clamp_min(torch.finfo(halves.dtype).tiny ** 0.5).rsqrt()
    return torch.sparse_coo_tensor(
        both, halves * scale[both[0]] * scale[both[1]], (size, size), check_invariants=False
    ).coalesce()
