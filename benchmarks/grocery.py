"""Accuracy on the demo's photographs, by labels per class and by how even the classes are.

    python benchmarks/grocery.py

All 20 classes at once, default settings, ten draws of the labels; "uneven" keeps 7 to 35
photographs of each class. Nearest class mean uses the same vectors. Writes
benchmarks/results/grocery.json.
"""

import json
from pathlib import Path

import numpy as np
import torch

from fewlabels.backbones import load_encoder
from fewlabels.data import read_images
from fewlabels.evaluation.results import versions
from fewlabels.features import FeatureSet, FeatureStore
from fewlabels.features.extraction import extract
from fewlabels.labeling.answer import prepare, solve
from fewlabels.methods.nearest import assign_nearest

HERE = Path(__file__).parent
N_DRAWS = 10
SHOTS = (1, 5)
FEWEST = 7  # photographs per class in an uneven folder


def draw_folder(truth: np.ndarray, *, uneven: bool, rng: np.random.Generator) -> np.ndarray:
    """Rows that are in the folder."""
    if not uneven:
        return np.arange(len(truth))
    sizes = [int(rng.integers(FEWEST, (truth == way).sum() + 1)) for way in range(truth.max() + 1)]
    return np.concatenate(
        [
            rng.choice(np.flatnonzero(truth == way), size, replace=False)
            for way, size in enumerate(sizes)
        ]
    )


def measure(features: FeatureSet, *, n_shot: int, uneven: bool) -> dict[str, float]:
    """Mean accuracy over the draws, in percent."""
    ours, nearest = [], []
    for seed in range(N_DRAWS):
        rng = np.random.default_rng(seed)
        rows = draw_folder(features.labels, uneven=uneven, rng=rng)
        truth = features.labels[rows]
        known = np.concatenate(
            [
                rng.choice(np.flatnonzero(truth == way), n_shot, replace=False)
                for way in range(features.n_classes)
            ]
        )
        labels = np.full(len(rows), -1)
        labels[known] = truth[known]
        vectors = prepare(features.features[rows])
        unknown = labels < 0
        answer = solve(vectors, labels, n_way=features.n_classes)
        ours.append((answer.labels[unknown] == truth[unknown]).mean())
        x, given = vectors.x[None], torch.as_tensor(labels)
        plain = assign_nearest(
            x[:, ~unknown], given[~unknown][None], x[:, unknown], n_way=features.n_classes
        )
        nearest.append((plain.labels[0].numpy() == truth[unknown]).mean())
    return {
        "n_shot": n_shot,
        "uneven": uneven,
        "ours": 100 * float(np.mean(ours)),
        "nearest": 100 * float(np.mean(nearest)),
        "draws": N_DRAWS,
    }


def main() -> None:
    """Extract (or read from the store), measure, print, write."""
    images = read_images(HERE.parent / "examples" / "grocery")
    features = extract(images, [load_encoder("efficientnet-lite0")], store=FeatureStore())
    cells = [
        measure(features, n_shot=n_shot, uneven=uneven)
        for uneven in (False, True)
        for n_shot in SHOTS
    ]
    for cell in cells:
        classes = "uneven" if cell["uneven"] else "even"
        print(
            f"{classes} classes, {cell['n_shot']} labels per class: {cell['ours']:.1f} % right, "
            f"nearest class mean {cell['nearest']:.1f} %"
        )
    (HERE / "results" / "grocery.json").write_text(
        json.dumps({"versions": versions(), "cells": cells}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
