"""Which files of a folder are images: sorted, hidden ones left out, and what is passed over is named."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ptmap.data.image_set import Problem
from ptmap.data.sources import ImageFile, Source
from ptmap.errors import FileFormatError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff")  # in any case
MAC_ARCHIVE = "__MACOSX"  # what macOS leaves beside the files in a zip


class Entry(NamedTuple):
    """An image found on disk: its name and how to read it."""

    name: str
    source: Source


def require_folder(folder: Path) -> None:
    """Refuse a path where no folder is."""
    if not folder.exists():
        raise FileFormatError(f"{folder} does not exist. Check the path for a slip of the pen.")
    if not folder.is_dir():
        raise FileFormatError(f"{folder} is a file, not a folder of images. Unpack it, or name the folder that holds it.")


def list_folders(folder: Path, *, root: Path, problems: list[Problem]) -> list[Path]:
    """The visible folders directly inside, sorted by name; for root and problems see `list_images`."""
    found = []
    for path in sorted((path for path in folder.iterdir() if not is_hidden(path.name) and path.is_dir()), key=lambda path: path.name):
        if path.is_symlink() and (reason := _wrong_link(path, root.resolve(), (folder.resolve(),))):
            problems.append(Problem(relative_name(path, root), reason))
        else:
            found.append(path)
    return found


def list_images(folder: Path, *, root: Path, problems: list[Problem], recursive: bool = True) -> list[Entry]:
    """The images in a folder and, if `recursive`, in the folders inside it, sorted by name, part by part.

    Args:
        folder: Where to look.
        root: Names are relative to it, and links that lead out of it are passed over.
        problems: Takes what is passed over although it looks like an image.
        recursive: Whether to look into folders too.
    """
    return list(_Walk(root, root.resolve(), problems, recursive).entries(folder, ()))


def is_hidden(name: str) -> bool:
    """Whether a file or a folder of that name is none of the user's."""
    return name.startswith(".") or name == MAC_ARCHIVE


def relative_name(path: Path, root: Path) -> str:
    """The path from the root with slashes, in characters that can be printed and saved."""
    return _printable(path.relative_to(root).as_posix())


def _printable(name: str) -> str:
    if name.isprintable():
        return name
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in name)


class _Walk(NamedTuple):
    root: Path
    real_root: Path
    problems: list[Problem]
    recursive: bool

    def entries(self, folder: Path, above: tuple[Path, ...]) -> Iterator[Entry]:
        """The images below a folder; `above` are the real folders of the links that led to it."""
        try:
            with os.scandir(folder) as scanned:
                inside = sorted(scanned, key=lambda entry: entry.name)
        except OSError as error:
            self._pass_over(relative_name(folder, self.root), f"the folder cannot be opened ({error.strerror})")
            return
        prefix = "" if folder == self.root else f"{relative_name(folder, self.root)}/"
        for entry in inside:
            path, name = Path(entry.path), prefix + _printable(entry.name)
            is_folder = path.is_dir() if entry.is_symlink() else entry.is_dir()  # the latter is quicker, but stumbles over rings of links
            wanted = self.recursive if is_folder else entry.name.lower().endswith(SUFFIXES)
            if not wanted or is_hidden(entry.name):
                continue
            linked = (*above, path.parent.resolve()) if entry.is_symlink() else above
            if entry.is_symlink() and (reason := _wrong_link(path, self.real_root, linked)):
                self._pass_over(name, reason)
            elif is_folder:
                yield from self.entries(path, linked)
            elif not entry.is_file():
                self._pass_over(name, "not a regular file")
            elif entry.stat().st_size == 0:
                self._pass_over(name, "the file is empty")
            else:
                yield Entry(name, ImageFile(path))

    def _pass_over(self, name: str, reason: str) -> None:
        self.problems.append(Problem(name, reason))


def _wrong_link(path: Path, real_root: Path, above: tuple[Path, ...]) -> str | None:
    """Why a link is not followed, if so."""
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):  # before Python 3.13 a ring of links is a RuntimeError
        return "a link to nothing"
    if not target.is_relative_to(real_root):
        return "a link that leaves the folder"
    if any(folder.is_relative_to(target) for folder in above):
        return "a link back to a folder that it lies in"
    return None
