"""Moves of files that can be finished or undone after any interruption.

The journal is a text file with one JSON object per line: the folders that are made, and then one
line per file, from where to where. It is complete on the disk before the first file moves. What was
done is told by the files themselves: each is at its old place, at its new one, or, where a process
was killed between two steps, complete at both. So finishing and undoing need no other record, and
may be interrupted too.

Within a file system a file is linked to its new place and unlinked from the old one. Else it is
copied to a temporary name, compared byte for byte, renamed, and then removed from the old place.
Nothing is overwritten.
"""

import errno
import filecmp
import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fewlabels.errors import FewLabelsError, FileFormatError, InputError
from fewlabels.io.files import reading, write_file
from fewlabels.io.stamps import short_hash
from fewlabels.io.words import count, listing

VERSION = 1
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
    lines = [{"fewlabels": "moves", "version": VERSION, "folders": [str(each) for each in folders]}]
    lines += [
        {"from": str(move.source.absolute()), "to": str(move.target.absolute())} for move in moves
    ]
    # ASCII, so that names which are not UTF-8 are kept too, as escaped surrogates.
    write_file(journal, "".join(json.dumps(line) + "\n" for line in lines).encode("ascii"))


def read_moves(journal: Path) -> tuple[list[Move], list[Path]]:
    """The moves of a journal, and the folders that were made for them."""
    with reading(journal, holds="a journal of moves"):
        about, *lines = map(json.loads, journal.read_bytes().splitlines())
        if about.get("fewlabels") != "moves" or about.get("version") != VERSION:
            raise FileFormatError(
                f"{journal} is not a journal of moves that this fewlabels knows. "
                "Name the file that `fewlabels move` named."
            )
        moves = [Move(Path(line["from"]), Path(line["to"])) for line in lines]
        return moves, [Path(each) for each in about["folders"]]


def finish_moves(journal: Path) -> int:
    """Move all files of a journal that are not moved yet; returns how many have moved in all."""
    moves, _ = read_moves(journal)
    _do_all(journal, moves, lambda move: _move(move.source, move.target))
    return len(moves)


def undo_moves(journal: Path) -> int:
    """Move all files of a journal back, remove the folders made for them, and the journal."""
    moves, folders = read_moves(journal)
    _do_all(journal, list(reversed(moves)), lambda move: _move(move.target, move.source))
    journal.unlink()
    for folder in reversed(folders):
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
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            _copy(source, target)
    elif not _is_same(source, target):
        raise FileExistsError(errno.EEXIST, "another file is there", str(target))
    source.unlink()


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
    """Refuse a folder where a journal lies whose moves were interrupted."""
    for journal in sorted(folder.glob(pattern)):
        moves, _ = read_moves(journal)
        if any(_exists(move.source) for move in moves):
            raise InputError(
                f"{folder} must not hold interrupted moves, got {journal.name}. Finish them with "
                f"`fewlabels undo {journal} --finish`, or go back with `fewlabels undo {journal}`."
            )
