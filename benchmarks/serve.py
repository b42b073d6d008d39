"""How long a click takes: 5,000 items of 20 classes relabelled over real HTTP, server included.

    python benchmarks/serve.py [--items 5000] [--classes 20] [--dim 1280] [--clicks 40]

A separate `fewlabels serve` process answers; the client is the standard library's. The features are
made-up clusters that overlap, so that labels do change. Writes benchmarks/results/serve.json.
"""

import argparse
import gzip
import http.client
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np

from fewlabels.evaluation.results import versions

RESULTS = Path(__file__).parent / "results"
LABELS_PER_CLASS = 5


def make_features(path: Path, *, n_items: int, n_classes: int, dim: int) -> np.ndarray:
    """Write clusters of non-negative vectors with a few labels; returns the true classes."""
    rng = np.random.default_rng(0)
    truth = np.sort(rng.integers(0, n_classes, n_items))
    centers = rng.gamma(1.0, size=(n_classes, dim))
    vectors = (0.12 * centers[truth] + rng.gamma(1.0, size=(n_items, dim))).astype(np.float32)
    labels = np.full(n_items, -1)
    for way in range(n_classes):
        labels[np.flatnonzero(truth == way)[:LABELS_PER_CLASS]] = way
    np.savez(
        path,
        features=vectors,
        labels=labels,
        class_names=np.array([f"class {way}" for way in range(n_classes)]),
    )
    return truth


def main() -> None:
    """Measure and report."""
    options = argparse.ArgumentParser()
    for name, value in {"items": 5000, "classes": 20, "dim": 1280, "clicks": 40}.items():
        options.add_argument(f"--{name}", type=int, default=value)
    options.add_argument(
        "--pause",
        type=float,
        default=0.0,
        help="seconds between clicks; from 0.35 on the thorough answer is computed meanwhile",
    )
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "features.npz"
        truth = make_features(file, n_items=asked.items, n_classes=asked.classes, dim=asked.dim)
        command = [
            str(Path(sys.executable).with_name("fewlabels")),
            "serve",
            f"{folder}/project.fewlabels",
            "--photos",
            str(file),
        ]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            seconds, changed, size = click(server, truth, n=asked.clicks, pause=asked.pause)
        finally:
            server.terminate()
            server.wait()
    seconds.sort()
    found = {
        "items": asked.items,
        "classes": asked.classes,
        "dim": asked.dim,
        "clicks": asked.clicks,
        "pause_s": asked.pause,
        "median_ms": round(1e3 * statistics.median(seconds), 1),
        "p95_ms": round(1e3 * seconds[int(0.95 * (len(seconds) - 1))], 1),
        "max_ms": round(1e3 * seconds[-1], 1),
        "answer_kb": round(size / 1024, 1),
        "labels_changed_per_click": round(statistics.mean(changed), 1),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": versions(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    print(json.dumps(found, indent=2))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "serve.json").write_text(json.dumps(found, indent=2) + "\n")


def click(
    server: subprocess.Popen[str], truth: np.ndarray, *, n: int, pause: float
) -> tuple[list[float], list[int], int]:
    """Seconds and changed labels of n right decisions, until the answer is read; and its bytes."""
    assert server.stdout is not None
    address = urlsplit(server.stdout.readline().strip())
    token = parse_qs(address.query)["token"][0]
    connection = http.client.HTTPConnection(address.netloc)
    headers = {"Content-Type": "application/json", "X-Fewlabels-Token": token}
    items = np.random.default_rng(1).permutation(len(truth))
    headers["Accept-Encoding"] = "gzip"
    seconds, changed, size, version = [], [], 0, -1
    for item in items[: n + 2]:  # two to warm up
        body = json.dumps({"items": [int(item)], "label": f"class {truth[item]}"})
        begun = time.perf_counter()
        connection.request("POST", f"/api/decide?since={version}", body, headers)
        response = connection.getresponse()
        answer = response.read()
        seconds.append(time.perf_counter() - begun)
        size = len(answer)
        if response.getheader("Content-Encoding") == "gzip":
            answer = gzip.decompress(answer)
        told = json.loads(answer)
        changed.append(len(told["changed"]))
        version = told["version"]
        time.sleep(pause)
    return seconds[2:], changed[2:], size


if __name__ == "__main__":
    main()
