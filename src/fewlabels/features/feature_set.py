"""FeatureSet: feature vectors with their class numbers, the result of stage 3."""

import io
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from fewlabels.errors import InputError
from fewlabels.features import storage
from fewlabels.features.labels import UNLABELLED, number_labels
from fewlabels.io.files import reading, write_file
from fewlabels.io.stamps import short_hash
from fewlabels.io.words import name_rows


@dataclass(frozen=True, eq=False)
class FeatureSet:
    """N feature vectors of D numbers, the class number of each, and their provenance.

    Arrays of the right type are held, not copied: do not write into them afterwards, because
    `fingerprint` is computed once. Zero vectors and negative values are allowed; a pipeline that
    cannot use them refuses them.

    >>> birds = FeatureSet.from_arrays([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]], ["wren", "", "owl"])
    >>> birds.class_names, birds.labels.tolist(), birds.class_sizes.tolist()
    (('owl', 'wren'), [1, -1, 0], [1, 1])
    """

    features: NDArray[np.floating[Any]]  # (N, D), float32 or float64
    labels: NDArray[np.int64]  # (N,), -1 where unlabelled
    class_names: tuple[str, ...]
    provenance: dict[str, str]
    names: tuple[str, ...] | None = None  # of the rows, such as the paths of their images

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # because the dataclass is frozen
        set_field(self, "features", _check_features(self.features))
        set_field(self, "class_names", _check_class_names(self.class_names))
        labels = _check_labels(self.labels, n_rows=len(self), n_classes=self.n_classes)
        set_field(self, "labels", labels)
        set_field(self, "provenance", _check_provenance(self.provenance))
        set_field(self, "names", _check_names(self.names, n_rows=len(self)))

    @classmethod
    def from_arrays(
        cls,
        features: Any,
        labels: Any,
        class_names: Sequence[str] | None = None,
        provenance: dict[str, str] | None = None,
        names: Sequence[str] | None = None,
    ) -> Self:
        """Build from arrays or lists, with names or whole numbers as labels.

        Args:
            features: (N, D) numbers.
            labels: N names, or N whole numbers; None, NaN, "" and -1 are unlabelled.
            class_names: Every class in order; by default the names among the labels, sorted.
            provenance: Where the features came from, as texts by name.
            names: One name per row, such as the path of its image.
        """
        numbers, class_names = number_labels(labels, class_names)
        rows = cast("tuple[str, ...] | None", names)  # __post_init__ makes it a tuple
        return cls(features, numbers, class_names, provenance or {}, rows)

    def __len__(self) -> int:
        return int(self.features.shape[0])

    @property
    def dim(self) -> int:
        """D, the length of each vector."""
        return int(self.features.shape[1])

    @property
    def n_classes(self) -> int:
        """The number of class names, with or without rows."""
        return len(self.class_names)

    @property
    def class_sizes(self) -> NDArray[np.int64]:
        """The number of rows of each class, (n_classes,)."""
        labelled = self.labels[self.labels != UNLABELLED]
        return np.bincount(labelled, minlength=self.n_classes).astype(np.int64)

    @cached_property
    def class_rows(self) -> tuple[NDArray[np.int64], ...]:
        """The row numbers of each class, ascending."""
        order = np.argsort(self.labels, kind="stable")
        starts = np.searchsorted(self.labels[order], np.arange(self.n_classes + 1))
        return tuple(order[start:stop] for start, stop in pairwise(starts))

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits from features, their dtype, labels and class names, for cache keys."""
        about = [str(self.features.dtype), self.features.shape, self.class_names]
        return short_hash(json.dumps(about).encode(), self.features.data, self.labels.data)

    def subset(self, rows: Any) -> Self:
        """The given rows (numbers or a mask) in the given order; all class names stay."""
        names = self.names
        if names is not None:
            names = tuple(names[row] for row in np.arange(len(self))[rows])
        kept = self.features[rows], self.labels[rows]
        return type(self)(*kept, self.class_names, self.provenance, names)

    def save(self, path: str | Path, *, encoding: str = "float32") -> None:
        """Write a safetensors file atomically.

        Args:
            encoding: "float32", "float16", or "root8": 8-bit square roots, for features that are
                not negative.
        """
        about = (self.class_names, self.provenance, self.names)
        contents = storage.Contents(self.features, self.labels, *about)
        storage.write(Path(path), contents, encoding=encoding)

    def save_npz(self, path: str | Path) -> None:
        """Write features, labels, names and class_names as a .npz file, for other programs."""
        buffer = io.BytesIO()
        np.savez(
            buffer,
            features=self.features,
            labels=self.labels,
            names=np.array(self.names or (), dtype=str),
            class_names=np.array(self.class_names, dtype=str),
        )
        write_file(Path(path), buffer.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read back what `save` wrote."""
        with reading(Path(path), holds=storage.FORMAT.holds):
            return cls.from_arrays(*storage.read(Path(path)))


def _check_features(features: Any) -> NDArray[np.floating[Any]]:
    try:
        array = np.asarray(features)
    except ValueError:
        raise InputError(
            "features must be rows of equal length, shape (N, D), got rows of different lengths."
        ) from None
    if array.dtype.kind not in "fiub":
        raise InputError(f"features must be real numbers, got an array of type {array.dtype}.")
    if array.ndim != 2 or array.size == 0:
        raise InputError(
            "features must be at least one row of at least one number, shape (N, D), "
            f"got shape {array.shape}."
        )
    wide = array.dtype.kind == "f" and array.dtype.itemsize >= 8
    # Writable, because torch.from_numpy warns about a read-only array.
    floats: NDArray[np.floating[Any]] = np.require(
        array, np.float64 if wide else np.float32, ["C", "A", "W"]
    )
    broken = np.flatnonzero(~np.isfinite(floats).all(axis=1))
    if broken.size:
        raise InputError(
            f"features must be finite, got NaN or infinity in {name_rows(broken)}. "
            "Drop or repair these rows."
        )
    return floats


def _check_class_names(class_names: Sequence[str]) -> tuple[str, ...]:
    names = tuple(class_names)
    if odd := [name for name in names if not isinstance(name, str) or not name]:
        raise InputError(f"class_names must be non-empty strings, got {odd[0]!r}.")
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise InputError(
            f"class_names must be different from one another, got {twice[0]!r} more than once."
        )
    return tuple(str(name) for name in names)  # np.str_ becomes str


def _check_labels(labels: Any, *, n_rows: int, n_classes: int) -> NDArray[np.int64]:
    array = np.asarray(labels)
    if array.shape != (n_rows,):
        raise InputError(
            f"labels must have one entry for each of the {n_rows} rows of features, "
            f"got shape {array.shape}."
        )
    if array.dtype.kind not in "iu":
        raise InputError(
            f"labels must be class numbers, got an array of type {array.dtype}. "
            "FeatureSet.from_arrays takes names."
        )
    rows = np.flatnonzero((array < UNLABELLED) | (array >= n_classes))
    if rows.size:
        raise InputError(
            f"labels must be from -1 (unlabelled) to {n_classes - 1}, "
            f"as there are {n_classes} class_names, got {array[rows[0]]} in {name_rows(rows)}."
        )
    return np.ascontiguousarray(array, dtype=np.int64)


def _check_provenance(provenance: dict[str, str]) -> dict[str, str]:
    for key, value in provenance.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise InputError(f"provenance must map texts to texts, got {key!r}: {value!r}.")
    return dict(provenance)


def _check_names(names: Sequence[str] | None, *, n_rows: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InputError("names must be strings, one per row.")
    if len(names) != n_rows:
        raise InputError(
            f"names must have one entry for each of the {n_rows} rows of features, "
            f"got {len(names)}."
        )
    return tuple(names)
