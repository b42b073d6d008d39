"""What enters a project: the first features and labels, labels imported later, images that came or changed since."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fewlabels.data import read_images
from fewlabels.errors import InputError
from fewlabels.features import FeatureSet
from fewlabels.labeling.collection import Collection
from fewlabels.labeling.given import read_labels
from fewlabels.labeling.naming import by_item, by_name_of, count, known_names, remark_lost
from fewlabels.labeling.project import Project, stamps_of
from fewlabels.labeling.sources import Extraction, Source
from fewlabels.labeling.table import IMPORT


def begin_project(folder: Path, source: Source) -> Project:
    """A new project of a source, open for writing, with its labels imported."""
    collection = source.collection
    if source.n_listed < len(collection):
        raise InputError(
            "a project must hold all its labelled images in one folder, got some from elsewhere. "
            "Put them into the folder of photos, or give the labels as a CSV file."
        )
    features = FeatureSet.from_arrays(
        collection.features, [-1] * len(collection), [], collection.provenance, collection.names
    )
    project = Project.create(
        folder,
        features,
        title=collection.title,
        root=collection.root,
        backbone=source.backbone,
        stamps=source.stamps,
    )
    import_labels(project, collection, source.labels)
    return project


class Imported(NamedTuple):
    """How many labels were new, and how many gave way to what the person had decided otherwise."""

    n_new: int
    n_kept: int

    def describe(self, labels: Path) -> str:
        """One line for the person.

        >>> Imported(1, 2).describe(Path("few.csv"))
        '1 label imported from few.csv; 2 images stay as you decided.'
        """
        kept = (
            f"; {count(self.n_kept, 'image')} {'stays' if self.n_kept == 1 else 'stay'} as you decided"
            if self.n_kept
            else ""
        )
        return f"{count(self.n_new, 'label')} imported from {labels}{kept}."


def import_labels(project: Project, collection: Collection, labels: dict[int, str]) -> Imported:
    """Take over labels that the project does not have yet in the same way, except where a person decided last."""
    current = project.labels_of(collection)
    by_label = sorted(
        labels.items(), key=lambda pair: pair[1]
    )  # so that classes come in the order of their names
    other = {
        collection.names[item]: label
        for item, label in by_label
        if item not in current or current[item].label != label
    }
    new = {name: label for name, label in other.items() if not _is_decided(project, name)}
    if new:
        project.journal.decide(new, origin=IMPORT)
    return Imported(len(new), len(other) - len(new))


def import_file(project: Project, labels: Path) -> list[str]:
    """Import the labels of a CSV file; what should be said about it."""
    collection = project.load()
    known = (
        collection.names if collection.root is None else known_names(read_images(collection.root))
    )
    given = read_labels(labels, known, root=collection.root)
    by_name = by_name_of(given, known)
    imported = import_labels(project, collection, by_item(by_name, collection.names))
    return [*given.remarks, *remark_lost(by_name, collection.names), imported.describe(labels)]


def _is_decided(project: Project, name: str) -> bool:
    """Whether the last decision about an item is a person's; to take a label away is one too."""
    valid = [each["origin"] for each in project.journal.history(name) if each["undone"] is None]
    return bool(valid) and valid[-1] != IMPORT


def refresh(project: Project, extraction: Extraction) -> list[str]:
    """Compute the features of images that came or changed since; what should be said about it."""
    if project.root is None or not project.root.is_dir():
        return []
    images = read_images(project.root)
    if not project.backbone or not project.is_stale(images):
        return []
    stamps = stamps_of(images)
    features, remarks = replace(extraction, backbone=project.backbone).with_remarks(images)
    project.keep_features(features, stamps)
    return remarks
