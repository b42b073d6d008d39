"""How many labels a person needs until 90 or 95 % of a folder are right, by rules of what to label.

    python benchmarks/next_labels.py [--rules RULE ...] [--single] [FOLDER ...]

One random label per class to begin with; then batches of a tenth of the labels so far, at least
five, chosen by the rule and labelled truly. Labelled images count as right. Rules: `suggest` with
the folder method; random choice with it; smallest margin with logistic regression, which is what a
person could put together from scikit-learn. Folders as in folders.py. Rules that are not asked for
keep what was measured before.

With --single: what one more label costs or brings. Two random labels per class, then twenty
suggested ones, one at a time; accuracy on the images that stay unlabelled. Both write
benchmarks/results/next_labels.json.
"""

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
import torch
from folders import KEPT_OUT, VALIDATION, load
from sklearn.linear_model import LogisticRegression

from fewlabels.evaluation.results import versions
from fewlabels.labeling.answer import Answer, prepare, solve
from fewlabels.labeling.suggestions import suggest

PATH = Path(__file__).parent / "results" / "next_labels.json"
TARGETS = (0.9, 0.95)
RULES = ("suggest", "random", "margin, logistic regression")
N_DRAWS = 2
N_SINGLE = 20


def begin(y: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Labels: k random ones per class, -1 elsewhere."""
    labels = np.full(len(y), -1)
    for way in range(int(y.max()) + 1):
        labels[rng.permutation(np.flatnonzero(y == way))[:k]] = way
    return labels


def simulate(x: np.ndarray, y: np.ndarray, rule: str, seed: int) -> list[tuple[int, float]]:
    """Labels and accuracy after each batch, until the last target is reached."""
    rng = np.random.default_rng(seed)
    n_way, labels = int(y.max()) + 1, begin(y, 1, rng)
    rows = prepare(x)
    curve: list[tuple[int, float]] = []
    while True:
        known = labels >= 0
        if rule.startswith("margin"):
            model = LogisticRegression(C=30, max_iter=100)
            fitted = model.fit(rows.x[known].numpy(), labels[known])
            answer = Answer(fitted.predict_proba(rows.x.numpy()).astype(np.float32))
        else:
            answer = solve(rows, labels, n_way=n_way)
        right = np.where(known, True, answer.labels == y)
        curve.append((int(known.sum()), round(float(right.mean()), 4)))
        if curve[-1][1] >= TARGETS[-1]:
            return curve
        n = min(max(5, int(known.sum()) // 10), int((~known).sum()))
        if rule == "suggest":
            chosen = np.array(suggest(rows, labels, answer, n=n))
        elif rule == "random":
            chosen = rng.permutation(np.flatnonzero(~known))[:n]
        else:
            chosen = np.argsort(np.where(known, np.inf, answer.margins), kind="stable")[:n]
        labels[chosen] = y[chosen]


def needed(curve: list[tuple[int, float]], target: float) -> float:
    """Labels at which the accuracy reaches the target, interpolated between batches."""
    before = curve[0]
    for n, accuracy in curve:
        if accuracy >= target:
            rise = accuracy - before[1]
            part = (target - before[1]) / rise if rise > 0 else 1.0
            return before[0] + part * (n - before[0])
        before = (n, accuracy)
    return float("nan")


def single(x: np.ndarray, y: np.ndarray, seed: int) -> list[float]:
    """Change of accuracy in points by each of some labels, given one at a time."""
    labels = begin(y, 2, np.random.default_rng(seed))
    rows = prepare(x)
    answers = []
    for _ in range(N_SINGLE + 1):
        answer = solve(rows, labels, n_way=int(y.max()) + 1)
        answers.append(answer.labels == y)
        chosen = suggest(rows, labels, answer, n=1)
        before = labels.copy()
        labels[chosen] = y[chosen]
    accuracies = 100 * np.mean(np.array(answers)[:, before < 0], axis=1)
    return np.diff(accuracies).tolist()


def measure_rules(name: str, rules: list[str], cell: dict[str, object]) -> None:
    """Labels needed by the rules."""
    x, y = load(name)
    for rule in rules:
        curves = [simulate(x, y, rule, seed) for seed in range(N_DRAWS)]
        cell[rule] = {
            str(target): round(float(np.mean([needed(c, target) for c in curves])))
            for target in TARGETS
        }
        print(name, rule, cell[rule], flush=True)


def measure_single(name: str, _: list[str], cell: dict[str, object]) -> None:
    """Mean and worst change by one label."""
    changes = [change for seed in range(N_DRAWS) for change in single(*load(name), seed)]
    found = {"mean": round(float(np.mean(changes)), 2), "worst": round(min(changes), 2)}
    cell["one more label"] = found
    print(name, found, flush=True)


def main(folders: list[str], rules: list[str], *, one: bool) -> None:
    """Simulate the folders, and write what was found."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)  # of scikit-learn, about one label per class
    for name in folders:
        cell: dict[str, object] = {}
        (measure_single if one else measure_rules)(name, rules, cell)
        found = json.loads(PATH.read_text()) if PATH.exists() else {"folders": {}}
        found["folders"][name] = found["folders"].get(name, {}) | cell
        found |= {"versions": versions(), "draws": N_DRAWS}
        PATH.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="*", default=[*VALIDATION, *KEPT_OUT])
    parser.add_argument("--rules", nargs="+", default=RULES, choices=RULES)
    parser.add_argument("--single", action="store_true")
    given = parser.parse_args()
    main(given.folders, given.rules, one=given.single)
