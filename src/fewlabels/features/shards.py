"""One shard of the store: rows of features by the digests of their images.

    tensors   digests (n, 16)   uint8
              rows (n, D)       float32
    metadata  ptmap_shard       JSON: the key of the FeatureRecipe

The name of the file is the hash of its bytes, which include the key of the recipe. So damage and a
shard of another recipe are detected.
"""

import re
import warnings
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from fewlabels.io.container import Container
from fewlabels.io.files import remove_temporaries, write_file
from fewlabels.io.stamps import DIGEST_BYTES, short_hash

FORMAT = Container(
    key="ptmap_shard", version=None, holds="rows of a FeatureStore", way_out="Remove it."
)
_NAME = re.compile(r"shard-[0-9a-f]{32}\.safetensors")


class _DamagedError(Exception):
    """The content of a shard does not match its name or its folder."""


def is_shard(name: str) -> bool:
    """Whether a file is a shard by its name."""
    return _NAME.fullmatch(name) is not None


def read_shard(
    path: Path, *, recipe_key: str, wanted: Collection[bytes]
) -> dict[bytes, NDArray[np.float32]]:
    """The wanted rows by digest; a damaged shard gives none and is removed with a warning."""
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
        with FORMAT.open(path) as (header, file):  # reads the header and the digests only
            held = file.get_tensor("digests").tobytes()
    except OSError:
        raise
    except Exception as error:  # damaged bytes raise errors of any class
        raise _DamagedError("is damaged") from error
    if header != {"recipe": recipe_key}:
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
    """Write a shard into the folder of a recipe, and remove temporary files of killed processes."""
    held = np.frombuffer(bytes.fromhex("".join(digests)), np.uint8).reshape(-1, DIGEST_BYTES)
    tensors = {"digests": held, "rows": np.ascontiguousarray(rows)}
    payload = FORMAT.pack(tensors, {"recipe": recipe_key})
    write_file(folder / _name(payload), payload)
    remove_temporaries(folder)


def _name(payload: bytes) -> str:
    return f"shard-{short_hash(payload, digits=32)}.safetensors"
