"""Collection: what is to be labelled, with one feature vector each, and where its pictures are."""

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fewlabels.data.image_set import ImageSet
from fewlabels.errors import InputError
from fewlabels.features import FeatureSet


@dataclass(frozen=True, eq=False)
class Collection:
    """N things under stable names, their features, and their pictures where there are some.

    >>> birds = FeatureSet.from_arrays([[1.0, 0.0], [0.0, 2.0]], ["wren", None])
    >>> Collection.of_features(birds).names
    ('row 0', 'row 1')
    """

    title: str
    names: tuple[str, ...]  # of pictures: paths below their folder, with forward slashes
    features: NDArray[np.floating[Any]]  # (N, D)
    provenance: dict[str, str]  # of the features, in words
    fingerprint: str  # of the features
    root: Path | None = None  # the folder of the pictures
    images: ImageSet | None = None  # the pictures, in the order of the names

    def __post_init__(self) -> None:
        if len(self.names) != len(self.features):
            raise InputError(
                f"names must be one for each of the {len(self.features)} rows of features, got {len(self.names)}."
            )
        if len(set(self.names)) != len(self.names):
            raise InputError(
                f"names must be different from one another, got {Counter(self.names).most_common(1)[0][0]!r} more than once."
            )

    def __len__(self) -> int:
        return len(self.names)

    @property
    def key(self) -> str:
        """Sixteen hex digits that change with the features and with the place of any item."""
        return hashlib.sha256("\0".join((self.fingerprint, *self.names)).encode()).hexdigest()[:16]

    @classmethod
    def of_features(cls, features: FeatureSet, *, title: str = "features") -> Self:
        """The rows of a FeatureSet, under its own names where it has them."""
        names = features.names or tuple(f"row {number}" for number in range(len(features)))
        return cls(
            title, tuple(names), features.features, features.provenance, features.fingerprint
        )

    def with_images(self, images: ImageSet, root: Path) -> Self:
        """The same with pictures: those of the images that bear an item's name; items without one are left out."""
        place = {name: index for index, name in enumerate(images.names)}
        rows = [row for row, name in enumerate(self.names) if name in place]
        names = tuple(self.names[row] for row in rows)
        return replace(
            self,
            names=names,
            features=self.features[rows],
            root=root,
            images=images.subset([place[name] for name in names]),
        )

    def path(self, index: int) -> Path | None:
        """The file of an item's picture; None where it has none, or where it leads out of the folder by now."""
        if self.images is None or self.root is None:
            return None
        path = self.images.path(index)
        inside = (
            path is not None
            and path.is_file()
            and path.resolve().is_relative_to(self.root.resolve())
        )
        return path if inside else None
