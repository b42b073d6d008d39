"""Compilation by Numba, with compiled code kept on disk, never stale and never required.

Numba's own cache looks only at the file of the function that is called. It misses changes in the
functions that this one calls and in constants that it imports. It needs a folder to write to, and
fails on a damaged file. Here the name of a file contains a digest of all that the compiled code
depends on, the file starts with the digest of its content, and a file that cannot be read or
written only costs the time to compile again.
"""

import os
import pickle
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps
from numba.misc.appdirs import AppDirs

PACKAGE = __name__.partition(".")[0]
DIGEST_LENGTH = 16  # hexadecimal digits in names: a chance of collision of 1e-19 per pair
VALUES = (bool, int, float, str, tuple, np.generic)  # constants that Numba freezes


def jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator: `numba.njit` without the lock of Python, with the cache of this module."""

    def decorate(function: Callable[..., Any]) -> Any:
        compiled: Any = numba.njit(nogil=True, **options)(function)
        _source(function.__module__)
        if isinstance(compiled, Dispatcher):  # not where NUMBA_DISABLE_JIT is set
            compiled._cache = DiskCache(compiled.py_func)  # type: ignore[attr-defined]
        return compiled

    return decorate


class DiskCache(NullCache):
    """Compiled code of one function on disk."""

    def __init__(self, function: FunctionType) -> None:
        self._function = function

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Compiled code for a signature; None where no undamaged file has it."""
        target.refresh()
        name = self._name(signature, target.codegen())
        for folder in self._folders():
            try:
                content = (folder / name).read_bytes()
                if content[:32] == sha256(content[32:]).digest():
                    return CompileResult._rebuild(target, *pickle.loads(content[32:]))
            except Exception:  # whatever is wrong with the file: the function is compiled again
                continue
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Write compiled code to the first folder that can be written to, if any."""
        if compiled.library.has_dynamic_globals or compiled.lifted:
            return
        name = self._name(signature, compiled.codegen)
        content = dumps(compiled._reduce())
        for folder in self._folders():
            try:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(sha256(content).digest() + content)
                self._remove_stale(folder)
            except OSError:
                continue
            return

    @property
    def _prefix(self) -> str:
        """Name of the function; a later version of it has the same."""
        return f"{self._function.__module__}.{self._function.__qualname__}-"

    def _name(self, signature: Any, codegen: Any) -> str:
        """Name of the file for a signature, on this processor, in these versions."""
        versions = numba.__version__, llvmlite.__version__, platform.python_version()
        key = repr((signature, codegen.magic_tuple(), versions))
        digest = sha256(key.encode()).hexdigest()[:DIGEST_LENGTH]
        return f"{self._prefix}{fingerprint(self._function.__module__)}-{digest}.nbc"

    def _folders(self) -> Iterator[Path]:
        """Folders in order of preference: as configured, next to the source, the user's."""
        source = Path(self._function.__code__.co_filename).resolve().parent
        apart = sha256(str(source).encode()).hexdigest()[:DIGEST_LENGTH]  # per installation
        if configured := os.environ.get("NUMBA_CACHE_DIR"):
            yield Path(configured) / apart
        yield source / "__pycache__"
        yield Path(AppDirs(appname=PACKAGE, appauthor=False).user_cache_dir) / "kernels" / apart

    def _remove_stale(self, folder: Path) -> None:
        """Remove the files of earlier versions of the function."""
        current = f"{self._prefix}{fingerprint(self._function.__module__)}-"
        for path in folder.glob(f"{self._prefix}*.nbc"):
            if not path.name.startswith(current):
                path.unlink(missing_ok=True)


@cache
def fingerprint(name: str) -> str:
    """Digest of what functions of a module are compiled from.

    That is the source of the module and of all modules of this package whose functions it uses, and
    the values of all constants that these modules hold, imported or not.
    """
    digest = sha256()
    for module in sorted(
        _used_modules(sys.modules[name], set()), key=lambda module: module.__name__
    ):
        digest.update(_source(module.__name__))
        for key, value in sorted(vars(module).items()):
            if not key.startswith("__") and (isinstance(value, VALUES) or is_dataclass(value)):
                digest.update(f"{key} = {value!r}\n".encode())
    return digest.hexdigest()[:DIGEST_LENGTH]


def _used_modules(module: ModuleType, found: set[ModuleType]) -> set[ModuleType]:
    """The module and those modules of this package whose functions it can call."""
    if module in found:
        return found
    found.add(module)
    for value in vars(module).values():
        function = value.py_func if isinstance(value, Dispatcher) else value
        if isinstance(function, FunctionType) and function.__module__.startswith(f"{PACKAGE}."):
            _used_modules(sys.modules[function.__module__], found)
        elif isinstance(value, ModuleType) and value.__name__.startswith(f"{PACKAGE}."):
            _used_modules(value, found)
    return found


@cache
def _source(name: str) -> bytes:
    """Source of a module, read while it is imported: later the file may be that of an upgrade.

    Random bytes where there is no source, so that nothing old is used.
    """
    try:
        module: Any = sys.modules[name]
        source: bytes = module.__loader__.get_data(module.__file__)
    except (AttributeError, OSError):
        return os.urandom(32)
    return source
