"""The k-nearest-neighbor graph by cosine, computed in blocks of rows to bound the memory.

Up to `EXACT_ROWS` rows the search compares every row with every other. Beyond, it is by cells
(inverted file, Sivic and Zisserman 2003): rows are grouped around centers found by K-Means, and
compared with the rows of the nearest cells only. Time then grows with the number of rows, and about
95 % of the neighbors are those of the full search (benchmarks/neighbors.py).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK_ROWS = 1024  # rows whose products with all rows are held at a time; memory
EXACT_ROWS = 20_000  # above, the search by cells is faster
CELL_ROWS = 250  # rows per cell
N_PROBED = 12  # cells that a row is compared with
N_ROUNDS = 4  # of K-Means
MOST_SAMPLED = 50_000  # rows that the centers are found from


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
    if of is None and len(x) == 1 and x.shape[1] > EXACT_ROWS:
        cosines, rows = _search_cells(x[0], k, on_step)
        return Nearest(cosines[None], rows[None])
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


def _search_cells(x: Tensor, k: int, on_step: Callable[[], None]) -> Nearest:
    """The k rows nearest to each row among those of the nearest cells, (N, D) -> (N, k)."""
    centers = _find_centers(x, max(2, len(x) // CELL_ROWS), on_step)
    cell = torch.cat([(part @ centers.T).argmax(dim=1) for part in torch.split(x, BLOCK_ROWS)])
    members = cell.argsort(stable=True)
    counts = cell.bincount(minlength=len(centers))
    starts = counts.cumsum(dim=0) - counts
    order = (centers @ centers.T).argsort(dim=1, descending=True)
    cosines, rows = x.new_empty(len(x), k), cell.new_empty(len(x), k)
    for number in counts.nonzero()[:, 0].tolist():
        on_step()
        enough = int((counts[order[number]].cumsum(dim=0) <= k).sum()) + 1
        probed = order[number, : max(N_PROBED, enough)].tolist()
        near = torch.cat([members[starts[each] :][: counts[each]] for each in probed])
        for block in torch.split(members[starts[number] :][: counts[number]], BLOCK_ROWS):
            products = x[block] @ x[near].T
            products[block[:, None] == near] = -torch.inf
            best = products.topk(k, dim=1)
            cosines[block], rows[block] = best.values, near[best.indices]
    return Nearest(cosines, rows)


def _find_centers(x: Tensor, n: int, on_step: Callable[[], None]) -> Tensor:
    """Centers of norm 1 of cells of similar rows, by K-Means on a sample, (N, D) -> (n, D)."""
    # In the order of a projection, so that another order of the rows gives the same centers.
    generator = torch.Generator().manual_seed(0)
    axis = torch.randn(x.shape[1], generator=generator).to(x)
    order = (x @ axis).argsort(stable=True)
    mixed = order[torch.randperm(len(x), generator=generator).to(x.device)]
    sample = x[mixed[:MOST_SAMPLED]]
    centers = sample[:n]
    for _ in range(N_ROUNDS):
        on_step()
        cell = torch.cat(
            [(part @ centers.T).argmax(dim=1) for part in torch.split(sample, BLOCK_ROWS)]
        )
        sums = torch.zeros_like(centers).index_add(0, cell, sample)
        empty = cell.bincount(minlength=n) == 0
        centers = torch.nn.functional.normalize(torch.where(empty[:, None], centers, sums), dim=1)
    return centers


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
