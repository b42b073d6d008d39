"""What neighborhood features and calibration add in large folders that `fewlabels label` labels.

    python benchmarks/folders.py

Validation classes of the artifacts, in folders of 1,000 to 5,000 images, even or with class sizes
drawn from a Dirichlet(2), one or five labels per class. "alone" is the same classifier without
neighborhood features. The calibration errors are of the probabilities before and after calibration.
Writes benchmarks/results/folders.json.
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from fewlabels.confidence.calibration import expected_calibration_error
from fewlabels.evaluation.results import versions
from fewlabels.features import FeatureSet
from fewlabels.labeling.answer import prepare, solve

HERE = Path(__file__).parent
N_DRAWS = 4
SHOTS = (1, 5)
ALPHA = 2.0  # of the Dirichlet distribution that uneven class sizes come from


class Kind(NamedTuple):
    """A kind of folder: features, number of classes, and mean number of images per class."""

    features: str
    n_way: int
    size: int


KINDS = (
    Kind("cifar-fs/wrn28-10", 16, 100),
    Kind("cifar-fs/wrn28-10", 16, 300),
    Kind("cifar-fs/resnet12", 16, 100),
    Kind("cifar-fs/resnet12", 16, 300),
    Kind("cub/resnet18", 50, 20),
    Kind("cub/resnet18", 50, 36),
)


def draw_folder(
    features: FeatureSet, kind: Kind, *, n_shot: int, uneven: bool, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the folder, by class, and their labels, -1 but for the first of each class."""
    sizes = rng.dirichlet([ALPHA] * kind.n_way) if uneven else np.full(kind.n_way, 1 / kind.n_way)
    rows, labels = [], []
    for way, source in enumerate(rng.permutation(features.n_classes)[: kind.n_way]):
        mine = rng.permutation(np.flatnonzero(features.labels == source))
        size = min(round(sizes[way] * kind.size * kind.n_way) + n_shot, len(mine))
        rows.append(mine[:size])
        labels.append(np.where(np.arange(size) < n_shot, way, -1))
    return np.concatenate(rows), np.concatenate(labels)


def measure(features: FeatureSet, kind: Kind, *, n_shot: int, uneven: bool) -> dict[str, object]:
    """Means over the draws, in percent."""
    found = []
    for seed in range(N_DRAWS):
        rows, labels = draw_folder(
            features, kind, n_shot=n_shot, uneven=uneven, rng=np.random.default_rng(seed)
        )
        known = labels >= 0
        of_source = {
            int(source): int(way)
            for source, way in zip(features.labels[rows][known], labels[known], strict=True)
        }
        truth = torch.tensor([of_source[int(source)] for source in features.labels[rows]])[~known]
        vectors = prepare(features.features[rows])
        answer = solve(vectors, labels, n_way=kind.n_way)
        support, given, query = (
            vectors.x[known][None],
            torch.as_tensor(labels[known])[None],
            vectors.x[~known][None],
        )
        method = vectors.method.configure(n_shot=n_shot)
        alone = method.assign(
            support, given, query, n_way=kind.n_way, neighborhood=(support, query)
        )
        decided = torch.as_tensor(answer.labels)[~known]
        before, after = (
            torch.as_tensor(probabilities[~known])[None]
            for probabilities in (answer.uncalibrated, answer.probabilities)
        )
        found.append(
            (
                len(rows),
                100 * float((decided == truth).double().mean()),
                100 * float((alone.labels[0] == truth).double().mean()),
                100 * expected_calibration_error(before, decided[None], truth[None]),
                100 * expected_calibration_error(after, decided[None], truth[None]),
            )
        )
    n_images, *means = (float(mean) for mean in np.mean(found, axis=0))
    names = ("right", "right_alone", "calibration_error_before", "calibration_error")
    return {
        **kind._asdict(),
        "n_images": round(n_images),
        "n_shot": n_shot,
        "uneven": uneven,
        **dict(zip(names, means, strict=True)),
    }


def main() -> None:
    """Measure, print, write."""
    cells = []
    for kind in KINDS:
        features = FeatureSet.load(HERE.parent / "artifacts" / kind.features / "val.safetensors")
        for uneven in (False, True):
            for n_shot in SHOTS:
                cell = measure(features, kind, n_shot=n_shot, uneven=uneven)
                cells.append(cell)
                classes = f"{kind.n_way} {'uneven' if uneven else 'even'} classes"
                print(
                    f"{kind.features}, {classes}, {cell['n_images']:,} images, "
                    f"{n_shot} labels per class: "
                    f"{cell['right']:.1f} % right, alone {cell['right_alone']:.1f} %; "
                    f"calibration error {cell['calibration_error_before']:.1f} -> "
                    f"{cell['calibration_error']:.1f} %",
                    flush=True,
                )
    (HERE / "results" / "folders.json").write_text(
        json.dumps({"versions": versions(), "draws": N_DRAWS, "cells": cells}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
