"""The engine on one GPU: agreement with float64 on 10,000 real episodes, kernel and whole time.

Where class sizes are estimated, all but the network is in float64, and "gather and Gram" includes
the neighborhood features.

    python benchmarks/h200.py FEATURES.npy OUT.json [METHOD]

FEATURES: rows in blocks of 600 per class. METHOD: measure the cells of this method alone.
"""

import json
import platform
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
import triton

from fewlabels.evaluation import evaluate, sample_episodes
from fewlabels.evaluation.engines import TorchEngine
from fewlabels.evaluation.fused import (
    CUDA_SOFT_DOUBT,
    REFINED_DOUBT,
    TOLERANCES,
    TritonEngine,
    _kernel_arguments,
    estimates,
    grams,
    has_network,
)
from fewlabels.features import FeatureSet, read_features
from fewlabels.kernels import cuda, gram
from fewlabels.methods import configure, find_method

N_EPISODES = 10_000
ESTIMATED = {  # map-auto without its network
    "name": "map",
    "pipeline": find_method("map-auto").pipeline,
    "prior": "estimate",
    "lam": "auto",
}


def widened(features: FeatureSet, dim: int) -> FeatureSet:
    """The features repeated side by side up to a dim: same geometry, more numbers."""
    times = dim // features.dim
    return FeatureSet(
        np.tile(features.features, (1, times)),
        features.labels,
        features.class_names,
        features.provenance,
    )


def timed(function, repeats: int = 7) -> dict[str, float]:
    """Median, best and worst wall seconds of a call that ends synchronised."""
    function()
    seconds = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        function()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    return {"median_s": statistics.median(seconds), "min_s": min(seconds), "max_s": max(seconds)}


def main(path: str, out: str, only: str = "") -> None:
    """Run everything, or the cells of one method, and write one JSON file."""
    features = read_features(path, per_class=600)
    report = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "n_episodes": N_EPISODES,
        "features": features.fingerprint,
        "cells": [],
    }
    for n_shot, name, dim in (
        (1, "map", 640),
        (5, "map", 640),
        (1, "map", 2560),
        (1, "ncm", 640),
        (1, "kmeans", 640),
        (1, "soft-kmeans", 640),
        (1, "map-estimated", 640),
        (5, "map-estimated", 640),
        (1, "map-auto", 640),
        (5, "map-auto", 640),
    ):
        if only and name != only:
            continue
        used = features if dim == features.dim else widened(features, dim)
        given = ESTIMATED if name == "map-estimated" else {"name": name}
        method = configure(**given, n_shot=n_shot, dataset="cifar-fs").decide(
            torch.as_tensor(used.features)
        )
        episodes = sample_episodes(used, n_episodes=N_EPISODES, n_shot=n_shot)
        engine = TritonEngine(used)
        cell = {"method": name, "n_shot": n_shot, "dim": dim}
        predicted = engine.predict(method, episodes)
        cell["accuracy"] = 100 * float((predicted == episodes.query_labels).mean())
        if dim == 640:
            reference = TorchEngine(used, device="cuda", dtype="float64")
            exact = np.concatenate(
                [
                    reference.predict(method, episodes.take(slice(i, i + 1000)))
                    for i in range(0, N_EPISODES, 1000)
                ]
            )
            cell["labels"] = int(exact.size)
            cell["labels_unlike_float64"] = int((exact != predicted).sum())
        cell["predict"] = timed(lambda: engine.predict(method, episodes))
        cell["end_to_end"] = timed(
            lambda: evaluate([method], used, n_shot=n_shot, n_episodes=N_EPISODES, device="cuda")
        )
        lam, alpha, n_steps, classifier, target = _kernel_arguments(method, episodes)
        dtype = torch.float64 if estimates(method) else torch.float32
        rows = engine._rows.all(method.pipeline, dtype)
        rows = rows - rows.mean(dim=0)
        numbers = torch.as_tensor(np.concatenate([episodes.support, episodes.query], axis=1)).cuda()
        chunk = 2500 if dim == 640 else 625
        n_support = episodes.support.shape[1]

        def matrices_of(part: torch.Tensor) -> tuple[torch.Tensor, ...]:
            products = grams(method.pipeline, rows[part], n_support)
            if not estimates(method):
                return (products,)
            wide = gram.append_neighbor_means(
                products, n_support=n_support, n_way=5, kth=cuda.kth_largest
            )
            return products, wide

        parts = [numbers[i : i + chunk] for i in range(0, N_EPISODES, chunk)]
        cell["gather_and_gram"] = timed(lambda: [matrices_of(part) for part in parts])
        found = zip(*(matrices_of(part) for part in parts), strict=True)
        matrices, *wides = (torch.cat(kind) for kind in found)
        settings = dict(
            n_query=75,
            n_way=5,
            classifier=classifier,
            lam=lam,
            alpha=alpha,
            n_steps=n_steps,
            target=torch.as_tensor(target, dtype=dtype).cuda(),
            tol=TOLERANCES[dtype],
            wides=wides[0] if wides else None,
        )
        shown = torch.as_tensor(episodes.support_labels.astype(np.int32)).cuda()
        cell["kernel"] = timed(lambda: cuda.classify_grams(matrices, shown, **settings), repeats=15)
        if has_network(method):  # the rest is votes and network
            exact_rows, local = engine._exact_rows(method.pipeline, episodes)
            cell["classify"] = timed(lambda: engine._classify(exact_rows, local, method))
            labels, margins = engine._classify(exact_rows, local, method)
        else:
            found = cuda.classify_grams(matrices, shown, **settings)
            labels, margins = found.labels.cpu().numpy(), found.margins.cpu().numpy()
        doubt = 0.0 if estimates(method) else CUDA_SOFT_DOUBT
        doubt = REFINED_DOUBT if has_network(method) else doubt
        cell["doubtful_episodes"] = int((margins < doubt).sum())
        cell["unsolved_episodes"] = int((margins < 0).sum())
        cell["kernel_labels_unlike_final"] = int((labels != predicted).sum())
        report["cells"].append(cell)
        print(json.dumps(cell), flush=True)
        del matrices, wides, settings, engine
        torch.cuda.empty_cache()
        Path(out).write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
