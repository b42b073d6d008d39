"""Engines around fused kernels: float32 where it is sure, float64 where a decision is close.

A kernel says by how much the closest decision of each episode was decided. Episodes with a margin
below `doubt` are done again in float64, so that all labels are those of the float64 reference.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray

from ptmap.classifiers.proportions import class_mass
from ptmap.evaluation.engines import Rows, TorchEngine
from ptmap.evaluation.episodes import Episodes, IntArray
from ptmap.features import FeatureSet
from ptmap.kernels import cpu
from ptmap.methods import Method
from ptmap.preprocess import Pipeline

# A margin is a difference of two shares of a plan, or of two squared distances where there is no plan.
SOFT_DOUBT = 1e-3  # float32 moves a share by 1e-6 as a rule, by 2e-3 in the worst of 20,000 real episodes
HARD_DOUBT = 2e-5  # a hundred roundings of a squared distance between unit vectors
TOLERANCES = {np.dtype("f4"): 1e-5, np.dtype("f8"): 1e-10}  # of a transport solve, as in classifiers.transport
BLOCK = 64  # episodes that a thread takes at a time, in one workspace
GRAM_ROWS = 4096  # rows of an episode up to which its Gram matrix (64 MB) is worth having
STEP_CODES = {"unit": cpu.UNIT, "center": cpu.CENTER, "center(joint)": cpu.CENTER_JOINTLY}
HARD_CODES = {"nearest": cpu.NEAREST, "kmeans": cpu.KMEANS}


class NumbaEngine:
    """Fused CPU code in Gram space; what it cannot do goes to the readable classifiers."""

    name = "numba"
    device = "cpu"

    def __init__(self, features: FeatureSet, *, mean_features: FeatureSet | None = None) -> None:
        self._rows = Rows(features, mean_features, device="cpu", dtype=torch.float32)
        self._exact_rows = Rows(features, mean_features, device="cpu", dtype=torch.float64)
        self._readable = TorchEngine(features, dtype="float64", mean_features=mean_features)
        self._shifted: tuple[Pipeline, NDArray[np.float32], torch.Tensor] | None = None

    def predict(self, method: Method, episodes: Episodes) -> IntArray:
        """See `Engine`."""
        if not fits_gram(method, episodes):
            return self._readable.predict(method, episodes)
        rows, shift = self._shifted_rows(method.pipeline)
        labels, margins = _classify(rows, method, episodes)
        doubtful = np.flatnonzero(margins < doubt(method, rows))
        if len(doubtful):
            again = episodes.take(doubtful)
            labels[doubtful], margins = self._classify_exactly(method, again, shift)
            unsolved = np.flatnonzero(margins < 0)
            if len(unsolved):
                labels[doubtful[unsolved]] = self._readable.predict(method, again.take(unsolved))
        return labels

    def _shifted_rows(self, pipeline: Pipeline) -> tuple[NDArray[np.float32], torch.Tensor]:
        """All vectors less their mean: no distance changes, and inner products keep more digits."""
        if self._shifted is None or self._shifted[0] != pipeline.rowwise:
            rows = self._rows.all(pipeline)
            shift = rows.mean(dim=0)
            self._shifted = (pipeline.rowwise, (rows - shift).numpy(), shift)
        return self._shifted[1:]

    def _classify_exactly(self, method: Method, episodes: Episodes, shift: torch.Tensor) -> tuple[IntArray, NDArray[np.float64]]:
        """The same in float64, from just the rows that the episodes use."""
        used, numbers = np.unique(np.concatenate([episodes.support, episodes.query], axis=1), return_inverse=True)
        support, query = np.split(numbers.reshape(len(episodes), -1), [episodes.support.shape[1]], axis=1)
        local = Episodes(episodes.classes, support.copy(), episodes.support_labels, query.copy(), episodes.query_labels)
        return _classify((self._exact_rows.some(method.pipeline, used) - shift).numpy(), method, local)


def doubt(method: Method, rows: NDArray[np.floating]) -> float:
    """The margin below which float32 is not trusted."""
    if method.classifier not in HARD_CODES:
        return SOFT_DOUBT
    ends_in_unit = method.pipeline.steps[-1:] == ("unit",)
    return HARD_DOUBT if ends_in_unit else HARD_DOUBT * float(np.einsum("nd,nd->n", rows, rows).max())


def fits_gram(method: Method, episodes: Episodes) -> bool:
    """Whether a kernel knows the steps and has room for the episode's Gram matrix."""
    known = all(step in STEP_CODES for step in method.pipeline.episodic.steps)
    return known and episodes.support.shape[1] + episodes.query.shape[1] <= GRAM_ROWS


def _classify(rows: NDArray[np.floating], method: Method, episodes: Episodes) -> tuple[IntArray, NDArray[np.float64]]:
    """Labels, (E, Q), and margins, (E,), of the CPU kernel."""
    classifier, target = kernel_target(method, episodes)
    labels = np.empty(episodes.query.shape, np.int64)
    margins = np.empty(len(episodes))
    steps = np.array([STEP_CODES[step] for step in method.pipeline.episodic.steps], np.int64)
    lam, alpha, n_steps = (method.settings.get(name, 0) for name in ("lam", "alpha", "n_steps"))

    def classify(part: slice) -> None:
        cpu.classify_episodes(
            rows,
            episodes.support[part],
            episodes.support_labels[part],
            episodes.query[part],
            episodes.n_way,
            steps,
            classifier,
            float(lam),
            float(alpha),
            int(n_steps),
            target[part] if len(target) > 1 else target,
            TOLERANCES[rows.dtype],
            labels[part],
            margins[part],
        )

    parts = [slice(first, first + BLOCK) for first in range(0, len(episodes), BLOCK)]
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:  # the kernel holds no lock
        list(pool.map(classify, parts))
    return labels, margins


def kernel_target(method: Method, episodes: Episodes) -> tuple[int, NDArray[np.float64]]:
    """The kernel's code of the classifier, and the class masses it imposes, (E, W) or (1, W)."""
    unused = np.zeros((1, episodes.n_way))
    if method.classifier in HARD_CODES:
        return HARD_CODES[method.classifier], unused
    shape_only = torch.empty(*episodes.query.shape, 0, dtype=torch.float64)
    imposed = class_mass(method.settings.get("proportions", "free"), shape_only, n_way=episodes.n_way)
    if imposed is None:
        return cpu.FREE, unused
    return cpu.MINIMUM if imposed.minimum else cpu.MASS, imposed.mass.contiguous().numpy()
