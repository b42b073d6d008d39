"""Whether a project is whole: its journal, the copy of it, its features and its images."""

from pathlib import Path
from typing import NamedTuple

from fewlabels.errors import FewLabelsError, FileFormatError
from fewlabels.features import FeatureSet
from fewlabels.io.words import count, listing
from fewlabels.labeling.collection import Collection
from fewlabels.labeling.journal import COPY, Journal
from fewlabels.labeling.project import CLASSES, DATABASE, FEATURES, SHOWN, Project, is_project
from fewlabels.labeling.text_copy import read_copy

WRITTEN_LATER = "It is written again when the project is next opened with `fewlabels serve`."


class Finding(NamedTuple):
    """One thing that was checked."""

    what: str  # file or folder
    right: bool
    words: str

    def describe(self) -> str:
        """One line.

        >>> Finding("project.sqlite", True, "3 decisions.").describe()
        'project.sqlite: right. 3 decisions.'
        """
        return f"{self.what}: {'right' if self.right else 'WRONG'}. {self.words}"


def check_project(folder: Path) -> list[Finding]:
    """Check a project without changing it."""
    if not is_project(folder):
        raise FileFormatError(
            f"{folder} is not a labelling project. Name a folder that `fewlabels serve` made."
        )
    found = [_check_copy(folder)]
    try:
        project = Project.open(folder)
    except FewLabelsError as error:
        return [Finding(DATABASE, False, str(error)), *found, _check_features(folder, None)]
    with project:
        found.insert(0, _check_journal(project.journal))
        found.append(_check_features(folder, project))
        found += _check_kept(project)
        if project.root is not None:
            found.append(_check_images(project))
    return found


def _check_journal(journal: Journal) -> Finding:
    if wrong := journal.check():
        return Finding(DATABASE, False, f"{listing(wrong, separator='; ')}. Repair it.")
    n = journal.n_decisions
    return Finding(
        DATABASE, True, f"{count(n, 'decision')} about {count(len(journal.stamps), 'item')}."
    )


def _check_copy(folder: Path) -> Finding:
    if not (folder / COPY).is_file():
        return Finding(COPY, False, f"The plain-text copy is missing. {WRITTEN_LATER}")
    copied = read_copy(folder / COPY)
    n = sum(len(decisions) for _, decisions in copied.batches.values())
    if copied.damaged_line is None:
        return Finding(COPY, True, f"A copy of {count(n, 'decision')}.")
    where = f"Line {copied.damaged_line} is damaged; {count(n, 'decision')} before it can be read."
    return Finding(COPY, False, f"{where} {WRITTEN_LATER}")


def _check_features(folder: Path, project: Project | None) -> Finding:
    try:
        features = FeatureSet.load(folder / FEATURES)
    except FewLabelsError as error:
        way = ""
        if project is not None and project.backbone:
            way = " `fewlabels serve` computes it again from the images."
        return Finding(FEATURES, False, f"{error}{way}")
    if project is not None:
        missing = set(Collection.of_features(features).names) - set(project.journal.stamps)
        if missing:
            return Finding(FEATURES, False, f"{count(len(missing), 'row')} without an item.")
    return Finding(FEATURES, True, f"{count(len(features), 'row')}; the digest is right.")


def _check_kept(project: Project) -> list[Finding]:
    """What is kept of a table and of class names, where there is some."""
    found = []
    for file, read in ((SHOWN, project.load), (CLASSES, lambda: project.prior)):
        if (project.folder / file).exists():
            try:
                read()
                found.append(Finding(file, True, "The digest is right."))
            except FewLabelsError as error:
                found.append(Finding(file, False, str(error)))
    return found


def _check_images(project: Project) -> Finding:
    what = str(project.root)
    try:
        images = project.list_images()
    except FewLabelsError as error:
        return Finding(what, False, str(error))
    assert images is not None
    gone = set(project.journal.stamps) - set(images.names)
    news = len(project.newcomers(images))
    words = [count(len(images), "image")]
    words += [f"{count(len(gone), 'item')} without one"] if gone else []
    words += [f"{news:,} new or changed"] if news else []
    return Finding(what, True, f"{', '.join(words)}.")
