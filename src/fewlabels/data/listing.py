"""The images in a folder: sorted, without hidden files, and with a list of skipped files."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fewlabels.data.decoding import HAS_AVIF, HAS_HEIC
from fewlabels.data.image_set import UNLABELLED, ImageSet, Problem
from fewlabels.data.sources import ImageFile, ImageSource
from fewlabels.errors import FileFormatError
from fewlabels.io.cache import linked_roots

HEIC, AVIF = (".heic", ".heif", ".hif"), (".avif",)
VIDEO = (".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm")  # frames are read on request (video.py)
SUFFIXES = (  # of images that are read, in any case
    *(".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff"),
    *(AVIF if HAS_AVIF else ()),
    *(HEIC if HAS_HEIC else ()),
)
# Folders that systems add, in lower case: of zips of macOS, thumbnails and recycle bins of network
# disks, recycle bins of Windows and Linux. Those that begin with a dot are hidden anyway.
SYSTEM_FOLDERS = (
    *("__macosx", "@eadir", "@recycle", "@recently-snapshot", "#recycle", "#snapshot"),
    *("$recycle.bin", "system volume information", "lost+found", "lost.dir"),
)


UNREADABLE = {  # suffix: what to do with such files where they are not read
    **dict.fromkeys(HEIC, "pip install 'fewlabels[heic]' reads them, or export them as JPEG"),
    **dict.fromkeys(AVIF, "pip install -U pillow reads them, or export them as JPEG"),
    **dict.fromkeys((".jxl", ".jp2", ".psd", ".svg"), "export them as JPEG or PNG"),
    **dict.fromkeys(
        (".cr2", ".cr3", ".nef", ".arw", ".dng", ".raf", ".orf", ".rw2"),
        "convert these raw photographs to JPEG",
    ),
    **dict.fromkeys(VIDEO, "`fewlabels label --every 2` takes pictures from these videos"),
    **dict.fromkeys((".zip", ".tar", ".tgz", ".gz", ".7z", ".rar"), "unpack them"),
}


class ListedImage(NamedTuple):
    """An image found on disk: its name and its source."""

    name: str
    source: ImageSource


def require_folder(folder: Path) -> None:
    """Refuse a path that is not a folder."""
    try:
        exists, is_folder = folder.exists(), folder.is_dir()
    except OSError as error:
        raise FileFormatError(
            f"{folder} cannot be opened ({error.strerror}). Check the path and its permissions."
        ) from error
    if not exists:
        raise FileFormatError(f"{folder} does not exist. Check the path for typos.")
    if not is_folder:
        raise FileFormatError(
            f"{folder} is a file, not a folder of images. "
            "Unpack it, or name the folder that holds it."
        )


def list_folders(folder: Path, *, root: Path, problems: list[Problem]) -> list[Path]:
    """The visible folders in a folder, sorted by name; for root and problems see `list_images`."""
    found = []
    try:
        inside = sorted(folder.iterdir(), key=lambda path: path.name)
    except OSError:  # `list_images` reports it
        return []
    for path in inside:
        try:
            wanted = not is_hidden(path.name) and path.is_dir()
        except OSError as error:
            if not _is_image(path.name):  # otherwise `list_images` reports it
                problems.append(Problem(relative_name(path, root), _inaccessible(error)))
            continue
        if not wanted:
            continue
        linked = path.is_symlink()
        if linked and (reason := _wrong_link(path, linked_roots(root), (folder.resolve(),))):
            problems.append(Problem(relative_name(path, root), reason))
        else:
            found.append(path)
    return found


def list_images(
    folder: Path,
    *,
    root: Path,
    problems: list[Problem],
    others: list[str] | None = None,
    recursive: bool = True,
) -> list[ListedImage]:
    """The images in a folder and, if `recursive`, in the folders below it, sorted by path.

    Args:
        root: Names are relative to it, and links that lead out of it are skipped, unless fewlabels
            wrote them.
        problems: Skipped files that look like images are appended to it.
        others: Names of files in formats that are not read are appended to it.
    """
    others = [] if others is None else others
    return list(_Walk(root, linked_roots(root), problems, others, recursive).walk(folder, ()))


def list_files(
    folder: Path, suffixes: tuple[str, ...], *, problems: list[Problem]
) -> list[tuple[str, Path]]:
    """Name and path of all files with other suffixes, as `list_images` lists images."""
    walk = _Walk(folder, linked_roots(folder), problems, [], True, suffixes)
    found = [(each.name, each.source.path) for each in walk.walk(folder, ())]
    return [(name, path) for name, path in found if path is not None]


def is_unreadable(name: str) -> bool:
    """Whether a file is, by its name, a picture, film or archive that is not read here."""
    return name.lower().endswith(tuple(UNREADABLE)) and not _is_image(name)


def remark_unreadable(names: Iterable[str]) -> list[str]:
    """Remarks about files in formats that are not read.

    >>> remark_unreadable(["a.jxl", "b.JXL", "c.jpg"])
    ['Not read: 2 .jxl files; export them as JPEG or PNG.']
    """
    found = Counter(Path(name).suffix.lower() for name in names if is_unreadable(name))
    ways: dict[str, list[str]] = {}
    for suffix, n in sorted(found.items()):
        ways.setdefault(UNREADABLE[suffix], []).append(f"{n:,} {suffix}")
    remarks = []
    for way, files in ways.items():
        are = "file" if [each.split()[0] for each in files] == ["1"] else "files"
        remarks.append(f"Not read: {' and '.join(files)} {are}; {way}.")
    return remarks


def collect(
    name: str,
    split: str,
    classes: Mapping[str, Sequence[ListedImage]],
    problems: Iterable[Problem],
    unlabelled: Sequence[ListedImage] = (),
    others: Iterable[str] = (),
) -> ImageSet:
    """The set of listed images: the unlabelled ones first, then class by class."""
    images = [*unlabelled, *(image for each in classes.values() for image in each)]
    counts = [len(unlabelled), *map(len, classes.values())]
    labels = np.repeat(np.arange(UNLABELLED, len(classes)), counts)
    names, sources = tuple(each.name for each in images), tuple(each.source for each in images)
    skipped = tuple(problems), tuple(others)
    return ImageSet(name, split, tuple(classes), labels, names, sources, *skipped)


def is_hidden(name: str) -> bool:
    """Whether a file or a folder of that name is hidden or made by the system."""
    return name.startswith(".") or name.lower() in SYSTEM_FOLDERS


def relative_name(path: Path, root: Path) -> str:
    """The path relative to the root with slashes and with printable characters only."""
    return _printable(path.relative_to(root).as_posix())


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def _inaccessible(error: OSError) -> str:
    return f"it cannot be accessed ({error.strerror})"


def _printable(name: str) -> str:
    if name.isprintable():
        return name
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return "".join(escaped)


class _Walk(NamedTuple):
    root: Path
    allowed: tuple[Path, ...]  # folders that links may lead to
    problems: list[Problem]
    others: list[str]
    recursive: bool
    suffixes: tuple[str, ...] = SUFFIXES

    def _is_wanted(self, name: str) -> bool:
        return name.lower().endswith(self.suffixes)

    def walk(self, folder: Path, above: tuple[Path, ...]) -> Iterator[ListedImage]:
        """The images below a folder; `above` are the folders of the links that led to it."""
        try:
            with os.scandir(folder) as scanned:
                inside = sorted(scanned, key=lambda entry: entry.name)
        except OSError as error:
            reason = f"the folder cannot be opened ({error.strerror})"
            self._skip(relative_name(folder, self.root), reason)
            return
        prefix = "" if folder == self.root else f"{relative_name(folder, self.root)}/"
        for entry in inside:
            if is_hidden(entry.name):
                continue
            name = prefix + _printable(entry.name)
            try:
                found = self._look_at(entry, name, above)
            except OSError as error:  # no permission to follow a link or to read file attributes
                if self.recursive or self._is_wanted(entry.name):
                    self._skip(name, _inaccessible(error))
                continue
            if isinstance(found, ListedImage):
                yield found
            elif found is not None:
                yield from self.walk(Path(entry.path), found)

    def _look_at(
        self, entry: os.DirEntry[str], name: str, above: tuple[Path, ...]
    ) -> ListedImage | tuple[Path, ...] | None:
        """The image; for a folder to list, the folders of the links that led to it; or None."""
        path = Path(entry.path)
        # entry.is_dir() is faster, but raises on circular links.
        is_folder = path.is_dir() if entry.is_symlink() else entry.is_dir()
        if not (self.recursive if is_folder else self._is_wanted(entry.name)):
            if not is_folder and is_unreadable(entry.name):
                self.others.append(name)
            return None
        linked = (*above, path.parent.resolve()) if entry.is_symlink() else above
        if entry.is_symlink() and (reason := _wrong_link(path, self.allowed, linked)):
            self._skip(name, reason)
        elif is_folder:
            return linked
        elif not entry.is_file():
            self._skip(name, "not a regular file")
        elif entry.stat().st_size == 0:
            self._skip(name, "the file is empty")
        else:
            return ListedImage(name, ImageFile(path))
        return None

    def _skip(self, name: str, reason: str) -> None:
        self.problems.append(Problem(name, reason))


def _wrong_link(path: Path, allowed: tuple[Path, ...], above: tuple[Path, ...]) -> str | None:
    """Why a link is not followed; None if it is."""
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: circular links before Python 3.13
        return "a broken link"
    if not any(target.is_relative_to(root) for root in allowed):
        return "a link out of the folder"
    if any(folder.is_relative_to(target) for folder in above):
        return "a link to a folder above it"
    return None
