"""A labelling project on disk: a folder that survives whatever happens to the programs that use it.

project.sqlite         the journal of decisions
features.safetensors   the features of the items
thumbnails/            small pictures, made when first looked at; may be deleted
lock                   held by the one process that may write
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from fewlabels.data import ImageSet, read_images
from fewlabels.errors import FileFormatError, InputError
from fewlabels.features import FeatureSet
from fewlabels.labeling.collection import Collection
from fewlabels.labeling.journal import Decided, Journal
from fewlabels.labeling.lock import ProjectLock
from fewlabels.labeling.writing import make_folder

DATABASE, FEATURES, THUMBNAILS, LOCK = (
    "project.sqlite",
    "features.safetensors",
    "thumbnails",
    "lock",
)
ROOT, BACKBONE, TITLE = "root", "backbone", "title"  # keys of `Journal.about`
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
            folder: Where; must not hold anything yet.
            features: Of all items, with their names.
            title: What the page is headed by.
            root: The folder of the images that the features are of, if they are of images.
            backbone: Name of the encoder, to compute features of images that are added later.
            stamps: Of the images before their features were computed; None for those that they have now.
        """
        check_place(folder, root)
        project = cls(make_folder(folder), write=True)
        project.journal.describe(
            {TITLE: title, BACKBONE: backbone}
            | ({} if root is None else {ROOT: str(root.resolve())})
        )
        if stamps is None:
            stamps = {} if root is None else stamps_of(read_images(root))
        project.keep_features(features, stamps)
        return project

    @classmethod
    def open(cls, folder: Path, *, write: bool = False) -> Self:
        """Open a project that exists."""
        if not is_project(folder):
            raise FileFormatError(
                f"{folder} is not a labelling project. Begin one: fewlabels serve {folder} --photos FOLDER"
            )
        return cls(folder, write=write)

    def close(self) -> None:
        """Close the journal and let go of the lock."""
        self.journal.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def title(self) -> str:
        """What the page is headed by."""
        return self.journal.about.get(TITLE, self.folder.name)

    @property
    def root(self) -> Path | None:
        """The folder of the images."""
        about = self.journal.about
        return Path(about[ROOT]) if ROOT in about else None

    @property
    def backbone(self) -> str:
        """Name of the encoder."""
        return self.journal.about.get(BACKBONE, "")

    def keep_features(self, features: FeatureSet, stamps: Mapping[str, str]) -> None:
        """Keep the features of the items, and the stamps of all images there were, those that could not be read included."""
        features.save(self.folder / FEATURES)
        names = Collection.of_features(features).names
        read = set(names)
        unread = {name: UNREAD + stamp for name, stamp in stamps.items() if name not in read}
        self.journal.add_items({name: stamps.get(name, "") for name in names} | unread)

    def is_stale(self, images: ImageSet) -> bool:
        """Whether features are wanting: of images that came, changed or could not be read; those that went do not matter."""
        known = self.journal.stamps
        return any(known.get(name) != stamp for name, stamp in stamps_of(images).items())

    def newcomers(self, images: ImageSet) -> list[str]:
        """Names of the images that came or changed since; an image that could not be read then, and is the same, is none of them."""
        known = self.journal.stamps
        return [
            name
            for name, stamp in stamps_of(images).items()
            if known.get(name, "").removeprefix(UNREAD) != stamp
        ]

    def load(self) -> Collection:
        """The items that are there now, with their features and pictures."""
        collection = Collection.of_features(
            FeatureSet.load(self.folder / FEATURES), title=self.title
        )
        if self.root is None:
            return collection
        if not self.root.is_dir():
            raise FileFormatError(
                f"{self.root}, the folder of images of {self.folder}, is gone. Put it back, or begin a new project."
            )
        return collection.with_images(read_images(self.root), self.root)

    def labels_of(self, collection: Collection) -> dict[int, Decided]:
        """The labels that a person or a file gave, by number in the collection."""
        current = self.journal.current
        return {
            item: current[name] for item, name in enumerate(collection.names) if name in current
        }


def check_place(folder: Path, root: Path | None) -> None:
    """Refuse a folder where no project of the images in `root` can begin."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            f"{folder} must be a new or empty folder for a project, got one with other things in it. Name another."
        )
    if root is not None and folder.resolve().is_relative_to(root.resolve()):
        raise InputError(
            f"{folder} must not lie inside the folder of images {root}: its thumbnails would be images. Name another."
        )


def is_project(folder: Path) -> bool:
    """Whether a folder is a labelling project."""
    return (folder / DATABASE).is_file()


def stamps_of(images: ImageSet) -> dict[str, str]:
    """Size and time of last change of each image's file, by name: what tells a changed file without reading it.

    To be taken before features are computed: of a file that changes meanwhile they may be of either version.
    """
    stamps = {}
    for index, name in enumerate(images.names):
        path = images.path(index)
        if path is not None:
            with suppress(OSError):  # a file that went since it was listed has no stamp
                about = path.stat()
                stamps[name] = f"{about.st_size} {about.st_mtime_ns}"
    return stamps
