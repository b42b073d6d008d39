"""The engine on this CPU next to a plain transcription of the paper, in one run: `make bench`.

    python benchmarks/engine.py [FEATURES.npy] [--quick]

FEATURES: .npy with 600 rows per class; by default the embedded set. Writes
benchmarks/results/cpu.json.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from plain import plain_map

from fewlabels.evaluation import evaluate, sample_episodes
from fewlabels.evaluation.engines import TorchEngine
from fewlabels.evaluation.fused import NumbaEngine
from fewlabels.evaluation.results import versions
from fewlabels.features import FeatureSet, load_embedded, read_features
from fewlabels.methods import configure

RESULTS = Path(__file__).parent / "results"
REPEATS = 5
EASYFSL_EPISODES = 3  # of seconds each


def measure(function: Callable[[], object], repeats: int = REPEATS) -> dict[str, float]:
    """Median, best and worst wall seconds of a call that was made once before."""
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - begun)
    return {"median_s": statistics.median(seconds), "min_s": min(seconds), "max_s": max(seconds)}


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Slope of log time against log size."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def widen(features: FeatureSet, dim: int) -> FeatureSet:
    """The features repeated side by side up to a dim: same geometry, more numbers."""
    return FeatureSet(
        np.tile(features.features, (1, dim // features.dim)),
        features.labels,
        features.class_names,
        features.provenance,
    )


def bench_end_to_end(features: FeatureSet, n_episodes: int) -> list[dict[str, Any]]:
    """10,000 episodes from a FeatureSet in memory, draws included, compilation not."""
    cells = []
    for name, n_shot in (("map", 1), ("map", 5), ("ncm", 1), ("kmeans", 1), ("soft-kmeans", 1)):
        method = configure(name, n_shot=n_shot, dataset="cifar-fs")
        results = evaluate([method], features, n_shot=n_shot, n_episodes=n_episodes)
        timing = measure(
            lambda method=method, n_shot=n_shot: evaluate(
                [method], features, n_shot=n_shot, n_episodes=n_episodes
            )
        )
        cells.append(
            {
                "method": name,
                "n_shot": n_shot,
                "n_episodes": n_episodes,
                "accuracy": results[0].accuracy,
                **timing,
            }
        )
        print(f"end to end  {name:12s} {n_shot}-shot  {timing['median_s']:.2f} s")
    return cells


def bench_baselines(features: FeatureSet, n_plain: int, n_torch: int) -> list[dict[str, Any]]:
    """Milliseconds per episode of other implementations, and the fraction of equal labels."""
    cells = []
    x = torch.as_tensor(features.features).float()
    for n_shot in (1, 5):
        method = configure("map", n_shot=n_shot, dataset="cifar-fs")
        episodes = sample_episodes(features, n_episodes=n_torch, n_shot=n_shot)
        few = episodes.take(slice(0, n_plain))
        fused, readable = NumbaEngine(features), TorchEngine(features)
        exact = TorchEngine(features, dtype="float64").predict(method, episodes)
        support, shown, query = x[few.support], torch.as_tensor(few.support_labels), x[few.query]

        def plain(support=support, shown=shown, query=query, method=method):
            return plain_map(
                support,
                shown,
                query,
                n_way=5,
                **{k: method.settings[k] for k in ("lam", "alpha", "n_steps")},
            ).numpy()

        runs: dict[str, tuple[Callable[[], np.ndarray], int, int]] = {
            "plain transcription": (plain, n_plain, 1),
            "torch, float32": (partial(readable.predict, method, episodes), n_torch, 3),
            "numba": (partial(fused.predict, method, episodes), n_torch, REPEATS),
        }
        fewest = few.take(slice(0, EASYFSL_EPISODES))
        easyfsl = load_easyfsl(features, fewest, n_shot)
        if easyfsl is not None:
            runs["easyfsl PTMAP"] = (easyfsl, len(fewest), 1)
        for name, (run, n_episodes, repeats) in runs.items():
            agreeing = (run() == exact[:n_episodes]).mean()
            timing = measure(run, repeats)
            each = 1000 * timing["median_s"] / n_episodes
            cells.append(
                {
                    "what": name,
                    "n_shot": n_shot,
                    "n_episodes": n_episodes,
                    "ms_per_episode": each,
                    "agreement": float(agreeing),
                    **timing,
                }
            )
            print(
                f"baseline    {name:20s} {n_shot}-shot  {each:9.3f} ms/episode  "
                f"{100 * agreeing:.3f} % of labels as float64"
            )
    return cells


def load_easyfsl(
    features: FeatureSet, episodes: Any, n_shot: int
) -> Callable[[], np.ndarray] | None:
    """PTMAP of easyfsl on the same episodes, where it can be imported (it needs torchvision)."""
    try:
        from easyfsl.methods import PTMAP
    except ImportError as error:
        print(f"baseline    easyfsl is left out: {error}")
        return None
    vectors = torch.as_tensor(features.features).float()
    settings = configure("map", n_shot=n_shot, dataset="cifar-fs").settings

    def run() -> np.ndarray:
        answers = []
        for e in range(len(episodes)):
            model = PTMAP(
                torch.nn.Identity(),
                fine_tuning_steps=settings["n_steps"],
                fine_tuning_lr=settings["alpha"],
                lambda_regularization=settings["lam"],
                power_factor=0.5,
                feature_normalization=2.0,
            )
            model.process_support_set(
                vectors[episodes.support[e]], torch.as_tensor(episodes.support_labels[e])
            )
            answers.append(model(vectors[episodes.query[e]]).argmax(dim=1).numpy())
        return np.stack(answers)

    return run


def bench_scaling(features: FeatureSet, n_episodes: int) -> dict[str, Any]:
    """Cost against episodes, ways, shots, queries and feature dim, one varied at a time."""
    fewer = n_episodes // 10
    sweeps = {  # title: (what is varied, its sizes, episodes)
        "episodes": ("n_episodes", [fewer, 2 * fewer, 4 * fewer, 8 * fewer], 0),
        "queries per class, few (Gram space)": ("queries", [10, 15, 30, 60], fewer),
        "queries per class, many (feature space)": ("queries", [100, 200, 300, 500], fewer // 10),
        "ways": ("n_way", [2, 5, 10, 20], fewer),
        "shots": ("n_shot", [1, 5, 10, 20], fewer),
    }
    found: dict[str, Any] = {}
    for title, (what, sizes, episodes) in sweeps.items():
        seconds = []
        for size in sizes:
            setting = {"n_way": 5, "n_shot": 1, "queries": 15, "n_episodes": episodes, what: size}
            method = configure("map", n_shot=setting["n_shot"], dataset="cifar-fs")
            seconds.append(
                measure(
                    lambda method=method, setting=setting: evaluate([method], features, **setting),
                    3,
                )
            )
        slope = exponent(sizes, [timing["min_s"] for timing in seconds])
        each = [
            1000 * timing["median_s"] / (episodes or size)
            for size, timing in zip(sizes, seconds, strict=True)
        ]
        found[title] = {
            "sizes": sizes,
            "n_episodes": episodes,
            "exponent": slope,
            "ms_per_episode": each,
            "seconds": seconds,
        }
        print(
            f"scaling     {title:38s} {sizes}  "
            + "  ".join(f"{ms:.3f}" for ms in each)
            + f" ms/episode  exponent {slope:.2f}"
        )
    return found


def bench_dim(features: FeatureSet, n_episodes: int) -> list[dict[str, Any]]:
    """Time by feature dim: end to end, and the solver alone (MAP less nearest class mean)."""
    found = []
    for dim in (640, 1280, 2560):
        wide = widen(features, dim)
        engine = NumbaEngine(wide)
        method = configure("map", n_shot=1, dataset="cifar-fs")
        nearest = configure("ncm", n_shot=1, pipeline="power(0.5) | unit | center | unit")
        episodes = sample_episodes(wide, n_episodes=n_episodes)
        for each in (method, nearest):
            engine.warm_up(each, episodes)
        whole = measure(
            lambda wide=wide, method=method: evaluate([method], wide, n_episodes=n_episodes), 3
        )
        both = measure(
            lambda engine=engine, method=method, episodes=episodes: engine.predict(
                method, episodes
            ),
            3,
        )
        gathering = measure(
            lambda engine=engine, nearest=nearest, episodes=episodes: engine.predict(
                nearest, episodes
            ),
            3,
        )
        solver = both["min_s"] - gathering["min_s"]
        found.append({"dim": dim, "solver_s": solver, **whole})
        print(
            f"scaling     dim {dim:5d}  end to end {whole['median_s']:.2f} s, "
            f"solver alone {solver:.2f} s"
        )
    return found


def peak_memory_mb(path: str | None, n_episodes: int) -> float:
    """Peak resident memory of `fewlabels evaluate` in a process of its own."""
    given = [path, "--per-class", "600"] if path else []
    command = [
        sys.executable,
        "-c",
        _PEAK,
        "evaluate",
        *given,
        "--episodes",
        str(n_episodes),
        "--method",
        "map",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stderr.strip().splitlines()[-1])


_PEAK = r"""
import re, sys
from fewlabels.cli import main
try:
    main()
except SystemExit:
    pass
status = open("/proc/self/status").read()  # getrusage would count the parent's memory before exec
print(int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024, file=sys.stderr)
"""


def main() -> None:
    """Run everything and write one JSON file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("features", nargs="?")
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the episodes, to try the script"
    )
    parser.add_argument(
        "--only", nargs="*", help="sections to measure again; the others keep their last results"
    )
    options = parser.parse_args()
    features = (
        read_features(options.features, per_class=600) if options.features else load_embedded()
    )
    n_episodes = 1000 if options.quick else 10_000
    sections: dict[str, Callable[[], Any]] = {
        "end_to_end": lambda: bench_end_to_end(features, n_episodes),
        "baselines": lambda: bench_baselines(
            features, *((10, 200) if options.quick else (100, 1000))
        ),
        "scaling": lambda: bench_scaling(features, n_episodes),
        "dim": lambda: bench_dim(features, n_episodes),
        "peak_memory_mb": lambda: peak_memory_mb(options.features, n_episodes),
    }
    path = RESULTS / ("cpu-quick.json" if options.quick else "cpu.json")
    report = json.loads(path.read_text()) if path.exists() else {}
    threads = f"{os.cpu_count()} cores, {torch.get_num_threads()} threads"
    report["machine"] = f"{cpu_name()}, {threads}, {platform.system()}"
    report["versions"] = versions()
    report["features"] = {
        **features.provenance,
        "fingerprint": features.fingerprint,
        "rows": len(features),
        "dim": features.dim,
    }
    for name in options.only or sections:
        begun = {
            "date": datetime.now(UTC).isoformat(timespec="minutes"),
            "load_before": os.getloadavg()[0],
        }
        report[name] = {**begun, "found": sections[name]()}
        RESULTS.mkdir(exist_ok=True)
        path.write_text(json.dumps(report, indent=1) + "\n")
    print(f"peak memory {report['peak_memory_mb']['found']:.0f} MB")


def cpu_name() -> str:
    """Name of the CPU, as the system tells it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )


if __name__ == "__main__":
    main()
