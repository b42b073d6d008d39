"""Methods of the literature beside slow literal loops, on many episodes.

    python benchmarks/oracles.py [--episodes 200] [--method NAME ...]

The loops are those of tests/methods/test_rivals.py, which runs them on few episodes. A quarter of
the episodes each: 1 and 5 shots, balanced and Dirichlet(2); validation classes of CIFAR-FS, own
WRN. Method and loop in float64, and the method once more in float32, where rounding shows. The
margin of a label that differs is the difference of the two largest probabilities of that query by
the method, in float64: what is near zero is a tie. Seconds are of one processor, for all episodes.
Writes benchmarks/results/oracles.json; with --method, replaces only the rows of these.
"""

import argparse
import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fewlabels import FeatureSet, configure, sample_episodes
from fewlabels.evaluation.results import versions
from fewlabels.fitting import answer

HERE = Path(__file__).parent
TESTS = HERE.parent / "tests" / "methods" / "test_rivals.py"
FEATURES = HERE.parent / "artifacts" / "cifar-fs" / "wrn28-10" / "val.safetensors"
RESULTS = HERE / "results" / "oracles.json"
KINDS = [(n_shot, queries) for n_shot in (1, 5) for queries in ("15", "dirichlet:2:75")]


def load_oracles() -> dict[str, Any]:
    """The loops of the tests, by the name of the method."""
    spec = importlib.util.spec_from_file_location("test_rivals", TESTS)
    assert spec is not None
    assert spec.loader is not None
    tests = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tests)
    found: dict[str, Any] = tests.ORACLES
    return found


def compare(name: str, oracle: Any, features: FeatureSet, n_episodes: int) -> dict[str, Any]:
    """One row of the table."""
    rows = torch.tensor(features.features)
    hashes, equal, labels, differ, rounded = [], 0, 0, 0, 0
    margins: list[float] = []
    seconds = {"method": 0.0, "oracle": 0.0}
    for n_shot, queries in KINDS:
        episodes = sample_episodes(
            features, n_episodes=n_episodes // len(KINDS), n_way=5, n_shot=n_shot, queries=queries
        )
        hashes.append(episodes.hash)
        known = torch.tensor(episodes.support_labels)
        method = configure(name, n_shot=n_shot)
        for e in range(len(known)):
            x, y, q = rows[episodes.support[e, None]], known[e, None], rows[episodes.query[e, None]]
            begun = time.process_time()
            found = answer(method, x.double(), y, q.double(), n_way=5)
            middle = time.process_time()
            arrays = (found.support[0].numpy(), y[0].numpy(), found.query[0].numpy())
            expected = np.asarray(oracle(*arrays, 5))
            seconds["method"] += middle - begun
            seconds["oracle"] += time.process_time() - middle
            single = answer(method, x.float(), y, q.float(), n_way=5).assignment.labels[0]
            unlike = found.assignment.labels[0].numpy() != expected
            best = found.assignment.plan[0].sort(dim=-1, descending=True).values
            margins += (best[:, 0] - best[:, 1])[torch.tensor(unlike)].tolist()
            equal, differ = equal + int(not unlike.any()), differ + int(unlike.sum())
            labels += len(expected)
            rounded += int((single.numpy() != expected).sum())
    return {
        "episodes": len(hashes) * (n_episodes // len(KINDS)),
        "equal": equal,
        "labels": labels,
        "labels_that_differ": differ,
        "least_margin_of_these": min(margins, default=None),
        "largest_margin_of_these": max(margins, default=None),
        "labels_that_differ_in_float32": rounded,
        "seconds": {what: round(number, 1) for what, number in seconds.items()},
        "episode_hashes": hashes,
    }


def main() -> None:
    """Compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--method", action="append")
    options = parser.parse_args()
    torch.set_num_threads(1)
    oracles, features = load_oracles(), FeatureSet.load(FEATURES)
    rows: dict[str, dict[str, Any]] = {}
    if options.method and RESULTS.exists():
        rows = json.loads(RESULTS.read_text())["results"]
    for name in options.method or oracles:
        rows[name] = row = compare(name, oracles[name], features, options.episodes)
        print(f"{name:16} {row['equal']} of {row['episodes']} equal;", end=" ")
        print(f"{row['labels_that_differ']} of {row['labels']:,} labels differ", end=" ")
        print(f"({row['labels_that_differ_in_float32']} in float32); {row['seconds']}", flush=True)
        RESULTS.write_text(json.dumps({"results": rows, "versions": versions()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
