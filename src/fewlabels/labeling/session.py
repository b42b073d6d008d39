"""A labelling session: a project in memory, with all labels computed anew after every decision.

A decision is written to the journal first. Then two answers follow: a quick one from the centers of the
last, before the call returns, and, once the person pauses, a thorough one in the background, the same
that `fewlabels label` gives. With it come the estimate of accuracy and what to label next. Last, while that is
looked at, the images are found that belong to no class; until then those found before are shown.
"""

import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewlabels.errors import InputError
from fewlabels.labeling import model
from fewlabels.labeling.accuracy import Estimate, estimate_accuracy
from fewlabels.labeling.given import check_label
from fewlabels.labeling.journal import Decided, ModelLabel
from fewlabels.labeling.project import Project
from fewlabels.labeling.suggestions import DOUBTFUL, advise, list_strangers, suggest
from fewlabels.labeling.table import IMPORT, PERSON, LabelRow, tabulate

PAUSE = 0.35  # seconds without a decision before the thorough answer is computed
N_SUGGESTED = 24
N_CANDIDATES = 6
PERMILLE = 1000  # confidences travel as whole numbers
MARKS = {PERSON: "1", IMPORT: "2"}  # in the state; "0" is the model's


@dataclass(frozen=True, eq=False)
class State:
    """What is known at one moment; never changed, only replaced."""

    version: int
    given: dict[int, Decided]
    class_names: tuple[str, ...]  # all ever used
    active: tuple[str, ...]  # those with a label, in the same order: the columns of the answer
    numbers: NDArray[np.int64]  # (N,) place in `active`, -1 where unlabelled
    answer: model.Answer | None
    settled: bool = False  # the answer is the thorough one
    searched: bool = False  # and the strangers are those of this answer: nothing more will come
    estimate: Estimate | None = None
    suggested: Sequence[int] = ()
    strangers: Sequence[
        tuple[int, float]
    ] = ()  # items that probably belong to no class, and how probably; the most probable first
    changed: Sequence[int] = field(
        default=()
    )  # items whose label the last decision changed besides those decided


class Session:
    """A project with its answers; safe from several threads."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.collection = project.load()
        self.vectors = model.prepare(self.collection.features)
        self._lock = threading.Lock()  # one decision at a time
        self._wake, self._stop = threading.Event(), threading.Event()
        self._state = self._solve(self._read(version=0, answer=None))
        self._wake.set()  # what takes longer follows in the background
        self._worker = threading.Thread(target=self._work, name="fewlabels-settle", daemon=True)
        self._worker.start()

    def close(self) -> None:
        """Stop the background work and close the project."""
        self._stop.set()
        self._wake.set()
        self._worker.join()
        self.project.close()

    @property
    def state(self) -> State:
        """The last state."""
        return self._state

    def decide(self, items: Sequence[int], label: str | None) -> State:
        """Give items a label; None takes theirs away."""
        label = None if label is None else _checked_label(label)
        return self._record(dict.fromkeys(self._checked(items), label))

    def confirm(self, items: Sequence[int], labels: Sequence[str]) -> State:
        """Make labels that the model gave to items the person's own: those that the person saw, whatever the model thinks by now."""
        if len(labels) != len(items):
            raise InputError(
                f"labels must be one for each of the {len(items)} items, got {len(labels)}."
            )
        self._checked(items)
        return self._record(
            {item: _checked_label(label) for item, label in zip(items, labels, strict=True)}
        )

    def undo(self) -> tuple[State, list[int]]:
        """Take back what was decided last; the state then, and the items that it was about."""
        with self._lock:
            names = set(self.project.journal.undo())
            items = [item for item, name in enumerate(self.collection.names) if name in names]
            return (self._replace() if names else self._state), items

    def rows(self, *, abstain: float = 0.0) -> list[LabelRow]:
        """The outcome, by the thorough answer."""
        state = self._state
        if not state.settled:
            state = self._solve(state)
        origins = {item: decided.origin for item, decided in state.given.items()}
        rows = tabulate(self.collection.names, state.active, state.answer, origins, abstain=abstain)
        if state.answer is None:
            rows = [
                row._replace(label=state.given[i].label, origin=state.given[i].origin)
                if i in state.given
                else row
                for i, row in enumerate(rows)
            ]
        return rows

    def describe(self, item: int) -> dict[str, Any]:
        """The candidates and the history of one item."""
        (item,) = self._checked([item])
        state = self._state
        candidates: list[dict[str, Any]] = []
        if state.answer is not None:
            shares = state.answer.shares[item]
            order = np.argsort(-shares, kind="stable")[:N_CANDIDATES]
            candidates = [
                {"label": state.active[j], "share": round(float(shares[j]), 4)} for j in order
            ]
        return {
            "name": self.collection.names[item],
            "candidates": candidates,
            "history": self.project.journal.history(self.collection.names[item]),
        }

    def _checked(self, items: Sequence[int]) -> list[int]:
        if outside := [item for item in items if not 0 <= item < len(self.collection)]:
            raise InputError(
                f"items must be numbers below {len(self.collection)}, got {outside[0]}."
            )
        return list(dict.fromkeys(items))

    def _record(self, labels: dict[int, str | None]) -> State:
        if not labels:
            return self._state
        names = self.collection.names
        with self._lock:
            state = self._state
            predicted: dict[str, str] = {}
            if state.answer is not None:
                guesses = state.answer.labels
                predicted = {
                    names[item]: state.active[guesses[item]]
                    for item in labels
                    if item not in state.given
                }
            self.project.journal.decide(
                {names[item]: label for item, label in labels.items()},
                origin=PERSON,
                predicted=predicted,
            )
            return self._replace()

    def _replace(self) -> State:
        """The state after a change of the journal, with a quick answer."""
        last = self._state
        state = self._read(version=last.version + 1, answer=last)
        self._state = state
        self._wake.set()
        return state

    def _read(self, *, version: int, answer: State | None) -> State:
        """The journal's labels, and a quick answer from the last state's."""
        given = self.project.labels_of(self.collection)
        class_names = tuple(self.project.journal.class_names)
        used = {decided.label for decided in given.values()}
        active = tuple(name for name in class_names if name in used)
        place = {name: number for number, name in enumerate(active)}
        numbers = np.full(len(self.collection), -1, dtype=np.int64)
        for item, decided in given.items():
            numbers[item] = place[decided.label]
        found, changed = None, []
        if len(active) >= 2 and answer is not None:
            if answer.answer is None:
                found = model.solve(self.vectors, numbers, n_way=len(active))
            else:
                before = {name: column for column, name in enumerate(answer.active)}
                columns = [before.get(name, -1) for name in active]
                found = model.solve_again(
                    self.vectors, numbers, start=answer.answer, columns=columns
                )
                old, new = (
                    np.array(answer.active)[answer.answer.labels],
                    np.array(active)[found.labels],
                )
                changed = [
                    item
                    for item in np.flatnonzero(old != new).tolist()
                    if given.get(item) == answer.given.get(item)
                ]
        state = State(version, given, class_names, active, numbers, found, changed=changed)
        if answer is None:
            return state
        suggested = [item for item in answer.suggested if item not in given]
        strangers = [
            (item, share)
            for item, share in answer.strangers
            if item not in given and found is not None
        ]
        return replace(state, estimate=answer.estimate, suggested=suggested, strangers=strangers)

    def _solve(self, state: State) -> State:
        """The same state with the thorough answer."""
        if len(state.active) < 2:
            return replace(state, answer=None)
        return replace(
            state, answer=model.solve(self.vectors, state.numbers, n_way=len(state.active))
        )

    def _settle(self, state: State) -> State:
        """The state with the thorough answer, the estimate and suggestions; unsettled where a decision came in between."""
        state = self._solve(state)
        outdated = partial(self._outdated, state)
        estimate = None
        if state.answer is not None:
            estimate = estimate_accuracy(
                self.vectors, state.numbers, n_way=len(state.active), cancelled=outdated
            )
        if outdated():
            return state
        suggested = suggest(self.vectors, state.numbers, state.answer, n=N_SUGGESTED)
        return replace(state, settled=True, estimate=estimate, suggested=suggested)

    def _search(self, state: State) -> State:
        """The settled state with the items that belong to no class; not searched where a decision came in between."""
        if state.answer is None:
            return replace(state, searched=True, strangers=())
        shares = model.find_strangers(
            self.vectors, state.numbers, state.answer, cancelled=partial(self._outdated, state)
        )
        if shares is None:
            return state
        return replace(
            state,
            searched=True,
            strangers=[(item, float(shares[item])) for item in list_strangers(shares)],
        )

    def _outdated(self, state: State) -> bool:
        return self._stop.is_set() or self._state.version != state.version

    def _work(self) -> None:
        while True:
            self._wake.wait()
            while not self._stop.is_set() and self._wake.is_set():  # until the person pauses
                self._wake.clear()
                self._stop.wait(PAUSE)
            if self._stop.is_set():
                return
            state = self._settle(self._state)
            with self._lock:
                if not state.settled or self._outdated(state):
                    continue
                with suppress(sqlite3.Error):  # not needed to go on
                    self._keep(state)
                state = self._state = replace(state, version=state.version + 1)
            state = self._search(state)
            with self._lock:
                if state.searched and not self._outdated(state):
                    self._state = replace(state, version=state.version + 1)

    def _keep(self, state: State) -> None:
        """Write down what the model thinks, for others to read."""
        if state.answer is None:
            return
        order, shares = state.answer.top_two
        names = self.collection.names
        self.project.journal.keep_model_labels(
            (
                names[i],
                ModelLabel(
                    state.active[order[i, 0]],
                    round(float(shares[i, 0]), 4),
                    round(float(shares[i, 0] - shares[i, 1]), 4),
                ),
            )
            for i in range(len(names))
            if i not in state.given
        )

    def to_dict(self, state: State) -> dict[str, Any]:
        """A state for the page: labels by number of class, confidences in thousandths."""
        place = {name: number for number, name in enumerate(state.class_names)}
        if state.answer is None:
            labels = np.array(
                [
                    place[state.given[i].label] if i in state.given else -1
                    for i in range(len(self.collection))
                ]
            )
            confidence = np.where(labels >= 0, PERMILLE, 0)
        else:
            columns = np.array([place[name] for name in state.active])
            labels = columns[state.answer.labels]
            confidence = (PERMILLE * state.answer.shares.max(axis=1)).astype(
                np.int64
            )  # down: what is doubtful must look so
        marks = bytearray(b"0" * len(self.collection))
        for item, decided in state.given.items():
            marks[item] = ord(MARKS.get(decided.origin, "1"))
        estimate = state.estimate
        return {
            "version": state.version,
            "settled": state.settled,
            "searched": state.searched,
            "classes": list(state.class_names),
            "labels": labels.tolist(),
            "confidence": confidence.tolist(),
            "marks": marks.decode(),
            "changed": list(state.changed),
            "suggested": [int(item) for item in state.suggested],
            "strangers": [(item, round(PERMILLE * share)) for item, share in state.strangers],
            "doubtful_below": round(PERMILLE * DOUBTFUL),
            "estimate": None if estimate is None else estimate._asdict(),
            "advice": advise(state.answer, state.numbers, estimate),
        }


def _checked_label(label: str) -> str:
    label = check_label(label)
    if not label:
        raise InputError("a label must not be empty.")
    return label
