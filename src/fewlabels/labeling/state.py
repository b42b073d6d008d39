"""What is known of all items at one moment, and how the page is told: whole, or what differs.

The page names items by row number, everything else names them by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fewlabels.labeling.accuracy import Estimate, estimate_sizes
from fewlabels.labeling.answer import Answer
from fewlabels.labeling.collection import Collection
from fewlabels.labeling.journal import CONFIRMED, IMPORT, NONE, PERSON, SKIP, Batch, GivenLabel
from fewlabels.labeling.suggestions import advise, doubtful_below

PERMILLE = 1000  # confidences are sent as whole numbers
PERCENT = 10  # in whole per cent, as the page shows them: finer ones would change with every label
FIRST_STEP = ord("#")  # after the quote, which JSON would escape
N_SHOWN = 16  # last states sent, to which an answer can tell the differences
MARKS = {PERSON: "1", IMPORT: "2", CONFIRMED: "3", NONE: "4", SKIP: "5"}  # "0" is the model's


@dataclass(frozen=True, eq=False)
class State:
    """What is known at one moment; never changed, only replaced."""

    version: int
    given: dict[str, GivenLabel]  # by name
    marks: dict[str, str]  # "none" or "skip", by name
    class_names: tuple[str, ...]  # all ever used
    active: tuple[str, ...]  # those with a label, in the same order: the columns of the answer
    numbers: NDArray[np.int64]  # (N,) place in `active`, -1 where unlabelled
    answer: Answer | None
    settled: bool = False  # the answer is the thorough one
    searched: bool = False  # and the outliers are those of this answer: nothing more will come
    estimate: Estimate | None = None
    suggested: Sequence[int] = ()
    # Rows that probably belong to no class, with this probability; the most probable first.
    outliers: Sequence[tuple[int, float]] = ()
    suspicious: Sequence[int] = ()  # rows whose given label looks wrong, the surest first
    changed: Sequence[int] = ()  # rows, besides those decided, whose label the decision changed
    undo: Batch | None = None  # what would be undone
    redo: Batch | None = None

    def is_open(self, name: str) -> bool:
        """Whether the person has said nothing about an item."""
        return name not in self.given and name not in self.marks

    def is_decided(self, name: str) -> bool:
        """Whether a person looked at an item by itself and gave it a label, or said it has none."""
        given = self.given.get(name)
        return self.marks.get(name) == NONE or (given is not None and given.origin == PERSON)


class Shown(NamedTuple):
    """What the page shows of each item in one state."""

    classes: tuple[str, ...]
    labels: NDArray[np.int64]  # (N,) numbers of classes, -1 without one
    confidence: NDArray[np.int64]  # (N,) thousandths
    marks: NDArray[np.uint8]  # (N,) characters, see MARKS
    outliers: list[tuple[int, int]]  # rows, with thousandths

    def to_dict(self) -> dict[str, Any]:
        """All of it."""
        return {
            "labels": self.labels.tolist(),
            "confidence": self.confidence.tolist(),
            "marks": self.marks.tobytes().decode(),
            "outliers": self.outliers,
        }

    def since(self, last: "Shown") -> dict[str, Any]:
        """What differs from another state of the same items; of confidences, by how much."""
        number = {name: number for number, name in enumerate(self.classes)}
        numbers = np.array([*(number.get(name, -1) for name in last.classes), -1])
        labels, marks = numbers[last.labels], self.marks - ord("0")
        different = {
            "labels": _changes(labels != self.labels, self.labels),
            "confidence": _steps((self.confidence - last.confidence) // PERCENT),
            "marks": _changes(last.marks != self.marks, marks),
        }
        still = [(row, p) for row, p in last.outliers if self.marks[row] == ord("0")]
        return different if still == self.outliers else {**different, "outliers": self.outliers}


def _changes(
    changed: NDArray[np.bool_], values: NDArray[np.integer[Any]]
) -> tuple[list[int], list[int]]:
    """The rows that changed, each as its distance from the one before, and their values.

    >>> _changes(np.array([False, True, False, True]), np.array([7, 8, 7, 9]))
    ([1, 2], [8, 9])
    """
    rows = np.flatnonzero(changed)
    return np.diff(rows, prepend=0).tolist(), values[rows].tolist()


def _steps(numbers: NDArray[np.int64]) -> str:
    """One character per number: "#" for 0, then -1, 1, -2, ...

    Most confidences change a little with every thorough answer. Compressed, characters take half
    the bytes that numbers do.

    >>> _steps(np.array([0, 0, -1, 1, -2]))
    '##$%&'
    """
    codes = FIRST_STEP + np.where(numbers < 0, -2 * numbers - 1, 2 * numbers)
    return codes.astype("<u4").tobytes().decode("utf-32-le")


class Told:
    """States of a collection as the page is told them."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self._shown: dict[int, Shown] = {}  # by version

    def to_dict(self, state: State, since: int | None = None) -> dict[str, Any]:
        """A state for the page: labels as numbers of active classes, confidences in thousandths.

        Args:
            state: Of these items.
            since: Version that the page has. If it was one of the last, only what differs is told
                of items, as in `Shown.since`, and "since" is in the answer.
        """
        last = None if since is None else self._shown.get(since)
        shown = self._show(state)
        items = shown.to_dict() if last is None else {"since": since, **shown.since(last)}
        number = {name: number for number, name in enumerate(state.class_names)}
        estimate, answer, numbers = state.estimate, state.answer, state.numbers
        if answer is not None and NONE in state.marks.values():
            of_class = np.array([state.marks.get(name) != NONE for name in self.collection.names])
            answer, numbers = answer.among(of_class), numbers[of_class]
        return {
            "version": state.version,
            "settled": state.settled,
            "searched": state.searched,
            "classes": list(state.active),
            "colors": [number[name] for name in state.active],
            **items,
            "changed": list(state.changed),
            "suggested": [int(row) for row in state.suggested],
            "suspicious": list(state.suspicious),
            "sizes": []
            if answer is None
            else [(size.low, size.high) for size in estimate_sizes(answer, numbers)],
            "doubtful_below": round(PERMILLE * doubtful_below(estimate)),
            "estimate": None if estimate is None else estimate._asdict(),
            "undo": None if state.undo is None else state.undo._asdict(),
            "redo": None if state.redo is None else state.redo._asdict(),
            "advice": advise(answer, numbers, estimate),
        }

    def _show(self, state: State) -> Shown:
        """What the page shows of each item; kept for the differences to later states."""
        if state.answer is None:
            labels = state.numbers.copy()
            confidence = np.where(labels >= 0, PERMILLE, 0)
        else:
            labels = state.answer.labels.copy()
            # Rounded down, so that no doubtful label looks sure.
            confidence = (PERMILLE * state.answer.confidences).astype(np.int64)
            confidence -= confidence % PERCENT
        marks, place = bytearray(b"0" * len(self.collection)), self.collection.rows
        for name, each in state.given.items():
            marks[place[name]] = ord(MARKS.get(each.origin, "1"))
        for name, mark in state.marks.items():
            marks[place[name]] = ord(MARKS[mark])
            if mark == NONE:
                labels[place[name]] = -1
        outliers = [(row, round(PERMILLE * p)) for row, p in state.outliers]
        all_marks = np.frombuffer(bytes(marks), dtype=np.uint8)
        shown = Shown(state.active, labels, confidence, all_marks, outliers)
        # Replaced, not changed: no thread has to wait. At worst one is lost, and all is sent.
        self._shown = dict([*self._shown.items(), (state.version, shown)][-N_SHOWN:])
        return shown
