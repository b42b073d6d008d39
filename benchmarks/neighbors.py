"""The search of neighbors by cells against the full search: how many it finds, and the time.

    python benchmarks/neighbors.py

CIFAR-FS novel classes in the WRN-28-10 of artifacts/, 256 principal components, 20 neighbors, one
thread. Writes benchmarks/results/neighbors.json.
"""

import json
import time
from pathlib import Path

import numpy as np
import torch

from fewlabels.features import FeatureSet
from fewlabels.preprocess import neighbors
from fewlabels.preprocess.components import principal_components

HERE = Path(__file__).parent
N_NEIGHBORS = 20


def main() -> None:
    """Vary the cells that a row is compared with."""
    torch.set_num_threads(1)
    path = HERE.parent / "artifacts" / "cifar-fs" / "wrn28-10" / "novel.safetensors"
    x = torch.tensor(np.asarray(FeatureSet.load(path).features, dtype=np.float32)).sqrt()
    z = torch.nn.functional.normalize(principal_components(x, 256), dim=1)[None]
    exact, seconds = _search(z)
    table = [{"cells": "all", "found": 1.0, "seconds": seconds}]
    neighbors.EXACT_ROWS = 0
    for n_probed in (4, 8, neighbors.N_PROBED, 24):
        neighbors.N_PROBED = n_probed
        found, seconds = _search(z)
        same = [
            len(set(mine) & set(theirs)) / N_NEIGHBORS
            for mine, theirs in zip(found, exact, strict=True)
        ]
        table.append({"cells": n_probed, "found": round(float(np.mean(same)), 3)})
        table[-1]["seconds"] = seconds
    for each in table:
        print(each)
    (HERE / "results" / "neighbors.json").write_text(json.dumps(table, indent=1) + "\n")


def _search(z: torch.Tensor) -> tuple[list[list[int]], float]:
    begun = time.process_time()
    rows = neighbors.find_nearest(z, N_NEIGHBORS).rows[0].tolist()
    return rows, round(time.process_time() - begun, 2)


if __name__ == "__main__":
    main()
