"""Whole folders: the folder method against what a person could put together from scikit-learn.

    python benchmarks/folder_methods.py [--choose]

All classes at once, k random labels per class, every other image unlabelled; accuracy on the
unlabelled ones in %, mean of the draws. Folders: `../shared/features/folders`, the demo's groceries
where their features are cached, and classes of the artifacts. Class sizes as they are, or uneven
(Dirichlet(2)). The methods of scikit-learn get the same preprocessed vectors of norm 1, for which
C = 30 suits logistic regression. Writes benchmarks/results/folder_methods.json.

With --choose: validation folders only, one number of the method changed at a time: how much each
is worth (sensitivity). Butterflies, CUB novel and CIFAR-FS novel take no part in that.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import LinearSVC

from fewlabels.confidence.calibration import expected_calibration_error
from fewlabels.evaluation.results import versions
from fewlabels.features import FeatureSet
from fewlabels.fitting import Rows
from fewlabels.methods import folder

HERE = Path(__file__).parent
SHARED = HERE.parents[1] / "shared" / "features" / "folders"
ARTIFACTS = HERE.parent / "artifacts"
SHOTS = (1, 2, 5, 10, 20)
VALIDATION = ("trash", "textures", "steel", "cub/resnet18:val", "cifar-fs/wrn28-10:val")
KEPT_OUT = ("butterflies", "cub/resnet18:novel", "cifar-fs/wrn28-10:novel")
PER_CLASS = 150  # rows of the artifacts' classes that take part
ALTERNATIVES = {
    "n_components": (128, 384),
    "whitening_variance": (1.0, 10.0),
    "inverse_penalty": (10.0, 100.0),
    "shrinkage": (0.1, 0.6),
    "n_rounds": (2, 8),
    "graph_weight": (0.0, 10.0),
    "temperature": (1.0, 4.0),
    "weights": ((0.9, 0.0), (0.9, 0.2), (0.6, 0.08)),
    "weight_precision": (10.0, 100.0),
}


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features (N, D) and class numbers (N,) of a folder."""
    if ":" not in name:
        found = np.load(SHARED / f"{name}.npz")
        return found["features"].astype(np.float32), found["labels"].astype(int)
    path, split = name.split(":")
    features = FeatureSet.load(ARTIFACTS / path / f"{split}.safetensors")
    rng = np.random.default_rng(0)
    rows = np.concatenate(
        [
            rng.permutation(np.flatnonzero(features.labels == way))[:PER_CLASS]
            for way in range(features.n_classes)
        ]
    )
    return np.asarray(features.features[rows], dtype=np.float32), features.labels[rows]


def draw(
    x: np.ndarray, y: np.ndarray, k: int, *, seed: int, uneven: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, true classes, and labels: k per class, -1 elsewhere."""
    rng = np.random.default_rng(seed)
    n_way = int(y.max()) + 1
    if uneven:
        sizes = rng.dirichlet([2.0] * n_way)
        counts = np.bincount(y)
        wanted = (sizes / sizes.max() * counts.max()).astype(int) + k
        keep = [
            rng.permutation(np.flatnonzero(y == way))[: min(wanted[way], counts[way])]
            for way in range(n_way)
        ]
        x, y = x[np.concatenate(keep)], y[np.concatenate(keep)]
    labels = np.full(len(y), -1)
    for way in range(n_way):
        labels[rng.permutation(np.flatnonzero(y == way))[:k]] = way
    return x, y, labels


def sklearn_methods(x: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Labels of all rows by each method of scikit-learn."""
    known = labels >= 0
    spreading = LabelSpreading(kernel="knn", n_neighbors=20, max_iter=100)
    logistic = LogisticRegression(C=30, max_iter=200)
    training = SelfTrainingClassifier(LogisticRegression(C=30, max_iter=50), max_iter=3)
    return {
        "nearest class mean": NearestCentroid().fit(x[known], labels[known]).predict(x),
        "logistic regression": logistic.fit(x[known], labels[known]).predict(x),
        "linear SVM": LinearSVC().fit(x[known], labels[known]).predict(x),
        "label spreading": spreading.fit(x, labels).transduction_,
        "self-training": training.fit(x, labels).predict(x),
    }


def measure(name: str, k: int, *, uneven: bool, n_draws: int) -> dict[str, object]:
    """Accuracies in % of all methods on one kind of folder, calibration error and seconds."""
    x0, y0 = load(name)
    found: dict[str, list[float]] = {}
    errors, seconds = [], []
    for seed in range(n_draws):
        x, y, labels = draw(x0, y0, k, seed=seed, uneven=uneven)
        unknown = labels < 0
        for method in ("map-folder", "folder"):
            begun = time.perf_counter()
            rows = Rows.prepare(torch.tensor(x), method, keep_neighbors=True)
            fitted = rows.fit(torch.tensor(labels), calibrate=True)
            if method == "folder":
                seconds.append(time.perf_counter() - begun)
                probabilities = fitted.probabilities[None]
                truth = torch.tensor(y[unknown])[None]
                error = expected_calibration_error(probabilities, fitted.numbers[None], truth)
                errors.append(100 * error)
            right = fitted.numbers.numpy() == y[unknown]
            found.setdefault(method, []).append(100 * float(right.mean()))
        shaped = rows.x.numpy().astype(np.float64)
        for method, labelled in sklearn_methods(shaped, labels).items():
            right = labelled[unknown] == y[unknown]
            found.setdefault(method, []).append(100 * float(right.mean()))
    return {
        "folder": name,
        "k": k,
        "uneven": uneven,
        "accuracy": {method: round(float(np.mean(each)), 2) for method, each in found.items()},
        "calibration_error": round(float(np.mean(errors)), 2),
        "seconds": round(float(np.mean(seconds)), 2),
    }


def compare(n_draws: int) -> None:
    """All folders, all methods."""
    cells = []
    for name in (*VALIDATION, *KEPT_OUT):
        for uneven in (False, True):
            for k in SHOTS:
                cells.append(measure(name, k, uneven=uneven, n_draws=n_draws))
                print(cells[-1], flush=True)
    path = HERE / "results" / "folder_methods.json"
    path.write_text(
        json.dumps({"versions": versions(), "draws": n_draws, "cells": cells}, indent=1) + "\n"
    )


def choose(n_draws: int) -> None:
    """Mean accuracy on validation folders with one number of the method changed at a time."""
    folders = {name: load(name) for name in VALIDATION}

    def score() -> float:
        found = []
        for x0, y0 in folders.values():
            for k in (1, 5, 20):
                for seed in range(n_draws):
                    x, y, labels = draw(x0, y0, k, seed=seed, uneven=False)
                    rows = Rows.prepare(torch.tensor(x), "folder", keep_neighbors=True)
                    numbers = rows.fit(torch.tensor(labels)).numbers.numpy()
                    found.append(100 * float((numbers == y[labels < 0]).mean()))
        return float(np.mean(found))

    chosen = folder.CONSTANTS
    base = score()
    table = [{"number": "as chosen", "value": "", "accuracy": round(base, 2)}]
    for number, values in ALTERNATIVES.items():
        for value in values:
            folder.CONSTANTS = replace(chosen, **{number: value})
            accuracy = round(score(), 2)
            table.append({"number": number, "value": str(value), "accuracy": accuracy})
            print(table[-1], f"{accuracy - base:+.2f}", flush=True)
        folder.CONSTANTS = chosen
    (HERE / "results" / "folder_sensitivity.json").write_text(json.dumps(table, indent=1) + "\n")


def main(run: Callable[[int], None], n_draws: int) -> None:
    """Measure on one thread, without the warnings of small classes."""
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        run(n_draws)


if __name__ == "__main__":
    main(choose if "--choose" in sys.argv else compare, 1 if "--choose" in sys.argv else 2)
