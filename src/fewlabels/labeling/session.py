"""A labelling session: a project in memory, with all labels computed again after every decision.

A decision is written to the journal first. Then come two answers: a quick one, from the prototypes
of the last answer, before the call returns; and, when the person pauses, a thorough one in the
background, the same that `fewlabels label` gives. The estimate of accuracy and the suggestions
follow with it. Last, the images that belong to no class are searched; until then those found before
are shown.

The page names items by row number, everything else names them by name.
"""

import logging
import secrets
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewlabels.errors import FewLabelsError, InputError
from fewlabels.features import read_features
from fewlabels.features.extraction import Progress
from fewlabels.io.words import count
from fewlabels.labeling.accuracy import (
    Estimate,
    estimate_accuracy,
    find_contradictions,
    hidden_probabilities,
)
from fewlabels.labeling.agreement import check_person, find_opinions
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
from fewlabels.labeling.journal import (
    CONFIRMED,
    CONFLICT,
    NONE,
    PERSON,
    SKIP,
    ModelLabel,
)
from fewlabels.labeling.labels_file import DEEPEST, check_label, read_labels, remark_lost
from fewlabels.labeling.names import is_complete, rank_by_words, solve_named
from fewlabels.labeling.outputs import LabelRow, make_rows
from fewlabels.labeling.places import place
from fewlabels.labeling.project import Project, check_place, is_project
from fewlabels.labeling.state import VERSION_BITS, State, Told
from fewlabels.labeling.subclasses import check_separator
from fewlabels.labeling.suggestions import LIMITS, list_outliers, suggest

PAUSE = 0.35  # seconds without a decision before the thorough answer is computed
N_SUGGESTED = 24
N_CANDIDATES = 6
N_SIMILAR = 500
N_SETTLED = 3  # thorough answers that are kept, for undo and redo


class Session:
    """A project with its answers; safe to use from several threads."""

    def __init__(
        self,
        project: Project,
        collection: Collection | None = None,
        *,
        method: str = DEFAULT_METHOD,
        settings: Mapping[str, str] | None = None,
        person: str = "",
        sub_classes: str = "",
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        """Start the session.

        Args:
            project: Open for writing.
            collection: The items of the project; loaded if left out.
            method: Name of the method.
            settings: Values of its knobs other than the defaults, by name.
            person: Who decides, where a decision does not tell.
            sub_classes: What stands between class and sub-class, as in `make_rows`.
            on_progress: Called before and after each of the two steps that take seconds.
        """
        self.project, self.person = project, check_person(person)
        check_separator(sub_classes)
        self.method, self.settings, self.sub_classes = method, settings, sub_classes
        self.collection = project.load() if collection is None else collection
        self.prior = project.prior
        dataset = self.collection.provenance.get("dataset")
        n, report = len(self.collection), on_progress or (lambda _: None)
        report(Progress("compare", 0, n))
        self.vectors = prepare(
            self.collection.features,
            method=method,
            settings=settings,
            dataset=dataset,
            bursts=lambda: self.collection.bursts,
        )
        report(Progress("compare", n, n))
        self._lock = threading.Lock()  # one decision at a time
        self._told = Told(self.collection, sub_classes)
        self._settled: list[State] = []  # the last ones, with all that takes longer
        self._placing = threading.Lock()
        self._places: NDArray[np.float32] | None = None
        self._wake, self._stop = threading.Event(), threading.Event()
        # Versions of an earlier server, which an open page may still have, are others; no clock
        # tells, which may have been set back meanwhile.
        report(Progress("label", 0, n))
        self._state = self._solve(self._read(version=secrets.randbits(VERSION_BITS), last=None))
        report(Progress("label", n, n))
        if self._state.answer is None:  # so that the page has images to begin with
            suggested = suggest(self.vectors, self._state.numbers, None, n=N_SUGGESTED)
            self._state = replace(self._state, suggested=suggested)
        elif self.vectors.method.hides_labels:  # then it costs nothing
            self._state = replace(self._state, estimate=self._estimate(self._state))
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

    def decide(
        self,
        rows: Sequence[int],
        label: str | None,
        *,
        mark: str | None = None,
        person: str | None = None,
    ) -> State:
        """Give items a label; None removes theirs, or marks them as of no class or as skipped.

        Args:
            rows: Of the items.
            label: Name of a class, perhaps a new one.
            mark: "none" or "skip", for items that get no label.
            person: Who decides; that of the session if left out.
        """
        if mark is not None and (mark not in (NONE, SKIP) or label is not None):
            raise InputError(f"mark must be '{NONE}' or '{SKIP}', without a label, got '{mark}'.")
        label = None if label is None else _check_label(label)
        return self._record(dict.fromkeys(self._names_of(rows), label), mark=mark, person=person)

    def confirm(
        self, rows: Sequence[int], labels: Sequence[str], *, person: str | None = None
    ) -> tuple[State, list[int]]:
        """Make labels of the model the person's own: those that the person saw on the page.

        Of several at once nobody knows whether the person looked at each: they are kept as
        "confirmed". What somebody else has decided meanwhile stays: it is not what was seen.
        Of several, those whose file is gone are left out: nobody can have seen them. So are those
        that people decided differently: each needs a decision of its own.

        Returns:
            The new state, and the rows whose file is gone.
        """
        if len(labels) != len(rows):
            raise InputError(
                f"labels must be one for each of the {len(rows)} items, got {len(labels)}."
            )
        checked = dict(zip(self._names_of(rows), map(_check_label, labels), strict=True))
        missing = [row for row in rows if self._is_gone(row)] if len(rows) > 1 else []
        for row in missing:
            checked.pop(self.collection.names[row], None)
        if len(rows) > 1:
            marks = self._state.marks
            checked = {name: each for name, each in checked.items() if marks.get(name) != CONFLICT}
        origin = PERSON if len(rows) == 1 else CONFIRMED
        return self._record(checked, origin=origin, person=person, keep_decided=True), missing

    def relabel(self, old: str, new: str | None) -> State:
        """Rename a class; a name that exists joins the two, None removes the class's labels."""
        new = None if new is None else _check_label(new)
        with self._lock:
            if old not in self._state.active:
                raise InputError(f"old must be a class with a label, got '{old}'. Reload the page.")
            if new == old:
                return self._state
            self.project.journal.relabel(old, new)
            # A new name is the same class for the quick answer.
            was = tuple(new if each == old and new else each for each in self._state.active)
            joined = new in self._state.active
            return self._replace(self._state if joined else replace(self._state, active=was))

    def undo(self, batch: int | None = None) -> tuple[State, list[int]]:
        """Undo the last decision; returns the new state, and the rows that it was about.

        Args:
            batch: Its number, as in `State.undo`: if there is a later one, nothing is undone.
        """
        return self._reverse(partial(self.project.journal.undo, batch))

    def redo(self, batch: int | None = None) -> tuple[State, list[int]]:
        """Bring back what was undone last; arguments and result as in `undo`."""
        return self._reverse(partial(self.project.journal.redo, batch))

    def _reverse(self, change: Callable[[], list[str]]) -> tuple[State, list[int]]:
        with self._lock:
            names = change()
            place = self.collection.rows
            rows = sorted(place[name] for name in names if name in place)
            return (self._replace() if names else self._state), rows

    def rows(self, *, abstain: float = 0.0) -> list[LabelRow]:
        """All labels, by the thorough answer; items marked as of no class have none."""
        state = self._state if self._state.settled else self._solve(self._state)
        names, marks = self.collection.names, state.marks
        return make_rows(
            names,
            state.active,
            state.answer,
            state.given,
            abstain=abstain,
            marks=marks,
            people=state.people,
            sub_classes=self.sub_classes,
        )

    def thorough(self) -> State:
        """The last state, with the thorough answer, which is computed now if it is awaited."""
        state = self._state
        known = state.answer is None or state.answer.fitted is not None
        return state if known else self._solve(state)

    def keep_answer(self) -> None:
        """Write the model's labels to the journal now, if the thorough answer is still awaited."""
        if not self._state.settled:
            state = self._solve(self._state)
            with self._lock:
                self._keep(state)

    def describe(self, rows: Sequence[int]) -> dict[str, Any]:
        """The most probable classes of some items together; the history if it is one item."""
        names = self._names_of(rows)
        state = self._state
        candidates: list[dict[str, Any]] = []
        if state.answer is not None and rows:
            probabilities = self._probabilities(state.answer, rows)
            order = np.argsort(-probabilities, kind="stable")[:N_CANDIDATES]
            candidates = [
                {"label": state.active[way], "probability": round(float(probabilities[way]), 4)}
                for way in order
            ]
        history = self.project.journal.history(names[0]) if len(names) == 1 else []
        return {"candidates": candidates, "history": history}

    def _probabilities(self, answer: Answer, rows: Sequence[int]) -> NDArray[np.float32]:
        """Of every class for some items together, (W,); without its own label for one in doubt."""
        state = self._state
        if len(rows) == 1 and rows[0] in state.suspicious:
            hidden, found = hidden_probabilities(answer, state.numbers)
            if rows[0] in hidden:
                return np.asarray(found[hidden == rows[0]][0])
        return np.asarray(answer.probabilities[list(rows)].mean(axis=0))

    def to_dict(self, state: State, since: int | None = None) -> dict[str, Any]:
        """A state for the page, as in `Told.to_dict`."""
        return self._told.to_dict(state, since)

    def similar(self, row: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The rows most similar to one, itself first, and their cosines, (n,) each."""
        self._names_of([row])
        x = self.vectors.x.numpy()
        cosines = x @ x[row]
        cosines[row] = np.inf  # before its duplicates
        order = np.argsort(-cosines, kind="stable")[:N_SIMILAR]
        return order, np.minimum(cosines[order], 1)

    def burst(self, row: int) -> list[int]:
        """The rows of the burst of an item."""
        self._names_of([row])
        bursts = self.collection.bursts
        return [int(each) for each in np.flatnonzero(bursts == bursts[row])]

    def search(self, words: str) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The rows most similar to words, and their cosines, (n,) each."""
        backbone = self.project.backbone
        return rank_by_words(words, backbone, self.collection.features, N_SIMILAR)

    def places(self) -> NDArray[np.float32]:
        """Places of all items on the map, (N, 2) between 0 and 1; computed when first asked for."""
        with self._placing:
            if self._places is None:
                self._places = place(self.vectors)
        return self._places

    def _is_gone(self, row: int) -> bool:
        """Whether the item is a file that is not there any more."""
        images = self.collection.images
        path = None if images is None else images.file(row)
        return path is not None and not path.is_file()

    def _names_of(self, rows: Sequence[int]) -> list[str]:
        if outside := [row for row in rows if not 0 <= row < len(self.collection)]:
            raise InputError(
                f"items must be numbers below {len(self.collection)}, got {outside[0]}."
            )
        return [self.collection.names[row] for row in rows]

    def _record(
        self,
        labels: Mapping[str, str | None],
        *,
        origin: str = PERSON,
        mark: str | None = None,
        person: str | None = None,
        keep_decided: bool = False,
    ) -> State:
        who = self.person if person is None else check_person(person)
        with self._lock:
            state = self._state
            if keep_decided:
                labels = {name: each for name, each in labels.items() if not state.is_decided(name)}
            if not labels:
                return state
            predicted: dict[str, str] = {}
            if state.answer is not None:
                found, place = state.answer.labels, self.collection.rows
                predicted = {
                    name: state.active[found[place[name]]]
                    for name in labels
                    if name not in state.given
                }
            self.project.journal.decide(
                labels,
                origin=origin,
                predicted=predicted,
                mark=mark,
                people=dict.fromkeys(labels, who),
            )
            return self._replace()

    def _replace(self, last: State | None = None) -> State:
        """The state after a change of the journal, with a quick answer from the last one."""
        state = self._read(version=self._state.version + 1, last=last or self._state)
        self._state = state
        self._wake.set()
        return state

    def _read(self, *, version: int, last: State | None) -> State:
        """The journal's labels, and a quick answer from the last state's."""
        given, marks, people = self.project.standing(self.collection)
        journal, place = self.project.journal, self.collection.rows
        conflicts: dict[int, dict[str, str]] = {}
        if CONFLICT in marks.values():
            opinions = find_opinions(journal)
            conflicts = {
                place[name]: opinions.get(name, {})
                for name, mark in marks.items()
                if mark == CONFLICT
            }
        prior = () if self.prior is None else self.prior.names
        class_names = tuple(dict.fromkeys((*journal.class_names, *prior)))
        labels = {name: each.label for name, each in given.items()}
        used = {*labels.values(), *prior}
        active = tuple(name for name in class_names if name in used)
        numbers = self.collection.number(labels, active)
        state = State(version, given, marks, class_names, active, numbers, None)
        state = replace(
            state, undo=journal.to_undo, redo=journal.to_redo, people=people, conflicts=conflicts
        )
        if last is None:
            return state
        if (known := self._recall(state)) is not None:  # after undo: what the person saw before
            n_changed = self._count_changed(last, known)
            return replace(
                known,
                version=version,
                n_changed=n_changed,
                class_names=class_names,
                undo=state.undo,
                redo=state.redo,
                people=people,
                conflicts=conflicts,
            )
        names = self.collection.names
        suggested = [row for row in last.suggested if state.is_open(names[row])]
        suspicious = [
            row for row in last.suspicious if given.get(names[row]) == last.given.get(names[row])
        ]
        state = replace(state, estimate=last.estimate, suggested=suggested, suspicious=suspicious)
        if len(active) < 2:
            return replace(state, outliers=[], estimate=None)
        outliers = [(row, p) for row, p in last.outliers if state.is_open(names[row])]
        state = replace(state, outliers=outliers)
        if last.answer is None or not self._is_complete(state):
            return self._solve(state)
        before = {name: column for column, name in enumerate(last.active)}
        columns = [before.get(name, -1) for name in active]
        answer = solve_again(self.vectors, numbers, start=last.answer, columns=columns)
        state = replace(state, answer=answer)
        return replace(state, n_changed=self._count_changed(last, state))

    def _recall(self, state: State) -> State | None:
        """A state that was settled before with the same labels and marks."""
        for known in reversed(self._settled):
            if (known.active, known.marks, known.given) == (state.active, state.marks, state.given):
                return known
        return None

    def _count_changed(self, last: State, state: State) -> int:
        """How many items, besides those decided, have another label than in the last state."""
        if last.answer is None or state.answer is None:
            return 0
        old = np.array(last.active)[last.answer.labels]
        new = np.array(state.active)[state.answer.labels]
        names = self.collection.names
        return sum(
            state.given.get(names[row]) == last.given.get(names[row])
            for row in np.flatnonzero(old != new).tolist()
        )

    def _solve(self, state: State) -> State:
        """The same state with the thorough answer."""
        if len(state.active) < 2:
            return replace(state, answer=None)
        n_way = len(state.active)
        if self.prior is None:
            return replace(state, answer=solve(self.vectors, state.numbers, n_way=n_way))
        told = self.prior.log_probabilities(self.collection.features, state.active)
        return replace(state, answer=solve_named(self.vectors, state.numbers, told))

    def _is_complete(self, state: State) -> bool:
        """Whether every class has a label; classes may be known by name alone."""
        return is_complete(state.numbers, len(state.active))

    def _settle(self, state: State) -> State:
        """The state with the thorough answer, the estimate and suggestions.

        It is not settled if a decision was made meanwhile.
        """
        state = self._solve(state)
        estimate = self._estimate(state)
        if self._outdated(state):
            return state
        n, names = N_SUGGESTED + len(state.marks), self.collection.names
        suggested = suggest(self.vectors, state.numbers, state.answer, n=n)
        suggested = [row for row in suggested if state.is_open(names[row])][:N_SUGGESTED]
        state = replace(state, settled=True, estimate=estimate, suggested=suggested)
        return replace(state, suspicious=self._suspect(state))

    def _suspect(self, state: State) -> list[int]:
        """Rows whose given label the thorough answer contradicts."""
        if state.answer is None:
            return []
        found = find_contradictions(state.answer, state.numbers, least=LIMITS.contradicted)
        return [each.row for each in found]

    def _estimate(self, state: State) -> Estimate | None:
        """The estimate of accuracy; None if a decision was made meanwhile."""
        if state.answer is None or not self._is_complete(state):
            return None
        return estimate_accuracy(
            self.vectors,
            state.numbers,
            n_way=len(state.active),
            answer=state.answer,
            evidence=self.collection.independent(state.given),
            cancelled=partial(self._outdated, state),
        )

    def _search(self, state: State) -> State:
        """The settled state with the outliers; not searched if a decision was made meanwhile."""
        if state.answer is None or not self._is_complete(state):
            return replace(state, searched=True, outliers=())
        found = find_outliers(
            self.vectors, state.numbers, state.answer, cancelled=partial(self._outdated, state)
        )
        if found is None:
            return state
        names = self.collection.names
        outliers = [
            (row, float(found[row])) for row in list_outliers(found) if state.is_open(names[row])
        ]
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
            try:
                self._answer()
            except Exception:  # one answer that fails must not end those to later decisions
                logging.getLogger(__name__).exception("The answer in the background failed.")

    def _answer(self) -> None:
        """Replace the state by one with the thorough answer, then by one with the outliers."""
        state = self._state
        if not state.settled:
            state = self._settle(state)
        with self._lock:
            if not state.settled or self._outdated(state):
                return
            with suppress(FewLabelsError, sqlite3.Error):  # the session does not need them
                self._keep(state)
            if state.searched:  # known from before
                return
            state = self._state = replace(state, version=state.version + 1, n_changed=0)
        state = self._search(state)
        with self._lock:
            if state.searched and not self._outdated(state):
                self._state = replace(state, version=state.version + 1)
                self._settled = [*self._settled, self._state][-N_SETTLED:]

    def _keep(self, state: State) -> None:
        """Write the model's labels to the journal, for other programs to read."""
        if state.answer is None:  # those of an earlier answer may name classes that are gone
            self.project.journal.keep_model_labels(())
            return
        rows = make_rows(
            self.collection.names,
            state.active,
            state.answer,
            state.given,
            sub_classes=self.sub_classes,
        )
        self.project.journal.keep_model_labels(
            (row.path, ModelLabel(row.label, row.confidence, row.margin))
            for row in rows
            if row.path not in state.given
        )


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
    class_from: str = DEEPEST,
    sub_classes: str = "",
    boxes: Path | None = None,
    every: float | None = None,
    person: str = "",
    columns: Mapping[str, str] | None = None,
    classes: Path | None = None,
    on_remark: Callable[[str], None] = lambda _: None,
) -> Session:
    """A session of a project, which is begun if it does not exist yet.

    Args:
        folder: Of the project. For photos, the project is the folder NAME.fewlabels beside them.
        photos: What a new project is of: a folder of images or a file of features.
        labels: To import: a CSV file, or for a new project a folder with one sub-folder per class.
        extraction: How images become features.
        method: Name of the method.
        settings: Values of its knobs other than the defaults, by name.
        class_from: Which sub-folder names the class in a new project, as in `label_folder`.
        sub_classes: What stands between class and sub-class, as in `label_folder`.
        boxes: In a new project: boxes in the images of the folder, as in `label_folder`.
        every: In a new project: seconds between two frames of its videos, as in `label_folder`.
        person: Who decides, where a decision does not tell.
        columns: Of a table, as in `label_folder`.
        classes: Names of classes that a new project begins with, as in `label_folder`.
        on_remark: Gets the remarks about images and labels.
    """
    check_method(method, settings)
    check_separator(sub_classes)
    person = check_person(person)
    collection, remarks = None, []
    if photos is None and not is_project(folder) and _is_photos(folder):
        folder, photos = project_beside(folder), folder
    if is_project(folder):
        identify(folder).check_backbone(extraction.backbone)
        project = Project.open(folder, write=True)
    elif photos is None:
        raise InputError(
            f"{folder} is not a labelling project yet, and no folder of photos. "
            "Check the path for typos, or begin the project with photos=FOLDER."
        )
    else:
        named = identify(photos, columns)
        check_place(folder, named.root)
        inputs = read_inputs(
            named,
            labels=labels,
            extraction=extraction,
            class_from=class_from,
            boxes=boxes,
            every=every,
            classes=classes,
        )
        collection, remarks = inputs.collection, list(inputs.remarks)
        project = inputs.begin_project(folder)
    try:
        if collection is None:
            project.check_same(boxes, every, classes)
            collection, remarks = _update(project, photos, labels, extraction, columns)
        for remark in [*remarks, f"Labelling {count(len(collection), collection.noun)} ..."]:
            on_remark(remark)
        on_progress = extraction.on_progress
        return Session(
            project,
            collection,
            method=method,
            settings=settings,
            person=person,
            sub_classes=sub_classes,
            on_progress=on_progress,
        )
    except BaseException:
        project.close()
        raise


def project_beside(photos: Path) -> Path:
    """Where the project of a folder of photos, or of a file of features, is kept by default."""
    photos = photos.resolve()
    return photos.with_name(f"{photos.name if photos.is_dir() else photos.stem}.fewlabels")


def _is_photos(path: Path) -> bool:
    """Whether something to label may be there: a file, or a folder that is not empty."""
    return path.is_file() or (path.is_dir() and any(path.iterdir()))


def _update(
    project: Project,
    photos: Path | None,
    labels: Path | None,
    extraction: Extraction,
    columns: Mapping[str, str] | None,
) -> tuple[Collection, list[str]]:
    """The items of a project after new images and labels were added, and remarks."""
    remarks = []
    if photos is not None and project.root not in (None, photos.resolve()) and photos.is_dir():
        remarks.append(project.move_photos(photos))
    if photos is not None and not _is_of(project, photos, columns):
        raise InputError(
            f"photos must be left out for {project.folder}, which is a project of "
            f"{project.root or 'features'}, not of {photos}. Or name another project."
        )
    images = project.list_images()
    if images is not None:
        remarks += [*project.follow(images), *project.refresh(images, extraction)]
    collection = project.load(images)
    if labels is not None:
        known = collection.names if images is None else known_names(images)
        read = read_labels(labels, known, root=collection.root)
        names = collection.rows
        imported = project.import_labels(
            {name: label for name, label in read.labels.items() if name in names}, read.people
        )
        lost = remark_lost(read.labels, collection.names)
        remarks += [*read.remarks, *lost, imported.describe(labels)]
    return collection, remarks


def _is_of(project: Project, photos: Path, columns: Mapping[str, str] | None) -> bool:
    """Whether a project is of these photos, or of the features or texts in this file."""
    if project.root is not None or photos.is_dir():
        return project.root == photos.resolve()
    kept, named = project.load(), identify(photos, columns)
    if (rows := named.rows) is not None and rows.texts is not None and project.backbone:
        return kept.texts == tuple(text for text in rows.texts if text.strip())
    given = Collection.of_features(read_features(photos, labels_needed=False, columns=columns))
    return kept.names == given.names and np.array_equal(kept.features, given.features)
