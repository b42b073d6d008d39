"""Ways to label many episodes: the readable torch code, and fused kernels with the same answers.

- torch: `fitting.answer` in batches; any method, any device, any sizes.
- numba: fused CPU code, all cores, one episode in cache at a time.
- triton: fused CUDA code, one block per episode.
- auto: the fastest that the device has.

A fused engine runs a kernel only for a method that names one; all others are answered by torch.
"""

from importlib.util import find_spec
from typing import Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from fewlabels.devices import choose_device
from fewlabels.errors import InputError, unknown_choice
from fewlabels.evaluation.episodes import Episodes, IntArray
from fewlabels.features import FeatureSet
from fewlabels.fitting import answer
from fewlabels.methods import ConfiguredMethod
from fewlabels.preprocess import Pipeline
from fewlabels.transport import Sizes

ENGINES = ("auto", "torch", "numba", "triton")
PRODUCTS_PER_EPISODE = 4  # matrices of inner products of one episode at a time, about
GATHERED_FLOATS = 25_000_000  # feature values of one chunk of episodes: 100 MB in float32
DTYPES = {"float32": torch.float32, "float64": torch.float64}


class Engine(Protocol):
    """Labels the queries of episodes of one feature set."""

    name: str
    device: str
    dtype: str  # that labels were decided in

    def predict(self, method: ConfiguredMethod, episodes: Episodes) -> IntArray:
        """Ways of the queries, (E, Q)."""
        ...

    def chunk_size(self, n_rows: int, dim: int) -> int:
        """Episodes of n_rows vectors that are best given at a time."""
        ...

    def warm_up(self, method: ConfiguredMethod, episodes: Episodes) -> None:
        """Compile and load all that `predict` will need, so that its time can be measured."""
        ...


def with_truth(method: ConfiguredMethod, episodes: Episodes) -> ConfiguredMethod:
    """The method with the true class sizes of these episodes, where its prior needs them."""
    if method.prior is None or not method.prior.needs_truth:
        return method
    return method.with_prior(Sizes(torch.as_tensor(episodes.query_counts)))


def make_engine(
    features: FeatureSet,
    engine: str = "auto",
    device: str = "auto",
    dtype: str | None = None,
    mean_features: FeatureSet | None = None,
    *,
    n_methods: int = 1,
) -> Engine:
    """An engine by name for a device.

    Args:
        dtype: Of the torch engine, float32 if left out. A fused engine takes none: it gives the
            labels of float64.
        mean_features: Where steps such as `center(mean)` take their mean from.
        n_methods: How many methods with the same row-wise steps will label the same episodes:
            they share inner products.
    """
    if engine not in ENGINES:
        raise unknown_choice("engine", engine, ENGINES)
    if dtype is not None and dtype not in DTYPES:
        raise unknown_choice("dtype", dtype, DTYPES)
    if mean_features is not None and mean_features.dim != features.dim:
        raise InputError(
            f"mean_features must hold vectors of {features.dim} numbers like the features, "
            f"got {mean_features.dim}. Give features of the same backbone."
        )
    chosen = choose_device(device)
    if engine == "numba" and chosen != "cpu":
        raise InputError(
            f"engine 'numba' runs on the CPU, got device '{chosen}'. "
            "Use device 'cpu' or engine 'auto'."
        )
    if engine == "triton" and chosen != "cuda":
        raise InputError(f"engine 'triton' runs on CUDA, got device '{chosen}'. Use engine 'auto'.")
    unfused = engine == "auto" and chosen == "cuda" and not find_spec("triton")
    if engine == "torch" or chosen == "mps" or unfused:
        return TorchEngine(features, chosen, dtype or "float32", mean_features)
    # compiled code is loaded only where it is used
    from fewlabels.evaluation.fused import NumbaEngine, TritonEngine

    fused = NumbaEngine if chosen == "cpu" else TritonEngine
    if dtype is not None:
        raise InputError(
            f"dtype has no effect on engine '{fused.name}', which gives the labels of float64, "
            f"got '{dtype}'. Leave it out, or use engine 'torch'."
        )
    return fused(features, mean_features=mean_features, n_methods=n_methods)


_ON_DEVICE: WeakKeyDictionary[FeatureSet, dict[str, Tensor]] = WeakKeyDictionary()


class DeviceRows:
    """The vectors of a feature set on a device, after the row-wise steps of a pipeline."""

    def __init__(
        self, features: FeatureSet, mean_features: FeatureSet | None, *, device: str
    ) -> None:
        self._features, self._mean_features = features, mean_features
        self._device = device
        self._cached: tuple[Pipeline, Tensor] | None = None

    def all(self, pipeline: Pipeline, dtype: torch.dtype) -> Tensor:
        """All vectors, (N, D); one pipeline's are kept, so that sweeps do not fill the memory."""
        kept = self._cached
        if kept is None or kept[0] != pipeline.rowwise or kept[1].dtype != dtype:
            x = pipeline.transform(self.raw.to(dtype), mean=self.mean(pipeline, dtype))
            kept = self._cached = (pipeline.rowwise, x)
        return kept[1]

    def some(self, pipeline: Pipeline, numbers: IntArray, dtype: torch.dtype) -> Tensor:
        """The vectors of some rows."""
        chosen = self.raw[torch.as_tensor(numbers).to(self._device)]
        return pipeline.transform(chosen.to(dtype), mean=self.mean(pipeline, dtype))

    def mean(self, pipeline: Pipeline, dtype: torch.dtype) -> Tensor | None:
        """The mean from outside, (D,)."""
        if self._mean_features is None or not pipeline.needs_mean:
            return None
        other = torch.as_tensor(self._mean_features.features)
        return pipeline.mean_of(other.to(device=self._device, dtype=dtype))

    @property
    def raw(self) -> Tensor:
        """The vectors as they are, (N, D); copied to a device once per feature set."""
        loaded = _ON_DEVICE.setdefault(self._features, {})
        if self._device not in loaded:
            loaded[self._device] = torch.as_tensor(self._features.features).to(self._device)
        return loaded[self._device]


class TorchEngine:
    """The methods as they are written, in batches."""

    name = "torch"

    def __init__(
        self,
        features: FeatureSet,
        device: str = "cpu",
        dtype: str = "float32",
        mean_features: FeatureSet | None = None,
    ) -> None:
        self.device, self.dtype = device, dtype
        self._rows, self._dtype = DeviceRows(features, mean_features, device=device), DTYPES[dtype]

    def warm_up(self, method: ConfiguredMethod, episodes: Episodes) -> None:
        """See `Engine`."""
        self.predict(method, episodes.take(slice(0, 1)))

    def predict(self, method: ConfiguredMethod, episodes: Episodes) -> IntArray:
        """See `Engine`."""
        method = with_truth(method, episodes)
        x = self._rows.all(method.pipeline, self._dtype)
        support, labels, query = (
            torch.as_tensor(a).to(self.device)
            for a in (episodes.support, episodes.support_labels, episodes.query)
        )
        steps, mean = method.pipeline.episodic, self._rows.mean(method.pipeline, self._dtype)
        episode = (x[support], labels, x[query])
        found = answer(method, *episode, n_way=episodes.n_way, pipeline=steps, mean=mean)
        predicted: IntArray = found.assignment.labels.cpu().numpy()
        return predicted

    def chunk_size(self, n_rows: int, dim: int) -> int:
        """See `Engine`."""
        per_row = max(dim, PRODUCTS_PER_EPISODE * n_rows)
        return max(1, min(GATHERED_FLOATS // (n_rows * per_row), 1000))
