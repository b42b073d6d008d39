"""Files of pip packages that hold weights: found without running the package's code, checked."""

import hashlib
from importlib.util import find_spec
from pathlib import Path

from fewlabels.errors import FileFormatError, MissingExtraError


def package_folder(module: str, *, package: str, extra: str, purpose: str) -> Path:
    """The folder of an installed package, which is not imported."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(package, extra=extra, purpose=purpose)
    return Path(next(iter(spec.submodule_search_locations)))


def check_digest(content: bytes, expected: str, *, where: str, package: str) -> bytes:
    """The content, refused unless its SHA-256 is the expected one."""
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise FileFormatError(
            f"{where} must have the SHA-256 {expected[:12]}…, got {found[:12]}…: it is damaged or "
            f"another version. Reinstall {package}."
        )
    return content
