"""Marks of a missing label: None, NaN, pandas' NA, -1 or the empty string."""

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewlabels.errors import InputError
from fewlabels.io.words import name_rows

BLANK = -1  # among whole numbers
PANDAS_BLANKS = ("NAType", "NaTType")  # type names, because pandas may not be installed
# What numpy writes for a missing label when it converts a list to an array of strings.
CONVERTED_BLANKS = ("-1", "-1.0", "nan", "None", "<NA>")


def find_blanks(labels: NDArray[Any], name: str) -> NDArray[np.bool_]:
    """Which labels are missing, (N,) -> (N,).

    An array of strings cannot tell a missing label from a name: np.array(["cat", -1]) holds '-1'.
    Such strings are refused, as in scikit-learn.

    Args:
        labels: Of any dtype.
        name: The name of the argument in the message.

    >>> find_blanks(np.array(["cat", -1, None, ""], dtype=object), "y").tolist()
    [False, True, True, True]
    """
    if labels.dtype.kind == "U":
        rows = np.flatnonzero(np.isin(labels, CONVERTED_BLANKS))
        if rows.size:
            raise InputError(
                f"{name} must be an array of dtype=object where some rows have no label, "
                f"got strings with '{labels[rows[0]]}' in {name_rows(rows)}. "
                "Make it with np.array(..., dtype=object), or write '' for no label."
            )
    if labels.dtype.kind in "US":
        return np.asarray(labels == labels.dtype.type(""))
    if labels.dtype.kind in "iu":
        return np.asarray(labels == BLANK)
    return np.array([_is_blank(label) for label in labels], dtype=bool)


def _is_blank(label: object) -> bool:
    # The type is tested first: an array or pandas' NA among the labels has no truth value.
    if isinstance(label, str):
        return label == ""
    if isinstance(label, Real):
        return bool(label != label or label == BLANK)  # NaN differs from itself
    return label is None or type(label).__name__ in PANDAS_BLANKS
