"""A labelling project on disk: a folder that keeps all decisions, even after a crash.

project.sqlite         the journal of decisions
features.safetensors   the features of the items
thumbnails/            small pictures, made when first looked at; may be deleted
lock                   held by the one process that may write
"""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, NamedTuple, Self

from fewlabels.data import ImageSet, read_images
from fewlabels.errors import FileFormatError, InputError
from fewlabels.features import FeatureSet
from fewlabels.io.files import make_folder
from fewlabels.io.stamps import Stamp
from fewlabels.io.words import count
from fewlabels.labeling.collection import Collection, Extraction
from fewlabels.labeling.journal import IMPORT, GivenLabel, Journal

DATABASE, FEATURES, THUMBNAILS, LOCK = (
    "project.sqlite",
    "features.safetensors",
    "thumbnails",
    "lock",
)
ROOT, BACKBONE, TITLE, TOKEN, PORT = "root", "backbone", "title", "token", "port"  # in `about`
UNREAD = "unread "  # before the stamp of an image that could not be read


class Project:
    """An open project; one process at a time may write, any number may read."""

    def __init__(self, folder: Path, *, write: bool) -> None:
        self.folder = folder
        self._lock = ProjectLock(folder / LOCK) if write else None
        try:
            self.journal = Journal(folder / DATABASE)
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
    ) -> Self:
        """Begin a project, open for writing.

        Args:
            folder: Where; must be new or empty.
            features: Of all items, with their names.
            title: The heading of the page.
            root: The folder of the images, if the features are of images.
            backbone: Name of the backbone, to compute features of images that are added later.
            stamps: Of the images before their features were computed; the present ones if left out.
        """
        check_place(folder, root)
        project = cls(make_folder(folder), write=True)
        about = {TITLE: title, BACKBONE: backbone}
        project.journal.describe(about if root is None else {**about, ROOT: str(root.resolve())})
        if stamps is None:
            stamps = {} if root is None else stamps_of(read_images(root))
        project.keep_features(features, stamps)
        return project

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

    def list_images(self) -> ImageSet | None:
        """The images that are in the folder now; None for a project of features."""
        root = self.root
        if root is None:
            return None
        if not root.is_dir():
            raise FileFormatError(
                f"{root}, the folder of images of {self.folder}, is gone. Put it back, "
                f"or tell its new place: `fewlabels serve {self.folder} --photos FOLDER`."
            )
        return read_images(root)

    def move_photos(self, root: Path) -> None:
        """Take another folder as that of the images, which were moved there."""
        known = self.journal.stamps
        if not any(name in known for name in read_images(root).names):
            raise InputError(
                f"photos must hold images of {self.folder}, got {root}, which has none of them."
            )
        self.journal.describe({ROOT: str(root.resolve())})

    def load(self, images: ImageSet | None = None) -> Collection:
        """The items that are there now, with their features and pictures.

        Args:
            images: What `list_images` found; listed now if left out.
        """
        features = FeatureSet.load(self.folder / FEATURES)
        collection = Collection.of_features(features, title=self.title)
        images = self.list_images() if images is None else images
        if images is None or self.root is None:
            return collection
        return collection.with_images(images, self.root)

    def keep_features(self, features: FeatureSet, stamps: Mapping[str, str]) -> None:
        """Store features, and the stamps of all images, those that could not be read included."""
        features.save(self.folder / FEATURES)
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
            if known.get(name, "").removeprefix(UNREAD) != stamp
        ]

    def refresh(self, images: ImageSet, extraction: Extraction) -> list[str]:
        """Compute the features of images that were added or changed; returns remarks.

        Images that could not be read before are tried again. Images that are gone do not matter.
        """
        known, stamps = self.journal.stamps, stamps_of(images)
        if not self.backbone or all(known.get(name) == stamps[name] for name in stamps):
            return []
        features, remarks = replace(extraction, backbone=self.backbone)(images)
        self.keep_features(features, stamps)
        return remarks

    def given(self, collection: Collection) -> dict[str, GivenLabel]:
        """The labels that a person or a file gave to the items of a collection, by name."""
        current = self.journal.current
        return {name: current[name] for name in collection.names if name in current}

    def marks(self, collection: Collection) -> dict[str, str]:
        """The marks of the items of a collection, "none" or "skip", by name."""
        marks = self.journal.marks
        return {name: marks[name] for name in collection.names if name in marks}

    def import_labels(self, labels: Mapping[str, str]) -> "Imported":
        """Add labels by item name that are new, except where a person decided last."""
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
            self.journal.decide(new, origin=IMPORT)
        return Imported(len(new), len(other) - len(new))

    def _is_decided(self, name: str) -> bool:
        """Whether the last decision about an item is a person's; removing a label is one too."""
        valid = [each["origin"] for each in self.journal.history(name) if each["undone"] is None]
        return bool(valid) and valid[-1] != IMPORT


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
    return (folder / DATABASE).is_file()


def stamps_of(images: ImageSet) -> dict[str, str]:
    """The stamp of each image's file, by name, which changes when the file does.

    Take them before features are computed: features of a file that changes meanwhile may be of
    either version.
    """
    stamps = {}
    for index, name in enumerate(images.names):
        path = images.path(index)
        if path is not None:
            with suppress(OSError):  # a file that was deleted since it was listed has no stamp
                stamps[name] = Stamp.of(path).short
    return stamps


class ProjectLock:
    """Lets one process write; the operating system releases it when the process ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[str] = path.open("a+", encoding="utf-8")
        if not _try_lock(self._file):
            self._file.seek(0)
            holder = self._file.read(200).strip() or "another process"
            self._file.close()
            raise InputError(
                f"{path.parent} is open already ({holder}). "
                "Use the page of that server, or stop it first."
            )
        self._file.seek(0)
        self._file.truncate()
        self._file.write(f"process {os.getpid()}")
        self._file.flush()

    def release(self) -> None:
        """Release the lock."""
        self._file.close()


if sys.platform == "win32":
    import msvcrt

    _LOCKED_BYTE = 1 << 30  # beyond the text, which other processes may then still read

    def _try_lock(file: IO[str]) -> bool:
        file.seek(_LOCKED_BYTE)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(file: IO[str]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True
