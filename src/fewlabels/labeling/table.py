"""The outcome as rows: path, label, confidence, runner-up, margin, origin."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fewlabels.errors import InputError
from fewlabels.labeling.model import Answer

PERSON, IMPORT, MODEL = "person", "import", "model"


class LabelRow(NamedTuple):
    """One line of the outcome; the label is empty where it is unknown or too doubtful."""

    path: str
    label: str
    confidence: float
    runner_up: str
    margin: float
    origin: str  # person, import, model, or empty without a label


def check_abstain(abstain: float) -> None:
    """Refuse what is no confidence."""
    if not 0 <= abstain <= 1:
        raise InputError(
            f"abstain must be a confidence from 0 to 1, got {abstain}. 0.9 leaves out what is less than 90 % sure."
        )


def tabulate(
    names: Sequence[str],
    class_names: Sequence[str],
    answer: Answer | None,
    origins: Mapping[int, str],
    *,
    abstain: float = 0.0,
) -> list[LabelRow]:
    """The rows of all items, in their order.

    Args:
        names: Of the items.
        class_names: Of the classes of the answer.
        answer: None while there is none: only given labels are listed then, as the classes of `origins` are unknown here.
        origins: Who gave the label, by item, for those that a person or a file gave.
        abstain: Confidence below which the model's label is left out.
    """
    check_abstain(abstain)
    if answer is None:
        return [LabelRow(name, "", 0.0, "", 0.0, "") for name in names]
    order, shares = answer.top_two
    rows = []
    for item, name in enumerate(names):
        confidence, second = float(shares[item, 0]), float(shares[item, 1])
        origin = origins.get(item, MODEL)
        kept = origin != MODEL or confidence >= abstain
        rows.append(
            LabelRow(
                path=name,
                label=class_names[order[item, 0]] if kept else "",
                confidence=round(confidence, 4),
                runner_up="" if origin != MODEL else class_names[order[item, 1]],
                margin=round(confidence - second, 4),
                origin=origin if kept else "",
            )
        )
    return rows


def number_classes(
    labels: Mapping[int, str], n_items: int
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], tuple[str, ...]]:
    """Class numbers of all items and the names of the classes, sorted.

    >>> number_classes({0: "leek", 2: "apple"}, 3)
    (array([ 1, -1,  0]), ('apple', 'leek'))
    """
    names = tuple(sorted(set(labels.values())))
    place = {name: number for number, name in enumerate(names)}
    numbers = np.full(n_items, -1, dtype=np.int64)
    for item, label in labels.items():
        numbers[item] = place[label]
    return numbers, names
