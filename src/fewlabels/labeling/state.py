"""What is known of all items at one moment, and how the page is told: whole, or what differs.

The page names items by row number, everything else names them by name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fewlabels.labeling.accuracy import Estimate, estimate_sizes
from fewlabels.labeling.answer import Answer
from fewlabels.labeling.collection import Collection
from fewlabels.labeling.journal import (
    CONFIRMED,
    CONFLICT,
    IMPORT,
    NONE,
    PERSON,
    SKIP,
    Batch,
    GivenLabel,
)
from fewlabels.labeling.subclasses import Tree
from fewlabels.labeling.suggestions import LIMITS, advise, doubtful_below

PERMILLE = 1000  # confidences are sent as whole numbers
# In steps of these thousandths: finer ones would change with every label, and of many items each
# answer would be large. All divide `LIMITS.doubtful`.
STEP, STEP_OF_MANY, STEP_OF_MANY_DOUBTFUL = 10, 50, 100
MANY = 10_000  # items
UNCHANGED = ord("#")  # after the quote, which JSON would escape
N_SHOWN = 16  # last states sent, to which an answer can tell the differences
# "0" is the model's.
MARKS = {PERSON: "1", IMPORT: "2", CONFIRMED: "3", NONE: "4", SKIP: "5", CONFLICT: "6"}


@dataclass(frozen=True, eq=False)
class State:
    """What is known at one moment; never changed, only replaced."""

    version: int
    given: dict[str, GivenLabel]  # by name
    marks: dict[str, str]  # "none", "skip" or "conflict", by name
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
    people: Mapping[str, str] = field(default_factory=dict)  # who decided, by name
    # Of items that people decided differently: the opinion of each person, by row.
    conflicts: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

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
    step: int  # of confidences, thousandths

    def to_dict(self) -> dict[str, Any]:
        """All of it."""
        return {
            "labels": self.labels.tolist(),
            "confidence": self.confidence.tolist(),
            "marks": self.marks.tobytes().decode(),
            "outliers": self.outliers,
        }

    def since(self, last: "Shown") -> dict[str, Any]:
        """What differs from another state of the same items, as `_differences` writes it."""
        number = {name: number for number, name in enumerate(self.classes)}
        numbers = np.array([*(number.get(name, -1) for name in last.classes), -1])
        different = {
            "labels": _differences(numbers[last.labels], self.labels, first=-1),
            "confidence": _differences(last.confidence // self.step, self.confidence // self.step),
            "marks": _differences(last.marks, self.marks, first=ord("0")),
        }
        still = [(row, p) for row, p in last.outliers if self.marks[row] == ord("0")]
        return different if still == self.outliers else {**different, "outliers": self.outliers}


def _differences(
    last: NDArray[np.integer[Any]], now: NDArray[np.integer[Any]], *, first: int = 0
) -> str:
    """One character per item: "#" if nothing changed, then "$" for `first`, "%" for the next, ...

    Compressed, this takes fewer bytes than rows and values, also where almost all changed.

    >>> _differences(np.array([7, 7, 0, 7]), np.array([7, 8, 7, 0]))
    '#,+$'
    """
    codes = np.where(last == now, 0, now.astype(np.int64) - first + 1) + UNCHANGED
    return codes.astype("<u4").tobytes().decode("utf-32-le")


class Told:
    """States of a collection as the page is told them."""

    def __init__(self, collection: Collection, sub_classes: str = "") -> None:
        """Begin.

        Args:
            collection: The items.
            sub_classes: What stands between class and sub-class; "" where there are none.
        """
        self.collection, self.sub_classes = collection, sub_classes
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
        sizes = []
        if answer is not None:
            of_class = np.array([state.marks.get(name) != NONE for name in self.collection.names])
            sizes = estimate_sizes(answer, numbers, counted=of_class)
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
            "sizes": [(size.low, size.high) for size in sizes],
            "step": shown.step,
            "doubtful_below": round(PERMILLE * doubtful_below(estimate)),
            "estimate": None if estimate is None else estimate._asdict(),
            "undo": None if state.undo is None else state.undo._asdict(),
            "redo": None if state.redo is None else state.redo._asdict(),
            "conflicts": [[row, dict(each)] for row, each in state.conflicts.items()],
            "above": self._sure_above(state) if self.sub_classes else [],
            "advice": advise(answer, numbers, estimate, noun=self.collection.noun),
        }

    def _sure_above(self, state: State) -> list[tuple[int, str, int]]:
        """Of items whose sub-class is doubtful: row, the class above that is sure, thousandths."""
        if state.answer is None or state.estimate is None:  # then nothing is called sure
            return []
        is_open = np.array([state.is_open(name) for name in self.collection.names])
        rows = np.flatnonzero(is_open & (state.answer.confidences < LIMITS.doubtful))
        tree = Tree(state.active, self.sub_classes)
        found = tree.find_rows(state.answer.probabilities[rows], LIMITS.doubtful)
        return [
            (int(rows[place]), node.label, int(PERMILLE * node.confidence))
            for place, node in sorted(found.items())
        ]

    def _show(self, state: State) -> Shown:
        """What the page shows of each item; kept for the differences to later states."""
        step = STEP if len(self.collection) <= MANY else STEP_OF_MANY
        if state.answer is None:
            labels = state.numbers.copy()
            confidence = np.where(labels >= 0, PERMILLE, 0)
        else:
            labels = state.answer.labels.copy()
            # Rounded down, so that no doubtful label looks sure.
            confidence = (PERMILLE * state.answer.confidences).astype(np.int64)
            confidence -= confidence % step
            if step == STEP_OF_MANY:
                below = confidence < PERMILLE * LIMITS.doubtful
                confidence[below] -= confidence[below] % STEP_OF_MANY_DOUBTFUL
        marks, place = bytearray(b"0" * len(self.collection)), self.collection.rows
        for name, each in state.given.items():
            marks[place[name]] = ord(MARKS.get(each.origin, "1"))
        for name, mark in state.marks.items():
            marks[place[name]] = ord(MARKS[mark])
            if mark == NONE:
                labels[place[name]] = -1
        outliers = [(row, round(PERMILLE * p)) for row, p in state.outliers]
        all_marks = np.frombuffer(bytes(marks), dtype=np.uint8)
        shown = Shown(state.active, labels, confidence, all_marks, outliers, step)
        # Replaced, not changed: no thread has to wait. At worst one is lost, and all is sent.
        self._shown = dict([*self._shown.items(), (state.version, shown)][-N_SHOWN:])
        return shown
