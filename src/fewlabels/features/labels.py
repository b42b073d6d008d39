"""Labels given as names, numbers or blanks, to class numbers."""

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewlabels.blanks import find_blanks
from fewlabels.errors import InputError
from fewlabels.io.words import listing

UNLABELLED = -1  # the class number of a row without a label


def number_labels(
    labels: Any, class_names: Sequence[str] | None = None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Class numbers and class names of N labels, (N,) -> (N,) and the names.

    None, NaN, "" and -1 mean unlabelled (see `fewlabels.blanks`). Without `class_names` the names
    are those that occur, sorted; whole numbers are sorted as numbers and named by their digits.
    With `class_names`, names are looked up in it, and whole numbers are indices into it.

    >>> number_labels(["fox", None, "bed", "fox"])
    (array([ 1, -1,  0,  1]), ('bed', 'fox'))
    """
    labelled, values = _split(_as_array(labels))
    numbers = np.full(labelled.shape, UNLABELLED, dtype=np.int64)
    if class_names is not None:
        names = tuple(class_names)
        numbers[labelled] = values if values.dtype.kind == "i" else _look_up(values, names)
        return numbers, names
    if values.dtype.kind == "i" and values.size and values.min() < 0:
        raise InputError(
            f"labels must be -1 (unlabelled) or whole numbers from 0, got {values.min()}."
        )
    found, numbers[labelled] = np.unique(values, return_inverse=True)
    return numbers, tuple(str(value) for value in found)


def _as_array(labels: Any) -> NDArray[Any]:
    # dtype=object for lists: numpy would convert the NaN in ["fox", nan] to the text "nan".
    is_array = hasattr(labels, "__array__")
    array = np.asarray(labels) if is_array else np.array(list(labels), dtype=object)
    if array.ndim != 1:
        raise InputError(
            f"labels must have one entry per row, shape (N,), got shape {array.shape}."
        )
    return array


def _split(array: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Which entries are labelled, and those entries as an array of str or of int64."""
    labelled = ~find_blanks(array, "labels")
    if array.dtype.kind in "iu":
        return labelled, array[labelled].astype(np.int64)
    if array.dtype.kind == "U":
        return labelled, array[labelled]
    present = array[labelled].tolist()
    if all(isinstance(entry, str) for entry in present):
        return labelled, np.array(present, dtype=str)
    if all(isinstance(entry, Real) and float(entry).is_integer() for entry in present):
        return labelled, np.array([int(entry) for entry in present], dtype=np.int64)
    odd = next((entry for entry in present if not isinstance(entry, str)), None)
    raise InputError(
        "labels must be all names or all whole numbers, "
        f"got {odd!r} of type {type(odd).__name__} among them."
    )


def _look_up(values: NDArray[Any], names: tuple[str, ...]) -> NDArray[np.int64]:
    place = {name: number for number, name in enumerate(names)}
    found, inverse = np.unique(values, return_inverse=True)
    if unknown := [str(value) for value in found if value not in place]:
        raise InputError(
            f"labels must be among the {len(names)} class_names, got {listing(map(repr, unknown))}."
        )
    return np.array([place[value] for value in found], dtype=np.int64)[inverse]
