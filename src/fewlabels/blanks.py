"""What people write where a label is missing: None, NaN, pandas' NA, -1 or the empty string."""

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewlabels.errors import InputError, name_rows

BLANK = -1  # among whole numbers
PANDAS_BLANKS = ("NAType", "NaTType")  # by name, as pandas need not be installed
SPOILT = (
    "-1",
    "-1.0",
    "nan",
    "None",
    "<NA>",
)  # what numpy makes of blanks when it turns a list into an array of strings


def find_blanks(labels: NDArray[Any], name: str) -> NDArray[np.bool_]:
    """Which labels are missing, (N,) -> (N,).

    An array of strings cannot tell a blank from a name: np.array(["cat", -1]) holds '-1'. Such marks
    are refused rather than guessed at, as scikit-learn does.

    Args:
        labels: Of any kind.
        name: What the message calls them.

    >>> find_blanks(np.array(["cat", -1, None, ""], dtype=object), "y").tolist()
    [False, True, True, True]
    """
    if labels.dtype.kind == "U":
        spoilt = np.isin(labels, SPOILT)
        if spoilt.any():
            rows = np.flatnonzero(spoilt)
            raise InputError(
                f"{name} must be an array of dtype=object where some rows have no label, got strings with '{labels[rows[0]]}' in "
                f"{name_rows(rows)}. Make it with np.array(..., dtype=object), or write '' for no label."
            )
    if labels.dtype.kind in "US":
        return np.asarray(labels == labels.dtype.type(""))
    if labels.dtype.kind in "iu":
        return np.asarray(labels == BLANK)
    return np.array([_is_blank(label) for label in labels], dtype=bool)


def _is_blank(label: object) -> bool:
    # Tested by type first: an array among the labels has no truth value, and pandas' NA has none either.
    if isinstance(label, str):
        return label == ""
    if isinstance(label, Real):
        return bool(label != label or label == BLANK)  # NaN differs from itself
    return label is None or type(label).__name__ in PANDAS_BLANKS
