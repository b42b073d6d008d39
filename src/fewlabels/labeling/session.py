"""A labelling session: a project in memory, with all labels computed again after every decision.

A decision is written to the journal first. Then come two answers: a quick one, from the prototypes
of the last answer, before the call returns; and, when the person pauses, a thorough one in the
background, the same that `fewlabels label` gives. The estimate of accuracy and the suggestions
follow with it. Last, the images that belong to no class are searched; until then those found before
are shown.

The page names items by row number, everything else names them by name.
"""

import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewlabels.errors import InputError
from fewlabels.features import read_features
from fewlabels.labeling.accuracy import Estimate, estimate_accuracy
from fewlabels.labeling.answer import (
    DEFAULT_METHOD,
    Answer,
    check_method,
    find_outliers,
    prepare,
    solve,
    solve_again,
)
from fewlabels.labeling.collection import Collection, Extraction, known_names
from fewlabels.labeling.inputs import identify, read_inputs
from fewlabels.labeling.journal import IMPORT, PERSON, GivenLabel, ModelLabel
from fewlabels.labeling.labels_file import check_label, read_labels, remark_lost
from fewlabels.labeling.outputs import LabelRow, make_rows
from fewlabels.labeling.project import Project, check_place, is_project
from fewlabels.labeling.suggestions import LIMITS, advise, list_outliers, suggest

PAUSE = 0.35  # seconds without a decision before the thorough answer is computed
N_SUGGESTED = 24
N_CANDIDATES = 6
PERMILLE = 1000  # confidences are sent as whole numbers
MARKS = {PERSON: "1", IMPORT: "2"}  # in the state; "0" is the model's


@dataclass(frozen=True, eq=False)
class State:
    """What is known at one moment; never changed, only replaced."""

    version: int
    given: dict[str, GivenLabel]  # by name
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
    changed: Sequence[int] = ()  # rows, besides those decided, whose label the decision changed


class Session:
    """A project with its answers; safe to use from several threads."""

    def __init__(
        self,
        project: Project,
        collection: Collection | None = None,
        *,
        method: str = DEFAULT_METHOD,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Start the session.

        Args:
            project: Open for writing.
            collection: The items of the project; loaded if left out.
            method: Name of the method.
            settings: Values of its knobs other than the defaults, by name.
        """
        self.project = project
        self.collection = project.load() if collection is None else collection
        self.vectors = prepare(self.collection.features, method=method, settings=settings)
        self._lock = threading.Lock()  # one decision at a time
        self._wake, self._stop = threading.Event(), threading.Event()
        self._state = self._solve(self._read(version=0, last=None))
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

    def decide(self, rows: Sequence[int], label: str | None) -> State:
        """Give items a label; None removes theirs."""
        label = None if label is None else _check_label(label)
        return self._record(dict.fromkeys(self._names_of(rows), label))

    def confirm(self, rows: Sequence[int], labels: Sequence[str]) -> State:
        """Make labels of the model the person's own: those that the person saw on the page."""
        if len(labels) != len(rows):
            raise InputError(
                f"labels must be one for each of the {len(rows)} items, got {len(labels)}."
            )
        checked = [_check_label(label) for label in labels]
        return self._record(dict(zip(self._names_of(rows), checked, strict=True)))

    def undo(self) -> tuple[State, list[int]]:
        """Undo the last decision; returns the new state, and the rows that it was about."""
        with self._lock:
            names = self.project.journal.undo()
            place = self.collection.rows
            rows = sorted(place[name] for name in names if name in place)
            return (self._replace() if names else self._state), rows

    def rows(self, *, abstain: float = 0.0) -> list[LabelRow]:
        """All labels, by the thorough answer."""
        state = self._state if self._state.settled else self._solve(self._state)
        names = self.collection.names
        return make_rows(names, state.active, state.answer, state.given, abstain=abstain)

    def describe(self, row: int) -> dict[str, Any]:
        """The candidates and the history of one item."""
        (name,) = self._names_of([row])
        state = self._state
        candidates: list[dict[str, Any]] = []
        if state.answer is not None:
            probabilities = state.answer.probabilities[row]
            order = np.argsort(-probabilities, kind="stable")[:N_CANDIDATES]
            candidates = [
                {"label": state.active[way], "probability": round(float(probabilities[way]), 4)}
                for way in order
            ]
        history = self.project.journal.history(name)
        return {"name": name, "candidates": candidates, "history": history}

    def _names_of(self, rows: Sequence[int]) -> list[str]:
        if outside := [row for row in rows if not 0 <= row < len(self.collection)]:
            raise InputError(
                f"items must be numbers below {len(self.collection)}, got {outside[0]}."
            )
        return [self.collection.names[row] for row in rows]

    def _record(self, labels: Mapping[str, str | None]) -> State:
        if not labels:
            return self._state
        with self._lock:
            state = self._state
            predicted: dict[str, str] = {}
            if state.answer is not None:
                found, place = state.answer.labels, self.collection.rows
                predicted = {
                    name: state.active[found[place[name]]]
                    for name in labels
                    if name not in state.given
                }
            self.project.journal.decide(labels, origin=PERSON, predicted=predicted)
            return self._replace()

    def _replace(self) -> State:
        """The state after a change of the journal, with a quick answer."""
        state = self._read(version=self._state.version + 1, last=self._state)
        self._state = state
        self._wake.set()
        return state

    def _read(self, *, version: int, last: State | None) -> State:
        """The journal's labels, and a quick answer from the last state's."""
        given = self.project.given(self.collection)
        class_names = tuple(self.project.journal.class_names)
        labels = {name: each.label for name, each in given.items()}
        used = set(labels.values())
        active = tuple(name for name in class_names if name in used)
        numbers = self.collection.number(labels, active)
        state = State(version, given, class_names, active, numbers, None)
        if last is None:
            return state
        names = self.collection.names
        suggested = [row for row in last.suggested if names[row] not in given]
        state = replace(state, estimate=last.estimate, suggested=suggested)
        if len(active) < 2:
            return replace(state, outliers=[])
        outliers = [(row, p) for row, p in last.outliers if names[row] not in given]
        state = replace(state, outliers=outliers)
        if last.answer is None:
            return self._solve(state)
        before = {name: column for column, name in enumerate(last.active)}
        columns = [before.get(name, -1) for name in active]
        answer = solve_again(self.vectors, numbers, start=last.answer, columns=columns)
        old, new = np.array(last.active)[last.answer.labels], np.array(active)[answer.labels]
        changed = [
            row
            for row in np.flatnonzero(old != new).tolist()
            if given.get(names[row]) == last.given.get(names[row])
        ]
        return replace(state, answer=answer, changed=changed)

    def _solve(self, state: State) -> State:
        """The same state with the thorough answer."""
        if len(state.active) < 2:
            return replace(state, answer=None)
        return replace(state, answer=solve(self.vectors, state.numbers, n_way=len(state.active)))

    def _settle(self, state: State) -> State:
        """The state with the thorough answer, the estimate and suggestions.

        It is not settled if a decision was made meanwhile.
        """
        state = self._solve(state)
        outdated = partial(self._outdated, state)
        estimate = None
        if state.answer is not None:
            n_way = len(state.active)
            estimate = estimate_accuracy(
                self.vectors,
                state.numbers,
                n_way=n_way,
                answer=state.answer,
                cancelled=outdated,
            )
        if outdated():
            return state
        suggested = suggest(self.vectors, state.numbers, state.answer, n=N_SUGGESTED)
        return replace(state, settled=True, estimate=estimate, suggested=suggested)

    def _search(self, state: State) -> State:
        """The settled state with the outliers; not searched if a decision was made meanwhile."""
        if state.answer is None:
            return replace(state, searched=True, outliers=())
        found = find_outliers(
            self.vectors, state.numbers, state.answer, cancelled=partial(self._outdated, state)
        )
        if found is None:
            return state
        outliers = [(row, float(found[row])) for row in list_outliers(found)]
        return replace(state, searched=True, outliers=outliers)

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
                with suppress(sqlite3.Error):  # the session does not need them
                    self._keep(state)
                state = self._state = replace(state, version=state.version + 1)
            state = self._search(state)
            with self._lock:
                if state.searched and not self._outdated(state):
                    self._state = replace(state, version=state.version + 1)

    def _keep(self, state: State) -> None:
        """Write the model's labels to the journal, for other programs to read."""
        if state.answer is None:
            return
        rows = make_rows(self.collection.names, state.active, state.answer, state.given)
        self.project.journal.keep_model_labels(
            (row.path, ModelLabel(row.label, row.confidence, row.margin))
            for row in rows
            if row.path not in state.given
        )

    def to_dict(self, state: State) -> dict[str, Any]:
        """A state for the page: labels as class numbers, confidences in thousandths."""
        if state.answer is None:
            given = {name: each.label for name, each in state.given.items()}
            labels = self.collection.number(given, state.class_names)
            confidence = np.where(labels >= 0, PERMILLE, 0)
        else:
            place = {name: number for number, name in enumerate(state.class_names)}
            labels = np.array([place[name] for name in state.active])[state.answer.labels]
            # Rounded down, so that no doubtful label looks sure.
            confidence = (PERMILLE * state.answer.confidences).astype(np.int64)
        marks = bytearray(b"0" * len(self.collection))
        for name, each in state.given.items():
            marks[self.collection.rows[name]] = ord(MARKS.get(each.origin, "1"))
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
            "suggested": [int(row) for row in state.suggested],
            "outliers": [(row, round(PERMILLE * p)) for row, p in state.outliers],
            "doubtful_below": round(PERMILLE * LIMITS.doubtful),
            "estimate": None if estimate is None else estimate._asdict(),
            "advice": advise(state.answer, state.numbers, estimate),
        }


def _check_label(label: str) -> str:
    label = check_label(label)
    if not label:
        raise InputError("a label must not be empty.")
    return label


def open_session(
    folder: Path,
    *,
    photos: Path | None = None,
    labels: Path | None = None,
    extraction: Extraction = Extraction(),  # noqa: B008 - it is frozen
    method: str = DEFAULT_METHOD,
    settings: Mapping[str, str] | None = None,
    on_remark: Callable[[str], None] = lambda _: None,
) -> Session:
    """A session of a project, which is begun if it does not exist yet.

    Args:
        folder: Of the project.
        photos: What a new project is of: a folder of images or a file of features.
        labels: To import: a CSV file, or for a new project a folder with one sub-folder per class.
        extraction: How images become features.
        method: Name of the method.
        settings: Values of its knobs other than the defaults, by name.
        on_remark: Gets the remarks about images and labels.
    """
    check_method(method, settings)
    collection, remarks = None, []
    if is_project(folder):
        identify(folder).check_backbone(extraction.backbone)
        project = Project.open(folder, write=True)
    elif photos is None:
        raise InputError(f"{folder} is not a labelling project yet. Begin it with photos=FOLDER.")
    else:
        named = identify(photos)
        check_place(folder, named.root)
        inputs = read_inputs(named, labels=labels, extraction=extraction)
        collection, remarks = inputs.collection, list(inputs.remarks)
        project = inputs.begin_project(folder)
    try:
        if collection is None:
            collection, remarks = _update(project, photos, labels, extraction)
        for remark in remarks:
            on_remark(remark)
        return Session(project, collection, method=method, settings=settings)
    except BaseException:
        project.close()
        raise


def _update(
    project: Project, photos: Path | None, labels: Path | None, extraction: Extraction
) -> tuple[Collection, list[str]]:
    """The items of a project after new images and labels were added, and remarks."""
    if photos is not None and not _is_of(project, photos):
        raise InputError(
            f"photos must be left out for {project.folder}, which is a project of "
            f"{project.root or 'features'}, not of {photos}. Or name another project."
        )
    images = project.list_images()
    remarks = [] if images is None else project.refresh(images, extraction)
    collection = project.load(images)
    if labels is not None:
        known = collection.names if images is None else known_names(images)
        read = read_labels(labels, known, root=collection.root)
        names = collection.rows
        imported = project.import_labels(
            {name: label for name, label in read.labels.items() if name in names}
        )
        lost = remark_lost(read.labels, collection.names)
        remarks += [*read.remarks, *lost, imported.describe(labels)]
    return collection, remarks


def _is_of(project: Project, photos: Path) -> bool:
    """Whether a project is of these photos, or of features equal to those in this file."""
    if project.root is not None or photos.is_dir():
        return project.root == photos.resolve()
    kept, given = project.load(), Collection.of_features(read_features(photos, labels_needed=False))
    return kept.names == given.names and np.array_equal(kept.features, given.features)
