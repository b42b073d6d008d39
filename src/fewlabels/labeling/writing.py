"""Folders and files that come into being whole, or not at all, with a word about why not."""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from fewlabels.errors import InputError


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
    temporary = path.with_name(
        f".{secrets.token_hex(8)}"
    )  # not the name with something added, which may be too long then
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with suppress(OSError):  # the folder is no folder: there is nothing to tidy up
            temporary.unlink(missing_ok=True)


def check_suffix(argument: str, path: Path, suffixes: Sequence[str]) -> None:
    """Refuse a path that ends otherwise.

    >>> check_suffix("--report", Path("r.HTML"), [".html"])
    """
    if path.suffix.lower() not in suffixes:
        raise InputError(f"{argument} must end in {' or '.join(suffixes)}, got '{path.name}'.")


def check_writable(path: Path) -> None:
    """Refuse the path of a file that could not be written, before any work is done."""
    if path.is_dir():
        raise InputError(f"{path} is a folder: it must be the name of a file. Choose another path.")
    make_folder(path.parent)


def check_apart(inputs: Mapping[str, Path | None], outputs: Mapping[str, Path | None]) -> None:
    """Refuse an output that would overwrite an input or another output, before any work is done.

    Args:
        inputs: What is read, by the name of the argument; None where it was not given.
        outputs: What is written, likewise.
    """
    taken = [(argument, path) for argument, path in inputs.items() if path is not None]
    for argument, path in outputs.items():
        if path is None:
            continue
        for other, there in taken:
            if _is_same(path, there):
                raise InputError(
                    f"{argument} must not be {path}, which is {other} already. Choose another path."
                )
        taken.append((argument, path))


def _is_same(one: Path, other: Path) -> bool:
    if one.resolve() == other.resolve():
        return True
    return (
        one.exists() and other.exists() and one.samefile(other)
    )  # X.csv and x.csv, where case does not count


def unwritable(path: Path, error: OSError) -> InputError:
    """What to say where a path cannot be written."""
    return InputError(f"{path} cannot be written ({error.strerror or error}). Choose another path.")
