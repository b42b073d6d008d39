"""How many labels a person needs until 90 or 95 % of a folder are right, by rules of what to label.

    python benchmarks/next_labels.py [FOLDER ...]

One random label per class to begin with; then batches of a tenth of the labels so far, at least
five, chosen by the rule and labelled truly. Labelled images count as right. Rules: `suggest` with
the folder method; random choice with it; smallest margin with logistic regression, which is what a
person could put together from scikit-learn. Folders as in folders.py. Writes
benchmarks/results/next_labels.json.
"""

import json
import sys
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


def simulate(x: np.ndarray, y: np.ndarray, rule: str, seed: int) -> list[tuple[int, float]]:
    """Labels and accuracy after each batch, until the last target is reached."""
    rng = np.random.default_rng(seed)
    n_way = int(y.max()) + 1
    labels = np.full(len(y), -1)
    for way in range(n_way):
        labels[rng.choice(np.flatnonzero(y == way))] = way
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


def main(folders: list[str]) -> None:
    """Simulate the folders, and write the labels needed."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)  # of scikit-learn, about one label per class
    for name in folders:
        x, y = load(name)
        cell: dict[str, object] = {}
        for rule in RULES:
            curves = [simulate(x, y, rule, seed) for seed in range(N_DRAWS)]
            cell[rule] = {
                str(target): round(float(np.mean([needed(c, target) for c in curves])))
                for target in TARGETS
            }
            print(name, rule, cell[rule], flush=True)
        found = json.loads(PATH.read_text()) if PATH.exists() else {"folders": {}}
        found["folders"][name] = cell
        found |= {"versions": versions(), "draws": N_DRAWS}
        PATH.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:] or [*VALIDATION, *KEPT_OUT])
