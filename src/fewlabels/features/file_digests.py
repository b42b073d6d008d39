"""FileDigests: the content digest of a file, without reading it again while it stays as it was."""

import os
import re
import sqlite3
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fewlabels.errors import FewLabelsError
from fewlabels.features.parallel import cut, map_in_order

if TYPE_CHECKING:
    from fewlabels.data.image_set import ImageSet

RACY_NS = 2_000_000_000  # the coarsest clock of a file system (FAT) ticks every two seconds
CHUNK = 64  # images hashed by one thread at a time
SAVED_EVERY = 1024  # images after which what was hashed is safe from a kill
ASKED_AT_ONCE = 500  # SQLite takes at most 999 values in a question where it is old
DIGEST = re.compile(r"[0-9a-f]{32}")
TABLE = "CREATE TABLE IF NOT EXISTS files (path BLOB PRIMARY KEY, signature TEXT NOT NULL, digest TEXT NOT NULL) WITHOUT ROWID"


class Identity(NamedTuple):
    """What an image holds, and by which state of its file that can be told."""

    digest: str | None  # None where the image cannot be read
    signature: (
        str | None
    )  # None where there is no file, or where it has just changed and could change again unseen


class FileDigests:
    """A table on disk: path and state of a file -> digest of its content.

    A file counts as unchanged while its size, inode and the times of its last change (of content, and of
    anything, which nobody can set back) stay the same. As in git, a file that changed less than two seconds
    before it was hashed is not entered: it could change again within the same tick of its clock.
    On Windows, where no file system keeps the second time, whoever rewrites a file to the same size and sets
    its time back deceives the table.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def identify(
        self,
        images: "ImageSet",
        *,
        n_workers: int = 0,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> list[Identity]:
        """The identity of every image, in order.

        Args:
            images: Those that are no files of their own are asked for their digest each time.
            n_workers: Threads that hash.
            on_progress: Told how many images of how many have been hashed.
        """
        paths = [images.path(i) for i in range(len(images))]
        signatures = [None if path is None else sign(path) for path in paths]
        keys = {i: os.fsencode(path.absolute()) for i, path in enumerate(paths) if path is not None}
        entered = self._ask(list(keys.values()))
        found = {
            i: identity
            for i, key in keys.items()
            if (identity := entered.get(key)) and identity.signature == signatures[i]
        }
        unknown = [i for i in range(len(images)) if i not in found]

        def hash_some(indices: Sequence[int]) -> dict[int, Identity]:
            return {i: _hash(images, i, path=paths[i], signature=signatures[i]) for i in indices}

        done, fresh = 0, dict[bytes, Identity]()
        for hashed in map_in_order(hash_some, cut(unknown, CHUNK), n_workers=n_workers):
            found |= hashed
            fresh |= {
                keys[i]: identity
                for i, identity in hashed.items()
                if identity.signature is not None
            }
            done += len(hashed)
            if on_progress:
                on_progress(done, len(unknown))
            if len(fresh) >= SAVED_EVERY:
                self._enter(fresh)
                fresh = {}
        self._enter(fresh)
        return [found[i] for i in range(len(images))]

    def _ask(self, keys: Sequence[bytes]) -> dict[bytes, Identity]:
        """What the table says of the paths that are in it."""
        if not self.path.exists():
            return {}
        answers: dict[bytes, Identity] = {}
        try:
            with closing(sqlite3.connect(self.path)) as table:
                for some in cut(keys, ASKED_AT_ONCE):
                    marks = ", ".join("?" * len(some))
                    rows = table.execute(
                        f"SELECT path, digest, signature FROM files WHERE path IN ({marks})", some
                    )
                    answers |= {
                        path: Identity(digest, signature)
                        for path, digest, signature in rows
                        if DIGEST.fullmatch(digest)
                    }
        except sqlite3.Error as error:
            self._give_up(error)
        return answers

    def _enter(self, entries: dict[bytes, Identity]) -> None:
        if not entries:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path)) as table, table:
                table.execute(TABLE)
                table.executemany(
                    "INSERT OR REPLACE INTO files (path, digest, signature) VALUES (?, ?, ?)",
                    [(key, *entry) for key, entry in entries.items()],
                )
        except OSError:  # a store that cannot be written says so when it is to keep rows
            pass
        except sqlite3.Error as error:
            self._give_up(error)

    def _give_up(self, error: sqlite3.Error) -> None:
        """Do without the table; start a new one where it is damaged, not where it is only locked or read-only."""
        if isinstance(error, sqlite3.OperationalError):
            return
        warnings.warn(
            f"{self.path} is damaged ({error}): it is removed, and files are hashed again.",
            stacklevel=4,
        )
        for left in (
            self.path,
            self.path.with_name(f"{self.path.name}-journal"),
        ):  # another's journal would damage a new table
            try:
                left.unlink(missing_ok=True)
            except OSError:
                continue


def sign(path: Path) -> str | None:
    """The state of a file in words: another one means that it may have changed."""
    try:
        state = path.stat()
    except OSError:
        return None
    return f"{state.st_size} {state.st_mtime_ns} {state.st_ctime_ns} {state.st_ino}"


def _hash(images: "ImageSet", index: int, *, path: Path | None, signature: str | None) -> Identity:
    """Hash an image whose file was in a state before."""
    begun = time.time_ns()
    try:
        digest = images.digest(index)
    except (FewLabelsError, OSError):  # whoever reads the image says why
        return Identity(None, None)
    if path is None or signature is None:
        return Identity(digest, None)
    _, written, changed, _ = map(int, signature.split())
    settled = max(written, changed) < begun - RACY_NS and sign(path) == signature
    return Identity(digest, signature if settled else None)
