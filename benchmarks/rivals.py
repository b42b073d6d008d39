"""Methods of the literature against PT+MAP on the same episodes.

    python benchmarks/rivals.py [--episodes 1000] [--method NAME ...]

5 ways, 1 and 5 shots, 75 queries: 15 per class, or class proportions from Dirichlet(2). Validation
classes of `../shared/features/cifar-fs-wrn28-10`. SimpleShot CL2N takes its mean from the novel
classes there, because the features of the base classes are not kept. Every method with its
defaults, torch engine, float32, one thread; milliseconds of processor time per episode, all steps
included. Writes benchmarks/results/rivals.json after every method; with --method, replaces only
the rows of these. The committed file has 300 episodes of the slower methods ("n_episodes").
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fewlabels import FeatureSet, configure, evaluate, method_names
from fewlabels.evaluation.comparison import paired_difference
from fewlabels.evaluation.results import EvaluationResult, versions
from fewlabels.methods import find_method

HERE = Path(__file__).parent
FEATURES = HERE.parents[1] / "shared" / "features" / "cifar-fs-wrn28-10"
RESULTS = HERE / "results" / "rivals.json"
BASELINE = "map"
LEFT_OUT = ("map-folder", "folder")  # for whole folders
BPA = "+bpa"  # after a method's name: with the step bpa at the end of its pipeline
CELLS = [(shots, queries) for queries in ("15", "dirichlet:2:75") for shots in (1, 5)]


def load(name: str) -> FeatureSet:
    """The features of a split: 600 rows per class."""
    x = np.load(FEATURES / f"{name}.npy").astype(np.float32)
    return FeatureSet.from_arrays(x, np.repeat(np.arange(len(x) // 600), 600))


def measure(
    name: str, features: FeatureSet, shots: int, queries: str, n_episodes: int
) -> tuple[EvaluationResult, float]:
    """The result, and milliseconds of processor time per episode."""
    method = find_method(name.removesuffix(BPA))
    line = f"{method.pipeline} | bpa" if name.endswith(BPA) else None
    mean = load("novel") if method.pipeline.needs_mean else None
    start = time.process_time()
    [result] = evaluate(
        configure(method, n_shot=shots, pipeline=line),
        features,
        n_shot=shots,
        queries=queries,
        n_episodes=n_episodes,
        engine="torch",
        device="cpu",
        mean_features=mean,
    )
    return result, 1000 * (time.process_time() - start) / n_episodes


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--method", action="append")
    options = parser.parse_args()
    torch.set_num_threads(1)
    features = load("val")
    names = [name for name in method_names() if name not in (*LEFT_OUT, BASELINE)]
    chosen = options.method or [BASELINE, BASELINE + BPA, *names]
    kept: list[dict[str, Any]] = []
    if options.method and RESULTS.exists():
        kept = [r for r in json.loads(RESULTS.read_text())["results"] if r["method"] not in chosen]
    baseline = {cell: measure(BASELINE, features, *cell, options.episodes)[0] for cell in CELLS}
    for name in chosen:
        line = []
        for cell in CELLS:
            result, milliseconds = measure(name, features, *cell, options.episodes)
            against = baseline[cell]
            assert result.provenance["episode_hash"] == against.provenance["episode_hash"]
            difference, ci95 = paired_difference(result.accuracies, against.accuracies)
            kept.append(
                {
                    "method": name,
                    "title": result.title,
                    "pipeline": result.pipeline,
                    "settings": result.to_dict()["settings"],
                    "n_shot": cell[0],
                    "queries": cell[1],
                    "accuracy": round(result.accuracy, 2),
                    "ci95": round(result.ci95, 2),
                    "difference": round(100 * difference, 2),
                    "difference_ci95": round(100 * ci95, 2),
                    "ms_per_episode": round(milliseconds, 2),
                    "n_episodes": result.n_episodes,
                }
            )
            line.append(f"{result.accuracy:6.2f} ({100 * difference:+6.2f} ± {100 * ci95:.2f})")
        print(f"{name:16}", *line, f"{milliseconds:7.2f} ms", flush=True)
        RESULTS.write_text(json.dumps({"results": kept, "versions": versions()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
