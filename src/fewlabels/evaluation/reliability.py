"""Reliability: confidence against accuracy over episodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fewlabels.confidence.calibration import calibrate, calibration_bins, leave_one_out_temperature
from fewlabels.evaluation.episodes import Episodes
from fewlabels.evaluation.sampling import sample_episodes
from fewlabels.features import FeatureSet
from fewlabels.fitting import answer
from fewlabels.methods import ConfiguredMethod, configure

WANTED = 0.95  # expected accuracy of the labels that are kept
AT_A_TIME = 50  # episodes: a hundred rows of 640 features each take 13 MB in float32


class Confidence(NamedTuple):
    """Confidence in the label of each query, and whether it is right, (Q,) over all episodes."""

    confidence: NDArray[np.float64]
    right: NDArray[np.bool_]

    @property
    def error(self) -> float:
        """Expected calibration error, 0 to 1."""
        bins = self.bins
        return float((bins.fraction * np.abs(bins.confidence - bins.accuracy)).sum())

    @property
    def bins(self) -> "Bins":
        """Means over equal bins of confidence, empty ones left out."""
        found = calibration_bins(torch.tensor(self.confidence), torch.tensor(self.right))
        filled = found[0].numpy() > 0
        return Bins(*(part.numpy()[filled] for part in found))


class Bins(NamedTuple):
    """Bins of confidence, (B,): fraction of the queries, mean confidence, accuracy."""

    fraction: NDArray[np.float64]
    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Reliability:
    """Confidence against accuracy of one kind of episode."""

    n_way: int
    n_shot: int
    queries: str
    n_episodes: int
    title: str  # of the method
    confidence: Confidence
    coverage: float  # fraction of the labels kept where 95 % are expected to be right
    accuracy: float  # of those kept

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, for JSON."""
        kind = {"n_way": self.n_way, "n_shot": self.n_shot, "queries": self.queries}
        return {
            **kind,
            "n_episodes": self.n_episodes,
            "error": round(self.confidence.error, 4),
            "wanted_accuracy": WANTED,
            "coverage": round(self.coverage, 4),
            "accuracy": round(self.accuracy, 4) if self.coverage else None,
        }


def measure_reliability(
    features: FeatureSet,
    *,
    method: str = "map-auto",
    settings: Mapping[str, Any] | None = None,
    n_way: int = 5,
    n_shot: int = 5,
    queries: str = "15",
    n_episodes: int = 200,
    seed: int = 0,
) -> Reliability:
    """Confidence against accuracy of a method with `settings`; see `configure`.

    A plan that is not calibrated yet is calibrated in each episode by the labels of the episode.
    """
    dataset = features.provenance.get("dataset")
    used = configure(method, n_shot=n_shot, dataset=dataset, **(settings or {}))
    used = used.decide(torch.as_tensor(features.features))
    x = used.pipeline.transform(torch.as_tensor(features.features))
    episodes = sample_episodes(
        features, n_way=n_way, n_shot=n_shot, queries=queries, n_episodes=n_episodes, seed=seed
    )
    parts = [
        _answer(used, x, episodes.take(slice(first, first + AT_A_TIME)))
        for first in range(0, n_episodes, AT_A_TIME)
    ]
    probabilities, labels = (torch.cat(part) for part in zip(*parts, strict=True))
    right = (labels.numpy() == episodes.query_labels).reshape(-1)
    sure = probabilities.amax(dim=-1).double().numpy()
    kept = _kept(sure).reshape(-1)
    accuracy = float(right[kept].mean()) if kept.any() else float("nan")
    found = (Confidence(sure.reshape(-1), right), float(kept.mean()), accuracy)
    return Reliability(n_way, n_shot, queries, n_episodes, used.title, *found)


def _answer(method: ConfiguredMethod, x: Tensor, episodes: Episodes) -> tuple[Tensor, Tensor]:
    """Calibrated probabilities and labels of some episodes."""
    shown = torch.as_tensor(episodes.support_labels)
    support, query = torch.as_tensor(episodes.support), torch.as_tensor(episodes.query)
    steps = method.pipeline.episodic
    found = answer(method, x[support], shown, x[query], n_way=episodes.n_way, pipeline=steps)
    assigned = found.assignment
    if method.method.calibrated or assigned.calibrated.all():
        return assigned.plan, assigned.labels
    temperature = leave_one_out_temperature(found.support, shown, found.query, assigned)
    return calibrate(assigned, temperature), assigned.labels


def _kept(confidence: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which labels are kept, (E, Q): the most confident of each episode, while their mean holds.

    Each episode has a threshold of its own.
    """
    order = np.argsort(-confidence, axis=1, kind="stable")
    sums = np.take_along_axis(confidence, order, axis=1).cumsum(axis=1)
    expected = sums / np.arange(1, confidence.shape[1] + 1)
    kept = np.zeros(confidence.shape, dtype=bool)
    np.put_along_axis(kept, order, expected >= WANTED, axis=1)
    return kept
