"""Keeper: puts computed rows into the store while extraction runs."""

import time
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fewlabels.features.embedding import Embedded
from fewlabels.features.recipe import FeatureRecipe
from fewlabels.features.store import SHARD_ROWS, FeatureStore

KEPT_EVERY = 10.0  # seconds between two writes: the most work that a kill can cost

Waiting = tuple[list[str], list[NDArray[np.float32]]]  # digests and rows of an encoder


class Keeper:
    """Collects rows and puts them into the store, one shard at a time, the last on exit."""

    def __init__(
        self,
        store: FeatureStore | None,
        recipes: Sequence[FeatureRecipe],
        digests: Sequence[str | None],
    ) -> None:
        self.store, self.recipes, self.digests = store, recipes, digests
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()

    def _start(self) -> None:
        self.begun = time.monotonic()
        self.n_rows = 0
        self.waiting: list[Waiting] = [([], []) for _ in self.recipes]

    def add(self, batch: Embedded) -> None:
        """Take the rows of a batch, except those of images that changed while they were read."""
        parts = zip(self.waiting, batch.indices, batch.rows, strict=True)
        for (names, rows), indices, new in parts:
            for index, row in zip(indices, new, strict=True):
                digest = self.digests[index]
                if digest is not None and index not in batch.changed:
                    names.append(digest)
                    rows.append(row)
        self.n_rows += max(map(len, batch.rows))
        if self.n_rows >= SHARD_ROWS or time.monotonic() - self.begun > KEPT_EVERY:
            self.flush()

    def flush(self) -> None:
        """Put the collected rows into the store."""
        for recipe, (names, rows) in zip(self.recipes, self.waiting, strict=True):
            if self.store is not None and names:
                self.store.put(recipe, names, np.stack(rows))
        self._start()
