"""What is known of all items at one moment, and how the page is told: whole, or what differs.

The page names items by row number, everything else names them by name.
"""

import itertools
import secrets
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
OUTLIER_STEP, OUTLIER_STEP_OF_MANY = 1, 10  # likewise, of the probability of belonging to no class
MANY = 10_000  # items
VERSION_BITS = 48  # of the first version; JavaScript counts exactly up to 2 ** 53
UNCHANGED = ord("#")  # after the quote, which JSON would escape
N_SHOWN = 16  # last states sent, to which an answer can tell the differences
# Items, besides those decided, of which one answer tells that they look different; the next answer
# goes on. An item takes up to two and a half bytes, compressed: an answer stays below 30 KB.
MOST_TOLD = 10_000
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
    n_changed: int = 0  # items, besides those decided, whose label the decision changed
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
    groups: tuple[str, ...]  # classes that stand for a doubtful sub-class
    labels: NDArray[np.int64]  # (N,) numbers of classes, -1 without one
    confidence: NDArray[np.int64]  # (N,) thousandths
    marks: NDArray[np.int64]  # (N,) codes of characters, see MARKS
    outliers: NDArray[np.int64]  # (N,) thousandths, 0 if the item belongs to a class
    above: NDArray[np.int64]  # (N,) numbers of groups, -1 without one
    above_sure: NDArray[np.int64]  # (N,) thousandths
    step: int  # of confidences, thousandths
    outlier_step: int

    def to_dict(self) -> dict[str, Any]:
        """All of it."""
        above = np.flatnonzero(self.above >= 0).tolist()
        order = np.argsort(-self.outliers, kind="stable")[: np.count_nonzero(self.outliers)]
        return {
            "labels": self.labels.tolist(),
            "confidence": self.confidence.tolist(),
            "marks": bytes(self.marks.tolist()).decode(),
            "outliers": [(row, int(self.outliers[row])) for row in order.tolist()],
            "above": [
                (row, self.groups[self.above[row]], int(self.above_sure[row])) for row in above
            ],
        }

    def number_as(self, other: "Shown") -> "Shown":
        """The same, with classes and groups numbered as in another state."""
        above = _renumber(self.above, self.groups, other.groups)
        return self._replace(
            classes=other.classes,
            groups=other.groups,
            labels=_renumber(self.labels, self.classes, other.classes),
            above=above,
            above_sure=np.where(above < 0, 0, self.above_sure),
        )

    def differ(self, last: "Shown") -> NDArray[np.bool_]:
        """Which items look different in a state with the same numbers, (N,)."""
        return np.asarray(np.any([now != was for now, was in self._pairs(last)], axis=0))

    def only(self, rows: NDArray[np.bool_], last: "Shown") -> "Shown":
        """These rows of it, and the others of a state with the same numbers."""
        mixed: Any = {
            name: np.where(rows, now, was)
            for name, (now, was) in zip(PER_ITEM, self._pairs(last), strict=True)
        }
        return self._replace(**mixed)

    def since(self, last: "Shown") -> dict[str, str | list[str]]:
        """What differs from a state with the same numbers, as `_differences` writes it."""
        steps = {"confidence": self.step, "above_sure": self.step, "outliers": self.outlier_step}
        firsts = {"labels": -1, "above": -1, "marks": ord("0")}
        return {
            "groups": list(self.groups),
            **{
                name: _differences(
                    was // steps.get(name, 1), now // steps.get(name, 1), firsts.get(name, 0)
                )
                for name, (now, was) in zip(PER_ITEM, self._pairs(last), strict=True)
            },
        }

    def _pairs(self, last: "Shown") -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        return [(getattr(self, name), getattr(last, name)) for name in PER_ITEM]


PER_ITEM = ("labels", "confidence", "marks", "outliers", "above", "above_sure")


def _renumber(
    numbers: NDArray[np.int64], names: Sequence[str], others: Sequence[str]
) -> NDArray[np.int64]:
    """Numbers of names as places among others, -1 for those that are not there."""
    place = {name: number for number, name in enumerate(others)}
    return np.array([*(place.get(name, -1) for name in names), -1])[numbers]


def _differences(last: NDArray[np.int64], now: NDArray[np.int64], first: int = 0) -> str:
    """One character per item: "#" if nothing changed, then "$" for `first`, "%" for the next, ...

    Compressed, this takes fewer bytes than rows and values, also where almost all changed.

    >>> _differences(np.array([7, 7, 0, 7]), np.array([7, 8, 7, 0]))
    '#,+$'
    """
    codes = np.where(last == now, 0, now - first + 1) + UNCHANGED
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
        # Of states of which a part was told. Those of an earlier server are others, as in Session.
        self._part_versions = itertools.count(-secrets.randbits(VERSION_BITS), -1)

    def to_dict(self, state: State, since: int | None = None) -> dict[str, Any]:
        """A state for the page: labels as numbers of active classes, confidences in thousandths.

        Args:
            state: Of these items.
            since: Version that the page has. If it was one of the last, only what differs is told
                of items, as in `Shown.since`, and "since" is in the answer. If very many differ,
                some of them are told, "more" is true, and the page asks again.
        """
        last = None if since is None else self._shown.get(since)
        shown = self._show(state)
        version, whole = state.version, True
        items: dict[str, Any] = shown.to_dict() if last is None else {}
        if last is not None:
            last = last.number_as(shown)
            told = self._choose(shown, last)
            if not (whole := bool(told.all())):
                shown, version = shown.only(told, last), next(self._part_versions)
            items = {"since": since, **shown.since(last)}
        self._keep(version, shown)
        number = {name: number for number, name in enumerate(state.class_names)}
        estimate, answer, numbers = state.estimate, state.answer, state.numbers
        sizes = []
        if answer is not None:
            of_class = np.array([state.marks.get(name) != NONE for name in self.collection.names])
            sizes = estimate_sizes(answer, numbers, counted=of_class)
            answer, numbers = answer.among(of_class), numbers[of_class]
        return {
            "version": version,
            "more": not whole,
            "settled": state.settled and whole,
            "searched": state.searched and whole,
            "classes": list(state.active),
            "colors": [number[name] for name in state.active],
            **items,
            "n_changed": state.n_changed,
            "suggested": [int(row) for row in state.suggested],
            "suspicious": list(state.suspicious),
            "sizes": [(size.low, size.high) for size in sizes],
            "step": shown.step,
            "outlier_step": shown.outlier_step,
            "doubtful_below": round(PERMILLE * doubtful_below(estimate)),
            "estimate": None if estimate is None else estimate._asdict(),
            "undo": None if state.undo is None else state.undo._asdict(),
            "redo": None if state.redo is None else state.redo._asdict(),
            "conflicts": [[row, dict(each)] for row, each in state.conflicts.items()],
            "advice": advise(answer, numbers, estimate, noun=self.collection.noun),
        }

    def _choose(self, shown: Shown, last: Shown) -> NDArray[np.bool_]:
        """Which items are told now, (N,): those decided, and as many others as an answer holds."""
        others = np.flatnonzero(shown.differ(last) & (shown.marks == last.marks))
        told = np.ones(len(self.collection), dtype=bool)
        told[others[MOST_TOLD:]] = False
        return told

    def _sure_above(self, state: State) -> dict[int, tuple[str, int]]:
        """Of rows whose sub-class is doubtful: the class above that is sure, and thousandths."""
        if not self.sub_classes or state.answer is None or doubtful_below(state.estimate) > 1:
            return {}
        is_open = np.array([state.is_open(name) for name in self.collection.names])
        rows = np.flatnonzero(is_open & (state.answer.confidences < LIMITS.doubtful))
        tree = Tree(state.active, self.sub_classes)
        found = tree.find_rows(state.answer.probabilities[rows], LIMITS.doubtful)
        return {
            int(rows[place]): (node.label, int(PERMILLE * node.confidence))
            for place, node in found.items()
        }

    def _show(self, state: State) -> Shown:
        """What the page shows of each item."""
        n, many = len(self.collection), len(self.collection) > MANY
        step = STEP_OF_MANY if many else STEP
        outlier_step = OUTLIER_STEP_OF_MANY if many else OUTLIER_STEP
        if state.answer is None:
            labels = state.numbers.copy()
            confidence = np.where(labels >= 0, PERMILLE, 0)
        else:
            labels = state.answer.labels.copy()
            # Rounded down, so that no doubtful label looks sure.
            confidence = (PERMILLE * state.answer.confidences).astype(np.int64)
            confidence -= confidence % step
            if many:
                below = confidence < PERMILLE * LIMITS.doubtful
                confidence[below] -= confidence[below] % STEP_OF_MANY_DOUBTFUL
        marks, place = np.full(n, ord("0")), self.collection.rows
        for name, each in state.given.items():
            marks[place[name]] = ord(MARKS.get(each.origin, "1"))
        for name, mark in state.marks.items():
            marks[place[name]] = ord(MARKS[mark])
            if mark == NONE:
                labels[place[name]] = -1
        outliers, above, above_sure = np.zeros(n, int), np.full(n, -1), np.zeros(n, int)
        for row, probability in state.outliers:
            outliers[row] = round(PERMILLE * probability) // outlier_step * outlier_step
        found = self._sure_above(state)
        groups = tuple(sorted({label for label, _ in found.values()}))
        for row, (label, sure) in found.items():
            above[row], above_sure[row] = groups.index(label), sure // step * step
        return Shown(
            *(state.active, groups, labels, confidence, marks, outliers, above, above_sure),
            *(step, outlier_step),
        )

    def _keep(self, version: int, shown: Shown) -> None:
        """Keep what the page was told, for the differences to later states."""
        # Replaced, not changed: no thread has to wait. At worst one is lost, and all is sent.
        self._shown = dict([*self._shown.items(), (version, shown)][-N_SHOWN:])
