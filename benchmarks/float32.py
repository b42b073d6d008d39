"""The error of float32 in the fused CPU code: how far a margin moves, and what a threshold costs.

    python benchmarks/float32.py FEATURES... [--episodes N]

FEATURES: feature files, .npy with 600 rows per class. Writes benchmarks/results/float32.json.

A margin is the smallest difference of the two largest probabilities of a query in an episode. The
fused engine decides an episode in float32 where the margin, divided by the growth of errors in this
episode (kernels/cpu.py), is above a threshold, else in float64. The error of an episode is the
difference of its two margins (their sum, where a label differs), divided by the growth.
"""

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from engine import cpu_name

from fewlabels.evaluation import Episodes, sample_episodes
from fewlabels.evaluation.fused import STEP_CODES
from fewlabels.evaluation.results import versions
from fewlabels.features import FeatureSet, read_features
from fewlabels.kernels import codes, cpu
from fewlabels.preprocess import Pipeline
from fewlabels.preprocess.smoothing import plan_smoothing
from fewlabels.transport.solver import SOLVER

RESULTS = Path(__file__).parent / "results" / "float32.json"
N_WAY, BLOCK = 5, 100
PAPER = {1: (0.4, 30), 5: (0.2, 20)}  # alpha and n_steps by shots, Section 4.2
THRESHOLDS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 6e-4)  # at lam 10; in proportion to lam
LAMS = (1.0, 3.0, 30.0, 100.0)  # besides the paper's 10, for MAP
EQUAL, UNEVEN = "15", "dirichlet:2:75"
PAPER_LINE = "power(0.5) | unit | center | unit"


class Case(NamedTuple):
    """A soft method: its classifier, pipeline and queries."""

    classifier: int
    line: str = PAPER_LINE
    queries: str = EQUAL


CASES = {
    "map": Case(codes.MASS),
    "soft-kmeans": Case(codes.FREE),
    "map, true sizes": Case(codes.MASS, queries=UNEVEN),
    "map, at least half": Case(codes.MINIMUM),
    "map-estimated": Case(codes.ESTIMATE, "power(0.5) | unit | center(support) | unit", UNEVEN),
}


def classify(
    features: FeatureSet, episodes: Episodes, case: Case, *, n_shot: int, lam: float, dtype: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, (E, Q), margins, (E,), and growths, (E,), of the kernel in a precision."""
    pipeline = Pipeline.parse(case.line)
    rows = pipeline.transform(torch.as_tensor(features.features).to(getattr(torch, dtype)))
    x = (rows - rows.mean(dim=0)).numpy()
    alpha, n_steps = PAPER[n_shot]
    n_query = episodes.query.shape[1]
    n = cpu.pad(episodes.support.shape[1] + n_query)
    target = np.full((1, N_WAY), n_query / N_WAY)
    if case.classifier == codes.MINIMUM:
        target = target / 2
    if case.classifier == codes.MASS:
        target = episodes.query_counts.astype(np.float64)
    smoothing = None
    if case.classifier == codes.ESTIMATE:
        smoothing = tuple(plan_smoothing(episodes.support.shape[1], n_query, N_WAY))
    labels = np.empty(episodes.query.shape, np.int64)
    margins, growths = np.empty(len(episodes)), np.empty(len(episodes))
    float32 = dtype == "float32"

    def work(part: slice) -> None:
        cpu.classify_episodes(
            x,
            np.empty((0, n, n), x.dtype),
            False,
            episodes.support[part],
            episodes.support_labels[part],
            episodes.query[part],
            N_WAY,
            True,
            np.array([STEP_CODES[step] for step in pipeline.episodic.steps], np.int64),
            case.classifier,
            0.0 if case.classifier == codes.ESTIMATE else lam,
            alpha,
            n_steps,
            target[part] if len(target) > 1 else target,
            codes.KERNELS.float32_tolerance if float32 else SOLVER.float64_tolerance,
            smoothing,
            None,
            labels[part],
            margins[part],
            growths[part],
        )

    parts = [slice(first, first + BLOCK) for first in range(0, len(episodes), BLOCK)]
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        list(pool.map(work, parts))
    return labels, margins, growths


def measure(
    features: FeatureSet, name: str, *, n_shot: int, lam: float, n_episodes: int
) -> dict[str, Any]:
    """Errors of a method's margins, and what each threshold would do again and miss."""
    case = CASES[name]
    episodes = sample_episodes(
        features, n_episodes=n_episodes, n_way=N_WAY, n_shot=n_shot, queries=case.queries
    )
    setting = {"n_shot": n_shot, "lam": lam}
    labels, margins, growths = classify(features, episodes, case, dtype="float32", **setting)
    exact_labels, exact_margins, _ = classify(features, episodes, case, dtype="float64", **setting)
    differs = (labels != exact_labels).any(axis=1)
    errors = np.where(differs, margins + exact_margins, np.abs(margins - exact_margins))
    decided = (margins > 0) & (exact_margins >= 0)  # the others are done again anyway
    scaled, relative = margins / np.maximum(growths, 1), (errors / growths)[decided]
    scale = lam / 10
    return {
        "method": name,
        "n_shot": n_shot,
        "lam": "auto" if case.classifier == codes.ESTIMATE else lam,
        "n_episodes": n_episodes,
        "worst": float(relative.max()),
        "one_in_1000": float(np.quantile(relative, 0.999)),
        "worst_margin_error": float(errors[decided].max()),
        "largest_growth": float(growths[decided].max()),
        "largest_wrong_margin": float(scaled[differs].max(initial=0.0)),
        "done_again": {f"{t:g}": float((scaled < t * scale).mean()) for t in THRESHOLDS},
        "missed": {f"{t:g}": int((differs & (scaled >= t * scale)).sum()) for t in THRESHOLDS},
    }


def main() -> None:
    """Measure all methods on all files and write one JSON file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("features", nargs="+", type=Path)
    parser.add_argument("--episodes", type=int, default=10_000)
    options = parser.parse_args()
    report: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "machine": cpu_name(),
        "versions": versions(),
        "cells": [],
    }
    for number, path in enumerate(options.features):
        features = read_features(path, per_class=600 if path.suffix == ".npy" else None)
        settings = [(name, shots, 10.0) for name in CASES for shots in PAPER]
        if number == 0:
            settings += [("map", shots, lam) for lam in LAMS for shots in PAPER]
        for name, n_shot, lam in settings:
            cell = measure(features, name, n_shot=n_shot, lam=lam, n_episodes=options.episodes)
            report["cells"].append({"features": "/".join(path.parts[-3:]), **cell})
            print(json.dumps(report["cells"][-1]), flush=True)
            RESULTS.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
