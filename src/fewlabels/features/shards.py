"""One shard of the store: rows of features by the digests of their images, in a file that vouches for itself.

    tensors   digests (n, 16)   uint8
              rows (n, D)       float32
    metadata  ptmap_shard       JSON: the key of the recipe

The file's name is the digest of its bytes, and the key of the recipe is among them.
"""

import hashlib
import json
import re
import secrets
import time
import warnings
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

KEY = "ptmap_shard"
DIGEST_BYTES = 16
ABANDONED_SECONDS = 3600  # a temporary file of that age belongs to a process that died
_NAME = re.compile(r"shard-[0-9a-f]{32}\.safetensors")


class _DamagedError(Exception):
    """A shard is not what its name and its place say."""


def is_shard(name: str) -> bool:
    """Whether a file is a shard by its name."""
    return _NAME.fullmatch(name) is not None


def read_shard(
    path: Path, *, recipe_key: str, wanted: Collection[bytes]
) -> dict[bytes, NDArray[np.float32]]:
    """The rows that are wanted, by digest; a damaged shard has none, and is removed with a warning.

    Args:
        path: The shard, which another process may have removed meanwhile.
        recipe_key: What the folder's rows were made by.
        wanted: Digests as bytes.
    """
    try:
        return _read(path, recipe_key, wanted)
    except FileNotFoundError:
        pass
    except _DamagedError as damage:
        warnings.warn(
            f"{path} {damage}: it is removed, and its rows are computed again.", stacklevel=4
        )
        with suppress(OSError):  # in a read-only store, the same warning comes next time
            path.unlink(missing_ok=True)
    except OSError as error:
        warnings.warn(
            f"{path} cannot be read ({error.strerror or error}): its rows are computed again.",
            stacklevel=4,
        )
    return {}


def _read(
    path: Path, recipe_key: str, wanted: Collection[bytes]
) -> dict[bytes, NDArray[np.float32]]:
    try:
        with safetensors.safe_open(
            path, framework="numpy"
        ) as file:  # reads the header, and of the rest only what is asked for
            about = json.loads((file.metadata() or {})[KEY])
            held = file.get_tensor("digests").tobytes()
    except OSError:
        raise
    except Exception as error:  # on damaged bytes, parsers raise whatever they stumble over
        raise _DamagedError("is damaged") from error
    if about != {"recipe": recipe_key}:
        raise _DamagedError("belongs to another recipe")
    digests = [held[start : start + DIGEST_BYTES] for start in range(0, len(held), DIGEST_BYTES)]
    here = [(i, digest) for i, digest in enumerate(digests) if digest in wanted]
    if not here:
        return {}
    payload = path.read_bytes()
    if path.name != _name(payload):
        raise _DamagedError("is damaged")
    rows: NDArray[np.float32] = safetensors.numpy.load(payload)["rows"]
    return {digest: rows[i] for i, digest in here}


def write_shard(
    folder: Path, digests: Sequence[str], rows: NDArray[np.float32], *, recipe_key: str
) -> None:
    """Write a shard into a recipe's folder, and remove what processes that died have left there.

    Args:
        folder: Which exists.
        digests: 32 hex digits of the content of each image.
        rows: One for each digest, (n, D).
        recipe_key: What they were made by.
    """
    tensors: dict[str, NDArray[Any]] = {
        "digests": np.frombuffer(bytes.fromhex("".join(digests)), np.uint8).reshape(
            -1, DIGEST_BYTES
        ),
        "rows": np.ascontiguousarray(rows),
    }
    payload = safetensors.numpy.save(tensors, metadata={KEY: json.dumps({"recipe": recipe_key})})
    write_whole(folder / _name(payload), payload)
    for left in folder.glob(".*"):
        with suppress(OSError):  # another process was faster
            if time.time() - left.stat().st_mtime > ABANDONED_SECONDS:
                left.unlink()


def write_whole(path: Path, payload: bytes) -> None:
    """Write a file, all or nothing, through a temporary one beside it."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        temporary.write_bytes(payload)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _name(payload: bytes) -> str:
    return f"shard-{hashlib.sha256(payload).hexdigest()[:32]}.safetensors"
