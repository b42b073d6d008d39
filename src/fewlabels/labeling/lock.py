"""One writer a project: a lock that the operating system lets go when its process ends, however it ends."""

import os
import sys
from pathlib import Path
from typing import IO, Self

from fewlabels.errors import InputError

NOBODY = "another process"


class ProjectLock:
    """Holds the lock file of a project while it is open; a second holder is refused in words."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[str] = path.open("a+", encoding="utf-8")
        if not _try_lock(self._file):
            self._file.seek(0)
            holder = self._file.read(200).strip() or NOBODY
            self._file.close()
            raise InputError(
                f"{path.parent} is open already ({holder}). Use the page of that server, or stop it first."
            )
        self._file.seek(0)
        self._file.truncate()
        self._file.write(f"process {os.getpid()}")
        self._file.flush()

    def release(self) -> None:
        """Let go; a killed process lets go as well."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


if sys.platform == "win32":
    import msvcrt

    _FAR = 1 << 30  # a byte beyond the text, which others may then still read

    def _try_lock(file: IO[str]) -> bool:
        file.seek(_FAR)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(file: IO[str]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True
