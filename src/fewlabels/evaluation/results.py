"""Results of an evaluation, with all that is needed to repeat it."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from fewlabels import __version__


def mean_and_ci95(values: NDArray[np.float64]) -> tuple[float, float]:
    """Mean and half-width of its 95 % confidence interval by Student's t.

    The half-width of one value is NaN. For many values it is the 1.96 standard errors of the
    authors' script.

    >>> mean, half_width = mean_and_ci95(np.array([1.0, 3.0]))
    >>> round(mean, 3), round(half_width, 3)
    (2.0, 12.706)
    """
    n = len(values)
    if n < 2:
        return float(values.mean()), float("nan")
    half = stdtrit(n - 1, 0.975) * values.std(ddof=1) / np.sqrt(n)
    return float(values.mean()), float(half)


@dataclass(frozen=True)
class EvaluationResult:
    """One method on one kind of episode.

    >>> from fewlabels import evaluate
    >>> [result] = evaluate("ncm", n_episodes=10)
    >>> result.method, result.accuracies.shape, result.to_dict()["n_way"]
    ('ncm', (10,), 5)
    """

    method: str
    title: str
    pipeline: str
    settings: Mapping[str, Any]
    n_way: int
    n_shot: int
    queries: str  # QuerySpec
    n_query: int  # per class where all classes have equally many, else of the whole episode
    accuracies: NDArray[np.float64]  # (E,) fraction of right labels of each episode
    seconds: float
    provenance: Mapping[str, Any]  # draws, seed, hashes, engine, device, versions
    interrupted: bool = False

    @property
    def n_episodes(self) -> int:
        """Episodes that were done."""
        return len(self.accuracies)

    @property
    def accuracy(self) -> float:
        """Mean accuracy in percent."""
        return 100 * mean_and_ci95(self.accuracies)[0]

    @property
    def ci95(self) -> float:
        """Half-width of the 95 % confidence interval of the mean, in percent."""
        return 100 * mean_and_ci95(self.accuracies)[1]

    def to_dict(self) -> dict[str, Any]:
        """Everything but the single accuracies, ready for JSON."""
        ci95 = self.ci95
        settings = {
            name: value if isinstance(value, int | float | str) else str(value)
            for name, value in self.settings.items()
        }
        return {
            **{"method": self.method, "title": self.title, "n_way": self.n_way},
            **{"n_shot": self.n_shot, "n_query": self.n_query, "queries": self.queries},
            "accuracy": round(self.accuracy, 4),
            "ci95": round(ci95, 4) if ci95 == ci95 else None,
            "n_episodes": self.n_episodes,
            "seconds": round(self.seconds, 4),
            **{"interrupted": self.interrupted, "pipeline": self.pipeline, "settings": settings},
            **self.provenance,
        }


@cache
def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    packages = {name: version(name) for name in ("torch", "numpy", "numba", "scikit-learn")}
    return {"fewlabels": __version__, "python": platform.python_version(), **packages}
