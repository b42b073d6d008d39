"""FeatureSets as safetensors files, and the one way in which a bad file is reported.

    tensors   features (N, D)   float32, float16, or uint8 under root8
              labels (N,)       int64, -1 where unlabelled
              scale ()          float32, under root8 only
              names (B,)        uint8: a JSON list of the rows' names, where they have some; too long for the header,
                                and no reason for another version, since whoever does not know it loses only the names
    metadata  ptmap_features    JSON: version, encoding, class_names, provenance

The metadata is one JSON text because safetensors writes its keys in random order: so the same set
always makes the same bytes.
"""

import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from fewlabels.errors import FewLabelsError, FileFormatError, InputError, name_rows, unknown_choice

KEY = "ptmap_features"
VERSION = 1
ENCODINGS = ("float32", "float16", "root8")
ROOT8_TOP = 255  # the largest uint8
HOLDS = "what FeatureSet.save wrote"


class Contents(NamedTuple):
    """What a file says, before FeatureSet checks it; `labels` is None where the file has none."""

    features: Any
    labels: Any
    class_names: Sequence[str] | None = None
    provenance: dict[str, str] | None = None
    names: Sequence[str] | None = None


def require_file(path: Path) -> None:
    """Refuse a path where no file is."""
    if path.is_dir():
        raise FileFormatError(f"{path} is a folder, not a file of features. Name a file inside it.")
    if not path.exists():
        raise FileFormatError(f"{path} does not exist. Check the path for a slip of the pen.")


@contextmanager
def reading(path: Path, *, holds: str) -> Iterator[None]:
    """Report whatever goes wrong inside as one FileFormatError that names the file and the way out."""
    require_file(path)
    try:
        yield
    except InputError as error:
        raise FileFormatError(f"{path}: {error}") from error
    except FewLabelsError:
        raise
    except Exception as error:  # on damaged bytes, parsers raise whatever they stumble over
        reason = (str(error).splitlines() or [""])[0].rstrip(". ")[:160]
        raise FileFormatError(
            f"{path} cannot be read ({type(error).__name__}: {reason}). The file must hold {holds}; write it or copy it anew."
        ) from error


def write(path: Path, contents: Contents, *, encoding: str) -> None:
    """Write `contents` to `path` through a temporary file beside it, so that no reader sees half a file."""
    tensors = _encode(contents.features, encoding) | {"labels": contents.labels}
    if contents.names is not None:
        tensors["names"] = np.frombuffer(json.dumps(list(contents.names)).encode(), np.uint8)
    about = {
        "version": VERSION,
        "encoding": encoding,
        "class_names": contents.class_names,
        "provenance": contents.provenance,
    }
    payload = safetensors.numpy.save(tensors, metadata={KEY: json.dumps(about, sort_keys=True)})
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        temporary.write_bytes(payload)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read(path: Path) -> Contents:
    """Read what `write` wrote; call it inside `reading`."""
    with safetensors.safe_open(path, framework="numpy") as file:
        text = (file.metadata() or {}).get(KEY)
        if text is None:
            raise FileFormatError(
                f"{path} is a safetensors file, but not of fewlabels features. Build one with FeatureSet.from_arrays and save."
            )
        about = json.loads(text)
        if about["version"] > VERSION:
            raise FileFormatError(
                f"{path} has format version {about['version']}, this fewlabels reads up to {VERSION}. Upgrade fewlabels."
            )
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - safe_open is no dict
    names = json.loads(tensors["names"].tobytes()) if "names" in tensors else None
    return Contents(
        _decode(tensors, about["encoding"]),
        tensors["labels"],
        about["class_names"],
        about["provenance"],
        names,
    )


def _encode(features: NDArray[np.floating[Any]], encoding: str) -> dict[str, NDArray[Any]]:
    if encoding not in ENCODINGS:
        raise unknown_choice("encoding", encoding, ENCODINGS)
    with np.errstate(over="ignore"):
        narrow: NDArray[np.floating[Any]] = features.astype(
            np.float16 if encoding == "float16" else np.float32
        )
    if not np.isfinite(narrow).all():
        raise InputError(
            f"features must fit {narrow.dtype} for encoding {encoding}, got values up to {np.abs(features).max():.4g}."
        )
    if encoding != "root8":
        return {"features": narrow}
    if negative := np.flatnonzero((narrow < 0).any(axis=1)).tolist():
        raise InputError(
            f"features must not be negative for encoding root8, got some in {name_rows(negative)}. Use float16 or float32."
        )
    # The square root evens out the long tail of pooled ReLU features, and power(0.5) works on it anyway.
    roots = np.sqrt(narrow)
    scale = roots.max() / np.float32(ROOT8_TOP) or np.float32(
        1
    )  # any scale serves when all is zero
    return {
        "features": np.rint(roots / scale).astype(np.uint8),
        "scale": np.array(scale, dtype=np.float32),
    }


def _decode(tensors: dict[str, NDArray[Any]], encoding: str) -> NDArray[np.floating[Any]]:
    if encoding == "root8":
        roots: NDArray[np.float32] = tensors["scale"] * tensors["features"].astype(np.float32)
        return np.square(roots)
    if encoding not in ENCODINGS:
        raise unknown_choice("encoding", encoding, ENCODINGS)
    return tensors["features"]
