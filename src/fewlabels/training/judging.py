"""Accuracy of a system on episodes of classes that it was not trained on, by its own head."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fewlabels.errors import InputError
from fewlabels.evaluation.episodes import EpisodeDigest, Episodes
from fewlabels.evaluation.results import EvaluationResult, versions
from fewlabels.evaluation.sampling import make_draws
from fewlabels.features import FeatureSet
from fewlabels.training.tasks import Represented
from fewlabels.training.validation import MOST_WAYS, N_QUERY, SHOTS

MOST_VALUES = 2**26  # numbers of representations on the device at a time
MOST_EPISODES = 500  # at a time


def evaluate_system(
    subject: Represented,
    labels: NDArray[np.int64],
    *,
    n_way: int = 5,
    n_shot: int = 1,
    n_query: int = 15,
    n_episodes: int = 10_000,
    draws: str = "authors",
    seed: int = 0,
    provenance: Mapping[str, Any] | None = None,
) -> EvaluationResult:
    """Accuracy of a system over episodes.

    Args:
        subject: From `represent`.
        labels: (N,) class numbers of its rows.
        n_way: Classes per episode.
        n_shot: Support rows per class.
        n_query: Queries per class.
        n_episodes: How many.
        draws: "own" or "authors", as in `fewlabels.evaluate`.
        seed: Of the draws.
        provenance: More to record.
    """
    system, rows = subject
    if system.fixed_n_way and n_way != system.n_way:
        raise InputError(
            f"n_way must be {system.n_way} for a {system.title} trained with it, got {n_way}."
        )
    drawn_from = FeatureSet.from_arrays(np.ones((len(labels), 1), np.float32), labels)
    source = make_draws(
        drawn_from, draws=draws, n_way=n_way, n_shot=n_shot, queries=n_query, seed=seed
    )
    n_rows, n_values = n_way * (n_shot + n_query), rows[0].numel()
    chunk_size = max(1, min(MOST_EPISODES, MOST_VALUES // (n_rows * n_values)))
    begun, digest, accuracies = time.perf_counter(), EpisodeDigest(), []
    system.eval()
    for episodes in source.chunks(n_episodes, chunk_size):
        predicted = predict_episodes(subject, episodes, n_shot=n_shot)
        accuracies.append((predicted == episodes.query_labels).mean(axis=1))
        digest = digest.after(episodes)
    return EvaluationResult(
        method=system.name,
        title=system.title,
        pipeline="own head",
        settings=vars(system.settings),
        n_way=n_way,
        n_shot=n_shot,
        queries=str(n_query),
        n_query=n_query,
        accuracies=np.concatenate(accuracies),
        seconds=time.perf_counter() - begun,
        provenance={
            "draws": draws,
            "seed": seed,
            "episode_hash": digest.hexdigest(),
            "device": rows.device.type,
            "versions": versions(),
            **(provenance or {}),
        },
    )


@torch.no_grad()
def predict_episodes(subject: Represented, episodes: Episodes, *, n_shot: int) -> NDArray[np.int64]:
    """Ways of the queries, (E, Q)."""
    system, rows = subject
    by_class = np.argsort(episodes.support_labels, axis=1, kind="stable")
    support = np.take_along_axis(episodes.support, by_class, axis=1)
    support = support.reshape(len(episodes), -1, n_shot)
    given, asked = (
        rows[torch.from_numpy(part).to(rows.device)] for part in (support, episodes.query)
    )
    found: NDArray[np.int64] = system.answer(given, asked).argmax(dim=-1).cpu().numpy()
    return found


def validate_system(
    subject: Represented,
    labels: NDArray[np.int64],
    *,
    n_episodes: int,
    shots: Sequence[int] = SHOTS,
) -> dict[str, float]:
    """Accuracies in percent by shots, {"val_1shot": 60.1, "val_5shot": 76.0}.

    A number of shots is left out if the smallest class has too few images for it.
    """
    sizes = np.bincount(labels)
    n_way = subject.system.n_way if subject.system.fixed_n_way else min(MOST_WAYS, len(sizes))
    return {
        f"val_{n_shot}shot": evaluate_system(
            subject,
            labels,
            n_way=n_way,
            n_shot=n_shot,
            n_query=min(N_QUERY, int(sizes.min()) - n_shot),
            n_episodes=n_episodes,
            draws="own",
        ).accuracy
        for n_shot in shots
        if sizes.min() > n_shot and len(sizes) >= n_way > 1
    }
