"""Methods of the literature beside slow literal loops, on many episodes.

    python benchmarks/oracles.py [--episodes 200] [--method NAME ...]

The loops are those of tests/methods/test_rivals.py, which runs them on few episodes. A quarter of
the episodes each: 1 and 5 shots, balanced and Dirichlet(2); embedded features, float64. Prints and
writes how many episodes have all labels equal, to benchmarks/results/oracles.json; with --method,
replaces only the rows of these.
"""

import argparse
import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fewlabels import configure
from fewlabels.evaluation.results import versions
from fewlabels.fitting import answer

HERE = Path(__file__).parent
TESTS = HERE.parent / "tests" / "methods" / "test_rivals.py"
RESULTS = HERE / "results" / "oracles.json"
KINDS = [(n_shot, queries) for n_shot in (1, 5) for queries in ("15", "dirichlet:2:75")]


def main() -> None:
    """Compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--method", action="append")
    options = parser.parse_args()
    torch.set_num_threads(1)
    spec = importlib.util.spec_from_file_location("test_rivals", TESTS)
    assert spec is not None
    assert spec.loader is not None
    tests = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tests)
    rows: dict[str, dict[str, Any]] = {}
    if options.method and RESULTS.exists():
        rows = json.loads(RESULTS.read_text())["results"]
    for name in options.method or tests.ORACLES:
        equal = labels = 0
        begun = time.process_time()
        for n_shot, queries in KINDS:
            support, known, query = tests.draw(n_shot, queries, options.episodes // len(KINDS))
            found = answer(configure(name, n_shot=n_shot), support, known, query, n_way=5)
            for e in range(len(support)):
                arrays = (found.support[e].numpy(), known[e].numpy(), found.query[e].numpy())
                expected = tests.ORACLES[name](*arrays, 5)
                same = found.assignment.labels[e].numpy() == np.asarray(expected)
                equal, labels = equal + int(same.all()), labels + int((~same).sum())
        rows[name] = {"episodes": options.episodes, "equal": equal, "labels_that_differ": labels}
        seconds = time.process_time() - begun
        print(f"{name:16} {equal} of {options.episodes} equal, {labels} labels differ", end="")
        print(f" ({seconds:.0f} s)", flush=True)
        RESULTS.write_text(json.dumps({"results": rows, "versions": versions()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
