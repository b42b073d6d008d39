"""What each hand-set number is worth: one of them changed at a time, on validation data only.

    python benchmarks/sensitivity.py [GROUP ...]

Groups: folder, outliers, calibration, estimation. Every number is halved and doubled; a fraction
has its odds halved and doubled. The score is accuracy in % (folder, estimation), the mean of AUROC
and of the part of all images that is rightly called outlier or not, in folders as they are and
uneven ones (outliers), or 100 less the calibration error (calibration). A number with two changes
below zero is at its best; one whose changes are all below 0.3 points could have many values.
Butterflies, CUB novel and CIFAR-FS novel take no part. Writes benchmarks/results/sensitivity.json.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from folders import ARTIFACTS, VALIDATION, Task, draw, load, score
from sklearn.metrics import roc_auc_score

from fewlabels.confidence.calibration import CALIBRATION
from fewlabels.confidence.outliers import OUTLIERS
from fewlabels.evaluation import evaluate
from fewlabels.evaluation.reliability import measure_reliability
from fewlabels.features import FeatureSet
from fewlabels.fitting import Rows
from fewlabels.methods import configure, find_method
from fewlabels.methods.estimation import ESTIMATION
from fewlabels.methods.folder import CONSTANTS
from fewlabels.methods.logistic import LOGISTIC

PATH = Path(__file__).parent / "results" / "sensitivity.json"
EPISODES = 300
MOST_SHOTS = 20  # labels of a class, where their number differs
ESTIMATED = {  # of `map`: `map-auto` without its network
    "pipeline": find_method("map-auto").pipeline,
    "prior": "estimate",
    "lam": "auto",
}
FEATURES = ("cifar-fs/wrn28-10", "cub/resnet18")  # whose validation classes make episodes
# The numbers that choose something; the others keep a formula finite, or bound time and memory.
FOLDER = (
    "n_components",
    "most_components",
    "rows_per_component",
    "whitening_variance",
    "shrinkage",
    "n_rounds",
    "gaussian_weight",
    "graph_weight",
    "n_groups",
    "weights",
    "weight_spread",
)
OUTLIER = (
    "neighbor_limit",
    "decay",
    "mean_position",
    "mean_rows",
    "spread_factor",
    "spread_minimum",
    "distance_limit",
    "inlier_count",
    "sized_weight",
)
ESTIMATE = (
    "free_steps",
    "norm_weight",
    "own_weight_limit",
    "prior_count",
    "imbalance_threshold",
    "sampling_noise",
    "weight_slope",
    "lam_factor",
    "lam_rounds",
)


def score_folder() -> float:
    """Accuracy of the folder method."""
    kinds = ((1, False), (2, True), (5, False), (20, True))  # k, uneven
    return _mean(score(Task(name, k, uneven, 0)) for name in VALIDATION for k, uneven in kinds)


@cache
def _folders_with_outliers() -> list[tuple[Rows, torch.Tensor, torch.Tensor, np.ndarray]]:
    """Rows, labels, classes found, and which unlabelled rows are outliers, of several folders."""
    found = []
    for name, uneven in product(VALIDATION, (False, True)):
        x, y = load(name)
        keep = y < 20  # classes
        x, y, _ = draw(x[keep], y[keep], MOST_SHOTS + 1 if uneven else 0, seed=0, uneven=uneven)
        for hidden, k in product((0.0, 0.3), (1, 5, "1, 3 or 20")):
            rng = np.random.default_rng(0)
            n_hidden = round(hidden * (y.max() + 1))
            labels = np.full(len(y), -1)
            for way in range(n_hidden, int(y.max()) + 1):
                shots = k if isinstance(k, int) else int(rng.choice([1, 3, MOST_SHOTS]))
                labels[rng.permutation(np.flatnonzero(y == way))[:shots]] = way - n_hidden
            rows = Rows.prepare(torch.tensor(x), "folder", keep_neighbors=True)
            given = torch.tensor(labels)
            numbers = rows.fit(given).numbers
            found.append((rows, given, numbers, (y < n_hidden)[labels < 0]))
    return found


def score_outliers() -> float:
    """Order and decision of outlier probabilities."""
    orders, decisions = [], []
    for rows, labels, numbers, outside in _folders_with_outliers():
        p = rows.outlier_probabilities(labels, numbers).numpy()
        decisions.append(100 * ((p >= 0.5) == outside).mean())
        if outside.any():
            orders.append(100 * roc_auc_score(outside, p))
    return float(np.mean(orders) + np.mean(decisions)) / 2


@cache
def _validation_classes() -> list[FeatureSet]:
    return [FeatureSet.load(ARTIFACTS / name / "val.safetensors") for name in FEATURES]


def score_calibration() -> float:
    """100 less the calibration error in episodes of MAP with estimated sizes, without network."""
    how = {"method": "map", "settings": ESTIMATED}
    errors = [
        measure_reliability(features, n_episodes=EPISODES, queries=queries, **how).confidence.error
        for features in _validation_classes()
        for queries in ("15", "dirichlet:2:75")
    ]
    return 100 - 100 * float(np.mean(errors))


def score_estimation() -> float:
    """Accuracy of MAP with estimated sizes, without network, in episodes."""
    return _mean(
        evaluate(
            [configure("map", n_shot=n_shot, **ESTIMATED)],
            features,
            n_shot=n_shot,
            n_episodes=EPISODES,
            queries=queries,
            engine="torch",
            dtype="float64",
        )[0].accuracy
        for features in _validation_classes()
        for n_shot in (1, 5)
        for queries in (15, "dirichlet:2:75")
    )


GROUPS: dict[str, tuple[Callable[[], float], list[tuple[Any, Sequence[str]]]]] = {
    "folder": (score_folder, [(CONSTANTS, FOLDER), (LOGISTIC, ["inverse_penalty"])]),
    "outliers": (score_outliers, [(OUTLIERS, OUTLIER)]),
    "calibration": (
        score_calibration,
        [(CALIBRATION, ["balanced_temperature", "free_temperature", "log_spread"])],
    ),
    "estimation": (score_estimation, [(ESTIMATION, ESTIMATE)]),
}


def others(value: Any) -> list[Any]:
    """Half and double of a number; of weights, each without one model."""
    if isinstance(value, tuple):
        return [tuple(1e-6 if i == out else v for i, v in enumerate(value)) for out in range(3)]
    return [_change(value, 0.5), _change(value, 2.0)]


def _change(value: float, factor: float) -> float:
    if isinstance(value, int):
        return max(1, round(value * factor))
    if 0 < value < 1:
        odds = factor * value / (1 - value)
        return odds / (1 + odds)
    return value * factor


def main(groups: list[str]) -> None:
    """Measure the groups and write the table."""
    torch.set_num_threads(1)
    table = json.loads(PATH.read_text()) if PATH.exists() else {}
    for group in groups:
        measure, tuned = GROUPS[group]
        base = measure()
        print(group, round(base, 2), flush=True)
        table[group] = {"score": round(base, 2), "changes": []}
        for constants, name in ((each, name) for each, names in tuned for name in names):
            before = getattr(constants, name)
            for value in others(before):
                object.__setattr__(constants, name, value)  # frozen, for all others
                row = {"number": name, "from": before, "to": value}
                row["gain"] = round(measure() - base, 2)
                table[group]["changes"].append(row)
                print(row, flush=True)
            object.__setattr__(constants, name, before)
            PATH.write_text(json.dumps(table, indent=1) + "\n")


def _mean(values: Iterator[float]) -> float:
    return float(np.mean(list(values)))


if __name__ == "__main__":
    main(sys.argv[1:] or list(GROUPS))
