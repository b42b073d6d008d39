"""FileDigests: content digests of files; a file is read again only after it changed."""

import os
import re
import sqlite3
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fewlabels.errors import FewLabelsError
from fewlabels.features.parallel import cut, map_in_order
from fewlabels.io.stamps import Stamp, short_hash

if TYPE_CHECKING:
    from fewlabels.data.image_set import ImageSet

RACY_NS = 2_000_000_000  # nanoseconds: the clock step of FAT, the coarsest of all file systems
CHUNK = 64  # images that a thread hashes at a time
SAVED_EVERY = 1024  # images that are hashed between two writes to the table
ASKED_AT_ONCE = 500  # paths per query: older versions of SQLite take at most 999 values
DIGEST = re.compile(r"[0-9a-f]{32}")
TABLE = (
    "CREATE TABLE IF NOT EXISTS files"
    " (path BLOB PRIMARY KEY, signature TEXT NOT NULL, digest TEXT NOT NULL) WITHOUT ROWID"
)


class Identity(NamedTuple):
    """The digest of an image, and the stamp of its file when the digest was computed."""

    digest: str | None  # None if the image cannot be read
    stamp: Stamp | None  # None without a file, or if it changed too recently to detect a change


class FileDigests:
    """A table on disk: path and stamp of a file -> digest of its content.

    A file counts as unchanged while its stamp stays the same (`fewlabels.io.stamps`). As in git, a
    file that changed less than two seconds before it was hashed is not entered: it could change
    again within the same step of the file system's clock. Windows keeps no time of the last change
    of anything: there, a file that is rewritten with the same size and the old time is not noticed.
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
        """The identity of every image, in order."""
        paths = [images.path(i) for i in range(len(images))]
        stamps = [None if path is None else take_stamp(path) for path in paths]
        keys = {i: os.fsencode(path.absolute()) for i, path in enumerate(paths) if path is not None}
        entered = self._ask(list(keys.values()))
        found = {
            i: Identity(entry[0], stamps[i])
            for i, key in keys.items()
            if (entry := entered.get(key)) and entry[1] == _signature(key, entry[0], stamps[i])
        }
        unknown = [i for i in range(len(images)) if i not in found]

        def hash_some(indices: Sequence[int]) -> dict[int, Identity]:
            return {i: _hash(images, i, path=paths[i], stamp=stamps[i]) for i in indices}

        done, fresh = 0, dict[bytes, Identity]()
        for hashed in map_in_order(hash_some, cut(unknown, CHUNK), n_workers=n_workers):
            found |= hashed
            fresh |= {keys[i]: identity for i, identity in hashed.items() if identity.stamp}
            done += len(hashed)
            if on_progress:
                on_progress(done, len(unknown))
            if len(fresh) >= SAVED_EVERY:
                self._enter(fresh)
                fresh = {}
        self._enter(fresh)
        return [found[i] for i in range(len(images))]

    def _ask(self, keys: Sequence[bytes]) -> dict[bytes, tuple[str, str]]:
        """Digest and stamp of the paths that are in the table."""
        if not self.path.exists():
            return {}
        answers: dict[bytes, tuple[str, str]] = {}
        try:
            with closing(sqlite3.connect(self.path)) as table:
                for some in cut(keys, ASKED_AT_ONCE):
                    marks = ", ".join("?" * len(some))
                    rows = table.execute(
                        f"SELECT path, digest, signature FROM files WHERE path IN ({marks})", some
                    )
                    answers |= {
                        path: (digest, stamp)
                        for path, digest, stamp in rows
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
                    [
                        (key, entry.digest, _signature(key, entry.digest or "", entry.stamp))
                        for key, entry in entries.items()
                    ],
                )
        except OSError:  # the store warns about this when it writes rows
            pass
        except sqlite3.Error as error:
            self._give_up(error)

    def _give_up(self, error: sqlite3.Error) -> None:
        """Continue without the table. Remove it if it is damaged, not if it is locked."""
        if isinstance(error, sqlite3.OperationalError):
            return
        warnings.warn(
            f"{self.path} is damaged ({error}): it is removed, and files are hashed again.",
            stacklevel=4,
        )
        # The journal goes too: it would damage a new table.
        for left in (self.path, self.path.with_name(f"{self.path.name}-journal")):
            with suppress(OSError):
                left.unlink(missing_ok=True)


def _signature(key: bytes, digest: str, stamp: Stamp | None) -> str:
    """The stamp, and a hash of the whole entry: one whose bits changed is not used."""
    return f"{stamp} {short_hash(key, f'{digest} {stamp}'.encode())}"


def take_stamp(path: Path) -> Stamp | None:
    """The stamp of a file, None if there is no file."""
    with suppress(OSError):
        return Stamp.of(path)
    return None


def _hash(images: "ImageSet", index: int, *, path: Path | None, stamp: Stamp | None) -> Identity:
    """Hash an image; `stamp` was taken before."""
    begun = time.time_ns()
    try:
        digest = images.digest(index)
    except (FewLabelsError, OSError):  # the reader of the image reports it
        return Identity(None, None)
    if path is None or stamp is None:
        return Identity(digest, None)
    unchanged = stamp.is_settled(begun, tick_ns=RACY_NS) and take_stamp(path) == stamp
    return Identity(digest, stamp if unchanged else None)
