"""Images per second of EfficientNet-Lite0 on a CPU, and the time of a second run from the store.

    python benchmarks/extraction.py [FOLDER OF PHOTOGRAPHS]

Images per second of CPU time are given too: times the cores, they are the speed of an idle machine.
"""

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from engine import RESULTS, cpu_name
from PIL import Image

from fewlabels.backbones.encoder import Encoder, load_encoder
from fewlabels.data import ImageSet, read_images
from fewlabels.evaluation.folder import to_json
from fewlabels.evaluation.results import versions
from fewlabels.features import FeatureStore, extract
from fewlabels.features.extraction import make_recipe
from fewlabels.io.files import write_file

DEMO = Path(__file__).resolve().parents[2] / "shared" / "data" / "grocery-demo"
N_IMAGES = 140  # of the photographs, a fifth of the demo's
N_KEPT = 5000  # images of a second run
REPEATS = 5
SETTLED_SECONDS = 2.1  # until the digest of a new file is stored


def measure_rates(images: ImageSet, encoder: Encoder, repeats: int) -> dict[str, Any]:
    """Images per second by number of workers; 0 is one network on all of torch's threads."""
    cells: dict[str, Any] = {}
    for _ in range(repeats):  # in turn, so that other load on the machine affects all equally
        for n_workers in (0, 1, torch.get_num_threads()):
            begun, cpu = time.perf_counter(), time.process_time()
            extract(images, [encoder], store=None, n_workers=n_workers)
            cell = cells.setdefault(
                f"{n_workers} workers", {"images_per_s": [], "images_per_cpu_s": []}
            )
            cell["images_per_s"].append(len(images) / (time.perf_counter() - begun))
            cell["images_per_cpu_s"].append(len(images) / (time.process_time() - cpu))
    for name, cell in cells.items():
        wall, alone = cell["images_per_s"], cell["images_per_cpu_s"]
        spread = f"best {max(wall):.1f}, worst {min(wall):.1f}"
        print(
            f"{name}: {statistics.median(wall):6.1f} images/s, {spread}; "
            f"{statistics.median(alone):.1f} per second of CPU"
        )
    return cells


def measure_second_run(encoder: Encoder, n_images: int) -> dict[str, float]:
    """Seconds of `extract` when the store has every row, with files hashed before and not."""
    with tempfile.TemporaryDirectory() as place:
        folder, store = Path(place) / "photos", FeatureStore(Path(place) / "store")
        folder.mkdir()
        rng = np.random.default_rng(0)
        for number in range(n_images):
            Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(
                folder / f"{number:05d}.png"
            )
        images = read_images(folder)
        rows = rng.exponential(size=(n_images, encoder.feature_dim)).astype(np.float32)
        recipe = make_recipe(encoder, views="center", precision="float32")
        for start in range(0, n_images, 250):  # as ten seconds at 25 images/s leave them
            stop = min(start + 250, n_images)
            store.put(recipe, [images.digest(i) for i in range(start, stop)], rows[start:stop])
        time.sleep(SETTLED_SECONDS)
        hashing = _seconds(lambda: extract(images, [encoder], store=store))
        found = min(
            _seconds(
                lambda: extract(read_images(folder), [encoder], store=FeatureStore(store.root))
            )
            for _ in range(REPEATS)
        )
    print(
        f"{n_images:,} images x {encoder.feature_dim} from the store: {found:.3f} s, "
        f"{hashing:.3f} s where files are hashed first"
    )
    return {"n_images": n_images, "seconds": found, "seconds_with_hashing": hashing}


def _seconds(function: Callable[[], object]) -> float:
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


def main() -> None:
    """Measure, print, and write one JSON file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("photographs", nargs="?", type=Path, default=DEMO)
    options = parser.parse_args()
    images = read_images(options.photographs)
    images = images.subset(np.linspace(0, len(images) - 1, min(N_IMAGES, len(images))).astype(int))
    encoder = load_encoder("efficientnet-lite0")
    report: dict[str, Any] = {
        "machine": f"{cpu_name()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, "
        f"{platform.system()}",
        "versions": versions(),
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "load_before": os.getloadavg()[0],
        "images": {"from": images.name, "n": len(images), "size": images.read(0).size},
    }
    print(
        f"{report['machine']}; load {report['load_before']:.1f}; "
        f"{len(images)} images of {report['images']['size']} pixels"
    )
    report["rates"] = measure_rates(images, encoder, REPEATS)
    report["second_run"] = measure_second_run(encoder, N_KEPT)
    report["load_after"] = os.getloadavg()[0]
    print(f"load {report['load_after']:.1f}")
    RESULTS.mkdir(exist_ok=True)
    write_file(RESULTS / "extraction.json", to_json(report))


if __name__ == "__main__":
    main()
