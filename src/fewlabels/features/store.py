"""FeatureStore: rows that were computed once, kept under all that they depend on.

    <root>/
        files.sqlite                    content digests of files that did not change since (FileDigests)
        <recipe key>/                   one folder a Recipe
            recipe.json                 what the key stands for, for a reader
            shard-<digest>.safetensors  rows by the digests of their images (shards.py)

A row is found by the digest of its image's content: a changed image is a miss, a renamed one a hit.
A shard is written under another name and renamed when it is whole, and its name is the digest of its
bytes: what is half, damaged or of another recipe is noticed, removed with a warning and computed again.
Several processes may write at once; at worst a row is kept twice. Deleting any of it only costs time.
"""

import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fewlabels.errors import InputError
from fewlabels.features.file_digests import FileDigests
from fewlabels.features.recipe import Recipe
from fewlabels.features.shards import is_shard, read_shard, write_shard, write_whole

SHARD_ROWS = (
    1024  # at most, about: 5 MB at 1280 numbers, so that a set of 5,000 images opens five files
)


class Found(NamedTuple):
    """Rows of a request, (N, D), and which of them the store had, (N,); the others hold nothing of meaning."""

    rows: NDArray[np.float32]
    known: NDArray[np.bool_]


class FeatureStore:
    """Rows of features on disk, by recipe and by the content of the image.

    >>> import tempfile
    >>> recipe = Recipe(backbone="conv4", weights="0" * 32, transform="crop(32)", views="center", precision="float32", dim=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = FeatureStore(folder)
    ...     store.put(recipe, ["0a" * 16], np.ones((1, 2), np.float32))
    ...     store.get(recipe, ["ff" * 16, "0a" * 16]).known.tolist()
    [False, True]
    """

    def __init__(self, root: str | Path | None = None) -> None:
        """Open the store in a folder, by default `default_root()`; nothing is made before there is something to keep."""
        self.root = default_root() if root is None else Path(root)
        if self.root.exists() and not self.root.is_dir():
            raise InputError(
                f"the store of features must be a folder, got the file {self.root}. Name a folder, or do without a store."
            )
        self.files = FileDigests(self.root / "files.sqlite")
        self.n_lost = 0  # rows that `put` could not write

    def __repr__(self) -> str:
        return f"FeatureStore({str(self.root)!r})"

    @property
    def n_bytes(self) -> int:
        """The size of all that is kept."""
        total = 0
        for folder, _, names in os.walk(self.root):
            for name in names:
                try:
                    total += os.stat(os.path.join(folder, name)).st_size  # noqa: PTH116, PTH118 - there may be thousands
                except OSError:  # gone since
                    continue
        return total

    def get(self, recipe: Recipe, digests: Sequence[str | None]) -> Found:
        """The rows of the images with these digests, as far as they are kept.

        Args:
            recipe: How the rows were made.
            digests: 32 hex digits an image, the same ones perhaps twice; None is never found.
        """
        found = Found(
            np.zeros((len(digests), recipe.dim), np.float32), np.zeros(len(digests), np.bool_)
        )
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

    def put(self, recipe: Recipe, digests: Sequence[str], rows: NDArray[np.float32]) -> None:
        """Keep rows, (n, D), in one shard; where the disk is full or read-only, say so and go on.

        Args:
            recipe: How the rows were made.
            digests: 32 hex digits of the content of each image.
            rows: One for each digest.
        """
        if rows.shape != (len(digests), recipe.dim) or rows.dtype != np.float32:
            raise InputError(
                f"rows must be float32 of shape ({len(digests)}, {recipe.dim}), got {rows.dtype} of shape {rows.shape}."
            )
        folder = self.root / recipe.key
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / "recipe.json").exists():
                write_whole(folder / "recipe.json", recipe.to_json().encode() + b"\n")
            write_shard(folder, digests, rows, recipe_key=recipe.key)
        except OSError as error:
            self.n_lost += len(digests)
            warnings.warn(
                f"{self.root}: features of {len(digests)} images were not kept ({error.strerror or error}).",
                stacklevel=2,
            )

    def _shards(self, recipe: Recipe) -> list[Path]:
        try:
            names = os.listdir(self.root / recipe.key)  # noqa: PTH208 - only names are wanted
        except OSError:
            return []
        return [self.root / recipe.key / name for name in sorted(names) if is_shard(name)]


def default_root() -> Path:
    """Where features are kept unless told otherwise: FEWLABELS_CACHE, or below the platform's folder for caches."""
    if chosen := os.environ.get("FEWLABELS_CACHE"):
        return Path(chosen) / "features"
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        given = Path(os.environ.get("XDG_CACHE_HOME", ""))
        base = (
            given if given.is_absolute() else Path.home() / ".cache"
        )  # the standard ignores relative ones
    return base / "fewlabels" / "features"
