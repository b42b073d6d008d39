"""Tables of few columns: the folder method with two preprocessings, beside logistic regression.

    python benchmarks/tables.py

Measurements in units of their own (scikit-learn's iris, wine and breast cancer), pixels (digits;
also in random units, of 0.01 to 100), and principal components of folders' features. k random
labels per class; accuracy on the other rows in %, mean of the draws. "features" is the
preprocessing for features of networks, "measurements" is `MEASUREMENTS`, which `Pipeline.decide`
takes where `are_measurements`; "decided" tells which. Logistic regression of scikit-learn has
standardized columns. Writes benchmarks/results/tables.json.
"""

import json

import numpy as np
import torch
from folders import HERE, SHARED, draw
from sklearn import datasets
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fewlabels.evaluation.results import versions
from fewlabels.fitting import Rows
from fewlabels.methods import find_method
from fewlabels.preprocess.pipeline import MEASUREMENTS, Pipeline
from fewlabels.preprocess.power_rule import are_measurements, suggest_power

SHOTS = (1, 2, 5, 20)
N_DRAWS = 5
PER_CLASS = 120  # rows of a folder's classes that take part
N_COMPONENTS = (4, 10, 30)
FOLDERS = ("trash", "textures", "steel")

Table = tuple[np.ndarray, np.ndarray]


def load() -> dict[str, Table]:
    """Columns (N, D) and class numbers (N,) of each table."""
    found = {}
    for name in ("iris", "wine", "breast_cancer", "digits"):
        data = getattr(datasets, f"load_{name}")()
        found[name.replace("_", " ")] = (data.data.astype(np.float32), data.target)
    x, y = found["digits"]
    units = 10 ** np.random.default_rng(0).uniform(-2, 2, x.shape[1])
    found["digits, random units"] = ((x * units).astype(np.float32), y)
    for name in FOLDERS:
        data = np.load(SHARED / f"{name}.npz")
        x, y = data["features"].astype(np.float32), data["labels"].astype(int)
        rng = np.random.default_rng(0)
        ways = [rng.permutation(np.flatnonzero(y == way))[:PER_CLASS] for way in range(y.max() + 1)]
        rows = np.concatenate(ways)
        for n in N_COMPONENTS:
            made = PCA(n, random_state=0).fit_transform(x[rows]).astype(np.float32)
            found[f"{name}, {n} components"] = (made, y[rows])
    return found


def measure(table: Table, k: int, seed: int) -> dict[str, float]:
    """Accuracy in % of each way."""
    x, y, labels = draw(*table, k, seed=seed, uneven=False)
    known = labels >= 0
    features = Pipeline((suggest_power(torch.tensor(x)), *find_method("folder").pipeline.steps[1:]))
    found = {}
    for name, pipeline in (("features", features), ("measurements", MEASUREMENTS)):
        rows = Rows.prepare(torch.tensor(x), "folder", keep_neighbors=True, pipeline=pipeline)
        fitted = rows.fit(torch.as_tensor(labels), class_names=range(int(y.max()) + 1))
        found[name] = 100 * float((fitted.labels == y[~known]).mean())
    scaled = make_pipeline(StandardScaler().fit(x), LogisticRegression(max_iter=500))
    scaled.fit(x[known], labels[known])
    found["logistic regression"] = 100 * float((scaled.predict(x) == y)[~known].mean())
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    cells = []
    for name, table in load().items():
        for k in SHOTS:
            draws = [measure(table, k, seed) for seed in range(N_DRAWS)]
            mean = {way: round(float(np.mean([d[way] for d in draws])), 2) for way in draws[0]}
            decided = "measurements" if are_measurements(torch.tensor(table[0])) else "features"
            about = {"table": name, "n_columns": table[0].shape[1], "decided": decided}
            cells.append({**about, "k": k, "accuracy": mean})
            print(name, k, mean, flush=True)
    report = {"versions": versions(), "draws": N_DRAWS, "cells": cells}
    (HERE / "results" / "tables.json").write_text(json.dumps(report, indent=1) + "\n")
