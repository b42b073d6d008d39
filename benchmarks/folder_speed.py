"""Time and memory of the folder method: rows prepared once, then an answer with its estimate.

    python benchmarks/folder_speed.py

Made-up features of 1,280 columns, 20 classes, 5 labels per class. Every size runs in a process of
its own, with the threads that torch takes by itself. Writes benchmarks/results/folder_speed.json.
"""

import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

PATH = Path(__file__).parent / "results" / "folder_speed.json"
SIZES = (5_000, 10_000, 25_000, 50_000, 100_000)
N_CLASSES, N_COLUMNS, N_LABELS = 20, 1280, 5
N_RUNS = 3  # of the smallest size; the median is recorded
BLOCK = 5_000  # rows that are made at a time


def make_rows(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Features after a ReLU, and labels: some per class, -1 elsewhere."""
    rng = np.random.default_rng(0)
    classes = np.arange(n_rows) % N_CLASSES
    centers = rng.standard_gamma(1.0, (N_CLASSES, N_COLUMNS), dtype=np.float32)
    x = np.empty((n_rows, N_COLUMNS), dtype=np.float32)
    for begin in range(0, n_rows, BLOCK):
        part = classes[begin : begin + BLOCK]
        noise = rng.standard_gamma(1.0, (len(part), N_COLUMNS), dtype=np.float32)
        x[begin : begin + BLOCK] = centers[part] + 2 * noise
    return x, np.where(np.arange(n_rows) < N_LABELS * N_CLASSES, classes, -1)


def measure(n_rows: int) -> dict[str, float]:
    """Seconds, and gigabytes of memory at most."""
    from fewlabels.labeling.accuracy import estimate_accuracy
    from fewlabels.labeling.answer import prepare, solve

    x, labels = make_rows(n_rows)
    begun = time.perf_counter()
    rows = prepare(x)
    prepared = time.perf_counter()
    answer = solve(rows, labels, n_way=N_CLASSES)
    estimate_accuracy(rows, labels, n_way=N_CLASSES, answer=answer)
    ended = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {
        "images": n_rows,
        "prepare": round(prepared - begun, 2),
        "answer": round(ended - prepared, 2),
        "gigabytes": round(peak, 2),
    }


def main() -> None:
    """Measure every size, and write the file."""
    cells = []
    for n_rows in SIZES:
        runs = []
        for _ in range(N_RUNS if n_rows == SIZES[0] else 1):
            done = subprocess.run(
                [sys.executable, __file__, str(n_rows)], check=True, capture_output=True, text=True
            )
            runs.append(json.loads(done.stdout))
        runs.sort(key=lambda run: run["prepare"] + run["answer"])
        cells.append(runs[len(runs) // 2])
        print(cells[-1], flush=True)
    report = {"processors": os.cpu_count(), "machine": platform.machine(), "cells": cells}
    PATH.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(int(sys.argv[1]))))
    else:
        main()
