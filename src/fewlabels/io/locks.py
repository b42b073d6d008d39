"""Locks of open files, which the system releases when the process ends, however it ends."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

if sys.platform == "win32":
    import msvcrt

    _LOCKED_BYTE = 1 << 30  # beyond the text, which other processes may then still read

    def try_lock(file: IO[Any]) -> bool:
        """Lock an open file; False if another process holds the lock."""
        place = file.tell()
        file.seek(_LOCKED_BYTE)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            file.seek(place)
        return True

    def lock(file: IO[Any]) -> None:
        """Lock an open file that no other process knows yet."""
        try_lock(file)  # an open file cannot be removed there: nothing to wait for

    @contextmanager
    def locked_folder(path: Path) -> Iterator[bool]:  # noqa: ARG001
        """Folders cannot be locked there: False."""
        yield False

else:
    import fcntl

    def try_lock(file: IO[Any]) -> bool:
        """Lock an open file; False if another process holds the lock."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # held, or a file system without locks
            return False
        return True

    def lock(file: IO[Any]) -> None:
        """Lock an open file; a process that looks whether it is abandoned holds it for a moment."""
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)

    @contextmanager
    def locked_folder(path: Path) -> Iterator[bool]:
        """Lock a folder, which stays locked where it is renamed; False if a process holds it."""
        handle = None
        with suppress(OSError):  # held, gone, or a file system without locks
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            is_locked = False
            with suppress(OSError):
                if handle is not None:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    is_locked = True
            yield is_locked
        finally:
            if handle is not None:
                os.close(handle)
