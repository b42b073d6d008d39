"""FeatureStore: computed rows of features on disk, under everything that they depend on.

    <root>/
        files.sqlite                    content digests of unchanged files (FileDigests)
        <recipe key>/                   one folder per FeatureRecipe
            recipe.json                 the recipe, for a reader
            shard-<hash>.safetensors    rows by the digests of their images (shards.py)

A row is found by the digest of its image's content: a changed image is not found, a renamed one is.
Shards are written atomically, and the name of a shard is the hash of its bytes. A damaged shard, or
one of another recipe, is removed with a warning, and its rows are computed again. Several processes
may write at once; at worst a row is kept twice. All files can be deleted at any time.
"""

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fewlabels.errors import InputError
from fewlabels.features.file_digests import FileDigests
from fewlabels.features.recipe import FeatureRecipe
from fewlabels.features.shards import is_shard, read_shard, write_shard
from fewlabels.io.cache import cache_folder
from fewlabels.io.files import write_file
from fewlabels.io.words import count

SHARD_ROWS = 1024  # rows per shard, about: 5 MB at 1280 features; 5,000 images are five files


class Found(NamedTuple):
    """Rows of a request, (N, D), and which of them are known, (N,); the others are zeros."""

    rows: NDArray[np.float32]
    known: NDArray[np.bool_]


class FeatureStore:
    """Rows of features on disk, by recipe and by the content of the image.

    >>> import tempfile
    >>> recipe = FeatureRecipe(backbone="conv4", weights="0" * 32, transform="crop(32)",
    ...                        views="center", precision="float32", dim=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = FeatureStore(folder)
    ...     store.put(recipe, ["0a" * 16], np.ones((1, 2), np.float32))
    ...     store.get(recipe, ["ff" * 16, "0a" * 16]).known.tolist()
    [False, True]
    """

    def __init__(self, root: str | Path | None = None) -> None:
        """Open the store in a folder, by default `default_root()`; the first `put` makes it."""
        self.root = default_root() if root is None else Path(root)
        if self.root.exists() and not self.root.is_dir():
            raise InputError(
                f"the store of features must be a folder, got the file {self.root}. "
                "Name a folder, or do without a store."
            )
        self.files = FileDigests(self.root / "files.sqlite")
        self.n_lost = 0  # rows that `put` could not write

    def __repr__(self) -> str:
        return f"FeatureStore({str(self.root)!r})"

    @property
    def n_bytes(self) -> int:
        """The size of all files."""
        total = 0
        for folder, _, names in os.walk(self.root):
            for name in names:
                try:
                    total += os.stat(os.path.join(folder, name)).st_size  # noqa: PTH116, PTH118 - fast
                except OSError:  # removed meanwhile
                    continue
        return total

    def get(self, recipe: FeatureRecipe, digests: Sequence[str | None]) -> Found:
        """The known rows of the images with these digests.

        Args:
            digests: 32 hex digits per image; the same digest may occur twice; None is never found.
        """
        n = len(digests)
        found = Found(np.zeros((n, recipe.dim), np.float32), np.zeros(n, np.bool_))
        wanted: dict[bytes, list[int]] = {}  # digest: its places in the request
        for place, digest in enumerate(digests):
            if digest is not None:
                wanted.setdefault(bytes.fromhex(digest), []).append(place)
        for shard in self._shards(recipe) if wanted else ():
            for held, row in read_shard(shard, recipe_key=recipe.key, wanted=wanted).items():
                places = wanted.pop(held)
                found.rows[places] = row
                found.known[places] = True
            if not wanted:
                break
        return found

    def put(self, recipe: FeatureRecipe, digests: Sequence[str], rows: NDArray[np.float32]) -> None:
        """Keep rows, (n, D), in one shard; on a full or read-only disk, warn and continue."""
        if rows.shape != (len(digests), recipe.dim) or rows.dtype != np.float32:
            raise InputError(
                f"rows must be float32 of shape ({len(digests)}, {recipe.dim}), "
                f"got {rows.dtype} of shape {rows.shape}."
            )
        folder = self.root / recipe.key
        try:
            if not (folder / "recipe.json").exists():
                write_file(folder / "recipe.json", recipe.to_json().encode() + b"\n")
            write_shard(folder, digests, rows, recipe_key=recipe.key)
        except (InputError, OSError) as error:
            self.n_lost += len(digests)
            lost = count(len(digests), "image")
            warnings.warn(f"features of {lost} were not kept: {error}", stacklevel=2)

    def _shards(self, recipe: FeatureRecipe) -> list[Path]:
        try:
            names = os.listdir(self.root / recipe.key)  # noqa: PTH208 - only names are needed
        except OSError:
            return []
        return [self.root / recipe.key / name for name in sorted(names) if is_shard(name)]


def default_root() -> Path:
    """The default folder, in the user's cache."""
    return cache_folder() / "features"
