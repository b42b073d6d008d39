"""Figure 2: distribution of a feature before and after the power transform, skewness of all."""

import warnings
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import OptimizeWarning, curve_fit

from fewlabels import FeatureSet, Pipeline
from fewlabels.evaluation.tables import NONE, Table
from fewlabels.paper.figure3 import PREFERRED
from fewlabels.paper.ledger import Experiment, Ledger
from fewlabels.paper.library import FeatureSource, Library
from fewlabels.paper.published import DATASETS, read_published
from fewlabels.paper.report import Report

N_CLASSES, N_BINS = 5, 30
PAPER_BETA = 0.5
LADDER = (1.0, 0.5, 0.3, 0.0)
TOP = 99.5  # percentile where the histograms end: a few large values would flatten the rest
SKEW_BINS = np.linspace(-3, 24, 55)  # the skewness of 600 numbers is at most 24.4
Array = NDArray[np.float64]


class DistributionExhibit:
    """Histograms, fitted curves and skewness."""

    name = "figure2"

    def __init__(self) -> None:
        self._paper = read_published().figures[self.name]
        self.title = self._paper.title

    def sources(self) -> list[FeatureSource]:
        """See `Exhibit`."""
        return list(PREFERRED)

    def experiments(self, library: Library) -> list[Experiment]:  # noqa: ARG002 - uses the features themselves
        """See `Exhibit`."""
        return []

    def report(self, ledger: Ledger) -> Report:
        """See `Exhibit`."""
        source = next((each for each in PREFERRED if ledger.library.has(each)), None)
        published = [
            {"panel": each.panel, "name": each.name, **(each.numbers or {})}
            for each in self._paper.series
        ]
        data: dict[str, Any] = {"dataset": None, "published": published}
        where = "paper (miniImageNet)"
        sections: list[list[tuple[str, ...]]] = [
            [
                (where, each.name, each.panel, each.curve, _numbers(each.numbers or {}), NONE)
                for each in self._paper.series
            ]
        ]
        notes = [] if source else [f"Published only: {ledger.library.how_to_get(PREFERRED[0])}"]
        if source is not None:
            found = describe_distributions(ledger.library.load(source), seed=ledger.seed)
            data |= {"dataset": source.dataset, **found}
            where = f"ours ({DATASETS[source.dataset]})"
            sections.append([_row(where, each) for each in found["histograms"]])
            notes = _notes(found)
        header = ("", "class", "pt", "curve", "fitted", "skewness")
        caption = (
            "fits to the counts of 30 bins; before: exponential, after: Gaussian; "
            "skewness within the class"
        )
        table = Table(f"Figure 2: {self.title}", header, sections, caption)
        paper, sources = self._paper.caption, (source,) if source else ()
        return Report(self.name, self.title, paper, table, tuple(notes), data, sources)


@lru_cache(maxsize=2)  # Figure 1 shows the same feature
def describe_distributions(features: FeatureSet, *, seed: int = 0) -> dict[str, Any]:
    """Histograms and fits of a typical feature for five classes, and the skewness of all features.

    The paper chose its feature arbitrarily. Here it is the one whose skewness is closest to the
    median of all, in the mean over the classes.
    """
    raw = np.asarray(features.features, np.float64)
    after = transform(features, beta=PAPER_BETA)
    skews = {panel: class_skewness(x, features) for panel, x in (("before", raw), ("after", after))}
    zeros = (raw == 0).mean(axis=0)  # (D,)
    feature = _typical(skews["before"])
    n_shown = min(N_CLASSES, features.n_classes)
    drawn = np.random.default_rng(seed).choice(features.n_classes, n_shown, replace=False)
    numbers = np.sort(drawn)
    histograms = []
    for panel, x in (("before", raw), ("after", after)):
        column = x[:, feature]
        shown = np.concatenate([column[features.class_rows[k]] for k in numbers])
        edges = np.linspace(0, np.percentile(shown, TOP), N_BINS + 1)
        for k in numbers:
            counts = np.histogram(column[features.class_rows[k]], edges)[0]
            fit = (fit_exponential if panel == "before" else fit_gaussian)(edges, counts)
            skew = float(skews[panel][k, feature])
            name = features.class_names[k]
            where = {"panel": panel, "name": f"class {name}" if name.isdigit() else name}
            bars = {"edges": edges.tolist(), "counts": counts.tolist()}
            histograms.append({**where, **bars, "fit": fit, "skewness": skew})
    flat = {panel: values[np.isfinite(values)] for panel, values in skews.items()}
    return {
        "feature": feature,
        "n_features": features.dim,
        "n_classes": features.n_classes,
        "n_images": int(np.median(features.class_sizes)),
        "zeros": float(zeros[feature]),
        "zeros_median": float(np.median(zeros)),
        "histograms": histograms,
        "skewness_edges": SKEW_BINS.tolist(),
        "skewness": {
            panel: np.histogram(values.clip(SKEW_BINS[0], SKEW_BINS[-1]), SKEW_BINS)[0].tolist()
            for panel, values in flat.items()
        },
        "skewness_median": {panel: float(np.median(values)) for panel, values in flat.items()},
        "skewness_small": {
            panel: float((np.abs(values) < 1).mean()) for panel, values in flat.items()
        },
        "skewness_by_beta": {str(beta): median_skewness(features, beta=beta) for beta in LADDER},
    }


def _typical(skews: Array) -> int:
    """The feature of most typical skewness, (classes, D) -> a number below D.

    A feature that is constant within a class is not considered.
    """
    distance = np.abs(skews - np.nanmedian(skews)).mean(axis=0)
    return int(np.nan_to_num(distance, nan=np.inf).argmin())


def transform(features: FeatureSet, *, beta: float) -> Array:
    """All features after Eq. (1), (N, D)."""
    raw = torch.as_tensor(np.asarray(features.features, np.float64))
    return Pipeline.parse(f"power({beta}) | unit").transform(raw).numpy()


@lru_cache(maxsize=16)  # Figure 4 needs the same values
def median_skewness(features: FeatureSet, *, beta: float) -> float:
    """The median over all features and classes of the skewness after Eq. (1)."""
    return float(np.nanmedian(class_skewness(transform(features, beta=beta), features)))


def class_skewness(x: Array, features: FeatureSet) -> Array:
    """Skewness of each feature within each class, (N, D) -> (classes, D); NaN if constant."""
    rows = []
    for members in features.class_rows:
        deviations = x[members] - x[members].mean(axis=0)
        squares = deviations * deviations
        with np.errstate(divide="ignore", invalid="ignore"):
            rows.append((squares * deviations).mean(axis=0) / squares.mean(axis=0) ** 1.5)
    return np.stack(rows)


def fit_exponential(edges: Array, counts: NDArray[np.int64]) -> dict[str, float] | None:
    """Fit a exp(-b x) + c to the counts, as in the paper's panel (a); None where none fits."""
    x = (edges[:-1] + edges[1:]) / 2
    start = (float(counts.max()), 4 / float(edges[-1]), 0.0)
    lowest = (0.0, 0.0, -np.inf)
    return _fit(_exponential, x, counts, start, "a b c", lowest)


def fit_gaussian(edges: Array, counts: NDArray[np.int64]) -> dict[str, float] | None:
    """Fit a exp(-(x - mean)² / (2 std²)) to the counts, as in panel (b); None where none fits."""
    x = (edges[:-1] + edges[1:]) / 2
    mean = float(np.average(x, weights=counts))
    start = (float(counts.max()), mean, float(np.sqrt(np.average((x - mean) ** 2, weights=counts))))
    # no center below zero, and no peak that is narrower than a bin
    lowest = (0.0, 0.0, (edges[1] - edges[0]) / 4)
    return _fit(_gaussian, x, counts, start, "a mean std", lowest)


def _exponential(x: Array, a: float, b: float, c: float) -> Array:
    return a * np.exp(-b * x) + c


def _gaussian(x: Array, a: float, mean: float, std: float) -> Array:
    return a * np.exp(-((x - mean) ** 2) / (2 * std**2))


def _fit(
    curve: Any, x: Array, counts: NDArray[np.int64], start: Any, names: str, lowest: Any
) -> dict[str, float] | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OptimizeWarning)  # about the covariance, not used here
            found, _ = curve_fit(curve, x, counts, p0=start, bounds=(lowest, np.inf), maxfev=10_000)
    except RuntimeError:  # no curve of this shape fits
        return None
    return {name: float(value) for name, value in zip(names.split(), found, strict=True)}


def _numbers(numbers: Any) -> str:
    return ", ".join(f"{name} {round(value, 6):.4g}" for name, value in numbers.items())


def _row(where: str, each: dict[str, Any]) -> tuple[str, ...]:
    before = each["panel"] == "before"
    curve = "a * exp(-b * x) + c" if before else "a * exp(-(x - mean)^2 / (2 * std^2))"
    fitted = _numbers(each["fit"]) if each["fit"] else "no fit"
    return (where, each["name"], each["panel"], curve, fitted, f"{each['skewness']:+.2f}")


def _notes(found: dict[str, Any]) -> list[str]:
    median, small = found["skewness_median"], found["skewness_small"]
    skews = found["skewness_by_beta"].items()
    by_beta = ", ".join(f"{skew:+.2f} at {beta}" for beta, skew in skews)
    return [
        f"Ours shows feature {found['feature']}, the one of most typical skewness; "
        f"{found['zeros']:.0%} of its values are exact zeros, "
        f"{found['zeros_median']:.0%} of the median feature's. "
        f"{found['n_images']} images per class.",
        f"All {found['n_features']} features × {found['n_classes']} classes: "
        f"median skewness {median['before']:+.2f} before and {median['after']:+.2f} after; "
        f"within ±1 are {small['before']:.0%} before and {small['after']:.0%} after.",
        f"The median by beta: {by_beta}. Figure 4 shows the accuracy by beta.",
        "The paper's curves are of another dataset, backbone and feature: compare the shapes.",
    ]
