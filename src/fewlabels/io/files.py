"""Files that are written completely or not at all, and one wording of errors of files."""

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from fewlabels.errors import FewLabelsError, FileFormatError, InputError
from fewlabels.io.words import first_line

NAME_CHARACTERS = 32  # of the file's name kept in the temporary one, so that it never gets too long
CHOOSE_ANOTHER = "Choose another path."


def write_file(
    path: Path,
    content: bytes | Callable[[BinaryIO], object],
    *,
    durable: bool = True,
    way_out: str = CHOOSE_ANOTHER,
) -> None:
    """Write a file atomically: readers see the old file or the complete new one.

    The content is written to a temporary file in the same folder and flushed to the disk. Then the
    temporary file is renamed to `path`. On failure an existing file is unchanged.

    Args:
        durable: Flush to the disk, so that a loss of power cannot damage the file (about 10 ms).
            False is for files that can be made again.
        way_out: The last sentence of the message when it fails.
    """
    temporary = path.with_name(f".{path.name[:NAME_CHARACTERS]}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
        if durable:
            _sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error, way_out=way_out) from error
    finally:
        with suppress(OSError):  # where the parent is a file, there is nothing to remove
            temporary.unlink(missing_ok=True)


def remove_temporaries(
    folder: Path, name: str | None = None, *, older_than: float = 0.0
) -> list[Path]:
    """Remove the temporary files that killed processes left in a folder, and return their paths.

    Args:
        name: Only temporary files of the file with this name; of all files if left out.
        older_than: Seconds since the last write. Give enough where another process may be writing.
    """
    kept = ".+" if name is None else re.escape(name[:NAME_CHARACTERS])
    pattern = re.compile(rf"\.{kept}\.[0-9a-f]{{8}}", re.DOTALL)
    removed = []
    with suppress(OSError):
        for path in sorted(folder.iterdir()):
            with suppress(OSError):  # another process was faster
                found = pattern.fullmatch(path.name) and path.is_file()
                if found and time.time() - path.stat().st_mtime >= older_than:
                    path.unlink()
                    removed.append(path)
    return removed


def make_folder(path: Path) -> Path:
    """Make a folder with its parents, check that files can be written there, and return it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".{secrets.token_hex(4)}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise unwritable(path, error) from error
    return path


def unwritable(path: Path, error: Exception, *, way_out: str = CHOOSE_ANOTHER) -> InputError:
    """The error for a path that cannot be written: path, reason and way out.

    >>> print(unwritable(Path("a.csv"), OSError(28, "No space left on device")))
    a.csv cannot be written (No space left on device). Choose another path.
    """
    reason = getattr(error, "strerror", None) or error
    return InputError(f"{path} cannot be written ({reason}). {way_out}")


def check_suffix(argument: str, path: Path, suffixes: Sequence[str]) -> None:
    """Refuse a path whose suffix is none of `suffixes`; `argument` is its name in the message.

    >>> check_suffix("report", Path("r.HTML"), [".html"])
    """
    if path.suffix.lower() not in suffixes:
        raise InputError(f"{argument} must end in {' or '.join(suffixes)}, got '{path.name}'.")


def check_writable(path: Path) -> None:
    """Refuse the path of a file that could not be written, before any work is done."""
    if path.is_dir():
        raise InputError(f"{path} is a folder: it must be the name of a file. {CHOOSE_ANOTHER}")
    make_folder(path.parent)


def check_apart(inputs: Mapping[str, Path | None], outputs: Mapping[str, Path | None]) -> None:
    """Refuse an output that would overwrite an input or another output, before any work is done."""
    taken = [(argument, path) for argument, path in inputs.items() if path is not None]
    for argument, path in outputs.items():
        if path is None:
            continue
        for other, there in taken:
            if _is_same(path, there):
                raise InputError(
                    f"{argument} must not be {path}, which is {other} already. {CHOOSE_ANOTHER}"
                )
        taken.append((argument, path))


def require_file(path: Path, *, holds: str) -> None:
    """Refuse a path where there is no file; `holds` says what the file should hold."""
    if path.is_dir():
        raise FileFormatError(
            f"{path} is a folder; it must be a file that holds {holds}. Name a file inside it."
        )
    if not path.exists():
        raise FileFormatError(f"{path} does not exist. Check the path for typos.")


@contextmanager
def reading(path: Path, *, holds: str) -> Iterator[None]:
    """Report every error inside as one FileFormatError that names the file and the way out."""
    require_file(path, holds=holds)
    try:
        yield
    except InputError as error:
        raise FileFormatError(f"{path}: {error}") from error
    except FewLabelsError:
        raise
    except Exception as error:  # parsers raise errors of any class on damaged bytes
        raise unreadable(path, error, holds=holds) from error


def unreadable(where: Path | str, error: Exception, *, holds: str) -> FileFormatError:
    """The error for damaged bytes: where they are, what a parser said, and the way out.

    >>> print(unreadable("a.pkl", EOFError("no data"), holds="labels"))
    a.pkl cannot be read (EOFError: no data). The file must hold labels. Write it or copy it again.
    """
    return FileFormatError(
        f"{where} cannot be read ({type(error).__name__}: {first_line(error)}). "
        f"The file must hold {holds}. Write it or copy it again."
    )


def _is_same(one: Path, other: Path) -> bool:
    if one.resolve() == other.resolve():
        return True
    # X.csv and x.csv are one file where the file system ignores case.
    return one.exists() and other.exists() and one.samefile(other)


def _sync_folder(folder: Path) -> None:
    """Flush the new name to the disk too; Windows and some network file systems cannot."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
