"""Splits by group: images that show almost the same thing never cross.

Images belong to one group if their files are equal byte for byte, if the cosine of their features
is at least a threshold, or if a camera took them within a few seconds (data/bursts.py). Groups are
the connected components of these pairs. A group goes
to one split as a whole, by the class that most of its images have.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewlabels.data.bursts import SECONDS, find_bursts
from fewlabels.errors import InputError
from fewlabels.io.stamps import content_digest, short_hash
from fewlabels.labeling.exports.base import TEST, TRAIN, VALIDATION
from fewlabels.preprocess.duplicates import NEAR, connect

BLOCK_ROWS = 512  # rows whose cosines with all rows are held at a time; memory


def check_fractions(split: Sequence[float] | None) -> dict[str, float]:
    """The fraction of each split, from two numbers (train, validation) or three (and test).

    >>> check_fractions([0.8, 0, 0.2])
    {'train': 0.8, 'validation': 0.0, 'test': 0.2}
    """
    if split is None:
        return {}
    given = [float(each) for each in split]
    good = len(given) in (2, 3) and all(0 <= each <= 1 for each in given) and given[0] > 0
    if not good or abs(sum(given) - 1) > 1e-6:
        shown = ",".join(f"{each:g}" for each in given)
        raise InputError(
            "split must be the fractions of train, validation and test, which add up to 1, "
            f"such as 0.8,0.1,0.1, got {shown}."
        )
    return dict(zip((TRAIN, VALIDATION, TEST), given, strict=False))


def check_near(near: float) -> None:
    """Refuse what is not the cosine of similar images."""
    if not 0 < near <= 1:
        raise InputError(
            f"near must be a cosine above 0 and up to 1, got {near}. "
            "With 1 only files that are equal byte for byte are kept together."
        )


def find_groups(
    files: Sequence[Path | None],
    features: NDArray[np.floating[Any]] | None = None,
    *,
    near: float = NEAR,
    burst: float = SECONDS,
) -> NDArray[np.int64]:
    """The number of the group of each item, (N,); an item without a like is a group by itself.

    Args:
        files: The picture of each item, where there is one.
        features: (N, D); None to compare files only.
        near: Cosine from which two items are in one group.
        burst: Seconds between two photographs of a camera that are in one group; 0 for none.
    """
    groups = find_bursts(files, seconds=burst)
    links = [_equal_files(files), np.stack([np.arange(len(files)), groups])]
    if features is not None and len(features):
        links += _near_rows(np.asarray(features, dtype=np.float32), near)
    return connect(np.concatenate(links, axis=1), len(files))


def _equal_files(files: Sequence[Path | None]) -> NDArray[np.int64]:
    """Pairs of items with equal files, (2, n): each with the first one that it equals."""
    by_size: dict[int, list[int]] = {}
    for row, file in enumerate(files):
        if file is not None:
            by_size.setdefault(file.stat().st_size, []).append(row)
    first: dict[str, int] = {}
    pairs = []
    for rows in by_size.values():
        for row in rows if len(rows) > 1 else ():  # only files of one size can be equal
            file = files[row]
            assert file is not None
            pairs.append((row, first.setdefault(content_digest(file.read_bytes()), row)))
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T


def _near_rows(x: NDArray[np.float32], near: float) -> list[NDArray[np.int64]]:
    """Pairs of rows whose cosine is at least `near`, (N, D) -> a list of (2, n)."""
    x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    found = []
    for start in range(0, len(x), BLOCK_ROWS):
        rows, columns = np.nonzero(x[start : start + BLOCK_ROWS] @ x[start:].T >= near)
        found.append(np.stack([rows, columns])[:, columns > rows] + start)
    return found


def split_groups(
    names: Sequence[str],
    labels: Sequence[str],
    groups: NDArray[np.int64],
    fractions: dict[str, float],
    *,
    seed: int = 0,
) -> list[str]:
    """The split of each item: whole groups, each class as near to the fractions as they allow.

    The first group of every class, one of the largest, goes to train. The others go where most is
    missing: from the class itself, and from the classes before it, so that rounding does not leave
    a split empty where all classes are small. The same input and seed give the same splits, in any
    order of the items.

    Args:
        names: Of the items; they decide the order in which groups are dealt out.
        labels: Of the items.
        groups: Of the items, (N,).
        fractions: Of the splits, train first.
        seed: Another one gives other splits.
    """
    members: dict[int, list[int]] = {}
    for row, group in enumerate(groups.tolist()):
        members.setdefault(group, []).append(row)
    by_class: dict[str, list[tuple[int, str, list[int]]]] = {}
    for rows in members.values():
        counts = Counter(labels[row] for row in rows)
        label = min(counts, key=lambda each: (-counts[each], each))
        order = short_hash(f"{seed}\0{min(names[row] for row in rows)}".encode())
        by_class.setdefault(label, []).append((-len(rows), order, rows))
    found = [""] * len(names)
    missing = dict.fromkeys(fractions, 0.0)
    for label in sorted(by_class):
        dealt = sorted(by_class[label])
        n_items = sum(len(rows) for *_, rows in dealt)
        missing = {split: missing[split] + fractions[split] * n_items for split in fractions}
        for number, (_, _, rows) in enumerate(dealt):
            split = TRAIN if number == 0 else max(missing, key=lambda each: missing[each])
            missing[split] -= len(rows)
            for row in rows:
                found[row] = split
    return found
