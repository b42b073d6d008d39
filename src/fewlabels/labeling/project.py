"""A labelling project on disk: a folder that keeps all decisions, even after a crash.

project.sqlite         the journal of decisions
decisions.jsonl        its plain-text copy, from which `repair` rebuilds it
features.safetensors   the features of the items
shown.json             texts and paths that the page shows of the rows of a table
boxes.csv, boxes.json  where items are crops: the boxes
classes.json           vectors of the class names that the project began with
thumbnails/            small pictures, made when first looked at; may be deleted
lock                   held by the one process that may write
"""

import filecmp
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, NamedTuple, Self

from fewlabels.data import ImageSet, read_images
from fewlabels.data.video import read_frames
from fewlabels.errors import FileFormatError, InputError
from fewlabels.features import FeatureSet
from fewlabels.io.files import (
    new_folder,
    read_json,
    sync_folder,
    unwritable,
    write_file,
    write_json,
)
from fewlabels.io.locks import try_lock
from fewlabels.io.stamps import Stamp, content_digest
from fewlabels.io.words import count
from fewlabels.labeling.boxes import crop_images
from fewlabels.labeling.collection import Collection, Extraction, Shown
from fewlabels.labeling.journal import COPY, IMPORT, Journal, Standing
from fewlabels.labeling.moved import UNREAD, Moved, add_digests, file_stamp, find_moved, rename_rows
from fewlabels.labeling.names import NamePrior, read_names
from fewlabels.labeling.text_copy import read_copy

DATABASE, FEATURES, SHOWN, CLASSES, THUMBNAILS, LOCK = (
    "project.sqlite",
    "features.safetensors",
    "shown.json",
    "classes.json",
    "thumbnails",
    "lock",
)
BEFORE = f"before.{FEATURES}"  # while items get other names
ROOT, BACKBONE, TITLE, TOKEN, PORT = "root", "backbone", "title", "token", "port"  # in `about`
EVERY = "every"  # seconds between two frames of videos, in `about`
BOXES = "boxes"  # the file of boxes, with its suffix; in `about` its digest
READ_ONLY = "Copy the project to a place where you may write, or read it with `fewlabels label`."


class Project:
    """An open project; one process at a time may write, any number may read."""

    def __init__(self, folder: Path, *, write: bool) -> None:
        self.folder = folder
        self._lock = ProjectLock(folder / LOCK) if write else None
        try:
            self.journal = Journal(folder / DATABASE, write=write)
        except Exception:
            if self._lock is not None:
                self._lock.release()
            raise

    @classmethod
    def create(
        cls,
        folder: Path,
        features: FeatureSet,
        *,
        title: str,
        root: Path | None = None,
        backbone: str = "",
        stamps: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        people: Mapping[str, str] | None = None,
        shown: Shown | None = None,
        boxes: Path | None = None,
        every: float | None = None,
        prior: NamePrior | None = None,
    ) -> Self:
        """Begin a project, open for writing.

        It is made in a folder beside and renamed when it is complete: a process that is killed
        leaves no half project.

        Args:
            folder: Where; must be new or empty.
            features: Of all items, with their names.
            title: The heading of the page.
            root: The folder of the images, if the features are of images.
            backbone: Name of the backbone, to compute features of images that are added later.
            stamps: Of the images before their features were computed; the present ones if left out.
            labels: To import, by item name.
            people: Who gave them, by item name.
            shown: What is shown of the rows of a table.
            boxes: File of boxes, where items are crops; it is copied.
            every: Seconds between two frames of videos.
            prior: What the names of classes tell.
        """
        check_place(folder, root)
        if stamps is None:
            stamps = {} if root is None else stamps_of(read_images(root))
        about = {TITLE: title, BACKBONE: backbone}
        about |= {} if root is None else {ROOT: str(root.resolve())}
        about |= {} if every is None else {EVERY: repr(float(every))}
        about |= {} if boxes is None else {BOXES: content_digest(boxes.read_bytes())}
        with new_folder(folder) as made:
            with cls(made, write=True) as project:
                project.journal.describe(about)
                if boxes is not None:
                    write_file(made / f"{BOXES}{boxes.suffix.lower()}", boxes.read_bytes())
                project.keep_features(features, stamps)
                if shown is not None:
                    write_json(made / SHOWN, {**shown._asdict(), "root": str(shown.root)})
                if prior is not None:
                    prior.save(made / CLASSES)
                project.import_labels(labels or {}, people)
            with suppress(FileNotFoundError):
                folder.rmdir()  # it is empty
            made.rename(folder)
        sync_folder(folder.parent)
        return cls(folder, write=True)

    @classmethod
    def open(cls, folder: Path, *, write: bool = False) -> Self:
        """Open a project that exists."""
        if not is_project(folder):
            raise FileFormatError(
                f"{folder} is not a labelling project. Begin one with `fewlabels serve`."
            )
        return cls(folder, write=write)

    def close(self) -> None:
        """Close the journal and release the lock."""
        self.journal.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def title(self) -> str:
        """The heading of the page."""
        return self.journal.about.get(TITLE, self.folder.name)

    @property
    def root(self) -> Path | None:
        """The folder of the images."""
        about = self.journal.about
        return Path(about[ROOT]) if ROOT in about else None

    @property
    def backbone(self) -> str:
        """Name of the backbone; "" where features were given."""
        return self.journal.about.get(BACKBONE, "")

    @property
    def prior(self) -> NamePrior | None:
        """What the names of classes tell, where it began with them."""
        path = self.folder / CLASSES
        return NamePrior.load(path) if path.exists() else None

    def list_images(self) -> ImageSet | None:
        """The images that are in the folder now; None for a project of features."""
        root = self.root
        if root is None:
            return None
        if not root.is_dir():
            raise FileFormatError(
                f"{root}, the folder of images of {self.folder}, is gone. Put it back, "
                f"or tell its new place: `fewlabels serve {self.folder} --photos FOLDER`. "
                f"Labels alone: `fewlabels export {self.folder} --to csv -o FOLDER`."
            )
        return self.read_from(root)

    @property
    def boxes(self) -> Path | None:
        """Its copy of the file of boxes, where items are crops."""
        paths = (self.folder / f"{BOXES}{suffix}" for suffix in (".csv", ".json"))
        return next((path for path in paths if path.is_file()), None)

    @property
    def every(self) -> float | None:
        """Seconds between two frames of videos, where those are items."""
        every = self.journal.about.get(EVERY)
        return None if every is None else float(every)

    def check_same(self, boxes: Path | None, every: float | None, classes: Path | None) -> None:
        """Refuse other boxes, frames or class names than those that it began with.

        So the command that began it may be given again.
        """
        kept, prior = self.boxes, self.prior
        is_same = {
            "boxes": boxes is None
            or (kept is not None and boxes.is_file() and filecmp.cmp(kept, boxes, shallow=False)),
            "every": every is None or every == self.every,
            "classes": classes is None
            or (prior is not None and prior.names == read_names(classes)),
        }
        for name, given in (("boxes", boxes), ("every", every), ("classes", classes)):
            if not is_same[name]:
                raise InputError(
                    f"{name} must be left out for {self.folder}, a project that exists and began "
                    f"without this, got {given}. Begin another project with it."
                )

    def read_from(self, root: Path) -> ImageSet:
        """The images in a folder, or what is taken from them: crops, frames of videos."""
        if (boxes := self.boxes) is not None:
            self._check_boxes(boxes)
            return crop_images(read_images(root), boxes).images
        return read_frames(root, self.every)

    def _check_boxes(self, boxes: Path) -> None:
        """Refuse the copy of the boxes where it was changed since the project began."""
        digest = self.journal.about.get(BOXES)  # projects of former versions have none
        if digest is not None and content_digest(boxes.read_bytes()) != digest:
            raise FileFormatError(
                f"{boxes} is damaged: its digest is another. Restore a backup, or copy the file "
                "there again that the project began with."
            )

    def move_photos(self, root: Path) -> str:
        """Take another folder as that of the images, which were moved there; returns a remark.

        `follow` gives them their new names.
        """
        if self.folder.resolve().is_relative_to(root.resolve()):
            raise InputError(
                f"photos must not hold the project {self.folder} itself, got {root}. "
                "Move the project to another folder, or name the one that holds the images."
            )
        n = self._find_moved(self.read_from(root)).n_found
        if n == 0:
            raise InputError(
                f"photos must hold images of {self.folder}, got {root}, which has none of them."
            )
        self.journal.describe({ROOT: str(root.resolve())})
        return f"{n:,} of {count(len(self.journal.stamps), 'image')} found in {root}."

    def _find_moved(self, images: ImageSet) -> Moved:
        return find_moved(images, stamps_of(images), self.journal.stamps)

    def follow(self, images: ImageSet) -> list[str]:
        """Give items the names that their images have now, by content; returns remarks."""
        moved = self._find_moved(images).names
        if not moved:
            return []
        path, aside = self.folder / FEATURES, self.folder / BEFORE
        features = None
        with suppress(FileFormatError):  # `refresh` computes them again
            features = rename_rows(FeatureSet.load(path), moved)
            path.replace(aside)  # never used under wrong names, even if this process is killed now
        self.journal.rename_items(moved)
        if features is not None:
            features.save(path)
        aside.unlink(missing_ok=True)
        n = sum(name in set(images.names) for name in moved.values())
        return [f"{count(n, 'image')} moved or renamed since: labels and decisions follow."]

    def load(self, images: ImageSet | None = None) -> Collection:
        """The items that are there now, with their features and pictures.

        Args:
            images: What `list_images` found; listed now if left out.
        """
        features = self._load_features()
        collection = Collection.of_features(features, title=self.title)
        images = self.list_images() if images is None else images
        if (path := self.folder / SHOWN).exists():
            return collection.with_shown(_read_shown(path))
        if images is None or self.root is None:
            return collection
        return collection.with_images(images, self.root)

    def _load_features(self) -> FeatureSet:
        try:
            return FeatureSet.load(self.folder / FEATURES)
        except FileFormatError as error:
            if not self.backbone or self.root is None:
                raise
            raise FileFormatError(
                f"{error} Or compute it again from the images: `fewlabels serve {self.folder}`."
            ) from error

    def keep_features(self, features: FeatureSet, stamps: Mapping[str, str]) -> None:
        """Store features, and the stamps of all images, those that could not be read included."""
        features.save(self.folder / FEATURES)
        (self.folder / BEFORE).unlink(missing_ok=True)  # of a process that was killed
        names = Collection.of_features(features).names
        read = set(names)
        unread = {name: UNREAD + stamp for name, stamp in stamps.items() if name not in read}
        self.journal.add_items({name: stamps.get(name, "") for name in names} | unread)

    def newcomers(self, images: ImageSet) -> list[str]:
        """Names of the images that were added or changed since their features were computed."""
        known = self.journal.stamps
        return [
            name
            for name, stamp in stamps_of(images).items()
            if file_stamp(known.get(name, "").removeprefix(UNREAD)) != stamp
        ]

    def refresh(self, images: ImageSet, extraction: Extraction) -> list[str]:
        """Compute the features of images that were added or changed; returns remarks.

        Images that could not be read before are tried again. Images that are gone do not matter.
        Features that are missing or damaged are computed again.
        """
        if not self.backbone:
            return []
        known, stamps = self.journal.stamps, stamps_of(images)
        if all(file_stamp(known.get(name, "")) == stamps[name] for name in stamps):
            with suppress(FileFormatError):
                FeatureSet.load(self.folder / FEATURES)
                (self.folder / BEFORE).unlink(missing_ok=True)  # of a process that was killed
                return []
        features, remarks = replace(extraction, backbone=self.backbone)(images)
        self.keep_features(features, add_digests(stamps, extraction.digests(images)))
        return remarks

    @classmethod
    def repair(cls, folder: Path) -> Path | None:
        """Rebuild the journal from its plain-text copy; returns where the old one was put.

        Features and pictures are not touched. Features that are damaged are computed again by
        `refresh`.
        """
        if not (copied := read_copy(folder / COPY)).digest:
            raise FileFormatError(
                f"{folder / COPY} has nothing to rebuild the project from. Restore a backup of it."
            )
        with ProjectLock(folder / LOCK), new_folder(folder / DATABASE) as made:
            rebuilt = Journal(made / DATABASE)
            rebuilt.fill(copied)
            with suppress(FileFormatError):
                names = Collection.of_features(FeatureSet.load(folder / FEATURES)).names
                rebuilt.add_items(dict.fromkeys(set(names) - set(rebuilt.stamps), ""))
            rebuilt.close()
            aside = _put_aside(folder / DATABASE)
            (made / DATABASE).rename(folder / DATABASE)
            sync_folder(folder)
        return aside

    def standing(self, collection: Collection) -> Standing:
        """Labels, marks and who decided, of the items of a collection."""
        labels, marks, people = self.journal.standing
        names = collection.names
        return Standing(
            {name: labels[name] for name in names if name in labels},
            {name: marks[name] for name in names if name in marks},
            {name: people[name] for name in names if name in people},
        )

    def import_labels(
        self, labels: Mapping[str, str], people: Mapping[str, str] | None = None
    ) -> "Imported":
        """Add labels by item name that are new, except where a person decided last.

        Args:
            labels: By item name.
            people: Who decided, by item name, where the file tells.
        """
        current = self.journal.current
        # Sorted by label: classes are numbered in the order of first use.
        by_label = sorted(labels.items(), key=lambda pair: pair[1])
        other = {
            name: label
            for name, label in by_label
            if name not in current or current[name].label != label
        }
        new = {name: label for name, label in other.items() if not self._is_decided(name)}
        if new:
            self.journal.decide(new, origin=IMPORT, people=people)
        return Imported(len(new), len(other) - len(new))

    def _is_decided(self, name: str) -> bool:
        """Whether the last decision about an item is a person's; removing a label is one too."""
        valid = [
            each["origin"]
            for each in self.journal.history(name)
            if each["undone"] is None and not each["aside"]
        ]
        return bool(valid) and valid[-1] != IMPORT


def _read_shown(path: Path) -> Shown:
    way_out = "Restore a backup, or delete it: then the names of the rows are shown."
    found = read_json(path, holds="what the page shows of the rows", way_out=way_out)
    root = Path(found.pop("root"))
    lists = {key: None if each is None else tuple(each) for key, each in found.items()}
    return Shown(root, **lists)


class Imported(NamedTuple):
    """How many labels were new, and how many were not used because a person decided otherwise."""

    n_new: int
    n_kept: int

    def describe(self, labels: Path) -> str:
        """One line for the person.

        >>> Imported(1, 2).describe(Path("few.csv"))
        '1 label imported from few.csv; 2 images stay as you decided.'
        """
        stay = "stays" if self.n_kept == 1 else "stay"
        kept = f"; {count(self.n_kept, 'image')} {stay} as you decided" if self.n_kept else ""
        return f"{count(self.n_new, 'label')} imported from {labels}{kept}."


def _put_aside(database: Path) -> Path | None:
    """Rename a damaged database, and remove the files that SQLite keeps beside it."""
    if not database.exists():
        return None
    names = (f"{database.name}.damaged-{number}" for number in range(1, 1000))
    aside = next(path for path in map(database.with_name, names) if not path.exists())
    for suffix in ("-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
    database.rename(aside)
    return aside


def check_place(folder: Path, root: Path | None) -> None:
    """Refuse a folder where no project of the images in `root` can begin."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            f"{folder} must be a new or empty folder for a project, "
            "got one with other things in it. Name another."
        )
    if root is not None and folder.resolve().is_relative_to(root.resolve()):
        raise InputError(
            f"{folder} must not lie inside the folder of images {root}: "
            "its thumbnails would be taken for images. Name another."
        )


def is_project(folder: Path) -> bool:
    """Whether a folder is a labelling project."""
    return (folder / DATABASE).is_file() or (folder / COPY).is_file()


def stamps_of(images: ImageSet) -> dict[str, str]:
    """The stamp of each image's file, by name, which changes when the file does.

    Take them before features are computed: features of a file that changes meanwhile may be of
    either version.
    """
    stamps = {}
    for index, name in enumerate(images.names):
        path = images.file(index)
        if path is not None:
            with suppress(OSError):  # a file that was deleted since it was listed has no stamp
                stamps[name] = Stamp.of(path).short
    return stamps


class ProjectLock:
    """Lets one process write; the operating system releases it when the process ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file: IO[str] = path.open("a+", encoding="utf-8")
        except OSError as error:
            raise unwritable(path.parent, error, way_out=READ_ONLY) from error
        if not try_lock(self._file):
            self._file.seek(0)
            holder = self._file.read(200).strip() or "another process"
            self._file.close()
            raise InputError(
                f"{path.parent} is open already ({holder}). "
                "Use the page of that server, or stop it first."
            )
        with suppress(OSError):  # a full disk: the lock holds without a name
            self._file.seek(0)
            self._file.truncate()
            self._file.write(f"process {os.getpid()}")
            self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the lock."""
        with suppress(OSError):
            self._file.close()
