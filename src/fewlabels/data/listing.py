"""Which files of a folder are images: sorted, hidden ones left out, and what is passed over is named."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fewlabels.data.image_set import Problem
from fewlabels.data.sources import ImageFile, Source
from fewlabels.errors import FileFormatError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff")  # in any case
MAC_ARCHIVE = "__MACOSX"  # what macOS leaves beside the files in a zip


class Entry(NamedTuple):
    """An image found on disk: its name and how to read it."""

    name: str
    source: Source


def require_folder(folder: Path) -> None:
    """Refuse a path where no folder is."""
    try:
        exists, is_folder = folder.exists(), folder.is_dir()
    except OSError as error:
        raise FileFormatError(
            f"{folder} cannot be opened ({error.strerror}). Check the path and who may read it."
        ) from error
    if not exists:
        raise FileFormatError(f"{folder} does not exist. Check the path for a slip of the pen.")
    if not is_folder:
        raise FileFormatError(
            f"{folder} is a file, not a folder of images. Unpack it, or name the folder that holds it."
        )


def list_folders(folder: Path, *, root: Path, problems: list[Problem]) -> list[Path]:
    """The visible folders directly inside, sorted by name; for root and problems see `list_images`."""
    found = []
    try:
        inside = sorted(folder.iterdir(), key=lambda path: path.name)
    except OSError:  # `list_images` has said so
        return []
    for path in inside:
        try:
            wanted = not is_hidden(path.name) and path.is_dir()
        except OSError as error:
            if not _is_image(path.name):  # else `list_images` says so
                problems.append(Problem(relative_name(path, root), _unseen(error)))
            continue
        if (
            wanted
            and path.is_symlink()
            and (reason := _wrong_link(path, root.resolve(), (folder.resolve(),)))
        ):
            problems.append(Problem(relative_name(path, root), reason))
        elif wanted:
            found.append(path)
    return found


def list_images(
    folder: Path, *, root: Path, problems: list[Problem], recursive: bool = True
) -> list[Entry]:
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


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def _unseen(error: OSError) -> str:
    return f"what is there cannot be seen ({error.strerror})"


def _printable(name: str) -> str:
    if name.isprintable():
        return name
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in name
    )


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
            self._pass_over(
                relative_name(folder, self.root), f"the folder cannot be opened ({error.strerror})"
            )
            return
        prefix = "" if folder == self.root else f"{relative_name(folder, self.root)}/"
        for entry in inside:
            if is_hidden(entry.name):
                continue
            name = prefix + _printable(entry.name)
            try:
                found = self._look_at(entry, name, above)
            except OSError as error:  # a link that may not be followed, a folder that lists its files and shows none
                if self.recursive or _is_image(entry.name):
                    self._pass_over(name, _unseen(error))
                continue
            if isinstance(found, Entry):
                yield found
            elif found is not None:
                yield from self.entries(Path(entry.path), found)

    def _look_at(
        self, entry: os.DirEntry[str], name: str, above: tuple[Path, ...]
    ) -> Entry | tuple[Path, ...] | None:
        """The image that is there; for a folder to look into, the real folders of the links that led to it; None for neither."""
        path = Path(entry.path)
        is_folder = (
            path.is_dir() if entry.is_symlink() else entry.is_dir()
        )  # the latter is quicker, but stumbles over rings of links
        if not (self.recursive if is_folder else _is_image(entry.name)):
            return None
        linked = (*above, path.parent.resolve()) if entry.is_symlink() else above
        if entry.is_symlink() and (reason := _wrong_link(path, self.real_root, linked)):
            self._pass_over(name, reason)
        elif is_folder:
            return linked
        elif not entry.is_file():
            self._pass_over(name, "not a regular file")
        elif entry.stat().st_size == 0:
            self._pass_over(name, "the file is empty")
        else:
            return Entry(name, ImageFile(path))
        return None

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
