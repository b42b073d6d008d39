"""How many labelled rows should a mean from outside count as (`steps.OUTSIDE_ROWS`)?

    python benchmarks/outside_mean.py [--episodes 1000]

`map-auto-mean` on validation classes (CIFAR-FS in two WRN-28-10, CUB in a ResNet18), with the mean
of the other validation classes, and on four folders in EfficientNet-Lite0, with the mean of the
three other folders, which are of other kinds of images. 0 rows: `map-auto`, which takes no mean.
Infinitely many: the mean from outside alone. Paired differences to `map-auto`, 5 ways, 75 queries.
Writes benchmarks/results/outside_mean.json.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from refinement import means_of_others

from fewlabels import FeatureSet, configure, sample_episodes
from fewlabels.evaluation.results import versions
from fewlabels.features import read_features
from fewlabels.fitting import answer
from fewlabels.preprocess import steps

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "features"
RESULTS = Path(__file__).with_name("results") / "outside_mean.json"
VALIDATION = {
    "CIFAR-FS, own WRN": ROOT / "artifacts/cifar-fs/wrn28-10/val.safetensors",
    "CIFAR-FS, older WRN": SHARED / "cifar-fs-wrn28-10/val.npy",
    "CUB, ResNet18": ROOT / "artifacts/cub/resnet18/val.safetensors",
}
FOLDERS = ("butterflies", "steel", "textures", "trash")
COUNTS = (0.0, 1.0, 2.0, 5.0, 10.0, 25.0, 1e9)  # rows
LEAST_ROWS = 45  # of a class; two present classes need 38 queries each beside five labels
QUERIES = ("15", "dirichlet:2:75", "present:2:75")
CHUNK = 100  # episodes at a time


def read_large(path: Path) -> FeatureSet:
    """The features of classes with enough rows."""
    found = read_features(path, per_class=600 if path.suffix == ".npy" else None)
    large = np.flatnonzero(found.class_sizes >= LEAST_ROWS)
    kept = np.isin(found.labels, large)
    labels = np.searchsorted(large, found.labels[kept])
    return FeatureSet.from_arrays(found.features[kept], labels, provenance=found.provenance)


def measure(features: FeatureSet, others: torch.Tensor | None, n: int) -> list[dict[str, object]]:
    """Cells of one feature set; `others`: rows whose mean is taken, or those of other classes."""
    rows, cells = torch.as_tensor(features.features).float(), []
    for queries in QUERIES:
        for n_shot in (1, 5):
            how = {"n_episodes": n, "n_shot": n_shot, "queries": queries, "seed": 5}
            drawn = sample_episodes(features, **how)  # type: ignore[arg-type]
            found = {}
            for count in COUNTS:
                steps.OUTSIDE_ROWS = count or steps.OUTSIDE_ROWS
                name = "map-auto-mean" if count else "map-auto"
                dataset = features.provenance.get("dataset")
                method = configure(name, n_shot=n_shot, dataset=dataset).decide(rows)
                ready, _, _ = method.pipeline.rowwise.apply_and_record(rows, rows[:0])
                given = None if others is None else method.pipeline.mean_of(others)
                right = []
                for first in range(0, n, CHUNK):
                    part = slice(first, first + CHUNK)
                    mean = given
                    if mean is None:
                        mean = means_of_others(ready, features.labels, drawn.classes[part])
                    x, q, y = (
                        torch.as_tensor(each[part])
                        for each in (drawn.support, drawn.query, drawn.support_labels)
                    )
                    late = {"pipeline": method.pipeline.episodic, "mean": mean}
                    labels = answer(method, ready[x], y, ready[q], n_way=5, **late)
                    truth = torch.as_tensor(drawn.query_labels[part])
                    right.append((labels.assignment.labels == truth).double().mean(dim=1))
                found[count] = 100 * torch.cat(right)
            without = found.pop(0.0)
            cell: dict[str, object] = {"queries": queries, "n_shot": n_shot, "n_episodes": n}
            cell["map_auto"] = float(without.mean())
            cell["gains"] = {f"{k:g}": float((a - without).mean()) for k, a in found.items()}
            chosen = found[10.0] - without
            cell["half_width"] = 1.96 * float(chosen.std()) / n**0.5  # of ten rows
            print(json.dumps(cell), flush=True)
            cells.append(cell)
    return cells


def main() -> None:
    """Measure all feature sets."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--episodes", type=int, default=1000)
    n = parser.parse_args().episodes
    sets = {name: (read_large(path), None) for name, path in VALIDATION.items()}
    folders = {name: read_large(SHARED / "folders" / f"{name}.npz") for name in FOLDERS}
    for name, features in folders.items():
        rest = [each.features for other, each in folders.items() if other != name]
        sets[f"{name}, other folders"] = (features, torch.as_tensor(np.concatenate(rest)).float())
    cells = []
    with torch.no_grad():
        for name, (features, others) in sets.items():
            print(name, flush=True)
            cells += [{"features": name, **cell} for cell in measure(features, others, n)]
    report = {"cells": cells, "seed": 5, "versions": versions()}
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
