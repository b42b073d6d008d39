"""From what a person names (a folder of images, a file of features, a project) to a Collection and its labels."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fewlabels.backbones.encoder import Encoder, load_encoder
from fewlabels.data import ImageSet, read_images
from fewlabels.data.listing import SUFFIXES
from fewlabels.errors import FileFormatError, InputError
from fewlabels.features import FeatureSet, read_features
from fewlabels.features.extraction import Progress, extract
from fewlabels.features.store import FeatureStore
from fewlabels.labeling.collection import Collection
from fewlabels.labeling.foreign import remark_foreign
from fewlabels.labeling.given import Given, check_enough, labels_of_folders, read_labels
from fewlabels.labeling.naming import (
    by_item,
    by_name_of,
    count,
    known_names,
    remark_lost,
    remark_problems,
)
from fewlabels.labeling.project import FEATURES, Project, is_project, stamps_of
from fewlabels.labeling.table import IMPORT

FOLDERS = "folders"  # as a truth or as labels: the names of the sub-folders
BACKBONE = "efficientnet-lite0"  # small, good, and its weights come by pip
BESIDE = "labels:"  # before the names of labelled images that lie elsewhere


@dataclass(frozen=True)
class Extraction:
    """How images become features."""

    backbone: str = BACKBONE  # or several: "a+b"
    device: str = "auto"
    batch_size: int | None = None
    n_workers: int | None = None
    store: FeatureStore | None = None
    on_progress: Callable[[Progress], None] | None = None

    def encoders(self) -> list[Encoder]:
        """The encoders by name; "a+b" stands for two, unless it is the path of a file."""
        names = [self.backbone] if Path(self.backbone).is_file() else self.backbone.split("+")
        return [load_encoder(name.strip()) for name in names]

    def __call__(self, images: ImageSet) -> FeatureSet:
        """The features of all images that can be read."""
        return extract(
            images,
            self.encoders(),
            store=self.store,
            device=self.device,
            batch_size=self.batch_size,
            n_workers=self.n_workers,
            on_progress=self.on_progress,
        )

    def with_remarks(self, images: ImageSet) -> tuple[FeatureSet, list[str]]:
        """The same, and what was warned of meanwhile: images that cannot be read, a store that cannot be written."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            features = self(images)
        return features, list(
            dict.fromkeys(str(each.message) for each in caught if each.category is UserWarning)
        )


@dataclass(frozen=True, eq=False)
class Source:
    """A collection, the labels a person gave, and what should be said about them."""

    collection: Collection
    labels: dict[int, str]
    origins: dict[int, str]
    remarks: tuple[str, ...]
    backbone: str  # "" where features were given
    n_listed: (
        int  # the first so many items are the person's; labelled images from elsewhere come after
    )
    truth: dict[int, str] | None = None  # true labels to measure by, where they were given
    stamps: Mapping[str, str] | None = None  # of the images before their features were computed


def open_source(
    path: Path,
    *,
    labels: Path | None,
    extraction: Extraction,
    enough: bool = False,
    truth: str | None = None,
) -> Source:
    """Items, features and labels of a folder of images, a file of features or a project.

    Args:
        path: What to label.
        labels: A CSV file, or a folder with a sub-folder a class; None for the labels that `path` itself
            has: sub-folders, the labels in the file, or the decisions in the project.
        extraction: How images become features.
        enough: Refuse labels that nothing can be learned from, before any image is read.
        truth: As in `read_truth`; read before any image is.
    """
    if is_project(path):
        return _of_project(path, labels, truth)
    if path.is_dir():
        return _of_images(path, labels, extraction, enough=enough, truth=truth)
    if path.suffix.lower() in SUFFIXES:
        raise InputError(
            f"{path} is one image. Name a folder of images to label, or use `fewlabels predict MODEL {path.name}`."
        )
    return _of_features(path, labels, truth)


def choose_backbone(path: Path, given: str | None) -> str:
    """The backbone for a source; one that would have no effect is refused.

    Args:
        path: What to label.
        given: What the person asked for; None for the default.
    """
    if given is None:
        return BACKBONE
    if is_project(path):
        with Project.open(path) as project:
            kept = project.backbone
        if given != kept:
            features = f"features by {kept}" if kept else "given features"
            raise InputError(
                f"--backbone must be left out for {path}, a project of {features}, got '{given}'. Begin another project to use it."
            )
    elif path.is_file() and path.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"--backbone must be left out for {path}, which holds features already, got '{given}'."
        )
    return given


def root_of(path: Path) -> Path | None:
    """The folder of the images that a source is of; None where it is of features."""
    if is_project(path):
        with Project.open(path) as project:
            return project.root
    return None if path.is_file() else path


def files_read(
    path: Path, *, labels: Path | None, truth: str | None, backbone: str
) -> dict[str, Path | None]:
    """What a labelling reads besides images, by the name of the argument, None where there is none: no output may overwrite it."""
    return {
        "PHOTOS": path / FEATURES if is_project(path) else None if path.is_dir() else path,
        "--labels": labels,
        "--truth": None if truth in (None, FOLDERS) else Path(truth),
        "--backbone": Path(backbone) if Path(backbone).is_file() else None,
    }


def _of_images(
    folder: Path, labels: Path | None, extraction: Extraction, *, enough: bool, truth: str | None
) -> Source:
    foreign = remark_foreign([folder])
    try:
        images = read_images(folder)
    except FileFormatError as error:
        raise FileFormatError(" ".join([str(error), *foreign])) from error
    n_photos, known = len(images), known_names(images)
    true = read_truth(truth, known, root=folder)
    remarks = [*foreign, *true.remarks]
    by_name: dict[str, str]
    given = Given({})
    if labels is None:
        by_name = {
            images.names[item]: label
            for item, label in labels_of_folders(images.names).labels.items()
        }
    elif labels.is_dir():
        images, by_name = _join(images, read_images(labels), labels)
    else:  # before any image is read: a slip in a file of labels must not cost minutes
        given = read_labels(labels, known, root=folder)
        remarks += given.remarks
        by_name = by_name_of(given, known)
    if enough:
        check_enough(
            by_item(by_name, images.names),
            len(images),
            because=[*given.remarks, *remark_lost(by_name, images.names)],
        )
    remarks += remark_problems(images)
    stamps = stamps_of(images)
    features, warned = extraction.with_remarks(images)
    collection = Collection.of_features(features, title=images.name).with_images(images, folder)
    beside = set(images.names[n_photos:])
    n_listed = sum(name not in beside for name in collection.names)
    found = Given(by_item(by_name, collection.names))
    lost = remark_lost(by_name, collection.names)
    if enough and lost:
        check_enough(found.labels, len(collection), because=[*given.remarks, *lost])
    source = replace(
        _source(collection, found, [*remarks, *warned, *lost], extraction.backbone, n_listed),
        stamps=stamps,
    )
    return (
        source
        if truth is None
        else replace(source, truth=by_item(by_name_of(true, known), collection.names))
    )


def _join(photos: ImageSet, labelled: ImageSet, folder: Path) -> tuple[ImageSet, dict[str, str]]:
    """Photos and labelled images in one set; a labelled image that is among the photos is that photo, and is not added twice."""
    if not labelled.class_names:
        raise FileFormatError(
            f"{folder} must hold a sub-folder for each class, got images without one. Sort them into sub-folders."
        )
    sizes: dict[int, list[int]] = {}
    for index in range(len(photos)):
        sizes.setdefault(_size(photos, index), []).append(index)
    given: dict[str, str] = {}
    added = []
    for index in range(len(labelled)):
        label = int(labelled.labels[index])
        if label < 0:
            continue
        alike = [
            each
            for each in sizes.get(_size(labelled, index), [])
            if photos.digest(each) == labelled.digest(index)
        ]
        for each in alike:
            if (
                given.setdefault(photos.names[each], labelled.class_names[label])
                != labelled.class_names[label]
            ):
                raise InputError(
                    f"{folder}: the same image is in '{given[photos.names[each]]}' and in '{labelled.class_names[label]}' "
                    f"({labelled.names[index]}). Keep it in one class."
                )
        if not alike:
            added.append(index)
            given[BESIDE + labelled.names[index]] = labelled.class_names[label]
    extra = labelled.subset(added)
    joined = replace(
        photos,
        class_names=(),
        labels=np.full(len(photos) + len(extra), -1),
        names=(*photos.names, *(BESIDE + name for name in extra.names)),
        sources=(*photos.sources, *extra.sources),
        problems=(*photos.problems, *labelled.problems),
    )
    return joined, given


def _size(images: ImageSet, index: int) -> int:
    path = images.path(index)
    return -1 if path is None else path.stat().st_size


def _of_features(path: Path, labels: Path | None, truth: str | None) -> Source:
    features = read_features(path, labels_needed=False)
    collection = Collection.of_features(features, title=path.stem)
    if labels is None:
        given = Given(
            {
                int(row): features.class_names[features.labels[row]]
                for row in (features.labels >= 0).nonzero()[0]
            }
        )
    elif labels.is_dir():
        raise InputError(
            f"--labels must be a CSV file where features are given, got the folder {labels}."
        )
    else:
        given = read_labels(labels, collection.names)
    true = read_truth(truth, collection.names, root=None)
    source = _source(collection, given, list(true.remarks), "", len(collection))
    return source if truth is None else replace(source, truth=true.labels)


def _of_project(path: Path, labels: Path | None, truth: str | None) -> Source:
    if labels is not None:
        raise InputError(
            f"--labels must be left out for a project, which has its own. Import them: fewlabels serve {path} --labels {labels}"
        )
    with Project.open(path) as project:
        collection = project.load()
        decided = project.labels_of(collection)
        listed = None if collection.root is None else read_images(collection.root)
        known = collection.names if listed is None else known_names(listed)
        true = read_truth(truth, known, root=collection.root)
        remarks = [*true.remarks, *([] if listed is None else _remark_newcomers(project, listed))]
        source = _source(
            collection,
            Given({item: each.label for item, each in decided.items()}),
            remarks,
            project.backbone,
            len(collection),
        )
    source = replace(source, origins={item: each.origin for item, each in decided.items()})
    return (
        source
        if truth is None
        else replace(source, truth=by_item(by_name_of(true, known), collection.names))
    )


def _remark_newcomers(project: Project, listed: ImageSet) -> list[str]:
    n = len(project.newcomers(listed)) if project.backbone else 0
    them = "it" if n == 1 else "them"
    return (
        [
            f"{count(n, 'photo')} came or changed since: run fewlabels serve {project.folder} to take {them} up."
        ]
        if n
        else []
    )


def check_truth(words: str | None) -> None:
    """Refuse what `read_truth` could not read, before any work is done."""
    if words not in (None, FOLDERS) and not Path(words).is_file():
        raise FileFormatError(
            f"--truth must be '{FOLDERS}' or a CSV file with columns path and label, got '{words}', which is no file."
        )


def read_truth(words: str | None, names: Sequence[str], *, root: Path | None) -> Given:
    """The true labels, to measure by: "folders" for the names of the sub-folders, or a CSV file; none for None."""
    if words is None:
        return Given({})
    return (
        labels_of_folders(names) if words == FOLDERS else read_labels(Path(words), names, root=root)
    )


def _source(
    collection: Collection, given: Given, remarks: list[str], backbone: str, n_listed: int
) -> Source:
    origins = dict.fromkeys(given.labels, IMPORT)
    return Source(collection, given.labels, origins, (*remarks, *given.remarks), backbone, n_listed)
