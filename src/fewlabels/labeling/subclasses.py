"""Classes with sub-classes: "animal/dog" is a dog, and an animal.

The probability of a class is the sum of the calibrated probabilities of what is below it, and of
its own where it has labels itself. From the top, the more probable class of each level is followed
as long as it is sure enough.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fewlabels.errors import InputError


def check_separator(separator: str) -> None:
    """Refuse what cannot stand between a class and its sub-class."""
    if separator.strip() != separator or len(separator) > 3 or separator.isalnum():
        raise InputError(
            "sub_classes must be what stands between class and sub-class, such as '/' in "
            f"'animal/dog', got {separator!r}."
        )


def split_label(label: str, separator: str) -> list[str]:
    """The levels of a label, from the top; empty ones are passed over.

    >>> split_label("animal / dog/", "/")
    ['animal', 'dog']
    """
    return [part for each in label.split(separator) if (part := each.strip())] or [label]


class Node(NamedTuple):
    """A class that is sure enough, and by how much."""

    label: str
    confidence: float
    margin: float  # to the most probable class that is not below it


class Tree:
    """The classes of an answer, and what is above them."""

    def __init__(self, class_names: Sequence[str], separator: str) -> None:
        """Begin.

        Args:
            class_names: Of the columns of the probabilities.
            separator: Between the levels.
        """
        check_separator(separator)
        self.class_names = tuple(class_names)
        levels = [tuple(split_label(name, separator)) for name in class_names]
        paths = dict.fromkeys(path[:depth] for path in levels for depth in range(1, len(path) + 1))
        own = dict(zip(levels, class_names, strict=True))  # the way in which a label was written
        self._names = {path: own.get(path, separator.join(path)) for path in paths}
        self._below = {
            path: np.array([each[: len(path)] == path for each in levels]) for path in paths
        }
        self._children: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
        for path in paths:
            self._children.setdefault(path[:-1], []).append(path)

    def find(self, probabilities: NDArray[np.floating], least: float) -> Node | None:
        """The deepest class with at least this probability, (W,); None if there is none."""
        return self.find_rows(probabilities[None], least).get(0)

    def find_rows(self, probabilities: NDArray[np.floating], least: float) -> dict[int, Node]:
        """As `find` for many items, (N, W): by row, without those that have none."""
        found: dict[int, Node] = {}
        open_paths: list[tuple[tuple[str, ...], NDArray[np.int64]]] = [
            ((), np.arange(len(probabilities)))
        ]
        while open_paths:
            above, rows = open_paths.pop()
            children = self._children.get(above)
            if children is None:
                continue
            p = probabilities[rows]
            sums = np.stack([p[:, self._below[path]].sum(axis=1) for path in children], axis=1)
            best, most = sums.argmax(axis=1), sums.max(axis=1)
            for number, path in enumerate(children):
                chosen = (best == number) & (most >= least)
                if not chosen.any():
                    continue
                others = p[chosen][:, ~self._below[path]].max(axis=1, initial=0)
                confidences = np.minimum(most[chosen], 1)
                for row, each, other in zip(rows[chosen], confidences, others, strict=True):
                    node = Node(self._names[path], float(each), float(each) - float(other))
                    found[int(row)] = node  # in the place of what is above it
                open_paths.append((path, rows[chosen]))
        return found
