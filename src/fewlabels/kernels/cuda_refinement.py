"""The network of `methods.refinement` for many episodes, compiled by Triton, in float32.

Tiles have the rows of an episode as rows, support first, and classes or units of the network as
columns. A block does one episode, or one class of it; what blocks and rounds tell each other is in
memory: numbers per query and class in slots, (E, slots, W, n), and the states, (E, W, n, D).

Matrix products take three passes of TensorFloat-32, whose error is about that of float32.
"""

from functools import cache, partial
from math import log
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from fewlabels.kernels.cuda import SEARCHED_CELLS, Estimates, find_kth
from fewlabels.methods import refinement
from fewlabels.methods.refinement import N_PLAN, VOTERS

ROW_LIMIT, WAY_LIMIT = 128, 32  # of an episode whose tiles a block has registers for
LEAST_WIDTH = 16  # of a tile in a matrix product
N_WARPS = 4
N_STAGES = 1


class Decided(NamedTuple):
    """The answer for E episodes."""

    labels: Tensor  # (E, Q) int32
    margins: Tensor  # (E,) float32, smallest difference of two probabilities; -1 for NaN or ties


@cache
def _weights_on(device: torch.device) -> dict[str, Tensor]:
    """The weights of the network on a device."""
    found = refinement.load_weights()
    return {name: each.to(device).contiguous() for name, each in found.items()}


def fits(n_way: int, n_rows: int) -> bool:
    """Whether an episode fits into one block."""
    return n_rows <= ROW_LIMIT and n_way <= WAY_LIMIT


def find_nearest(products: Tensor, n_support: int, n_nearest: int, ties: Tensor) -> Tensor:
    """Rows of largest cosine to each query, (E, n, n) -> (E, Q, k) int32.

    `ties`, (E,) int32, becomes 1 where another row is as near as the last of them: there
    `refinement.nearest_votes` takes more rows.
    """
    n_episodes, n, _ = products.shape
    n_query, n_nearest = n - n_support, min(n_nearest, n - 1)
    nearest = ties.new_empty(n_episodes, n_query, n_nearest)
    length = max(32, triton.next_power_of_2(n))
    rows = max(1, SEARCHED_CELLS // length)
    _nearest_kernel[(n_episodes, triton.cdiv(n_query, rows))](
        *(products, nearest, ties, n_support, n_query, n_nearest), R=rows, N=length, num_warps=1
    )
    return nearest


def refine(products: Tensor, wides: Tensor, support_labels: Tensor, found: Estimates) -> Decided:
    """Labels of the queries of E episodes.

    Args:
        products: Inner products of all rows, (E, n, n) float64, support rows first.
        wides: Those of the neighborhood features, (E, n, n).
        support_labels: (E, S) int32 ways.
        found: The plans of `estimation`.
    """
    n_episodes, n, _ = products.shape
    n_way, n_query = found.plans.shape[2:]
    n_support = n - n_query
    weights = _weights_on(products.device)
    n_rounds, width = weights["c"].shape
    free, without_prior, equal = (each.mT.float() for each in found.plans)
    whole = refinement.describe_whole(
        *(free, without_prior, equal, found.biases.float()),
        products[:, :n_support, :n_support].float(),
        lam=found.lam.float(),
        gain=found.gain.float(),
        certainty=found.certainty.float(),
    )
    first = refinement.N_INPUTS - whole.shape[-1]  # numbers of a query and a class come first
    scaled = (whole - weights["mean"][first:]) / weights["scale"][first:]
    limit = refinement.LARGEST_INPUT
    of_episode = scaled.clamp(-limit, limit) @ weights["A"][first:] + weights["a"]

    ties = torch.zeros(n_episodes, dtype=torch.int32, device=products.device)
    nearest = [
        find_nearest(each, n_support, k, ties)
        for each, k in zip((products, wides), VOTERS, strict=True)
    ]
    counts = [each.shape[-1] for each in nearest]
    labels = torch.empty((n_episodes, n_query), dtype=torch.int32, device=products.device)
    margins = products.new_empty(n_episodes, dtype=torch.float32)
    ways = max(LEAST_WIDTH, triton.next_power_of_2(n_way))
    block = {"N": max(32, triton.next_power_of_2(n)), "num_warps": N_WARPS, "num_stages": N_STAGES}
    wide = {"W": ways, "INPUTS": first, **block}
    empty = partial(torch.empty, dtype=torch.float32, device=products.device)
    slots = empty(n_episodes, first + STATE_SLOTS.value, n_way, n)
    members = empty(n_episodes, 1 + len(found.plans), n, ways)
    states, next_states = empty(2, n_episodes, n_way, n, width)
    of_queries, of_classes = empty(n_episodes, n, width), empty(n_episodes, n_way, width)
    sizes = n_support, n_query, n_way

    def describe(number: int, *, first: bool) -> None:
        _describe_kernel[(n_episodes, number)](
            *(
                products,
                wides,
                *nearest,
                *counts,
                support_labels,
                found.plans,
                found.biases,
                found.lam,
            ),
            *(found.certainty, members, slots, *sizes, found.plans[0].numel()),
            log(n_query / n_way + 1),
            FIRST=first,
            **wide,
        )

    describe(1 + len(found.plans), first=True)
    of_labels = slots[:, refinement.OF_LABELS, :, n_support:].mT
    faint = refinement.find_trust(of_labels) < 1
    ties.masked_fill_(faint, 1)  # few: the readable code averages two answers there
    _start_kernel[(n_episodes, n_way)](
        *(slots, of_episode, weights["A"], weights["mean"], weights["scale"], states, *sizes),
        INPUTS=first,
        PADDED=triton.next_power_of_2(first),
        D=width,
        **block,
    )
    for step in range(n_rounds):
        describe(1, first=False)
        _means_kernel[(n_episodes,)](
            *(slots, states, *(weights[name] for name in "CDb"), of_queries, of_classes),
            *(*sizes, step),
            D=width,
            **wide,
        )
        _round_kernel[(n_episodes, n_way)](
            *(*nearest, *counts, slots, states, next_states, of_queries, of_classes),
            *(*(weights[name] for name in "BMNOc"), *sizes, step),
            LAST=step == n_rounds - 1,
            INPUTS=first,
            D=width,
            **block,
        )
        states, next_states = next_states, states
    _decide_kernel[(n_episodes,)](slots, ties, labels, margins, *sizes, **wide)
    return Decided(labels, margins)


# Triton reads global numbers only as constexpr.
SMALLEST, VOTE_FLOOR = tl.constexpr(refinement.SMALLEST), tl.constexpr(refinement.VOTE_FLOOR)
OWN_LIMIT, TIE = tl.constexpr(refinement.OWN_LIMIT), tl.constexpr(refinement.TIE)
LARGEST_INPUT = tl.constexpr(refinement.LARGEST_INPUT)
LARGEST_LOG_ODDS = tl.constexpr(refinement.LARGEST_LOG_ODDS)
STATE_SLOTS = tl.constexpr(3)  # logits, plan, and its parts of the class sizes
OF_PLAN, PLAN_WIDTH = tl.constexpr(N_PLAN), tl.constexpr(LEAST_WIDTH)
CHUNK = tl.constexpr(32)  # columns of a matrix that a product takes at a time

PRECISION = tl.constexpr("tf32x3")


@triton.jit
def _nearest_kernel(  # type: ignore[no-untyped-def]
    g, nearest, ties, n_support, n_query, n_nearest, R: tl.constexpr, N: tl.constexpr
):
    """The nearest rows of R queries of an episode."""
    episode = tl.program_id(0).to(tl.int64)
    n = n_support + n_query
    g += episode * n * n
    query, col = tl.program_id(1) * R + tl.arange(0, R), tl.arange(0, N)
    row, real = n_support + query, query < n_query
    used = real[:, None] & (col < n)[None, :]
    values = tl.load(g + row[:, None] * n + col[None, :], mask=used, other=0.0)
    of_row = tl.load(g + row * (n + 1), mask=real, other=0.0)
    of_col = tl.load(g + col * (n + 1), mask=col < n, other=0.0)
    of_row = tl.where(of_row > 0.0, 1.0 / tl.sqrt(of_row), 0.0)
    of_col = tl.where(of_col > 0.0, 1.0 / tl.sqrt(of_col), 0.0)
    cosines = values * of_row[:, None] * of_col[None, :]
    cosines = tl.where(used & (row[:, None] != col[None, :]), cosines, -float("inf"))
    least = find_kth(cosines, n_nearest, real)
    near = cosines >= (least - TIE)[:, None]
    place = tl.cumsum(near.to(tl.int32), axis=1) - 1
    there = nearest + (episode * n_query + query)[:, None] * n_nearest + place
    cols = tl.zeros_like(place) + col[None, :]
    tl.store(there, cols, mask=used & near & (place < n_nearest))
    tied = real & (tl.sum(near.to(tl.int32), axis=1) > n_nearest)
    if tl.max(tied.to(tl.int32), axis=0) > 0:
        tl.store(ties + episode, 1)


@triton.jit
def _mean_of_nearest(array, nearest, count, row, col, is_query):  # type: ignore[no-untyped-def]
    """Means of rows of an (n, C) array over the nearest of each query, (N, C)."""
    total = tl.zeros([row.shape[0], col.shape[0]], dtype=tl.float32)
    for k in range(count):
        best = tl.load(nearest + row * count + k, mask=is_query, other=0)
        there = array + best[:, None] * col.shape[0] + col[None, :]
        total += tl.load(there, mask=is_query[:, None], other=0.0)
    return total / count


@triton.jit
def _times(matrix, right, n, row, col):  # type: ignore[no-untyped-def]
    """An (n, n) matrix times an (n, C) array, both in memory, (N, C)."""
    total = tl.zeros([row.shape[0], col.shape[0]], dtype=tl.float32)
    for start in range(0, n, CHUNK):
        k = start + tl.arange(0, CHUNK)
        used = (row < n)[:, None] & (k < n)[None, :]
        part = tl.load(matrix + row[:, None] * n + k[None, :], mask=used, other=0.0)
        there = right + k[:, None] * col.shape[0] + col[None, :]
        total = tl.dot(
            part.to(tl.float32),
            tl.load(there, mask=(k < n)[:, None], other=0.0),
            total,
            input_precision=PRECISION,
        )
    return total


@triton.jit
def _center(x, real_way, n_way):  # type: ignore[no-untyped-def]
    """Less the mean over classes, (N, W)."""
    return x - (tl.sum(tl.where(real_way[None, :], x, 0.0), axis=1) / n_way)[:, None]


@triton.jit
def _softmax(logits, used):  # type: ignore[no-untyped-def]
    """Probabilities of the classes, (N, W), zero where a cell is not used."""
    logits = tl.where(used, logits, -1e30)
    powers = tl.where(used, tl.exp(logits - tl.max(logits, axis=1)[:, None]), 0.0)
    return powers / tl.maximum(tl.sum(powers, axis=1), 1e-30)[:, None]


@triton.jit
def _clamp(x, limit):  # type: ignore[no-untyped-def]
    return tl.minimum(tl.maximum(x, -limit), limit)


@triton.jit
def _describe_kernel(  # type: ignore[no-untyped-def]
    products,
    wides,
    nearest,
    wide_nearest,
    n_nearest,
    n_wide_nearest,
    support_labels,
    plans,
    biases,
    lams,
    certainties,
    members,
    slots,
    n_support,
    n_query,
    n_way,
    plan_size,
    log_even,
    FIRST: tl.constexpr,
    INPUTS: tl.constexpr,
    W: tl.constexpr,
    N: tl.constexpr,
):
    """`refinement.describe_plan` of the present plan.

    FIRST: of the labels, of which the inner products with their means are kept, and of the three
    plans; also the first logits.
    """
    episode, number = tl.program_id(0).to(tl.int64), tl.program_id(1)
    n = n_support + n_query
    size = n_way * n
    row, way = tl.arange(0, N), tl.arange(0, W)
    is_query, real_way = (row >= n_support) & (row < n), way < n_way
    used = is_query[:, None] & real_way[None, :]
    place = way[None, :] * n + row[:, None]
    products, wides = products + episode * n * n, wides + episode * n * n
    first = episode * n_query - n_support  # the place of row 0 among the queries
    nearest, wide_nearest = nearest + first * n_nearest, wide_nearest + first * n_wide_nearest
    slots += episode * (INPUTS + STATE_SLOTS) * size
    members += (episode * tl.num_programs(1) + number) * n * W
    logit_slot = slots + INPUTS * size
    given = tl.load(support_labels + episode * n_support + row, mask=row < n_support, other=-1)
    shots = tl.where(given[:, None] == way[None, :], 1.0, 0.0)
    lam = tl.load(lams + episode).to(tl.float32)
    to, keep = slots, number >= 0
    if FIRST:
        in_plan = (episode * n_way + way[None, :]) * n_query + (row - n_support)[:, None]
        there = plans + (number - 1) * plan_size + in_plan
        keep = number > 0
        plan = tl.load(there, mask=used & keep, other=0.0).to(tl.float32)
        logits = tl.log(tl.maximum(plan, SMALLEST))
        to += tl.where(keep, (number - 1) * OF_PLAN, 3 * OF_PLAN - 1) * size
        if number == 0:
            bias = tl.load(biases + episode * n_way + way, mask=real_way, other=0.0)
            bias = (bias - tl.sum(bias, axis=0) / n_way).to(tl.float32)
            even = tl.zeros([N, W], dtype=tl.float32) + bias[None, :]
            tl.store(slots + (3 * OF_PLAN + 2) * size + place, even, mask=used)
        if number == 3:
            free = tl.load(plans + in_plan, mask=used, other=0.0).to(tl.float32)
            certainty = tl.load(certainties + episode).to(tl.float32)
            blended = certainty * free + (1.0 - certainty) * plan
            tl.store(logit_slot + place, tl.log(tl.maximum(blended, SMALLEST)), mask=used)
    else:
        logits = tl.load(logit_slot + place, mask=used, other=0.0)
        plan = _softmax(logits, used)
        tl.store(logit_slot + size + place, plan, mask=used)
        share = plan / (1.0 + tl.sum(plan, axis=0))[None, :]
        tl.store(logit_slot + 2 * size + place, share, mask=used)

    whole = shots + plan
    total = tl.maximum(tl.sum(whole, axis=0), 1e-30)  # of classes that do not exist
    weights = whole / total[None, :]
    tl.store(members + row[:, None] * W + way[None, :], weights, mask=(row < n)[:, None])
    tl.debug_barrier()
    all_used = used & keep
    tl.store(to + place, _center(logits, real_way, n_way), mask=all_used)
    for kind in tl.static_range(2):
        matrix = products if kind == 0 else wides
        inner = _times(matrix, members, n, row, way)
        norms = lam * tl.sum(weights * inner, axis=0)
        squared = tl.load(matrix + row * (n + 1), mask=row < n, other=0.0).to(tl.float32)
        inner = (inner - weights * squared[:, None]) / tl.maximum(1.0 - weights, OWN_LIMIT)
        inner = 2.0 * lam * _center(inner, real_way, n_way)
        norms = norms - tl.sum(tl.where(real_way, norms, 0.0), axis=0) / n_way
        tl.store(to + (1 + kind) * size + place, inner, mask=used)
        of_all = tl.zeros_like(inner) + norms[None, :]
        tl.store(to + (3 + kind) * size + place, of_all, mask=all_used)
        near, count = (nearest, n_nearest) if kind == 0 else (wide_nearest, n_wide_nearest)
        voted = _mean_of_nearest(members, near, count, row, way, is_query) * total[None, :]
        tl.store(to + (5 + kind) * size + place, tl.log(voted + VOTE_FLOOR), mask=all_used)
    sizes = tl.log(tl.sum(plan, axis=0) + 1.0) - log_even
    tl.store(to + 7 * size + place, tl.zeros_like(plan) + sizes[None, :], mask=all_used)


@triton.jit
def _start_kernel(  # type: ignore[no-untyped-def]
    slots,
    of_episode,
    weights,
    input_means,
    input_scales,
    states,
    n_support,
    n_query,
    n_way,
    INPUTS: tl.constexpr,
    PADDED: tl.constexpr,
    D: tl.constexpr,
    N: tl.constexpr,
):
    """The first state of a class."""
    episode, j = tl.program_id(0).to(tl.int64), tl.program_id(1)
    n = n_support + n_query
    size = n_way * n
    row, unit, at = tl.arange(0, N), tl.arange(0, D), tl.arange(0, PADDED)
    is_query = (row >= n_support) & (row < n)
    mean = tl.load(input_means + at, mask=at < INPUTS, other=0.0)
    scale = tl.load(input_scales + at, mask=at < INPUTS, other=1.0)
    there = weights + at[:, None] * D + unit[None, :]
    first = tl.load(there, mask=(at < INPUTS)[:, None], other=0.0)
    slots += episode * (INPUTS + STATE_SLOTS) * size + j * n
    shown = is_query[:, None] & (at < INPUTS)[None, :]
    x = tl.load(slots + at[None, :] * size + row[:, None], mask=shown, other=0.0)
    x = _clamp((x - mean[None, :]) / scale[None, :], LARGEST_INPUT)
    state = tl.dot(x, first, input_precision=PRECISION)
    state = tl.maximum(state + tl.load(of_episode + episode * D + unit)[None, :], 0.0)
    states += (episode * n_way + j) * n * D
    state = tl.where(is_query[:, None], state, 0.0)
    tl.store(states + row[:, None] * D + unit[None, :], state, mask=(row < n)[:, None])


@triton.jit(do_not_specialize=["step"])
def _means_kernel(  # type: ignore[no-untyped-def]
    slots,
    states,
    weights_c,
    weights_d,
    offsets,
    of_queries,
    of_classes,
    n_support,
    n_query,
    n_way,
    step,
    INPUTS: tl.constexpr,
    D: tl.constexpr,
    W: tl.constexpr,
    N: tl.constexpr,
):
    """What means over classes tell of queries, and means over queries of classes."""
    episode = tl.program_id(0).to(tl.int64)
    n = n_support + n_query
    size = n_way * n
    row, way, unit = tl.arange(0, N), tl.arange(0, W), tl.arange(0, D)
    is_query = (row >= n_support) & (row < n)
    plan_slot = slots + (episode * (INPUTS + STATE_SLOTS) + (INPUTS + 1)) * size
    share_slot = plan_slot + size
    states += episode * size * D
    by_query = tl.zeros([N, D], dtype=tl.float32)
    of_own = tl.zeros([N, D], dtype=tl.float32)
    by_class = tl.zeros([W, D], dtype=tl.float32)
    of_members = tl.zeros([W, D], dtype=tl.float32)
    for j in range(n_way):
        there = states + (j * n + row)[:, None] * D + unit[None, :]
        state = tl.load(there, mask=is_query[:, None], other=0.0)
        part = tl.load(plan_slot + j * n + row, mask=is_query, other=0.0)
        share = tl.load(share_slot + j * n + row, mask=is_query, other=0.0)
        by_query += state
        of_own += part[:, None] * state
        here = (way == j)[:, None]
        by_class = tl.where(here, tl.sum(state, axis=0)[None, :] / n_query, by_class)
        of_members = tl.where(here, tl.sum(share[:, None] * state, axis=0)[None, :], of_members)
    overall = tl.zeros_like(by_class) + (tl.sum(by_class, axis=0) / n_way)[None, :]
    of_class = tl.zeros_like(by_class) + tl.load(offsets + step * D + unit)[None, :]
    square = unit[:, None] * D + unit[None, :]
    weights_c += step * 3 * D * D
    weights_d += step * 2 * D * D
    of_class = tl.dot(by_class, tl.load(weights_c + square), of_class, input_precision=PRECISION)
    of_class = tl.dot(
        of_members, tl.load(weights_c + D * D + square), of_class, input_precision=PRECISION
    )
    of_class = tl.dot(
        overall, tl.load(weights_c + 2 * D * D + square), of_class, input_precision=PRECISION
    )
    there = of_classes + (episode * n_way + way)[:, None] * D + unit[None, :]
    tl.store(there, of_class, mask=(way < n_way)[:, None])
    of_query = tl.dot(by_query / n_way, tl.load(weights_d + square), input_precision=PRECISION)
    of_query = tl.dot(
        of_own, tl.load(weights_d + D * D + square), of_query, input_precision=PRECISION
    )
    there = of_queries + (episode * n + row)[:, None] * D + unit[None, :]
    tl.store(there, of_query, mask=is_query[:, None])


@triton.jit(do_not_specialize=["step"])
def _round_kernel(  # type: ignore[no-untyped-def]
    nearest,
    wide_nearest,
    n_nearest,
    n_wide_nearest,
    slots,
    states,
    next_states,
    of_queries,
    of_classes,
    weights_b,
    weights_m,
    weights_n,
    weights_o,
    weights_z,
    n_support,
    n_query,
    n_way,
    step,
    LAST: tl.constexpr,
    INPUTS: tl.constexpr,
    D: tl.constexpr,
    N: tl.constexpr,
):
    """One round for a class: its logits and its next state."""
    episode, j = tl.program_id(0).to(tl.int64), tl.program_id(1)
    n = n_support + n_query
    size = n_way * n
    row, unit, at = tl.arange(0, N), tl.arange(0, D), tl.arange(0, PLAN_WIDTH)
    is_query = (row >= n_support) & (row < n)
    square = unit[:, None] * D + unit[None, :]
    slots += episode * (INPUTS + STATE_SLOTS) * size + j * n
    states += (episode * n_way + j) * n * D
    there = of_queries + (episode * n + row)[:, None] * D + unit[None, :]
    change = tl.load(there, mask=is_query[:, None], other=0.0)
    change += tl.load(of_classes + (episode * n_way + j) * D + unit)[None, :]
    place = row[:, None] * D + unit[None, :]
    state = tl.load(states + place, mask=is_query[:, None], other=0.0)
    of_state = tl.load(weights_m + step * D * D + square)
    change = tl.dot(state, of_state, change, input_precision=PRECISION)
    shown = is_query[:, None] & (at < OF_PLAN)[None, :]
    described = tl.load(slots + at[None, :] * size + row[:, None], mask=shown, other=0.0)
    there = weights_b + (at + step * OF_PLAN)[:, None] * D + unit[None, :]
    of_plan = tl.load(there, mask=(at < OF_PLAN)[:, None], other=0.0)
    described = _clamp(described, LARGEST_LOG_ODDS)
    change = tl.dot(described, of_plan, change, input_precision=PRECISION)
    for kind in tl.static_range(2):
        near, count = (nearest, n_nearest) if kind == 0 else (wide_nearest, n_wide_nearest)
        near += (episode * n_query - n_support) * count
        mean = _mean_of_nearest(states, near, count, row, unit, is_query)
        there = weights_n + (step * D + unit)[:, None] * (2 * D) + (kind * D + unit)[None, :]
        change = tl.dot(mean, tl.load(there), change, input_precision=PRECISION)
    change = tl.maximum(change, 0.0)
    toward = tl.load(weights_z + step * D + unit)
    logit_slot = slots + INPUTS * size + row
    logits = tl.load(logit_slot, mask=is_query, other=0.0)
    logits += tl.sum(change * toward[None, :], axis=1)
    tl.store(logit_slot, logits, mask=is_query)
    if not LAST:
        of_change = tl.load(weights_o + step * D * D + square)
        state = tl.dot(change, of_change, state, input_precision=PRECISION)
        next_states += (episode * n_way + j) * n * D
        state = tl.where(is_query[:, None], state, 0.0)
        tl.store(next_states + place, state, mask=(row < n)[:, None])


@triton.jit
def _decide_kernel(  # type: ignore[no-untyped-def]
    slots,
    ties,
    labels,
    margins,
    n_support,
    n_query,
    n_way,
    INPUTS: tl.constexpr,
    W: tl.constexpr,
    N: tl.constexpr,
):
    """Labels, and the smallest difference of two probabilities."""
    episode = tl.program_id(0).to(tl.int64)
    n = n_support + n_query
    size = n_way * n
    row, way = tl.arange(0, N), tl.arange(0, W)
    is_query = (row >= n_support) & (row < n)
    used = is_query[:, None] & (way < n_way)[None, :]
    logit_slot = slots + (episode * (INPUTS + STATE_SLOTS) + INPUTS) * size
    logits = tl.load(logit_slot + way[None, :] * n + row[:, None], mask=used, other=0.0)
    plan = _softmax(logits, used)
    best = tl.argmax(plan, axis=1)
    largest = tl.max(plan, axis=1)
    second = tl.max(tl.where(way[None, :] == best[:, None], -1.0, plan), axis=1)
    margin = tl.min(tl.where(is_query, largest - second, 1.0), axis=0)
    known = tl.sum(tl.sum(tl.abs(logits), axis=1), axis=0) < float("inf")  # NaN is not
    known = known & (tl.load(ties + episode) == 0)
    tl.store(margins + episode, tl.where(known, margin, -1.0))
    tl.store(labels + episode * n_query + (row - n_support), best.to(tl.int32), mask=is_query)
