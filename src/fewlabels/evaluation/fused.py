"""Engines around fused kernels: float32, and float64 where a decision is close.

A kernel returns the margin of the closest decision of each episode. Episodes with a margin too
small for float32 are done again in float64, so that all labels are those of the float64 reference.
All episodes are done in float64 where the norms of the vectors differ too much, or where MAP is
given vectors that are not of unit norm.

Where a network refines the plan (`methods.refinement`), the kernels work in float64, and only the
network in float32 and, for episodes with a small margin, again in float64.

A method is fused only where it names a kernel that this file knows (`KERNELS`).
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fewlabels.errors import InputError
from fewlabels.evaluation.engines import (
    PRODUCTS_PER_EPISODE,
    DeviceRows,
    TorchEngine,
    with_truth,
)
from fewlabels.evaluation.episodes import Episodes, IntArray
from fewlabels.features import FeatureSet
from fewlabels.kernels import codes, gram
from fewlabels.methods import ConfiguredMethod
from fewlabels.methods.assignment import one_hot
from fewlabels.methods.auto import refines
from fewlabels.methods.estimation import WeighedPlans
from fewlabels.methods.kmeans import MAX_ITERATIONS
from fewlabels.methods.map import LAM
from fewlabels.methods.refinement import VOTERS, describe_episodes, nearest_votes, refine_plan
from fewlabels.preprocess import Pipeline, Step
from fewlabels.preprocess.smoothing import SMOOTHING, plan_smoothing
from fewlabels.preprocess.steps import AUTO, SHRUNK, UNIT, WITH_OUTSIDE, support_part
from fewlabels.transport.solver import SOLVER

if TYPE_CHECKING:
    from fewlabels.kernels.cpu import Kept

# A margin is a difference of two probabilities of a plan, or of two squared distances where there
# is no plan. Soft ones hold at lam 10 and are above the largest error of 880,000 real episodes
# (benchmarks/float32.py).
SOFT_DOUBT = 2e-4  # per unit of the growth of errors (kernels/cpu.py); seen: 1.6e-4
ESTIMATE_DOUBT = 6e-4  # likewise, where class sizes or lam are estimated; seen: 5.0e-4
CUDA_SOFT_DOUBT = 5e-3  # where the growth is not measured
SMALLEST_LAM = 1.0  # a margin's error grows with lam; below this the plan's own rounding prevails
HARD_DOUBT = 2e-5  # a hundred rounding errors of a squared distance between unit vectors
REFINED_DOUBT = 2e-4  # of the network in float32; seen: twice 7e-5 (benchmarks/refinement.py)
TOLERANCES = {  # misplaced part of the mass in a solve
    torch.float32: codes.KERNELS.float32_tolerance,
    torch.float64: SOLVER.float64_tolerance,
}
EVEN = 10.0  # times the median norm: the longest vector for which float32 is tried
EXACT_BYTES = 2**27  # of rows in float64 that are kept for the next doubtful episodes
PRODUCTS_BYTES = 2**28  # inner products of a chunk that are kept for the next method
REFINED_BYTES = 2**23  # inner products of the episodes that the network refines at a time
BLOCK = 64  # episodes that a thread takes at a time, in one workspace
GATHERED_PART = 1 / 16  # of the GPU's memory, for the rows or products of the episodes at a time
INTERPRETER_BYTES = 2**34  # likewise, where Triton's interpreter takes the place of a GPU
STEP_CODES = {
    UNIT: codes.UNIT,
    Step("center"): codes.CENTER,
    Step("center", "joint"): codes.CENTER_JOINTLY,
    Step("center", "support"): codes.CENTER_BY_SUPPORT,
    WITH_OUTSIDE: codes.CENTER_WITH_OUTSIDE,
    SHRUNK: codes.CENTER_SHRUNK,
}
OF_ORIGIN = {WITH_OUTSIDE, SHRUNK}  # means that are shrunk toward it
HARD_CODES = {"nearest": codes.NEAREST, "kmeans": codes.KMEANS}  # kernels without a plan
REFINED = "map-refined"  # MAP with estimated class sizes and a network
KERNELS = (*HARD_CODES, "map", REFINED)  # the names that a method may give

_WARM: set[tuple[str, str | None, bool]] = set()  # (engine, kernel, estimating) compiled so far


class _FusedEngine:
    """What both kernels share. A subclass gives `_classify`."""

    name: str
    device: str
    soft_doubt: float
    estimates_in_float64 = False  # rather than in float32 first
    dtype = "float32, float64 where a decision is close"

    def __init__(
        self, features: FeatureSet, *, mean_features: FeatureSet | None = None, n_methods: int = 1
    ) -> None:
        self._sharing = n_methods > 1
        self._rows = DeviceRows(features, mean_features, device=self.device)
        self._readable = TorchEngine(features, self.device, "float64", mean_features)
        # what the rows depend on, all rows less an origin, and the origin
        self._shifted: tuple[Treatment, Tensor, Tensor] | None = None
        # what the rows depend on, rows in float64, and which of them are known
        self._exact: tuple[Treatment, Tensor, NDArray[np.bool_]] | None = None

    def predict(self, method: ConfiguredMethod, episodes: Episodes) -> IntArray:
        """See `Engine`."""
        method = with_truth(method, episodes)
        if not self._fits(method, episodes):
            return self._readable.predict(method, episodes)
        treatment = treatment_of(method.pipeline)
        if self._shifted is None or self._shifted[0] != treatment:
            rows = self._rows.all(method.pipeline, torch.float32)
            origin = rows.mean(dim=0)  # no distance changes, and inner products keep more digits
            if treatment.centering == WITH_OUTSIDE:
                given = self._rows.mean(method.pipeline, torch.float64)
                origin = method.pipeline.require_mean(given)
            elif treatment.centering == SHRUNK:
                origin = torch.zeros_like(origin)
            self._shifted = (treatment, rows - origin.float(), origin)
        in_float64 = has_network(method) or (estimates(method) and self.estimates_in_float64)
        in_float64 |= treatment.centering == SHRUNK  # whose rows may lie far from the origin
        limit = None if in_float64 else doubt(method, self._shifted[1], self.soft_doubt)
        if limit is None:
            return self._predict_exactly(method, episodes)
        labels, margins = self._classify(self._shifted[1], episodes, method)
        doubtful = np.flatnonzero(~(margins >= limit))  # NaN is doubtful
        if len(doubtful):
            part = _part(method, doubtful)
            labels[doubtful] = self._predict_exactly(part, episodes.take(doubtful))
        return labels

    def warm_up(self, method: ConfiguredMethod, episodes: Episodes) -> None:
        """See `Engine`."""
        key = (self.name, method.method.kernel, estimates(method))
        if key in _WARM:
            return
        _WARM.add(key)
        first = episodes.take(slice(0, 1))
        self.predict(method, first)
        if self._fits(method, first):
            self._predict_exactly(with_truth(method, first), first)

    def _predict_exactly(self, method: ConfiguredMethod, episodes: Episodes) -> IntArray:
        """Labels in float64."""
        labels, margins = self._classify(*self._exact_rows(method.pipeline, episodes), method)
        unsolved = np.flatnonzero(margins < 0)
        if len(unsolved):
            part = _part(method, unsolved)
            labels[unsolved] = self._readable.predict(part, episodes.take(unsolved))
        return labels

    def _exact_rows(self, pipeline: Pipeline, episodes: Episodes) -> tuple[Tensor, Episodes]:
        """Rows in float64, and the episodes by the numbers of these rows.

        Where there is memory for all rows, those once computed are kept for the next episodes.
        """
        if self._rows.raw.numel() * torch.float64.itemsize <= EXACT_BYTES:
            treatment = treatment_of(pipeline)
            if self._exact is None or self._exact[0] != treatment:
                empty = torch.empty_like(self._rows.raw, dtype=torch.float64)
                self._exact = (treatment, empty, np.zeros(len(empty), bool))
            _, rows, known = self._exact
            drawn = episodes.support, episodes.query
            many = sum(each.size for each in drawn) >= len(known)  # nearly all are drawn
            wanted = np.full_like(known, many)
            if not many:
                for each in drawn:
                    wanted[each] = True
            new = np.flatnonzero(wanted & ~known)
            rows[torch.as_tensor(new).to(self.device)] = self._shifted_rows(pipeline, new)
            known[new] = True
            return rows, episodes
        both = np.concatenate([episodes.support, episodes.query], axis=1)
        used, numbers = np.unique(both, return_inverse=True)
        n_support = episodes.support.shape[1]
        support, query = np.split(numbers.reshape(both.shape), [n_support], axis=1)
        local = replace(episodes, support=support.copy(), query=query.copy())
        return self._shifted_rows(pipeline, used), local

    def _shifted_rows(self, pipeline: Pipeline, numbers: IntArray) -> Tensor:
        """Some rows in float64, less the origin."""
        assert self._shifted is not None
        return self._rows.some(pipeline, numbers, torch.float64) - self._shifted[2].double()

    def _fits(self, method: ConfiguredMethod, episodes: Episodes) -> bool:
        """Whether there is a kernel for the method, its steps, its settings and these sizes."""
        kernel = method.method.kernel
        if kernel is None:
            return False
        if kernel not in KERNELS:
            raise InputError(
                f"the kernel of method '{method.name}' must be one of {', '.join(KERNELS)} or "
                f"None, got '{kernel}'."
            )
        sizes = episodes.support.shape[1], episodes.query.shape[1], episodes.n_way
        if has_network(method) and not (refines(*sizes) and ends_in_unit(method.pipeline.episodic)):
            return False
        iterations = method.settings.get("max_iterations", MAX_ITERATIONS)
        steps = method.pipeline.episodic.steps
        known = all(step in STEP_CODES for step in steps) and not OF_ORIGIN & {*steps[1:]}
        # An estimate needs the origin, which the engine moves where no step centers the episode.
        centered = bool(steps) or not estimates(method)
        return known and centered and iterations == MAX_ITERATIONS  # which the kernel has fixed

    def _classify(
        self, rows: Tensor, episodes: Episodes, method: ConfiguredMethod
    ) -> tuple[IntArray, NDArray[np.floating]]:
        """Labels, (E, Q), and margins, (E,), from row-wise preprocessed vectors (N, D).

        Margins are in the unit of `soft_doubt`.
        """
        raise NotImplementedError


class NumbaEngine(_FusedEngine):
    """Fused CPU code; what it cannot do is answered by the torch engine."""

    name = "numba"
    device = "cpu"
    soft_doubt = SOFT_DOUBT
    # rows, episodes, and the inner products of the rows in these episodes, for the next method
    products: tuple[Tensor, Episodes, NDArray[np.floating]] | None = None

    def chunk_size(self, n_rows: int, dim: int) -> int:  # noqa: ARG002 - each thread gathers one episode at a time
        """See `Engine`."""
        return 2000  # about half a second

    def _fits(self, method: ConfiguredMethod, episodes: Episodes) -> bool:
        n_rows = episodes.support.shape[1] + episodes.query.shape[1]
        # Other sizes are estimated by the readable code alone.
        small = n_rows <= SMOOTHING.dense_rows and episodes.query.shape[1] >= episodes.n_way
        return super()._fits(method, episodes) and (small or not estimates(method))

    def _classify(
        self, rows: Tensor, episodes: Episodes, method: ConfiguredMethod
    ) -> tuple[IntArray, NDArray[np.floating]]:
        if not has_network(method):
            return self._classify_group(rows, episodes, method, None)
        from fewlabels.kernels import cpu

        n_query, n_way = episodes.query.shape[1], episodes.n_way
        n = episodes.support.shape[1] + n_query
        size = REFINED_BYTES // (2 * n * n * torch.float64.itemsize)
        size = max(size, torch.get_num_threads())
        found = []
        for first in range(0, len(episodes), size):
            group = episodes.take(slice(first, first + size))
            shapes = ((2, n, n), (2, n_query, n), (3, n_way, n_query), (n_way,), (3,))
            kept = cpu.Kept(*(np.zeros((len(group), *shape)) for shape in shapes))
            _, margins = self._classify_group(rows, group, method, kept)
            products, votes, plans, biases, numbers = (torch.from_numpy(each) for each in kept)
            shown = torch.as_tensor(group.support_labels)
            given = EstimatedPlans(products, votes, shown, plans.mT, biases, numbers)
            found.append(refine(given, torch.as_tensor(margins)))
        labels, margins = (torch.cat(parts).numpy() for parts in zip(*found, strict=True))
        return labels, margins

    def _classify_group(
        self, rows: Tensor, episodes: Episodes, method: ConfiguredMethod, kept: "Kept | None"
    ) -> tuple[IntArray, NDArray[np.floating]]:
        from fewlabels.kernels import cpu

        x = rows.numpy()
        lam, alpha, n_steps, classifier, target = _kernel_arguments(method, episodes)
        labels = np.empty(episodes.query.shape, np.int64)
        margins, growths = np.empty(len(episodes)), np.empty(len(episodes))
        sizes = episodes.support.shape[1], episodes.query.shape[1], episodes.n_way
        in_gram_space = estimates(method) or cpu.prefers_gram(
            sizes[0] + sizes[1], x.shape[1], episodes.n_way, classifier, n_steps
        )
        planned, smoothing = plan_smoothing(*sizes), None
        if estimates(method):
            smoothing = (planned.neighbors, planned.weight) if planned else (0, 0.0)
        steps = np.array([STEP_CODES[step] for step in method.pipeline.episodic.steps], np.int64)
        products, known = self._shared_products(rows, episodes, wanted=in_gram_space)
        in_gram_space |= known

        def classify(part: slice) -> None:
            drawn = (episodes.support[part], episodes.support_labels[part], episodes.query[part])
            given = (x, products[part], known, *drawn, episodes.n_way, in_gram_space)
            masses = target[part] if len(target) > 1 else target
            how = (steps, classifier, lam, alpha, n_steps, masses, TOLERANCES[rows.dtype])
            found = labels[part], margins[part], growths[part]
            some = None if kept is None else cpu.Kept(*(each[part] for each in kept))
            cpu.classify_episodes(*given, *how, smoothing, some, *found)

        n_threads = torch.get_num_threads()
        size = min(BLOCK, -(-len(episodes) // n_threads))
        parts = [slice(first, first + size) for first in range(0, len(episodes), size)]
        with ThreadPoolExecutor(n_threads) as pool:  # the kernel holds no lock
            list(pool.map(classify, parts))
        return labels, margins / np.maximum(growths, 1)

    def _shared_products(
        self, rows: Tensor, episodes: Episodes, *, wanted: bool
    ) -> tuple[NDArray[np.floating], bool]:
        """Memory for the inner products of the episodes, and whether they are in it already.

        The array is empty where the products are not kept for the next method.
        """
        from fewlabels.kernels import cpu

        kept = self.products
        if kept is not None and kept[0] is rows and kept[1] is episodes:
            return kept[2], True
        n = cpu.pad(episodes.support.shape[1] + episodes.query.shape[1])
        shape = (len(episodes), n, n)
        # rather than for a few doubtful episodes, in float64
        for_all = self._shifted is not None and rows is self._shifted[1]
        n_bytes = len(episodes) * n * n * rows.element_size()
        if not (wanted and for_all and self._sharing and n_bytes <= PRODUCTS_BYTES):
            return np.empty((0, n, n), rows.numpy().dtype), False
        fits = kept is not None and kept[2].shape == shape
        room = kept[2] if kept and fits else np.empty(shape, np.float32)
        self.products = (rows, episodes, room)
        return room, False


class TritonEngine(_FusedEngine):
    """Fused CUDA code, one block per episode; neighborhood features by torch."""

    name = "triton"
    device = "cuda"
    soft_doubt = CUDA_SOFT_DOUBT
    estimates_in_float64 = True  # as the neighbors of a row are chosen in float64

    def chunk_size(self, n_rows: int, dim: int) -> int:  # noqa: ARG002 - the gathering is cut into pieces below
        """See `Engine`."""
        return 10_000

    def _fits(self, method: ConfiguredMethod, episodes: Episodes) -> bool:
        from fewlabels.kernels import cuda

        n_rows = episodes.support.shape[1] + episodes.query.shape[1]
        if estimates(method):  # other sizes by the readable code alone
            wide = self._rows.raw.shape[1] >= n_rows and episodes.query.shape[1] >= episodes.n_way
            if not wide:
                return False
        return super()._fits(method, episodes) and cuda.fits(episodes.n_way, n_rows)

    def _classify(
        self, rows: Tensor, episodes: Episodes, method: ConfiguredMethod
    ) -> tuple[IntArray, NDArray[np.floating]]:
        from fewlabels.kernels import cuda, cuda_refinement

        drawn = (
            torch.as_tensor(each).to(self.device) for each in (episodes.support, episodes.query)
        )
        numbers = torch.cat(list(drawn), dim=1)
        shown = torch.as_tensor(episodes.support_labels.astype(np.int32)).to(self.device)
        lam, alpha, n_steps, classifier, target = _kernel_arguments(method, episodes)
        masses = torch.as_tensor(target).to(rows)
        n_support = episodes.support.shape[1]

        n, n_way = numbers.shape[1], episodes.n_way
        in_block = has_network(method) and cuda_refinement.fits(n_way, n)
        kept: list[tuple[Tensor, Tensor, cuda.Estimates, Tensor]] = []  # for close decisions

        def classify(part: slice) -> tuple[Tensor, Tensor]:
            products = grams(method.pipeline, rows[numbers[part]], n_support)
            wides = None
            if estimates(method):
                wides = gram.append_neighbor_means(
                    products, n_support=n_support, n_way=n_way, kth=cuda.kth_largest
                )
            labels, margins, found = cuda.classify_grams(
                products,
                shown[part],
                n_query=n - n_support,
                n_way=n_way,
                classifier=classifier,
                lam=lam,
                alpha=alpha,
                n_steps=n_steps,
                target=masses[part] if len(masses) > 1 else masses,
                tol=TOLERANCES[rows.dtype],
                wides=wides,
            )
            if wides is None or found is None or not has_network(method):
                return labels, margins
            if not in_block:
                again = given(products, wides, found, shown[part])
                return refine(again, margins)
            decided = cuda_refinement.refine(products, wides, shown[part], found)
            kept.append((products, wides, found, margins))
            return decided.labels, torch.where(margins >= 0, decided.margins.to(margins), -1.0)

        def given(
            products: Tensor, wides: Tensor, found: cuda.Estimates, shown: Tensor
        ) -> EstimatedPlans:
            pair = torch.stack([products, wides], dim=1)
            votes = [
                nearest_votes(each, n_support, k, cuda.kth_largest)
                for each, k in zip(pair.unbind(dim=1), VOTERS, strict=True)
            ]
            return EstimatedPlans(
                pair,
                torch.stack(votes, dim=1),
                shown,
                found.plans.permute(1, 0, 3, 2),
                found.biases,
                torch.stack([found.lam, found.gain, found.certainty], dim=1),
            )

        memory = INTERPRETER_BYTES
        if rows.is_cuda:
            memory = torch.cuda.get_device_properties(rows.device).total_memory
        n_bytes = rows.itemsize * n * max(rows.shape[1], PRODUCTS_PER_EPISODE * n)  # per episode
        size = max(1, int(GATHERED_PART * memory) // n_bytes)
        size = -(-len(episodes) // -(-len(episodes) // size))  # parts of equal size
        parts = [slice(first, first + size) for first in range(0, len(episodes), size)]
        answers = [classify(part) for part in parts]
        labels, margins = (torch.cat(each) for each in zip(*answers, strict=True))
        close = (margins < REFINED_DOUBT).nonzero()[:, 0] if in_block else numbers[:0, 0]
        for piece in (
            torch.split(close, size) if len(close) else ()
        ):  # the network again, in float64
            some = [piece[piece // size == at] - at * size for at in range(len(parts))]
            products, wides, solved = (
                torch.cat([each[at][of] for each, of in zip(kept, some, strict=True)])
                for at in (0, 1, 3)
            )
            found = cuda.Estimates.join(
                [each[2].take(of) for each, of in zip(kept, some, strict=True)]
            )
            again = given(products, wides, found, shown[piece])
            ways, margins[piece] = refine(again, solved, exactly=True)
            labels[piece] = ways.to(labels)
        small = (
            labels.to(torch.int8) if episodes.n_way < 128 else labels
        )  # a quarter of the way back
        return small.cpu().numpy().astype(np.int64), margins.cpu().numpy()


def estimates(method: ConfiguredMethod) -> bool:
    """Whether the method estimates class sizes or lam."""
    estimated = method.prior is not None and method.prior.estimated
    return estimated or method.settings.get("lam") == AUTO


class Treatment(NamedTuple):
    """What the rows that kernels are given depend on."""

    rowwise: Pipeline
    centering: Step | None  # the first episodic step, if it depends on the origin


def treatment_of(pipeline: Pipeline) -> Treatment:
    """What the rows of a pipeline depend on."""
    first = pipeline.episodic.steps[:1]
    return Treatment(pipeline.rowwise, first[0] if OF_ORIGIN & {*first} else None)


def ends_in_unit(pipeline: Pipeline) -> bool:
    """Whether the last step gives vectors norm 1."""
    return pipeline.steps[-1:] == (UNIT,)


def has_network(method: ConfiguredMethod) -> bool:
    """Whether a network refines the plan."""
    return method.method.kernel == REFINED


class EstimatedPlans(NamedTuple):
    """What the kernels found of E episodes, in float64: what the network refines."""

    products: Tensor  # (E, 2, n, n); see `refinement.Clues`
    votes: Tensor  # (E, 2, Q, n), likewise
    support_labels: Tensor  # (E, S)
    plans: Tensor  # (E, 3, Q, W): free, without class prior, with equal sizes
    biases: Tensor  # (E, W) of the last
    numbers: Tensor  # (E, 3): lam, gain and certainty; see `estimation.WeighedPlans`

    def decide(self) -> tuple[Tensor, Tensor]:
        """Labels, (E, Q), and smallest margins, (E,), of the plan of `methods.auto`."""
        free, without_prior, equal = self.plans.unbind(dim=1)
        lam, gain, certainty = self.numbers.unbind(dim=1)
        blended = torch.lerp(equal, free, certainty[:, None, None])
        clues = describe_episodes(
            self.products,
            self.votes,
            one_hot(self.support_labels, self.biases.shape[1], self.products.dtype),
            lam=lam,
            equal=equal,
            biases=self.biases,
            found=WeighedPlans(free, without_prior, gain, certainty, blended),
        )
        largest, ways = refine_plan(clues).topk(2, dim=-1)
        return ways[..., 0], (largest[..., 0] - largest[..., 1]).amin(dim=-1)


def refine(
    found: EstimatedPlans, margins: Tensor, *, exactly: bool = False
) -> tuple[Tensor, Tensor]:
    """Labels, (E, Q), and margins, (E,); -1 where one was negative, or is NaN now.

    In float32, and in float64 where a decision is close; `exactly`: all in float64.
    """
    if exactly:
        labels, smallest = found.decide()
    else:
        halved = (each.float() if each.is_floating_point() else each for each in found)
        labels, smallest = EstimatedPlans(*halved).decide()
        smallest = smallest.to(margins)
        close = (~(smallest >= REFINED_DOUBT) & (margins >= 0)).nonzero()[:, 0]  # NaN is close
        if len(close):
            again = EstimatedPlans(*(each[close] for each in found))
            labels[close], smallest[close] = again.decide()
    return labels, torch.where((margins >= 0) & (smallest >= 0), smallest, -1.0)


def doubt(method: ConfiguredMethod, rows: Tensor, soft_doubt: float) -> float | None:
    """The margin below which a decision of float32 is done again, rows (N, D); None for all."""
    first_unit, last_unit = map(ends_in_unit, (method.pipeline.rowwise, method.pipeline.episodic))
    norms = torch.ones(1) if first_unit else torch.linalg.vector_norm(rows, dim=1)
    if norms.max() > EVEN * norms.median():  # centering by such a vector costs the others digits
        return None
    if method.method.kernel in HARD_CODES:
        return HARD_DOUBT * (1.0 if last_unit else float(norms.max()) ** 2)
    if not (first_unit or last_unit):
        return None
    lam = method.settings["lam"]
    least = max(soft_doubt, ESTIMATE_DOUBT) if estimates(method) else soft_doubt
    return least * (max(lam, SMALLEST_LAM) / LAM if isinstance(lam, int | float) else 1.0)


def grams(pipeline: Pipeline, x: Tensor, n_support: int) -> Tensor:
    """Gram matrices after the episodic steps, (E, n, D) -> (E, n, n)."""
    g = x @ x.mT
    for step in pipeline.episodic.steps:
        if step == UNIT:
            g = gram.normalize(g)
        else:
            weight: float | Tensor = 1.0
            if step == WITH_OUTSIDE:
                weight = support_part(n_support)
            elif step == SHRUNK:
                weight = gram.shrunk_part(g, n_support)
            g = gram.center(
                g,
                n_support=n_support,
                jointly=step.value == "joint",
                by_support=step.value == "support" or step in OF_ORIGIN,
                weight=weight,
            )
    return g.contiguous()


def _part(method: ConfiguredMethod, numbers: IntArray) -> ConfiguredMethod:
    """The method for some of the episodes that its prior has sizes for."""
    return method if method.prior is None else method.with_prior(method.prior.take(numbers))


def _kernel_arguments(
    method: ConfiguredMethod, episodes: Episodes
) -> tuple[float, float, int, int, NDArray[np.float64]]:
    """lam, alpha, n_steps, the kernel's code and the class masses it imposes, (E, W) or (1, W)."""
    settings: dict[str, Any] = {"lam": 0, "alpha": 0, "n_steps": 0, **method.settings}
    lam = 0.0 if settings["lam"] == AUTO else float(settings["lam"])
    knobs = lam, float(settings["alpha"]), int(settings["n_steps"])
    unused = np.zeros((1, episodes.n_way))
    kernel = method.method.kernel
    if kernel in HARD_CODES:
        return *knobs, HARD_CODES[kernel], unused
    prior = settings["prior"]
    imposed = prior.masses(episodes.query.shape[1], episodes.n_way)
    if imposed is None:
        return *knobs, codes.FREE, unused
    if prior.estimated:
        return *knobs, codes.ESTIMATE, imposed.mass.numpy()
    return *knobs, codes.MINIMUM if imposed.minimum else codes.MASS, imposed.mass.numpy()
