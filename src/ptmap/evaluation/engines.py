"""Ways to classify many episodes: the readable torch classifiers, and fused kernels with the same answers.

torch    the classifiers as they are written; any device, any sizes
numba    fused CPU code, all cores, one episode in cache at a time
auto     the fastest that the device has
"""

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptmap.errors import InputError, unknown_choice
from ptmap.evaluation.episodes import Episodes, IntArray
from ptmap.features import FeatureSet
from ptmap.methods import Method
from ptmap.preprocess import Pipeline

ENGINES = ("auto", "torch", "numba")
DEVICES = ("auto", "cpu", "cuda", "mps")
DTYPES = {"float32": torch.float32, "float64": torch.float64}


class Engine(Protocol):
    """Classifies episodes of one feature set."""

    name: str
    device: str

    def predict(self, method: Method, episodes: Episodes) -> IntArray:
        """Ways of the queries, (E, Q)."""
        ...


def choose_device(device: str) -> str:
    """The device that "auto" stands for, or the asked one if it is there."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        return "cuda" if available["cuda"] else "cpu"  # mps has no float64 and no fast small solves: only when asked
    if device not in DEVICES:
        raise unknown_choice("device", device, DEVICES)
    if not available[device]:
        raise InputError(f"device '{device}' is not available here. Use --device cpu, or install a torch build that has it.")
    return device


def make_engine(
    features: FeatureSet, *, engine: str = "auto", device: str = "auto", dtype: str = "float32", mean_features: FeatureSet | None = None
) -> Engine:
    """An engine by name for a device.

    Args:
        features: What the episodes are made of.
        engine: One of `ENGINES`.
        device: One of `DEVICES`.
        dtype: Of the torch engine. A fused engine gives the labels of float64 whatever is asked.
        mean_features: Where `center(mean)` takes its mean from.
    """
    if engine not in ENGINES:
        raise unknown_choice("engine", engine, ENGINES)
    chosen = choose_device(device)
    if engine == "numba" and chosen != "cpu":
        raise InputError(f"engine 'numba' runs on the CPU, got device '{chosen}'. Use --device cpu or --engine auto.")
    if engine == "torch" or chosen != "cpu":
        return TorchEngine(features, device=chosen, dtype=dtype, mean_features=mean_features)
    from ptmap.evaluation.fused import NumbaEngine  # compiled code is loaded only where it is used

    return NumbaEngine(features, mean_features=mean_features)


class Rows:
    """The vectors of a feature set after the row-wise steps of a pipeline, computed once."""

    def __init__(self, features: FeatureSet, mean_features: FeatureSet | None, *, device: str, dtype: torch.dtype) -> None:
        self._features, self._mean_features = features, mean_features
        self._device, self._dtype = device, dtype
        self._cached: tuple[Pipeline, Tensor] | None = None

    def all(self, pipeline: Pipeline) -> Tensor:
        """All vectors, (N, D); one pipeline's are kept, so that sweeps do not fill the memory."""
        if self._cached is None or self._cached[0] != pipeline.rowwise:
            self._cached = (pipeline.rowwise, pipeline.transform(self._load(self._features.features), mean=self.mean(pipeline)))
        return self._cached[1]

    def some(self, pipeline: Pipeline, numbers: IntArray) -> Tensor:
        """The vectors of some rows."""
        return pipeline.transform(self._load(self._features.features[numbers]), mean=self.mean(pipeline))

    def mean(self, pipeline: Pipeline) -> Tensor | None:
        """What `center(mean)` subtracts, (D,)."""
        if self._mean_features is None or not pipeline.needs_mean:
            return None
        return pipeline.mean_of(self._load(self._mean_features.features))

    def _load(self, x: NDArray[np.floating]) -> Tensor:
        return torch.as_tensor(x).to(device=self._device, dtype=self._dtype)


class TorchEngine:
    """The classifiers as they are written, batched."""

    name = "torch"

    def __init__(
        self, features: FeatureSet, *, device: str = "cpu", dtype: str = "float32", mean_features: FeatureSet | None = None
    ) -> None:
        if dtype not in DTYPES:
            raise unknown_choice("dtype", dtype, DTYPES)
        self.device = device
        self._rows = Rows(features, mean_features, device=device, dtype=DTYPES[dtype])

    def predict(self, method: Method, episodes: Episodes) -> IntArray:
        """See `Engine`."""
        x = self._rows.all(method.pipeline)
        support, labels, query = (torch.as_tensor(a).to(self.device) for a in (episodes.support, episodes.support_labels, episodes.query))
        vectors = method.pipeline.episodic.apply(x[support], x[query], mean=self._rows.mean(method.pipeline))
        predicted: NDArray[np.int64] = method.assign(vectors[0], labels, vectors[1], n_way=episodes.n_way).labels.cpu().numpy()
        return predicted
