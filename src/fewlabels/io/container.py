"""Container: one safetensors file with a JSON header, written and checked in one way.

A safetensors file has tensors and a map of texts. The header is one JSON text in that map, because
safetensors writes the keys of the map in random order: with one key, the same content always gives
the same bytes.

The header holds a digest of itself and of all tensors, so that damaged bytes are never used. Files
written before there was one are read without that check.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors

from fewlabels.errors import FileFormatError
from fewlabels.io.files import CHOOSE_ANOTHER, reading, write_file
from fewlabels.io.stamps import DIGEST_BYTES

DIGEST = "digest"  # in the header


@dataclass(frozen=True)
class Container:
    """A kind of safetensors file.

    Attributes:
        key: The name of the header in the metadata. All keys begin with "ptmap_", the former name
            of the package: old files stay readable, and old versions can read new files.
        version: The newest format version this code reads, and the one it writes; None for a kind
            whose header has no version.
        holds: What such a file holds, for messages.
        way_out: What to do with a safetensors file of another kind, a sentence.
        framework: Whether tensors are numpy arrays ("numpy") or torch tensors ("pt").
    """

    key: str
    version: int | None
    holds: str
    way_out: str
    framework: Literal["numpy", "pt"] = "numpy"

    def pack(self, tensors: Mapping[str, Any], header: Mapping[str, Any]) -> bytes:
        """The bytes of a file; `header` gets the version added."""
        frameworks = {"numpy": "safetensors.numpy", "pt": "safetensors.torch"}  # imported when used
        version = {} if self.version is None else {"version": self.version}
        header = {**version, **header}
        if version:  # a kind without a version is checked by other means
            header[DIGEST] = _digest(header, tensors)
        text = json.dumps(header, sort_keys=True)
        save = import_module(frameworks[self.framework]).save
        return bytes(save(dict(tensors), metadata={self.key: text}))

    def write(
        self,
        path: Path,
        tensors: Mapping[str, Any],
        header: Mapping[str, Any],
        *,
        way_out: str = CHOOSE_ANOTHER,
    ) -> None:
        """Write a file atomically."""
        write_file(path, self.pack(tensors, header), way_out=way_out)

    def read(self, path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        """The header and all tensors of a file, or a FileFormatError that says what is wrong."""
        with reading(path, holds=self.holds), self.open(path) as (header, file):
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            known = header.pop(DIGEST, None)
            if known is not None and known != _digest(header, tensors):
                raise FileFormatError(
                    f"{path} is damaged: its content does not match its digest. "
                    "Write it or copy it again."
                )
            return header, tensors

    @contextmanager
    def open(self, path: Path) -> Iterator[tuple[dict[str, Any], Any]]:
        """The header, and the open file for single tensors by `get_tensor`.

        Errors of damaged bytes are not translated: do that with `reading` outside.
        """
        with safetensors.safe_open(path, framework=self.framework) as file:
            text = (file.metadata() or {}).get(self.key)
            if text is None:
                raise FileFormatError(
                    f"{path} is a safetensors file, but does not hold {self.holds}. {self.way_out}"
                )
            header = json.loads(text)
            if self.version is not None:
                check_version(path, header["version"], self.version)
            yield header, file


def check_version(path: Path, version: int, newest: int) -> None:
    """Refuse a file of a newer format than this code reads."""
    if version > newest:
        raise FileFormatError(
            f"{path} has format version {version}, this fewlabels reads up to {newest}. "
            "Upgrade fewlabels."
        )


def _digest(header: Mapping[str, Any], tensors: Mapping[str, Any]) -> str:
    """32 hex digits that name a header and tensors with their names, types and shapes."""
    total = hashlib.blake2b(json.dumps(header, sort_keys=True).encode(), digest_size=DIGEST_BYTES)
    for name in sorted(tensors):
        tensor = tensors[name]
        kind = str(tensor.dtype).removeprefix("torch.")
        total.update(f"\0{name}\0{kind}\0{tuple(tensor.shape)}\0".encode())
        if hasattr(tensor, "detach"):  # torch; numpy has no bfloat16
            tensor = tensor.detach().cpu().contiguous().reshape(-1).view(dtype=_byte()).numpy()
        total.update(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def _byte() -> Any:
    return import_module("torch").uint8
