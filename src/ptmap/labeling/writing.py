"""Folders and files that come into being whole, or not at all, with a word about why not."""

import secrets
from contextlib import suppress
from pathlib import Path

from ptmap.errors import InputError


def make_folder(path: Path) -> Path:
    """Make a folder, parents as needed, and see to it that files can be written there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".{secrets.token_hex(4)}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise unwritable(path, error) from error
    return path


def write_file(path: Path, content: bytes) -> None:
    """Write a file through a temporary one beside it; its folder is made as needed."""
    temporary = path.with_name(f".{secrets.token_hex(8)}")  # not the name with something added, which may be too long then
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with suppress(OSError):  # the folder is no folder: there is nothing to tidy up
            temporary.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Refuse the path of a file that could not be written, before any work is done."""
    if path.is_dir():
        raise InputError(f"{path} is a folder: it must be the name of a file. Choose another path.")
    make_folder(path.parent)


def unwritable(path: Path, error: OSError) -> InputError:
    """What to say where a path cannot be written."""
    return InputError(f"{path} cannot be written ({error.strerror or error}). Choose another path.")
