"""`evaluate`: run methods over many episodes, the same for all methods, in chunks."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from fewlabels.errors import InputError
from fewlabels.evaluation.engines import make_engine
from fewlabels.evaluation.episodes import EpisodeDigest
from fewlabels.evaluation.queries import QuerySpec
from fewlabels.evaluation.results import EvaluationResult, versions
from fewlabels.evaluation.sampling import make_draws
from fewlabels.features import FeatureSet, load_embedded
from fewlabels.methods import ConfiguredMethod, Method, configure
from fewlabels.methods.base import methods_with_mean

AnyMethod = str | Method | ConfiguredMethod


def evaluate(
    methods: AnyMethod | Sequence[AnyMethod],
    features: FeatureSet | None = None,
    *,
    n_way: int = 5,
    n_shot: int = 1,
    queries: str | int | QuerySpec = 15,
    n_episodes: int = 10_000,
    draws: str = "own",
    seed: int = 0,
    engine: str = "auto",
    device: str = "auto",
    dtype: str | None = None,
    mean_features: FeatureSet | None = None,
    on_progress: Callable[[int], object] | None = None,
) -> list[EvaluationResult]:
    """Accuracy of each method over the same episodes.

    Ctrl-C (KeyboardInterrupt) ends the run early: the results then cover the episodes that every
    method has finished, and say so.

    Args:
        methods: Names, Methods, or what `configure` gave; one or several.
        features: What the episodes are drawn from; the embedded set if left out.
        n_way: Classes per episode.
        n_shot: Support rows per class.
        queries: Queries per class, or a word such as "dirichlet:2:75" (see `QuerySpec`).
        n_episodes: How many.
        draws: "own", or "authors" for those of the published script.
        seed: Of the draws.
        engine: "auto", "torch", "numba" or "triton"; see `evaluation.engines`.
        device: "auto", "cpu", "cuda" or "mps".
        dtype: "float32" or "float64", of the torch engine alone.
        mean_features: Where steps such as `center(mean)` take their mean from, such as the base
            classes; they need no labels.
        on_progress: Called with the number of newly finished (episode, method) pairs.

    >>> [result] = evaluate("ncm", n_shot=5, n_episodes=20, engine="torch")
    >>> result.title, result.n_episodes
    ('PT+NCM', 20)
    """
    features = load_embedded() if features is None else features
    if not isinstance(features, FeatureSet):
        raise InputError(
            f"features must be a FeatureSet, got {type(features).__name__}. "
            "Make one by FeatureSet.from_arrays(features, labels)."
        )
    if n_episodes < 1:
        raise InputError(f"n_episodes must be at least 1, got {n_episodes}.")
    kind: Any = {"n_shot": n_shot, "dataset": features.provenance.get("dataset")}
    given = [methods] if isinstance(methods, str | Method | ConfiguredMethod) else list(methods)
    configured = [
        each if isinstance(each, ConfiguredMethod) else configure(each, **kind) for each in given
    ]
    if not configured:
        raise InputError("methods must hold at least one method, got none.")
    wanting = [each for each in configured if each.pipeline.needs_mean]
    if mean_features is None and wanting:
        raise InputError(
            f"mean_features must be given for pipeline '{wanting[0].pipeline}', which needs a mean "
            "from outside, got none. Give features of the base classes, or another pipeline."
        )
    if mean_features is not None and not wanting:
        raise InputError(
            f"mean_features has no effect on pipeline '{configured[0].pipeline}', which needs no "
            "mean. Leave it out, give a pipeline with center(mean) or center(support+mean), or use "
            f"one of the methods {', '.join(methods_with_mean())}."
        )
    rows = torch.as_tensor(features.features)
    configured = [method.decide(rows) for method in configured]
    spec = QuerySpec.parse(queries)
    source = make_draws(features, draws=draws, n_way=n_way, n_shot=n_shot, queries=spec, seed=seed)
    n_alike = max(Counter(str(method.pipeline.rowwise) for method in configured).values())
    runner = make_engine(features, engine, device, dtype, mean_features, n_methods=n_alike)
    n_rows = n_way * n_shot + spec.total(n_way)
    chunk_size = runner.chunk_size(n_rows, features.dim)

    accuracies: list[list[np.ndarray]] = [[] for _ in configured]
    seconds = [0.0] * len(configured)
    digest = EpisodeDigest()
    hasher = ThreadPoolExecutor(1)  # hashes while the engine works
    interrupted = False
    try:
        for episodes in source.chunks(n_episodes, chunk_size):
            if not accuracies[0]:
                for method in configured:
                    runner.warm_up(method, episodes)
            hashed = hasher.submit(digest.after, episodes)
            found = []
            for index, method in enumerate(configured):
                begun = time.perf_counter()
                right = runner.predict(method, episodes) == episodes.query_labels
                found.append(right.mean(axis=1))
                seconds[index] += time.perf_counter() - begun
                if on_progress:
                    on_progress(len(episodes))
            for kept, new in zip(accuracies, found, strict=True):
                kept.append(new)
            digest = hashed.result()
    except KeyboardInterrupt:
        if not accuracies[0]:
            raise
        interrupted = True
    hasher.shutdown()
    about = {"fingerprint": features.fingerprint, "rows": len(features), "dim": features.dim}
    provenance = {
        **{"draws": draws, "seed": seed, "episode_hash": digest.hexdigest()},
        "features": {**features.provenance, **about},
        **{"engine": runner.name, "device": runner.device, "dtype": runner.dtype},
        "versions": versions(),
    }
    n_query = int(spec.numbers[0]) if spec.kind == "each" else spec.total(n_way)
    episodes_of = (n_way, n_shot, str(spec), n_query)
    results = []
    for method, kept, spent in zip(configured, accuracies, seconds, strict=True):
        what = (method.name, method.title, str(method.pipeline), method.settings)
        done = (np.concatenate(kept), spent, provenance, interrupted)
        results.append(EvaluationResult(*what, *episodes_of, *done))
    return results
