"""export_labels: the labels of a project or a folder, written as another program wants them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fewlabels.data import ImageSet, read_images
from fewlabels.data.bursts import SECONDS, check_seconds
from fewlabels.data.sources import ImageSource
from fewlabels.data.video import read_frames
from fewlabels.errors import FileFormatError, InputError
from fewlabels.features import FeatureSet
from fewlabels.features.extraction import Progress
from fewlabels.features.store import FeatureStore
from fewlabels.io.cache import remember_links
from fewlabels.io.files import allowed_name, new_folder
from fewlabels.io.words import count, listing
from fewlabels.labeling.boxes import crop_images
from fewlabels.labeling.collection import Collection, Extraction, known_names
from fewlabels.labeling.exports.base import (
    TRAIN,
    Dataset,
    Format,
    Item,
    find_format,
    is_rare,
)
from fewlabels.labeling.exports.splits import (
    check_fractions,
    check_near,
    find_groups,
    split_groups,
)
from fewlabels.labeling.inputs import Named, identify, read_inputs
from fewlabels.labeling.journal import MODEL, PERSON
from fewlabels.labeling.journal import NONE as NO_CLASS
from fewlabels.labeling.labels_file import (
    DEEPEST,
    LabelsWritten,
    WrittenLabel,
    read_folder_names,
    read_label_rows,
    remark_folders,
)
from fewlabels.labeling.moved import find_moved, rename_rows
from fewlabels.labeling.outputs import LABEL_STUDIO_PREFIX, check_abstain, folder_names
from fewlabels.labeling.project import FEATURES, Project, stamps_of
from fewlabels.labeling.subclasses import check_separator
from fewlabels.preprocess.duplicates import MOST_IN_GROUP, NEAR

MOST_SHOWN = 8  # classes or paths that a remark names


class Exported(NamedTuple):
    """What was written."""

    output: Path
    counts: dict[str, int]  # items by split; "" where there are no splits
    n_similar: int  # items that were kept together with others like them; 0 without splits
    remarks: tuple[str, ...]
    noun: str = "image"  # what a message calls an item

    def describe(self) -> str:
        """One line: how many items, and in which splits.

        >>> Exported(Path("out"), {"train": 8, "test": 2}, 3, ()).describe()
        '10 images written to out: train 8, test 2; 3 similar ones were not divided.'
        """
        total = f"{count(sum(self.counts.values()), self.noun)} written to {self.output}"
        named = ", ".join(f"{split} {n:,}" for split, n in self.counts.items() if split)
        similar = f"; {self.n_similar:,} similar ones were not divided" if self.n_similar else ""
        return f"{total}{': ' if named else ''}{named}{similar}."


def export_labels(
    source: str | Path,
    *,
    to: str,
    output: str | Path,
    labels: str | Path | None = None,
    photos: str | Path | None = None,
    class_from: str = DEEPEST,
    boxes: str | Path | None = None,
    every: float | None = None,
    columns: Mapping[str, str] | None = None,
    split: Sequence[float] | None = None,
    near: float = NEAR,
    burst: float = SECONDS,
    seed: int = 0,
    abstain: float = 0.0,
    sub_classes: str = "",
    link: bool = False,
    label_studio_prefix: str = LABEL_STUDIO_PREFIX,
    backbone: str | None = None,
    device: str = "auto",
    on_progress: Callable[[Progress], None] | None = None,
) -> Exported:
    """Write labelled images in the form that another program reads, as `fewlabels export` does.

    Of a project, decisions and the model's last labels are written. The output is written
    completely or not at all.

    Args:
        source: Labelling project, folder of images, file of features, or table.
        to: Name of the format, see `format_names`.
        output: A new or empty folder.
        labels: CSV file with columns path and label, such as labels.csv, predictions included. If
            left out: decisions and the model's labels of the project, or sub-folders of `source`.
        photos: Where the images of a project are now, if they were moved.
        class_from: Which sub-folder names the class, as in `label_folder`.
        boxes: Of a folder, as in `label_folder`: crops are written. A project has its own.
        every: Of a folder, as in `label_folder`: frames of videos are written too.
        columns: Of a table, as in `label_folder`.
        split: Fractions of train and validation, or of train, validation and test. Images with
            equal files or similar features are never divided.
        near: Cosine of features from which images are similar; 1 compares files only.
        burst: Seconds between two photographs of a camera that are not divided either; 0 for none.
        seed: Another one gives other splits.
        abstain: Confidence, 0 to 1, below which a predicted label is left out.
        sub_classes: What stands between class and sub-class: the folders of "imagefolder" are
            nested.
        link: Link the pictures instead of copying them.
        label_studio_prefix: What Label Studio needs before each path.
        backbone: Computes the features of a folder, where they are not stored yet; as in
            `label_folder`.
        device: auto, cpu, cuda or mps.
        on_progress: Called while features are computed.

    Example:
        >>> from tempfile import mkdtemp
        >>> folder = Path(mkdtemp())
        >>> features = FeatureSet.from_arrays([[9, 1], [1, 9]], ["leek", "plum"])
        >>> features.save(folder / "features.safetensors")
        >>> export_labels(folder / "features.safetensors", to="csv", output=folder / "out").counts
        {'': 2}
    """
    form, output = find_format(to), Path(output)
    fractions = check_fractions(split)
    check_near(near)
    check_seconds(burst)
    check_separator(sub_classes)
    check_abstain(abstain)
    found = find_items(
        source,
        labels=labels,
        photos=photos,
        class_from=class_from,
        boxes=None if boxes is None else Path(boxes),
        every=every,
        columns=columns,
    )
    _check_output(output, found.root)
    noun = "row" if found.root is None else "image"
    items, remarks = _choose(form, found.items, abstain, noun)
    n_similar = 0
    if fractions:
        features = None
        if near < 1:
            extraction = Extraction(backbone, device, store=FeatureStore(), on_progress=on_progress)
            features = found.features(items, extraction)
        items, sizes = _split(items, fractions, features, near=near, burst=burst, seed=seed)
        n_similar = int(sizes[sizes > 1].sum())
        remarks += _remark_splits(items, fractions, noun)
        if sizes.max() > MOST_IN_GROUP * sizes.sum():
            remarks.append(
                f"{sizes.max():,} of {sizes.sum():,} {noun}s are similar to one another and were "
                f"not divided. Raise near={near:g} if they show different things."
            )
    elif form.always_split:
        items = [item._replace(split=TRAIN if item.label else "") for item in items]
    classes = {item.label for item in items if item.label}
    data = Dataset(
        found.title,
        tuple(items),
        tuple(sorted(classes)),
        folder_names(classes, sub_classes) if form.nests and sub_classes else form.rename(classes),
        link,
        label_studio_prefix,
    )
    _write(form, output, data)
    remarks += _remark_pictures(form, items)
    if link and found.root is not None:
        remember_links(output, found.root)
    counts = Counter(item.split for item in items)
    renamed = [
        f"'{old}' as '{new}'"
        for old, new in data.target_names.items()
        if old != new and not (form.nests and sub_classes)
    ]
    if renamed:
        shown = listing(sorted(renamed), most=MOST_SHOWN)
        remarks.append(
            f"{count(len(renamed), 'class', 'classes')} renamed, as {to} or a file system does "
            f"not allow the name: {shown}."
        )
    by_split = {split: counts[split] for split in data.splits}
    return Exported(output, by_split, n_similar, (*found.remarks, *remarks), noun)


class Found(NamedTuple):
    """Items with labels, and how to get their features."""

    title: str
    root: Path | None  # the folder of the images
    items: list[Item]
    features_of: Callable[[Extraction], FeatureSet]
    remarks: tuple[str, ...]

    def features(self, items: list[Item], extraction: Extraction) -> NDArray[np.floating[Any]]:
        """The features of items, (N, D); zeros, which are like nothing, where there are none."""
        collection = Collection.of_features(self.features_of(extraction))
        found = np.zeros((len(items), collection.features.shape[1]), dtype=np.float32)
        for row, item in enumerate(items):
            if item.path in collection.rows:
                found[row] = collection.features[collection.rows[item.path]]
        return found


def find_items(
    source: str | Path,
    *,
    labels: str | Path | None = None,
    photos: str | Path | None = None,
    class_from: str = DEEPEST,
    boxes: Path | None = None,
    every: float | None = None,
    columns: Mapping[str, str] | None = None,
) -> Found:
    """The items of a project, a folder or a file of features; arguments as in `export_labels`."""
    named = identify(Path(source), columns)
    named.check_parts(boxes, every)
    if named.is_project:
        root = named.root if photos is None else Path(photos)
        return _of_project(named, root, labels, is_moved=photos is not None)
    if photos is not None:
        raise InputError(f"photos must be left out unless a project is given, got {photos}.")
    return _of_folder(named, labels, class_from, boxes, every)


def _of_project(
    named: Named, root: Path | None, labels: str | Path | None, *, is_moved: bool
) -> Found:
    if labels is not None:
        raise InputError(f"labels must be left out for a project, which has its own, got {labels}.")
    with Project.open(named.path) as project:
        given, marks, people = project.journal.standing
        predicted, title = project.journal.model_labels, project.title
        stamps = project.journal.stamps
        names = dict.fromkeys([*stamps, *given])
        there = root is not None and (root.is_dir() or is_moved)
        images = project.read_from(root) if root is not None and there else None
    remarks = []
    files: dict[str, Path] = {}
    parts: dict[str, ImageSource] = {}
    moved: dict[str, str] = {}
    if images is not None:
        files, parts = _pictures(images)
        moved = find_moved(images, stamps_of(images), stamps).names
    elif root is not None:
        remarks.append(f"{root}, the folder of images, is gone: only labels can be written.")
    items = []
    for name in names:
        place, person = moved.get(name, name), people.get(name, "")
        shown: Any = {"file": files.get(place), "part": parts.get(place)}
        if name in given:
            label, origin, _ = given[name]
            items.append(Item(place, label, origin, 1.0, person=person, **shown))
        elif marks.get(name) == NO_CLASS:
            items.append(Item(place, "", PERSON, 1.0, person=person, **shown))
        elif name in predicted:
            each = predicted[name]
            items.append(Item(place, each.label, MODEL, round(each.confidence, 4), **shown))
        else:
            items.append(Item(place, "", "", 0.0, **shown))

    def features_of(how: Extraction) -> FeatureSet:  # noqa: ARG001 - they are there
        return rename_rows(FeatureSet.load(named.path / FEATURES), moved)

    return Found(title, root, items, features_of, tuple(remarks))


def _of_folder(
    named: Named,
    labels: str | Path | None,
    class_from: str,
    boxes: Path | None,
    every: float | None,
) -> Found:
    remarks = list[str]()
    files, parts = dict[str, Path](), dict[str, ImageSource]()
    if named.root is None:
        inputs = read_inputs(named, extraction=Extraction())
        collection = inputs.collection
        names, own = list(collection.names), inputs.labels

        def features_of(how: Extraction) -> FeatureSet:  # noqa: ARG001 - they are there
            return FeatureSet.from_arrays(
                collection.features, [-1] * len(names), [], collection.provenance, names
            )

    else:
        if boxes is not None:
            images, own, told = crop_images(read_images(named.root), boxes)
            remarks += told
        else:
            images = read_frames(named.root, every)
            own = read_folder_names(images.names if labels is None else (), class_from)
            if labels is None and class_from == DEEPEST:
                remarks += remark_folders(images.names)
        names = known_names(images)
        files, parts = _pictures(images)

        def features_of(how: Extraction) -> FeatureSet:
            return how(images)[0]

    if labels is None:
        written = LabelsWritten({name: WrittenLabel(label) for name, label in own.items()})
    else:
        written = read_label_rows(Path(labels), names, root=named.root)
    items = []
    for name in names:
        told_of = written.labels.get(name, WrittenLabel("", "", 0.0))
        shown: Any = {"file": files.get(name), "part": parts.get(name)}
        items.append(Item(name, **told_of._asdict(), **shown))
    return Found(
        named.path.resolve().stem, named.root, items, features_of, (*remarks, *written.remarks)
    )


def _pictures(images: ImageSet) -> tuple[dict[str, Path], dict[str, ImageSource]]:
    """By name, the files of images, and what is a part of a file: crops, frames of videos."""
    paths = {name: images.path(index) for index, name in enumerate(images.names)}
    files = {name: path for name, path in paths.items() if path is not None}
    pairs = zip(images.names, images.sources, strict=True)
    return files, {name: source for name, source in pairs if name not in files}


def _choose(
    form: Format, items: list[Item], abstain: float, noun: str
) -> tuple[list[Item], list[str]]:
    """The items that a format can write, and remarks about the others."""
    kept = [item._replace(guess=item.label) if item.is_predicted else item for item in items]
    kept = [
        item._replace(label="", origin="")
        if item.is_predicted and item.confidence < abstain
        else item
        for item in kept
    ]
    labelled = [item for item in kept if item.label]
    if not labelled:
        raise InputError(
            "there are no labels to export. Give labels=FILE.csv with columns path and label, "
            "or label them first with `fewlabels label` or `fewlabels serve`."
        )
    remarks = []
    if form.needs_pictures:
        lost = [item.path for item in labelled if not item.has_picture]
        labelled = [item for item in labelled if item.has_picture]
        if not labelled:
            raise FileFormatError(
                f"to='{form.name}' needs the pictures, and none of them was found. "
                "Put them back, or give photos=FOLDER where they are now; csv needs no pictures."
            )
        if lost:
            shown = listing(lost, most=MOST_SHOWN)
            remarks.append(f"{count(len(lost), 'labelled image')} not found, left out: {shown}.")
    if form.lists_unlabelled:
        return kept, remarks
    if n_without := sum(not item.label for item in kept):
        remarks.append(f"{count(n_without, noun)} without a label left out.")
    return labelled, remarks


def _split(
    items: list[Item],
    fractions: dict[str, float],
    features: NDArray[np.floating[Any]] | None,
    *,
    near: float,
    burst: float,
    seed: int,
) -> tuple[list[Item], NDArray[np.int64]]:
    """The items with their splits, and the sizes of the groups.

    Without a label there is no split.
    """
    rows = [row for row, item in enumerate(items) if item.label]
    chosen = [items[row] for row in rows]
    groups = find_groups(
        [item.file for item in chosen],
        None if features is None else features[rows],
        near=near,
        burst=burst,
    )
    names, labels = [item.path for item in chosen], [item.label for item in chosen]
    splits = split_groups(names, labels, groups, fractions, seed=seed)
    found = list(items)
    for row, split in zip(rows, splits, strict=True):
        found[row] = items[row]._replace(split=split)
    return found, np.bincount(groups)


def _remark_splits(items: list[Item], fractions: dict[str, float], noun: str) -> list[str]:
    """Remarks about classes that are not in every split."""
    classes = {item.label for item in items if item.label}
    remarks = []
    for split in (name for name, fraction in fractions.items() if fraction > 0):
        lacking = sorted(classes - {item.label for item in items if item.split == split})
        if lacking:
            shown = listing(lacking, most=MOST_SHOWN)
            remarks.append(
                f"{count(len(lacking), 'class', 'classes')} not in {split}, with too few {noun}s "
                f"or groups of similar {noun}s to divide: {shown}."
            )
    return remarks


def _remark_pictures(form: Format, items: list[Item]) -> list[str]:
    """Remarks about pictures that other systems or programs know under another name or form."""
    if form.names_pictures:
        odd = [item.path for item in items if item.file and not _is_unicode(item.file)]
        if not odd:
            return []
        return [
            f"{count(len(odd), 'file')} whose names are not UTF-8 are called otherwise here, and "
            f"no other program will find them: {listing(odd, most=MOST_SHOWN)}. Rename the files."
        ]
    remarks = []
    if n_rare := sum(is_rare(item.path) for item in items):
        remarks.append(
            f"{count(n_rare, 'image')} written as JPEG: crops, frames, and HEIC or AVIF, which few "
            "programs read."
        )
    names = [item.path.rpartition("/")[2] for item in items]
    renamed = [f"'{old}' as '{new}'" for old in names if (new := allowed_name(old)) != old]
    if renamed:
        remarks.append(
            f"{count(len(renamed), 'file')} renamed, as not every system allows the name: "
            f"{listing(renamed, most=MOST_SHOWN)}."
        )
    return remarks


def _is_unicode(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_output(output: Path, root: Path | None) -> None:
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(
            f"output must be a new or empty folder, got {output}, where there is something: "
            "nothing is overwritten. Name another."
        )
    if root is not None and output.resolve().is_relative_to(root.resolve()):
        raise InputError(
            f"output must not lie inside the folder of images {root}, got {output}: "
            "what is written would be taken for images next time. Name another."
        )


def _write(form: Format, output: Path, data: Dataset) -> None:
    """Write to a temporary folder beside `output`, and rename it at the end."""
    with new_folder(output) as made:
        form.write(made, data)
        if output.exists():
            output.rmdir()  # it is empty, or this fails
        made.rename(output)
