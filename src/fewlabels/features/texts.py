"""Texts to features: known rows come from the store, the others are computed."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fewlabels.backbones.text.encoder import TextEncoder
from fewlabels.errors import InputError
from fewlabels.features.extraction import Progress
from fewlabels.features.recipe import FeatureRecipe
from fewlabels.features.store import SHARD_ROWS, FeatureStore
from fewlabels.io.stamps import short_hash

LONGEST = 100_000  # characters of a text that are read


def encode_texts(
    texts: Sequence[str],
    encoders: Sequence[TextEncoder],
    *,
    store: FeatureStore | None,
    on_progress: Callable[[Progress], None] | None = None,
) -> NDArray[np.float32]:
    """The features of texts, of several encoders side by side, (N, D).

    Args:
        texts: None of them empty; more than 100,000 characters of one are not read.
        encoders: From texts to vectors.
        store: Where rows are found and kept; None computes all rows and keeps none.
        on_progress: Called after each batch.
    """
    if not texts:
        raise InputError("texts must be at least one, got none.")
    short = [text[:LONGEST] for text in texts]
    report = on_progress or (lambda _: None)
    return np.concatenate([_encode(short, each, store, report) for each in encoders], axis=1)


def _encode(
    texts: Sequence[str],
    encoder: TextEncoder,
    store: FeatureStore | None,
    report: Callable[[Progress], None],
) -> NDArray[np.float32]:
    if encoder.of_all:
        return _checked(encoder.encode(texts), encoder)
    digests = [short_hash(text.encode("utf-8", "replace"), digits=32) for text in texts]
    recipe = FeatureRecipe(
        backbone=encoder.name,
        weights=encoder.weights_digest,
        transform="text",
        views="text",
        precision="float32",
        dim=encoder.feature_dim,
    )
    rows, known = np.zeros((len(texts), recipe.dim), np.float32), np.zeros(len(texts), bool)
    if store is not None:
        rows, known = store.get(recipe, digests)
    first = {digest: row for row, digest in reversed(list(enumerate(digests)))}
    todo = [row for row in first.values() if not known[row]]
    n_known = int(known.sum())
    for start in range(0, len(todo), SHARD_ROWS):
        report(Progress("extract", start, len(todo), n_known))
        batch = todo[start : start + SHARD_ROWS]
        rows[batch] = _checked(encoder.encode([texts[row] for row in batch]), encoder)
        if store is not None:
            store.put(recipe, [digests[row] for row in batch], rows[batch])
    if todo:
        report(Progress("extract", len(todo), len(todo), n_known))
    return rows[[first[digest] if not known[row] else row for row, digest in enumerate(digests)]]


def _checked(rows: NDArray[np.float32], encoder: TextEncoder) -> NDArray[np.float32]:
    if not np.isfinite(rows).all():
        raise InputError(f"text encoder {encoder.name} must give finite features, got NaN.")
    return rows
