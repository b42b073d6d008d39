"""Stamps detect a changed file without reading it; digests name content."""

import hashlib
from pathlib import Path
from typing import NamedTuple, Self

DIGEST_BYTES = 16  # 128 bits: the probability of two images with one digest is negligible


class Stamp(NamedTuple):
    """The state of a file by size, times and inode: a changed file has another stamp."""

    size: int  # bytes
    written_ns: int  # last change of the content, since 1970
    changed_ns: int  # last change of anything, which a program cannot set back; Windows: creation
    inode: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """The stamp of a file; OSError where there is none."""
        state = path.stat()
        return cls(state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino)

    def __str__(self) -> str:
        """As stored in the table of file digests: "size written changed inode"."""
        return " ".join(str(part) for part in self)

    @property
    def short(self) -> str:
        """As stored in labeling projects: "size written". It survives a copy that keeps times."""
        return f"{self.size} {self.written_ns}"

    def is_settled(self, now_ns: int, *, tick_ns: int) -> bool:
        """Whether a write after `now_ns` surely gives another stamp.

        Args:
            tick_ns: The step of the file system's clock: two writes within it can get one time.
        """
        return now_ns - max(self.written_ns, self.changed_ns) > tick_ns


def content_digest(content: bytes) -> str:
    """32 hex digits that name the content of an image (BLAKE2b, 128 bits).

    >>> content_digest(b"leek")
    '1b98de49bd794787c5c0fb139b05f0cf'
    """
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()


def short_hash(*parts: bytes | memoryview, digits: int = 16) -> str:
    """The first hex digits of the SHA-256 of all parts, one after the other.

    >>> short_hash(b"le", b"ek") == short_hash(b"leek")
    True
    """
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return total.hexdigest()[:digits]
