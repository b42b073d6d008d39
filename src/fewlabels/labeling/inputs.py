"""From what a person names (folder of images, file of features, project) to items and labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fewlabels.backbones.encoder import QUALITIES
from fewlabels.backbones.text import TEXT_QUALITIES
from fewlabels.data import ImageSet, read_images
from fewlabels.data.datasets import image_column, read_dataset
from fewlabels.data.listing import SUFFIXES, is_unreadable, remark_unreadable
from fewlabels.data.video import check_every, read_frames
from fewlabels.errors import FileFormatError, InputError
from fewlabels.features import FeatureSet, read_features
from fewlabels.features.labels import number_labels
from fewlabels.features.readers import TABLES, read_table
from fewlabels.features.tables import TableRows, describe_columns, is_table
from fewlabels.io.files import require_file
from fewlabels.io.words import count, listing
from fewlabels.labeling.agreement import Agreement, find_agreement
from fewlabels.labeling.boxes import crop_images
from fewlabels.labeling.collection import (
    Collection,
    Extraction,
    Shown,
    known_names,
    remark_problems,
)
from fewlabels.labeling.journal import CONFLICT, IMPORT, GivenLabel
from fewlabels.labeling.labels_file import (
    DEEPEST,
    FOLDERS,
    LabelsRead,
    check_class_from,
    check_enough,
    read_folder_names,
    read_labels,
    read_truth,
    remark_folders,
    remark_lost,
)
from fewlabels.labeling.moved import add_digests
from fewlabels.labeling.names import NamePrior, make_prior, read_names
from fewlabels.labeling.project import FEATURES, Project, is_project, stamps_of

ELSEWHERE = "labels:"  # before the names of labelled images that are in another folder


@dataclass(frozen=True, eq=False)
class Inputs:
    """Items to label, the labels that were given, and remarks about both."""

    collection: Collection
    given: dict[str, GivenLabel]  # by name
    remarks: tuple[str, ...]
    backbone: str  # "" where features were given
    n_listed: int  # the first items are the person's; labelled images from elsewhere come after
    truth: dict[str, str] | None = None  # true labels by name, where they were given
    stamps: Mapping[str, str] | None = None  # of the images before their features were computed
    marks: Mapping[str, str] = field(default_factory=dict)  # "none", "skip", ... by name
    people: Mapping[str, str] = field(default_factory=dict)  # who decided, by name
    agreement: Agreement | None = None  # of a project
    unread: tuple[str, ...] = ()  # names of images that cannot be read
    boxes: Path | None = None  # the file of boxes, where items are crops
    every: float | None = None  # seconds between two frames of videos
    prior: NamePrior | None = None  # what the names of classes tell

    @property
    def labels(self) -> dict[str, str]:
        """The given labels by name."""
        return {name: given.label for name, given in self.given.items()}

    def begin_project(self, folder: Path) -> Project:
        """A new project of these items, open for writing, with the labels imported."""
        items = self.collection
        if self.n_listed < len(items):
            raise InputError(
                "a project must hold all its labelled images in one folder, got some from "
                "elsewhere. Put them into the folder of photos, or give the labels as a CSV file."
            )
        return Project.create(
            folder,
            FeatureSet.from_arrays(
                items.features, [-1] * len(items), [], items.provenance, items.names
            ),
            title=items.title,
            root=items.root if items.shown is None else None,
            backbone=self.backbone,
            stamps=self.stamps,
            labels=self.labels,
            people=self.people,
            shown=items.shown,
            boxes=self.boxes,
            every=self.every,
            prior=self.prior,
        )


class Named(NamedTuple):
    """What a person named to be labelled."""

    path: Path
    root: Path | None  # the folder of its images; None for features
    features: Path | None  # the file of its features; None for a folder
    backbone: str | None = None  # of a project, "" for given features; None for anything else
    given: FeatureSet | ImageSet | None = None  # in memory, where no path was named
    rows: TableRows | None = None  # of a table, which has vectors, or texts to encode

    @property
    def is_project(self) -> bool:
        """Whether it is a labelling project."""
        return self.backbone is not None

    def check_backbone(self, given: str | None) -> None:
        """Refuse a backbone that would have no effect."""
        if given is None or self.features is None:
            return
        if self.backbone in (given, QUALITIES.get(given, given), TEXT_QUALITIES.get(given, given)):
            return
        if self.rows is not None and self.rows.texts is not None:
            return
        what = "which holds features already"
        if self.is_project:
            kept = f"features by {self.backbone}" if self.backbone else "given features"
            what = f"a project of {kept}"
        raise InputError(f"backbone must be left out for {self.path}, {what}, got '{given}'.")

    def check_parts(self, boxes: Path | None, every: float | None) -> None:
        """Refuse boxes, and a time between two frames of videos, for anything but a folder."""
        check_every(every)
        for name, given in (("boxes", boxes), ("every", every)):
            if given is not None and (self.root is None or self.is_project):
                has = ", which has its own" if self.is_project else ""
                raise InputError(
                    f"{name} needs a folder of images, got {self.path}{has}. Leave it out."
                )
        if boxes is not None and every is not None:
            raise InputError(f"every must be left out where boxes are given, got {every:g}.")

    def make_prior(self, classes: Path, extraction: Extraction) -> NamePrior:
        """What the names of classes in a file tell about these items."""
        names = read_names(classes)
        if self.is_project:
            raise InputError(
                f"classes must be left out for {self.path}, a project, which keeps its own."
            )
        if self.features is not None and (self.rows is None or self.rows.texts is None):
            raise InputError(
                f"classes needs images or texts, got the features in {self.path}. Leave it out."
            )
        return make_prior(names, extraction.backbone, of_texts=self.features is not None)


def identify(source: Any, columns: Mapping[str, str] | None = None) -> Named:
    """Find out what was named.

    Args:
        source: Path of a project, a folder of images, a file of features or a table of texts; or a
            FeatureSet, a pandas DataFrame of embeddings or texts, or a Hugging Face dataset of
            images, embeddings or texts.
        columns: Of a table, as in `read_table`.
    """
    if isinstance(source, FeatureSet):
        return Named(Path("features"), None, Path("features"), given=source)
    if isinstance(source, ImageSet):
        return Named(Path(source.name), None, None, given=source)
    if is_table(source):
        if not hasattr(source, "iloc") and not columns and image_column(source) is not None:
            return identify(read_dataset(source))
        return Named(Path("table"), None, Path("table"), rows=read_table(source, columns))
    path = Path(source)
    if is_project(path):
        with Project.open(path) as project:
            return Named(path, project.root, path / FEATURES, project.backbone)
    if path.is_dir():
        return Named(path, path, None)
    if path.suffix.lower() in SUFFIXES:
        raise InputError(
            f"{path} is one image. Name a folder of images to label, "
            f"or use `fewlabels predict {path.name} --model MODEL`."
        )
    if path.is_file() and is_unreadable(path.name):
        (remark,) = remark_unreadable([path.name])
        raise InputError(
            f"{path} is not a folder of images. {remark} Then name the folder that holds them."
        )
    require_file(path, holds="features")
    rows = read_table(path, columns) if path.suffix.lower() in TABLES else None
    return Named(path, None, path, rows=rows)


def read_inputs(
    path: Any,
    *,
    labels: Path | None = None,
    extraction: Extraction = Extraction(),  # noqa: B008 - it is frozen
    enough: bool = False,
    truth: str | None = None,
    class_from: str = DEEPEST,
    columns: Mapping[str, str] | None = None,
    boxes: Path | None = None,
    every: float | None = None,
    classes: Path | None = None,
) -> Inputs:
    """Items, features and labels of a folder of images, a file of features or a project.

    Args:
        path: What to label, as in `identify`.
        labels: A CSV file, or a folder with one sub-folder per class. If left out, the labels that
            `path` itself has: sub-folders, labels in the file, or decisions in the project.
        extraction: How images become features.
        enough: Refuse labels of fewer than two classes, before any image is read.
        truth: As in `read_truth`; read before any image is.
        class_from: Which sub-folder names the class, as in `read_folder_names`.
        columns: Of a table, as in `read_features`.
        boxes: A file of boxes in the images of a folder: each crop is an item (boxes.py).
        every: Seconds between two frames of the videos of a folder, which are items too; None to
            read no videos.
        classes: A file of class names, which tell something before any label does (names.py).
    """
    check_class_from(class_from)
    named = path if isinstance(path, Named) else identify(path, columns)
    named.check_parts(boxes, every)
    named.check_backbone(extraction.backbone)
    if named.is_project and classes is None:
        return _read_project(named.path, labels, truth, class_from)
    prior = None if classes is None else named.make_prior(classes, extraction)
    enough = enough and prior is None
    if boxes is not None and named.root is not None:
        cropped = crop_images(read_images(named.root), boxes)
        found = _read_images(
            cropped.images,
            labels,
            extraction,
            enough=enough,
            truth=truth,
            own=LabelsRead(cropped.labels, cropped.remarks),
            folder=named.root,
        )
    elif named.root is not None:
        found = _read_folder(
            named.root,
            labels,
            extraction,
            enough=enough,
            truth=truth,
            class_from=class_from,
            every=every,
        )
    elif isinstance(named.given, ImageSet):
        found = _read_images(named.given, labels, extraction, enough=enough, truth=truth)
    elif named.rows is not None:
        found = _read_table(named, named.rows, labels, truth, extraction, enough=enough)
    else:
        features = named.given
        if features is None:
            features = read_features(named.path, labels_needed=False, columns=columns)
        found = _read_features(features, named.path.stem, labels, truth)
    return replace(found, boxes=boxes, every=every, prior=prior)


def _read_folder(
    folder: Path,
    labels: Path | None,
    extraction: Extraction,
    *,
    enough: bool,
    truth: str | None,
    class_from: str,
    every: float | None,
) -> Inputs:
    images = read_frames(folder, every)
    # All files of labels are checked before any image is read, which may take minutes.
    n_photos, known = len(images), known_names(images)
    true = read_truth(truth, known, root=folder, class_from=class_from)
    if labels is None or labels.is_dir():
        labelled = images if labels is None else read_images(labels)
        found = read_folder_names(labelled.names, class_from)
        nested = remark_folders(labelled.names) if class_from == DEEPEST else []
        if labels is not None:
            images, found = _join(images, labelled, labels, found)
        given = LabelsRead(found, tuple(nested))
    else:
        given = read_labels(labels, known, root=folder)
    known_true = None if truth is None else true
    second = labels if labels is not None and labels.is_dir() else None
    return _extract(
        images, n_photos, given, known_true, extraction, folder, enough=enough, second=second
    )


def _read_images(
    images: ImageSet,
    labels: Path | None,
    extraction: Extraction,
    *,
    enough: bool,
    truth: str | None,
    own: LabelsRead | None = None,
    folder: Path | None = None,
) -> Inputs:
    """The same of images in memory, or of crops, with labels of their own."""
    if own is None:
        pairs = zip(images.names, images.labels, strict=True)
        own = LabelsRead(
            {name: images.class_names[number] for name, number in pairs if number >= 0}
        )
    given = own
    if labels is not None:
        read = read_labels(labels, images.names)
        given = LabelsRead(read.labels, (*own.remarks, *read.remarks), read.people)
    true = None if truth is None else read_truth(truth, images.names, root=None)
    return _extract(images, len(images), given, true, extraction, folder, enough=enough)


def _extract(
    images: ImageSet,
    n_photos: int,
    given: LabelsRead,
    true: LabelsRead | None,
    extraction: Extraction,
    folder: Path | None,
    *,
    enough: bool,
    second: Path | None = None,
) -> Inputs:
    """Images and labels that were read and checked, with features.

    Labelled images from elsewhere are below the folder `second`.
    """
    unreadable = remark_unreadable(images.others)
    if enough:
        _check_enough(given, images.names)
    stamps = stamps_of(images)
    features, warned = extraction(images)
    stamps = add_digests(stamps, extraction.digests(images))
    collection = Collection.of_features(features, title=images.name)
    collection = collection.with_images(images, folder, second)
    if enough:
        _check_enough(given, collection.names)
    lost = remark_lost(given.labels, collection.names)
    remarks = [
        *unreadable,
        *(true.remarks if true else ()),
        *given.remarks,
        *remark_problems(images),
        *warned,
        *lost,
    ]
    elsewhere = set(images.names[n_photos:])
    read = set(collection.names)
    unread = [name for name in known_names(images) if name not in read | elsewhere]
    return Inputs(
        collection,
        _imported(_among(given.labels, collection.names)),
        tuple(remarks),
        extraction.name,
        sum(name not in elsewhere for name in collection.names),
        None if true is None else _among(true.labels, collection.names),
        stamps,
        people=_among(given.people, collection.names),
        unread=tuple(dict.fromkeys(unread)),
    )


def _check_enough(given: LabelsRead, names: tuple[str, ...], *, noun: str = "image") -> None:
    because = [*given.remarks, *remark_lost(given.labels, names)]
    check_enough(_among(given.labels, names), len(names), because=because, noun=noun)


def _among(labels: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """The labels of these items, in their order."""
    return {name: labels[name] for name in names if name in labels}


def _imported(labels: Mapping[str, str]) -> dict[str, GivenLabel]:
    return {name: GivenLabel(label, IMPORT) for name, label in labels.items()}


def _join(
    photos: ImageSet, labelled: ImageSet, folder: Path, labels: Mapping[str, str]
) -> tuple[ImageSet, dict[str, str]]:
    """Photos and labelled images in one set, and the labels by name.

    A labelled image with the content of a photo is that photo; it is not added a second time.
    """
    if not labels:
        raise FileFormatError(
            f"{folder} must hold one sub-folder per class, got images without one. "
            "Sort them into sub-folders."
        )
    by_size: dict[int, list[int]] = {}
    for index in range(len(photos)):
        by_size.setdefault(_size(photos, index), []).append(index)
    given: dict[str, str] = {}
    added = []
    for index in (row for row, name in enumerate(labelled.names) if name in labels):
        label = labels[labelled.names[index]]
        same = [
            each
            for each in by_size.get(_size(labelled, index), [])
            if photos.digest(each) == labelled.digest(index)
        ]
        for name in (photos.names[each] for each in same):
            if given.setdefault(name, label) != label:
                raise InputError(
                    f"{folder}: the same image is in '{given[name]}' and in '{label}' "
                    f"({labelled.names[index]}). Keep it in one class."
                )
        if not same:
            added.append(index)
            given[ELSEWHERE + labelled.names[index]] = label
    extra = labelled.subset(added)
    joined = replace(
        photos,
        class_names=(),
        labels=np.full(len(photos) + len(extra), -1),
        names=(*photos.names, *(ELSEWHERE + name for name in extra.names)),
        sources=(*photos.sources, *extra.sources),
        problems=(*photos.problems, *labelled.problems),
    )
    return joined, given


def _size(images: ImageSet, index: int) -> int:
    path = images.path(index)
    return -1 if path is None else path.stat().st_size


def _read_features(
    features: FeatureSet, title: str, labels: Path | None, truth: str | None
) -> Inputs:
    names = Collection.of_features(features).names
    numbers = zip(names, features.labels, strict=True)
    own = {name: features.class_names[number] for name, number in numbers if number >= 0}
    given, true = _read_given(names, own, labels, truth)
    return _of_rows(Collection.of_features(features, title=title), given, true)


def _of_rows(
    collection: Collection,
    given: LabelsRead,
    true: LabelsRead | None,
    remarks: Sequence[str] = (),
    backbone: str = "",
) -> Inputs:
    """Items that are no images, with their labels."""
    return Inputs(
        collection,
        _imported(given.labels),
        (*remarks, *(true.remarks if true else ()), *given.remarks),
        backbone,
        len(collection),
        None if true is None else true.labels,
        people=given.people,
    )


def _read_given(
    names: Sequence[str], own: Mapping[str, str], labels: Path | None, truth: str | None
) -> tuple[LabelsRead, LabelsRead | None]:
    """The labels of items without a folder: their own, or those of a CSV file; and true ones."""
    if labels is None:
        given = LabelsRead(dict(own))
    elif labels.is_dir():
        raise InputError(
            f"labels must be a CSV file where features are given, got the folder {labels}."
        )
    else:
        given = read_labels(labels, names)
    return given, None if truth is None else read_truth(truth, names, root=None)


def _read_table(
    named: Named,
    rows: TableRows,
    labels: Path | None,
    truth: str | None,
    extraction: Extraction,
    *,
    enough: bool,
) -> Inputs:
    """A table with vectors, or with texts that are encoded here."""
    encodes = rows.texts is not None and (rows.features is None or bool(extraction.backbone))
    all_names = rows.names or [f"row {number}" for number in range(len(rows.labels))]
    kept, remarks = list(range(len(all_names))), list[str]()
    texts = rows.texts or []
    if encodes:
        kept = [row for row in kept if texts[row].strip()]
        if not kept:
            raise InputError(f"column '{rows.text_column}' must hold texts, got only empty cells.")
        if n_empty := len(all_names) - len(kept):
            empty = [name for row, name in enumerate(all_names) if not texts[row].strip()]
            remarks.append(f"{count(n_empty, 'row')} without a text left out: {listing(empty)}.")
    names = [all_names[row] for row in kept]
    numbers, class_names = number_labels([rows.labels[row] for row in kept])
    own = {
        name: class_names[number]
        for name, number in zip(names, numbers, strict=True)
        if number >= 0
    }
    given, true = _read_given(names, own, labels, truth)
    if enough:
        if labels is None and (there := rows.unlabelled_columns):
            words = f"{named.path.name} has no column 'label', but {describe_columns(there)}. "
            given = given._replace(remarks=(words + "Name it with columns={'label': COLUMN}.",))
        _check_enough(given, tuple(names), noun="row" if rows.texts is None else "text")
    features, provenance, backbone = rows.features, {"file": named.path.name}, ""
    if encodes:
        encoded = extraction.encode([texts[row] for row in kept])
        features, backbone = encoded.features, encoded.provenance["backbone"]
        provenance |= {**encoded.provenance, "text_column": rows.text_column}
        remarks += encoded.remarks
    assert features is not None
    found = FeatureSet.from_arrays(features, [-1] * len(names), [], provenance, names)
    shown, more = _find_shown(named, rows, kept)
    collection = Collection.of_features(found, title=named.path.stem)
    if any(values is not None for values in shown[1:]):
        collection = collection.with_shown(shown)
    return _of_rows(collection, given, true, [*remarks, *more], backbone)


def _find_shown(named: Named, rows: TableRows, kept: Sequence[int]) -> tuple[Shown, list[str]]:
    """What is shown of these rows, and a remark about files that are not there.

    Names that are paths of images beside the table are shown as pictures without being asked.
    """
    root = named.path.parent.resolve() if named.path.is_file() else Path.cwd().resolve()
    images = rows.images
    if images is None and rows.texts is None and rows.names and rows.names[0]:
        first = rows.names[0]
        is_image = first.lower().endswith(SUFFIXES) and (root / first).is_file()
        images = rows.names if is_image else None
    remarks = []
    for what, paths in (("picture", images), ("sound file", rows.audio)):
        named_paths = [] if paths is None else [paths[row] for row in kept if paths[row]]
        places = ((path, (root / path).resolve()) for path in named_paths)
        lost = [
            path for path, place in places if not (place.is_file() and place.is_relative_to(root))
        ]
        if lost:
            remarks.append(
                f"{count(len(lost), what)} not found below {root}: {listing(lost)}. "
                "Paths are relative to the folder of the table."
            )

    def of_kept(values: Sequence[str] | None) -> tuple[str, ...] | None:
        return None if values is None else tuple(values[row] for row in kept)

    return Shown(root, of_kept(rows.texts), of_kept(images), of_kept(rows.audio)), remarks


def _read_project(path: Path, labels: Path | None, truth: str | None, class_from: str) -> Inputs:
    if labels is not None:
        raise InputError(
            "labels must be left out for a project, which has its own. "
            f"Import them into it with `fewlabels serve {path}`."
        )
    with Project.open(path) as project:
        images = project.list_images()
        collection = project.load(images)
        known = collection.names if images is None else known_names(images)
        true = read_truth(truth, known, root=collection.root, class_from=class_from)
        remarks = list(true.remarks)
        if images is not None and project.backbone:
            remarks += _remark_newcomers(path, len(project.newcomers(images)))
        standing = project.standing(collection)
        if n := sum(mark == CONFLICT for mark in standing.marks.values()):
            remarks.append(
                f"{count(n, collection.noun)} decided differently by people, and not used as "
                f"labels: `fewlabels people {path}` lists them, `fewlabels serve {path}` shows "
                "them."
            )
        return Inputs(
            collection,
            standing.labels,
            tuple(remarks),
            project.backbone,
            len(collection),
            None if truth is None else _among(true.labels, collection.names),
            marks=standing.marks,
            people=standing.people,
            agreement=find_agreement(project.journal),
            unread=tuple(name for name in known if name not in collection.rows),
            prior=project.prior,
        )


def _remark_newcomers(project: Path, n: int) -> list[str]:
    if not n:
        return []
    was, them = ("was", "it") if n == 1 else ("were", "them")
    return [
        f"{count(n, 'photo')} {was} added or changed since: "
        f"run `fewlabels serve {project}` to include {them}."
    ]


def files_read(
    named: Named, *, labels: Path | None, truth: str | None, backbone: str | None
) -> dict[str, Path | None]:
    """The files that labelling reads, by argument: no output may overwrite them."""
    weights = None if backbone is None else Path(backbone)
    return {
        "photos": named.features,
        "labels": labels,
        "truth": None if truth in (None, FOLDERS) else Path(truth),
        "backbone": weights if weights is not None and weights.is_file() else None,
    }
