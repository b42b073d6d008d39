"""FeatureSets as safetensors files.

tensors   features (N, D)   float32, float16, or uint8 under root8
          labels (N,)       int64, -1 where unlabelled
          scale ()          float32, under root8 only
          names (B,)        uint8: a JSON list of the names of the rows, where they have names.
                            The list can be too long for the header. A reader that does not know
                            this tensor loses only the names, so the version stays 1.
metadata  ptmap_features    JSON: version, encoding, class_names, provenance
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fewlabels.errors import InputError, unknown_choice
from fewlabels.io.container import Container
from fewlabels.io.words import name_rows

ENCODINGS = ("float32", "float16", "root8")
ROOT8_TOP = 255  # the largest uint8
FORMAT = Container(
    key="ptmap_features",
    version=1,
    holds="features that FeatureSet.save wrote",
    way_out="Make one with FeatureSet.from_arrays and save.",
)


class Contents(NamedTuple):
    """The content of a file before FeatureSet checks it; `labels` is None if the file has none."""

    features: Any
    labels: Any
    class_names: Sequence[str] | None = None
    provenance: dict[str, str] | None = None
    names: Sequence[str] | None = None


def write(path: Path, contents: Contents, *, encoding: str) -> None:
    """Write `contents` to `path` atomically."""
    tensors = _encode(contents.features, encoding) | {"labels": contents.labels}
    if contents.names is not None:
        tensors["names"] = np.frombuffer(json.dumps(list(contents.names)).encode(), np.uint8)
    about = {"class_names": contents.class_names, "provenance": contents.provenance}
    FORMAT.write(path, tensors, {"encoding": encoding, **about})


def read(path: Path) -> Contents:
    """Read what `write` wrote. Call it inside `reading`, which reports missing tensors too."""
    header, tensors = FORMAT.read(path)
    names = json.loads(tensors["names"].tobytes()) if "names" in tensors else None
    features, known = _decode(tensors, header["encoding"]), header["provenance"]
    return Contents(features, tensors["labels"], header["class_names"], known, names)


def _encode(features: NDArray[np.floating[Any]], encoding: str) -> dict[str, NDArray[Any]]:
    if encoding not in ENCODINGS:
        raise unknown_choice("encoding", encoding, ENCODINGS)
    with np.errstate(over="ignore"):
        narrow_type = np.float16 if encoding == "float16" else np.float32
        narrow: NDArray[np.floating[Any]] = features.astype(narrow_type)
    if not np.isfinite(narrow).all():
        raise InputError(
            f"features must fit {narrow.dtype} for encoding {encoding}, "
            f"got values up to {np.abs(features).max():.4g}."
        )
    if encoding != "root8":
        return {"features": narrow}
    if negative := np.flatnonzero((narrow < 0).any(axis=1)).tolist():
        raise InputError(
            "features must not be negative for encoding root8, "
            f"got some in {name_rows(negative)}. Use float16 or float32."
        )
    # Pooled ReLU features have a long tail. The square root shortens it, so that 256 steps suffice.
    roots = np.sqrt(narrow)
    scale = roots.max() / np.float32(ROOT8_TOP) or np.float32(1)  # 1 where all features are zero
    encoded = np.rint(roots / scale).astype(np.uint8)
    return {"features": encoded, "scale": np.array(scale, dtype=np.float32)}


def _decode(tensors: dict[str, NDArray[Any]], encoding: str) -> NDArray[np.floating[Any]]:
    if encoding == "root8":
        roots: NDArray[np.float32] = tensors["scale"] * tensors["features"].astype(np.float32)
        return np.square(roots)
    if encoding not in ENCODINGS:
        raise unknown_choice("encoding", encoding, ENCODINGS)
    return tensors["features"]
