"""Whole folders: the folder method against what a person could put together from scikit-learn.

    python benchmarks/folders.py [--ours | --close | --small | --sizes | --slips | --draw]
                                 [--jobs N] [FOLDER ...]

All classes at once, k random labels per class, every other image unlabelled; accuracy on the
unlabelled ones in %, mean of the draws. Folders: the demo's groceries,
`../shared/features/folders`, and classes of the artifacts. Class sizes as they are, or uneven
(Dirichlet(2)). The methods of scikit-learn get the same preprocessed vectors of norm 1; C of
logistic regression is found by cross-validation, or 30 where a class has one label. Writes
folders.json and folders.png into benchmarks/results/; --draw makes the picture again. With --ours
the folder method alone is measured again; the others keep what was measured before.

With --close: the cells in which a method of scikit-learn is better by over 0.3 points, measured
again with 20 draws and the standard error of the difference; they are added to folders.json.

With --small: all methods in folders of 24 to 600 images of random classes, as many of each or
uneven, with 1, 2 and 5 labels per class.

With --sizes: how often the interval of a class size holds the truth. With --slips: how many of the
labels that are said to look wrong are wrong, where one of twenty was exchanged. Butterflies, CUB
novel and CIFAR-FS novel take no part in either. sensitivity.py tells what each number of the method
is worth.
"""

import argparse
import json
import time
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.neighbors import NearestCentroid
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import LinearSVC

from fewlabels.confidence.calibration import expected_calibration_error
from fewlabels.evaluation.results import versions
from fewlabels.features import FeatureSet
from fewlabels.features.store import FeatureStore
from fewlabels.fitting import Rows
from fewlabels.labeling.accuracy import estimate_accuracy, estimate_sizes, find_contradictions
from fewlabels.labeling.answer import prepare, solve
from fewlabels.labeling.collection import Extraction
from fewlabels.labeling.inputs import read_inputs
from fewlabels.labeling.suggestions import LIMITS

HERE = Path(__file__).parent
SHARED = HERE.parents[1] / "shared" / "features" / "folders"
ARTIFACTS = HERE.parent / "artifacts"
SHOTS = (1, 2, 5, 10, 20)
VALIDATION = (
    "groceries",
    "trash",
    "textures",
    "steel",
    "cub/resnet18:val",
    "cifar-fs/wrn28-10:val",
)
KEPT_OUT = ("butterflies", "cub/resnet18:novel", "cifar-fs/wrn28-10:novel")
PER_CLASS = 150  # rows of the artifacts' classes that take part
N_DRAWS = 5
N_CLOSE_DRAWS = 20  # where it is close
CLOSE = 0.3  # points
N_RARE = 3  # images of a rare class without a label
SMALL = ((3, 8), (3, 30), (5, 20), (10, 12), (5, 60), (20, 30))  # classes, images per class
SMALL_SHOTS = (1, 2, 5)
OWN = ("folder", "map-folder")


class Task(NamedTuple):
    """One draw of one kind of folder."""

    folder: str
    k: int
    uneven: bool
    seed: int


@cache
def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features (N, D) and class numbers (N,) of a folder."""
    if name == "groceries":
        collection = read_inputs(
            HERE.parent / "examples" / "grocery", extraction=Extraction(store=FeatureStore())
        ).collection
        classes = [path.split("/")[0] for path in collection.names]
        return collection.features, np.unique(classes, return_inverse=True)[1]
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


def sklearn_methods(x: np.ndarray, labels: np.ndarray, k: int) -> dict[str, np.ndarray]:
    """Labels of all rows by each method of scikit-learn."""
    known = labels >= 0
    spreading = LabelSpreading(kernel="knn", n_neighbors=20, max_iter=100)
    logistic = LogisticRegression(C=30, max_iter=200)
    if k > 1:
        logistic = LogisticRegressionCV(Cs=[3, 30, 300], cv=min(3, k), max_iter=200)
    training = SelfTrainingClassifier(LogisticRegression(C=30, max_iter=50), max_iter=3)
    return {
        "nearest class mean": NearestCentroid().fit(x[known], labels[known]).predict(x),
        "logistic regression": logistic.fit(x[known], labels[known]).predict(x),
        "linear SVM": LinearSVC().fit(x[known], labels[known]).predict(x),
        "label spreading": spreading.fit(x, labels).transduction_,
        "self-training": training.fit(x, labels).predict(x),
    }


def measure(task: Task) -> dict[str, object]:
    """Accuracies in % of all methods, calibration error, the estimate, and seconds."""
    return _measure(task, ("map-folder", "folder"), rivals=True)


def measure_ours(task: Task) -> dict[str, object]:
    """Likewise, of the folder method alone."""
    return _measure(task, ("folder",), rivals=False)


def _measure(task: Task, ours: Sequence[str], *, rivals: bool) -> dict[str, object]:
    _begin()
    x, y, labels = draw(*load(task.folder), task.k, seed=task.seed, uneven=task.uneven)
    unknown = labels < 0
    found = {}
    for method in ours:
        begun = time.perf_counter()
        rows = prepare(x, method=method)
        answer = solve(rows, labels, n_way=int(y.max()) + 1)
        seconds = time.perf_counter() - begun
        found[method] = 100 * float((answer.labels == y)[unknown].mean())
    estimate = estimate_accuracy(rows, labels, n_way=int(y.max()) + 1, answer=answer)
    p, labelled = answer.probabilities[unknown].astype(np.float64), answer.labels[unknown]
    # Classes drawn from the probabilities: what few rows make of a perfect calibration.
    rng = np.random.default_rng(task.seed)
    drawn = (p.cumsum(axis=1) / p.sum(axis=1, keepdims=True) > rng.random((len(p), 1))).argmax(1)
    error, least = (
        100
        * expected_calibration_error(*(torch.tensor(each)[None] for each in (p, labelled, true)))
        for true in (y[unknown], drawn)
    )
    shaped = rows.x.numpy().astype(np.float64)
    others = sklearn_methods(shaped, labels, task.k) if rivals else {}
    for method, labelled in others.items():
        found[method] = 100 * float((labelled == y)[unknown].mean())
    truth = found["folder"] / 100
    return {
        "task": task,
        "accuracy": found,
        "calibration_error": error,
        "calibration_floor": least,
        "seconds": seconds,
        "covered": None if estimate is None else estimate.low <= truth <= estimate.high,
    }


def compare(jobs: int, folders: Sequence[str] = (), *, ours: bool = False) -> None:
    """All methods or ours on some folders, or on all; the rest keeps what was measured before."""
    tasks = [
        Task(name, k, uneven, seed)
        for name in folders or (*VALIDATION, *KEPT_OUT)
        for uneven in (False, True)
        for k in SHOTS
        for seed in range(N_DRAWS)
    ]
    found: dict[tuple[str, int, bool], list[dict]] = {}
    for each in _run(tasks, jobs, measure_ours if ours else measure):
        found.setdefault(each["task"][:3], []).append(each)
        print(each, flush=True)
    before = json.loads((HERE / "results" / "folders.json").read_text())["cells"]
    cells = [cell for cell in before if _key(cell) not in found]
    kept = {_key(cell): cell["accuracy"] for cell in before} if ours else {}
    for (name, k, uneven), draws in found.items():
        accuracies = {
            method: round(float(np.mean([each["accuracy"][method] for each in draws])), 2)
            for method in draws[0]["accuracy"]
        }
        covered = [each["covered"] for each in draws if each["covered"] is not None]
        cells.append(
            {
                "folder": name,
                "k": k,
                "uneven": uneven,
                "accuracy": {**kept.get((name, k, uneven), {}), **accuracies},
                "calibration_error": _mean(draws, "calibration_error"),
                "calibration_floor": _mean(draws, "calibration_floor"),
                "seconds": _mean(draws, "seconds"),
                "covered": f"{sum(covered)} of {len(covered)}",
            }
        )
    _write("folders", {"versions": versions(), "draws": N_DRAWS, "cells": cells})
    draw_picture()


def look_closer(jobs: int) -> None:
    """The cells in which a method of scikit-learn is better, with more draws."""
    report = json.loads((HERE / "results" / "folders.json").read_text())
    report["close"] = []
    for cell in report["cells"]:
        others = {name: each for name, each in cell["accuracy"].items() if name not in OWN}
        best = max(others, key=lambda name: others[name])
        if others[best] <= cell["accuracy"]["folder"] + CLOSE:
            continue
        tasks = [Task(*_key(cell), seed) for seed in range(N_CLOSE_DRAWS)]
        found = [each["accuracy"] for each in _run(tasks, jobs)]
        apart = np.array([each["folder"] - each[best] for each in found])
        closer = {
            **{name: cell[name] for name in ("folder", "k", "uneven")},
            "other": best,
            "draws": len(apart),
            "difference": round(float(apart.mean()), 2),
            "standard_error": round(float(apart.std(ddof=1) / len(apart) ** 0.5), 2),
            "difference_of_first_draws": round(float(apart[:N_DRAWS].mean()), 2),
        }
        print(closer, flush=True)
        report["close"].append(closer)
    _write("folders", report)


def draw_picture(jobs: int = 1) -> None:  # noqa: ARG001 - as the others
    """Mean accuracy over the folders by labels per class, one line per method."""
    import matplotlib.pyplot as plt

    cells = json.loads((HERE / "results" / "folders.json").read_text())["cells"]
    methods = sorted(
        cells[0]["accuracy"], key=lambda name: -sum(cell["accuracy"][name] for cell in cells)
    )
    figure, panels = plt.subplots(1, 2, figsize=(9.5, 4.2), sharey=True, layout="constrained")
    for panel, uneven in zip(panels, (False, True), strict=True):
        for name in methods:
            means = [
                np.mean(
                    [
                        cell["accuracy"][name]
                        for cell in cells
                        if cell["k"] == k and cell["uneven"] == uneven
                    ]
                )
                for k in SHOTS
            ]
            ours = name == "folder"
            style = {"color": "#b3401b", "linewidth": 2.6} if ours else {"linewidth": 1.2}
            panel.plot(SHOTS, means, marker="o", markersize=3.5, label=name, **style)
        panel.set_xscale("log", base=2)
        panel.set_xticks(SHOTS, [str(k) for k in SHOTS])
        panel.set_xlabel("labels per class")
        panel.set_title("uneven classes" if uneven else "classes as they are", loc="left")
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", linewidth=0.4)
    panels[0].set_ylabel("unlabelled images right in %, mean of folders")
    panels[1].legend(frameon=False, loc="lower right", fontsize=8)
    figure.savefig(HERE / "results" / "folders.png", dpi=150)


def score(task: Task) -> float:
    """Accuracy of the folder method in %."""
    _begin()
    x, y, labels = draw(*load(task.folder), task.k, seed=task.seed, uneven=task.uneven)
    rows = Rows.prepare(torch.tensor(x), "folder", keep_neighbors=True)
    numbers = rows.fit(torch.tensor(labels)).numbers.numpy()
    return 100 * float((numbers == y[labels < 0]).mean())


def draw_small(task: Task, n_way: int, per_class: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A small folder of random classes: features, true classes, and labels as in `draw`."""
    x, y = load(task.folder)
    rng = np.random.default_rng(task.seed)
    wanted = np.full(n_way, per_class)
    if task.uneven:
        wanted = np.maximum(rng.dirichlet([2.0] * n_way) * n_way * per_class, task.k + 1).astype(
            int
        )
    ways = rng.permutation(int(y.max()) + 1)[:n_way]
    rows = [
        rng.permutation(np.flatnonzero(y == way))[:n] for way, n in zip(ways, wanted, strict=True)
    ]
    true = np.repeat(np.arange(n_way), [len(each) for each in rows])
    return draw(x[np.concatenate(rows)], true, task.k, seed=task.seed, uneven=False)


def measure_small(each: tuple[Task, int, int]) -> dict[str, float]:
    """Accuracies in % of all methods in a small folder."""
    _begin()
    task = each[0]
    x, y, labels = draw_small(*each)
    unknown = labels < 0
    found = {}
    for method in OWN:
        rows = prepare(x, method=method)
        found[method] = solve(rows, labels, n_way=int(y.max()) + 1).labels
    found |= sklearn_methods(rows.x.numpy().astype(np.float64), labels, task.k)
    return {method: 100 * float((got == y)[unknown].mean()) for method, got in found.items()}


def compare_small(jobs: int) -> None:
    """All methods in folders of 24 to 600 images."""
    table = []
    for (n_way, per_class), kept_out in product(SMALL, (False, True)):
        names = KEPT_OUT if kept_out else VALIDATION
        tasks = [
            (Task(name, k, uneven, seed), n_way, per_class)
            for name, k, uneven, seed in product(names, SMALL_SHOTS, (False, True), range(4))
            if n_way <= load(name)[1].max() + 1
        ]
        found = list(_run(tasks, jobs, measure_small))
        row = {
            "classes": n_way,
            "per_class": per_class,
            "kept_out": kept_out,
            "folders": len(tasks),
            "accuracy": {m: round(float(np.mean([f[m] for f in found])), 2) for m in found[0]},
        }
        table.append(row)
        print(row, flush=True)
    _write("folders_small", table)


def cover(task: Task) -> list[bool]:
    """Whether the interval of each class size holds the truth."""
    _begin()
    return _inside(*draw(*load(task.folder), task.k, seed=task.seed, uneven=task.uneven))


def cover_rare(task: Task) -> list[bool]:
    """Whether the interval of a class of which only three images have no label holds the truth."""
    _begin()
    x, y = load(task.folder)
    rng = np.random.default_rng(task.seed)
    rare = rng.integers(y.max() + 1)
    left_out = rng.permutation(np.flatnonzero(y == rare))[task.k + N_RARE :]
    kept = np.setdiff1d(np.arange(len(y)), left_out)
    return [_inside(*draw(x[kept], y[kept], task.k, seed=task.seed, uneven=False))[rare]]


def _inside(x: np.ndarray, y: np.ndarray, labels: np.ndarray) -> list[bool]:
    n_way = int(y.max()) + 1
    sizes = estimate_sizes(solve(prepare(x), labels, n_way=n_way), labels)
    counts = np.bincount(y, minlength=n_way)
    return [size.low <= n <= size.high for size, n in zip(sizes, counts, strict=True)]


def cover_sizes(jobs: int) -> None:
    """How many of the class sizes lie in their intervals, by labels per class."""
    table = []
    for k in SHOTS:
        kinds = {
            "as they are": (cover, [Task(name, k, False, 0) for name in VALIDATION]),
            "uneven": (cover, [Task(name, k, True, 0) for name in VALIDATION]),
            "one rare class": (
                cover_rare,
                [Task(name, k, False, seed) for name in VALIDATION for seed in range(4)],
            ),
        }
        row: dict[str, object] = {"k": k}
        for kind, (measured, tasks) in kinds.items():
            inside = [each for found in _run(tasks, jobs, measured) for each in found]
            row[kind] = f"{sum(inside)} of {len(inside)}"
        table.append(row)
        print(row, flush=True)
    _write("folder_sizes", table)


def slip(task: Task) -> tuple[int, int, int]:
    """Labels that were named, those of them that are wrong, and all that were exchanged."""
    _begin()
    x, y, labels = draw(*load(task.folder), task.k, seed=task.seed, uneven=task.uneven)
    rng = np.random.default_rng(task.seed)
    n_way, known = int(y.max()) + 1, np.flatnonzero(labels >= 0)
    wrong = rng.permutation(known)[: max(1, len(known) // 20)]
    labels[wrong] = (labels[wrong] + rng.integers(1, n_way, len(wrong))) % n_way
    answer = solve(prepare(x), labels, n_way=n_way)
    found = find_contradictions(answer, labels, least=LIMITS.contradicted)
    return len(found), len({each.row for each in found} & set(wrong.tolist())), len(wrong)


def count_slips(jobs: int) -> None:
    """Labels that look wrong, by folder."""
    table = {}
    for name in VALIDATION:
        tasks = [Task(name, k, False, seed) for k in (5, 10) for seed in range(N_DRAWS)]
        named, right, exchanged = np.sum(list(_run(tasks, jobs, slip)), axis=0).tolist()
        table[name] = {"named": named, "of them wrong": right, "exchanged": exchanged}
        print(name, table[name], flush=True)
    _write("folder_slips", table)


def _begin() -> None:
    """One thread per process, without the warnings of small classes."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", UserWarning)
    warnings.simplefilter("ignore", FutureWarning)


def _run(tasks: list[Task], jobs: int, work=measure) -> Iterable:
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(work, tasks)


def _key(cell: dict) -> tuple[str, int, bool]:
    return cell["folder"], cell["k"], cell["uneven"]


def _mean(draws: list[dict], key: str) -> float:
    return round(float(np.mean([each[key] for each in draws])), 2)


def _write(name: str, found: object) -> None:
    (HERE / "results" / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--close", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--sizes", action="store_true")
    parser.add_argument("--slips", action="store_true")
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    chosen = {
        look_closer: options.close,
        compare_small: options.small,
        cover_sizes: options.sizes,
        count_slips: options.slips,
        draw_picture: options.draw,
    }
    if other := next((each for each, wanted in chosen.items() if wanted), None):
        other(options.jobs)
    else:
        compare(options.jobs, options.folders, ours=options.ours)
