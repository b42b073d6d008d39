"""What should rows be centered by where class sizes are unknown?

    python benchmarks/centering.py [--episodes 400] [FEATURES ...]

`map-auto` with four centerings on the features of faint.py: validation classes of networks, folders
of images, noise, scikit-learn's digits, normal columns and texts. `center(row)` leaves vectors of
few columns as they are (`steps.MOST_MEASUREMENTS`); the second part shows what it would do to them:
random columns of two networks, centered by their rows. 5 ways, paired differences to
center(support), which was the centering of `map-auto` before. Writes
benchmarks/results/centering.json; FEATURES: names of features that are measured again.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from faint import NETWORKS, feature_sets, read

from fewlabels import FeatureSet, configure, evaluate
from fewlabels.evaluation.results import versions
from fewlabels.preprocess import steps
from fewlabels.preprocess.pipeline import Pipeline

RESULTS = Path(__file__).with_name("results") / "centering.json"
BEFORE = "unit | center(support) | unit"
CENTERINGS = (
    "unit | center(shrunk) | unit",
    "center(row) | unit | center(support) | unit",
    "center(row) | unit | center(shrunk) | unit",
)
SHOTS, QUERIES = (1, 5), ("15", "dirichlet:2:75")
COLUMNS = (8, 16, 32, 64, 128)
OF_COLUMNS = ("CIFAR-FS, own WRN", "CUB, ResNet18")


def with_few_columns() -> Iterator[tuple[str, FeatureSet]]:
    """Random columns of the features of two networks."""
    random = np.random.default_rng(0)
    for name in OF_COLUMNS:
        features = read(NETWORKS[name])
        for count in COLUMNS:
            some = random.permutation(features.dim)[:count]
            x = np.asarray(features.features, dtype=np.float32)[:, some]
            kept = x.any(axis=1)  # a vector of zeros has no direction
            labels = features.labels[kept]
            yield f"{name}, {count} columns", FeatureSet.from_arrays(x[kept], labels)


def measure(name: str, features: FeatureSet, n: int) -> list[dict[str, object]]:
    """Accuracies of one feature set."""
    cells: list[dict[str, object]] = []
    for queries in QUERIES:
        for n_shot in SHOTS:
            methods = [
                configure(
                    "map-auto",
                    n_shot=n_shot,
                    dataset=features.provenance.get("dataset"),
                    pipeline=Pipeline.parse(f"power(auto) | {line}"),
                )
                for line in (BEFORE, *CENTERINGS)
            ]
            found = evaluate(methods, features, n_shot=n_shot, queries=queries, n_episodes=n)
            before, *after = (100 * each.accuracies for each in found)
            gains = [each - before for each in after]
            cells.append(
                {
                    **{"features": name, "columns": features.dim, "queries": queries},
                    **{"n_shot": n_shot, "n_episodes": n, "support": float(before.mean())},
                    "gains": {
                        line: float(gain.mean())
                        for line, gain in zip(CENTERINGS, gains, strict=True)
                    },
                    "half_width": 1.96 * float(gains[-1].std(ddof=1)) / n**0.5,
                }
            )
            print(json.dumps(cells[-1]), flush=True)
    return cells


def main() -> None:
    """Measure all, or some again."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--episodes", type=int, default=400)
    options = parser.parse_args()
    cells = json.loads(RESULTS.read_text())["cells"] if options.names else []
    most = steps.MOST_MEASUREMENTS
    with torch.no_grad():
        for few, sets in ((False, feature_sets()), (True, with_few_columns())):
            if few:
                steps.MOST_MEASUREMENTS = 0
            for name, features in sets:
                if options.names and name not in options.names:
                    continue
                place = next((i for i, c in enumerate(cells) if c["features"] == name), len(cells))
                cells = [cell for cell in cells if cell["features"] != name]
                cells[place:place] = measure(name, features, options.episodes)
    report = {"cells": cells, "unchanged_columns": most, "versions": versions()}
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
