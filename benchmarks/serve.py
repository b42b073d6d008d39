"""The labelling page over real HTTP: seconds until it is ready, and time and bytes of its answers.

    python benchmarks/serve.py [--items 5000 30000] [--classes 20] [--dim 1280] [--clicks 40]
        [--spread 0.5]

A separate `fewlabels serve` process answers; the client is the standard library's. The features are
made-up clusters that overlap, so that labels do change: of 20 classes with centers 0.5 apart seven
of ten labels are right, with 0.3 far fewer, and 1,000 confirmed labels change most of the others.
The project is made first, then opened again: "ready" is the time from there until the server prints
its address. Answers, a large change in several of them:

click       to a label, right after the one before
confirmed   to 1,000 labels that are confirmed at once
thorough    what the page fetches a moment after a decision: the thorough answer, the estimate
outliers    what it fetches last: the images that belong to no class

Bytes are those of the body, as sent. Writes benchmarks/results/serve.json.
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
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from fewlabels.evaluation.results import versions

RESULTS = Path(__file__).parent / "results"
LABELS_PER_CLASS = 5
N_CONFIRMED = 1000
LATENT_DIM = 32
N_PAUSES = 4  # decisions after which the thorough answer is awaited


def make_features(
    path: Path, *, n_items: int, n_classes: int, dim: int, spread: float
) -> np.ndarray:
    """Write clusters of non-negative vectors with a few labels; returns the true classes."""
    rng = np.random.default_rng(0)
    truth = np.sort(rng.integers(0, n_classes, n_items))
    centers = rng.normal(size=(n_classes, LATENT_DIM))
    latent = spread * centers[truth] + rng.normal(size=(n_items, LATENT_DIM))
    vectors = np.maximum(latent @ rng.normal(size=(LATENT_DIM, dim)), 0)
    vectors = (vectors + rng.gamma(1.0, size=vectors.shape)).astype(np.float32)
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


class Client:
    """What the page does: asks, keeps the state, and counts seconds and bytes by kind."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        token = parse_qs(parts.query)["token"][0]
        self.connection = http.client.HTTPConnection(parts.netloc)
        self.headers = {
            "Content-Type": "application/json",
            "X-Fewlabels-Token": token,
            "Cookie": f"fewlabels-{parts.port}={token}",
            "Accept-Encoding": "gzip",
        }
        self.version = -1
        self.seconds: dict[str, list[float]] = {}
        self.sizes: dict[str, list[int]] = {}
        self.changed: list[int] = []

    def ask(self, kind: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One request; the answer as the page gets it, {} if there is nothing new."""
        method, content = ("GET", None) if body is None else ("POST", json.dumps(body))
        begun = time.perf_counter()
        self.connection.request(method, path, content, self.headers)
        response = self.connection.getresponse()
        answer = response.read()
        seconds, size = time.perf_counter() - begun, len(answer)
        if response.status == 204:
            return {}
        if response.getheader("Content-Encoding") == "gzip":
            answer = gzip.decompress(answer)
        told: dict[str, Any] = json.loads(answer)
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {told}")
        self.seconds.setdefault(kind, []).append(seconds)
        self.sizes.setdefault(kind, []).append(size)
        return told

    def start(self) -> dict[str, Any]:
        """What the page loads first; returns the state."""
        state: dict[str, Any] = self.ask("start", "/api/project")["state"]
        self.version = state["version"]
        return state

    def post(self, kind: str, path: str, body: dict[str, Any]) -> None:
        """A decision."""
        told = self.ask(kind, f"{path}?since={self.version}", body)
        self.version = told["version"]
        self.changed.append(told["n_changed"])

    def settle(self) -> None:
        """Wait until nothing more comes."""
        while True:
            told = self.ask("later", f"/api/state?since={self.version}")
            if told:
                self.version = told["version"]
                kind = "outliers" if told["searched"] else "thorough"
                for found in (self.seconds, self.sizes):
                    found.setdefault(kind, []).append(found["later"].pop())  # type: ignore[attr-defined]
                if told["searched"]:
                    return
            time.sleep(0.1)


@contextmanager
def serving(*words: str) -> Iterator[tuple[str, float]]:
    """A server; its address, and the seconds until it printed it."""
    command = [str(Path(sys.executable).with_name("fewlabels")), "serve", *words]
    begun = time.perf_counter()
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        address = server.stdout.readline().strip()
        yield address, time.perf_counter() - begun
    finally:
        server.terminate()
        server.wait()


def measure(
    *, n_items: int, n_classes: int, dim: int, n_clicks: int, spread: float
) -> dict[str, Any]:
    """All numbers of one folder."""
    with tempfile.TemporaryDirectory() as folder:
        file, project = Path(folder) / "features.npz", f"{folder}/project.fewlabels"
        made = {"n_items": n_items, "n_classes": n_classes, "dim": dim, "spread": spread}
        truth = make_features(file, **made)
        with serving(project, "--photos", str(file)):
            pass
        with serving(project) as (address, ready):
            client = Client(address)
            client.start()
            items = np.random.default_rng(1).permutation(n_items).tolist()

            def click(kind: str) -> None:
                item = items.pop()
                body = {"items": [item], "label": f"class {truth[item]}"}
                client.post(kind, "/api/decide", body)

            client.settle()
            for _ in range(2):
                click("warm")
            for _ in range(n_clicks):
                click("click")
            client.settle()
            confirmed = [items.pop() for _ in range(min(N_CONFIRMED, n_items // 4))]
            shown: dict[str, list[int]] = {}
            for item in confirmed:
                shown.setdefault(f"class {truth[item]}", []).append(item)
            client.post("confirmed", "/api/confirm", {"shown": shown})
            client.settle()
            for _ in range(N_PAUSES):
                click("click after a pause")
                client.settle()
    return {
        "items": n_items,
        "classes": n_classes,
        "dim": dim,
        "spread": spread,
        "ready_s": round(ready, 1),
        "answers": {
            kind: {
                "n": len(sizes),
                "largest_bytes": max(sizes),
                "median_ms": round(1e3 * statistics.median(client.seconds[kind]), 1),
                "max_ms": round(1e3 * max(client.seconds[kind]), 1),
            }
            for kind, sizes in client.sizes.items()
            if sizes and kind != "warm"
        },
        "labels_changed_per_click": round(statistics.mean(client.changed), 1),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def main() -> None:
    """Measure and report."""
    options = argparse.ArgumentParser()
    options.add_argument("--items", type=int, nargs="+", default=[5000, 30_000])
    for name, value in {"classes": 20, "dim": 1280, "clicks": 40}.items():
        options.add_argument(f"--{name}", type=int, default=value)
    options.add_argument("--spread", type=float, default=0.5)
    asked = options.parse_args()
    shape = {"n_classes": asked.classes, "dim": asked.dim, "n_clicks": asked.clicks}
    shape["spread"] = asked.spread
    found = {
        "folders": [measure(n_items=n_items, **shape) for n_items in asked.items],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": versions(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    print(json.dumps(found, indent=2))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "serve.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
