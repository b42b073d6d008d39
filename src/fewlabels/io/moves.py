"""Moves of files that can be finished or undone after any interruption.

The journal is a text file with one JSON object per line: the folders that are made, and then one
line per file, from where to where. The first line has a digest of all others: a journal that was
changed is refused. It is complete on the disk before the first file moves. What was
done is told by the files themselves: each is at its old place, at its new one, or, where a process
was killed between two steps, complete at both. So finishing and undoing need no other record, and
may be interrupted too.

Within a file system a file is linked to its new place and unlinked from the old one. Else it is
copied to a temporary name, compared byte for byte, renamed, flushed to the disk, and then removed
from the old place. Nothing is overwritten.
"""

import errno
import filecmp
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fewlabels.errors import FewLabelsError, FileFormatError, InputError
from fewlabels.io.files import reading, sync_folder, write_file
from fewlabels.io.stamps import short_hash
from fewlabels.io.words import count, listing

VERSION = 2
WITHOUT_DIGEST = 1  # the former version
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # what the system says where no file will fit
# What the system says where files cannot be linked: two file systems, or one without hard links.
NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS, errno.EACCES)


class Move(NamedTuple):
    """One file: from where, to where."""

    source: Path
    target: Path


class MovesEndedError(FewLabelsError):
    """Files could not be moved; the message says which, and how to go on."""


def begin_moves(journal: Path, moves: Sequence[Move]) -> None:
    """Write the journal of moves to come; nothing is moved yet."""
    folders: dict[Path, None] = {}
    for each in (journal, *(move.target for move in moves)):
        new = [folder for folder in each.absolute().parents if not folder.exists()]
        folders |= dict.fromkeys(reversed(new))
    about = {"fewlabels": "moves", "version": VERSION, "folders": [str(each) for each in folders]}
    lines = [
        {"from": str(move.source.absolute()), "to": str(move.target.absolute())} for move in moves
    ]
    # ASCII, so that names which are not UTF-8 are kept too, as escaped surrogates.
    written = [json.dumps(line) for line in lines]
    first = json.dumps({**about, "digest": _digest(about, written)})
    write_file(journal, "".join(f"{line}\n" for line in [first, *written]).encode("ascii"))


def _digest(about: Mapping[str, Any], lines: Sequence[str]) -> str:
    """Of the first line without its digest, and of all others as they are written."""
    parts = [json.dumps(about, sort_keys=True), *lines]
    return short_hash("\n".join(parts).encode(), digits=32)


def read_moves(journal: Path, suffixes: Sequence[str] = ()) -> tuple[list[Move], list[Path]]:
    """The moves of a journal, and the folders that were made for them.

    A journal of somebody else must not move anything anywhere: files go to and from the folder
    where the journal lies.

    Args:
        journal: The file.
        suffixes: Other files than with these are refused; all are allowed if there are none.
    """
    with reading(journal, holds="a journal of moves"):
        first, *lines = journal.read_bytes().decode("ascii").splitlines()
        about = json.loads(first)
        digest = about.pop("digest", "")
        known = about.get("version") in (VERSION, WITHOUT_DIGEST)
        if about.get("fewlabels") != "moves" or not known:
            raise FileFormatError(
                f"{journal} is not a journal of moves that this fewlabels knows. "
                "Name the file that `fewlabels move` named."
            )
        if about["version"] == VERSION and digest != _digest(about, lines):
            raise FileFormatError(
                f"{journal} is damaged: its digest is another. Restore a backup of it, or move the "
                "files back by hand: each line tells from where one came, and to where it went."
            )
        moves = [Move(Path(each["from"]), Path(each["to"])) for each in map(json.loads, lines)]
        folder = journal.resolve().parent
        for source, target in moves:
            if ".." in target.parts or not target.is_relative_to(folder):
                raise FileFormatError(
                    f"{journal} must be of files in its own folder, got {target}. If the folder "
                    "was moved, move it back first."
                )
            for path in (source, target) if suffixes else ():
                if path.suffix.lower() not in suffixes:
                    raise FileFormatError(f"{journal} must be of images, got {path}.")
        return moves, [Path(each) for each in about["folders"]]


def finish_moves(journal: Path, *, suffixes: Sequence[str] = ()) -> int:
    """Move all files of a journal that are not moved yet; returns how many have moved in all."""
    moves, _ = read_moves(journal, suffixes)
    _do_all(journal, moves, lambda move: _move(move.source, move.target))
    return len(moves)


def undo_moves(journal: Path, *, suffixes: Sequence[str] = ()) -> int:
    """Move all files of a journal back, remove the folders made for them, and the journal."""
    moves, folders = read_moves(journal, suffixes)
    _do_all(journal, list(reversed(moves)), lambda move: _move(move.target, move.source))
    around = journal.absolute().parents
    for removed in (False, True):  # first what does not hold the journal: then it may be killed
        if removed:
            journal.unlink()
        for folder in reversed(folders):
            if (folder in around) == removed:
                with suppress(OSError):  # something else is there by now
                    folder.rmdir()
    return len(moves)


def _do_all(journal: Path, moves: Sequence[Move], do: Callable[[Move], None]) -> None:
    """Do all moves that are possible, and report the others together."""
    problems, is_full = [], False
    for move in moves:
        with suppress(OSError):  # of a copy that was interrupted
            for path in move:
                _temporary(path).unlink(missing_ok=True)
        try:
            do(move)
        except OSError as error:
            problems.append(f"{error.filename2 or error.filename}: {error.strerror}")
            is_full = error.errno in FULL
            if is_full or error.errno == errno.EROFS:
                break
    if problems:
        raise MovesEndedError(_describe(journal, moves, problems, is_full=is_full))


def _describe(
    journal: Path, moves: Sequence[Move], problems: Iterable[str], *, is_full: bool
) -> str:
    n_new = sum(_exists(move.target) and not _exists(move.source) for move in moves)
    return (
        f"{n_new:,} of {count(len(moves), 'file')} are at their new place, the others at their old "
        f"one; no file is lost or overwritten. Not moved: {listing(problems, separator='; ')}. "
        f"{'Free some space' if is_full else 'Remove the cause'}; then "
        f"`fewlabels undo {journal} --finish` moves the rest, "
        f"`fewlabels undo {journal}` moves all back."
    )


def _move(source: Path, target: Path) -> None:
    """Move a file to where nothing is. At each moment it is complete at one of the two places."""
    if not _exists(source):
        if _exists(target):
            return  # done before
        raise FileNotFoundError(errno.ENOENT, "the file is gone", str(source))
    if not _exists(target):
        _make_folders(target.parent)
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            _copy(source, target)
            # Another file system keeps its own order: the new name must be on the disk first.
            sync_folder(target.parent)
    elif not _is_same(source, target):
        raise FileExistsError(errno.EEXIST, "another file is there", str(target))
    elif not source.samefile(target):
        sync_folder(target.parent)  # the process that copied it may have been killed before
    source.unlink()


def _make_folders(folder: Path) -> None:
    """Make a folder with its parents, all of them on the disk when this returns."""
    if not folder.is_dir():
        _make_folders(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir()
        sync_folder(folder.parent)


def _copy(source: Path, target: Path) -> None:
    """Copy a file to where nothing is, completely or not at all."""
    temporary = _temporary(target)
    try:
        shutil.copy2(source, temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        if not filecmp.cmp(source, temporary, shallow=False):
            raise OSError(errno.EIO, "the copy differs from the file", str(target))
        if _exists(target):  # it was made meanwhile
            raise FileExistsError(errno.EEXIST, "another file is there", str(target))
        temporary.rename(target)
    except OSError as error:  # of the file, not of the copy that nobody sees
        error.filename, error.filename2 = str(target), None
        raise
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{short_hash(os.fsencode(path.name))}.moving")


def _exists(path: Path) -> bool:
    return os.path.lexists(path)


def _is_same(one: Path, other: Path) -> bool:
    if one.is_symlink() or other.is_symlink() or not (one.is_file() and other.is_file()):
        return False
    return one.samefile(other) or filecmp.cmp(one, other, shallow=False)


def check_journal(folder: Path, pattern: str) -> None:
    """Refuse a folder where a journal lies whose moves were interrupted.

    Where a file is at the new place, and another one at the old place, the second came later.
    """
    for journal in sorted(folder.glob(pattern)):
        moves, _ = read_moves(journal)
        if any(_exists(old) and (not _exists(new) or _is_same(old, new)) for old, new in moves):
            raise InputError(
                f"{folder} must not hold interrupted moves, got {journal.name}. Finish them with "
                f"`fewlabels undo {journal} --finish`, or go back with `fewlabels undo {journal}`."
            )
