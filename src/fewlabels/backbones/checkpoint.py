"""Backbones as files.

    tensors   the backbone's weights, by their names
    metadata  ptmap_backbone    JSON: version, backbone, options, transform, provenance

Files of others are read by `published`.
"""

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch

from fewlabels.backbones.backbone import Backbone
from fewlabels.backbones.published import read_published
from fewlabels.backbones.registry import BACKBONES
from fewlabels.backbones.saved import (
    SavedBackbone,
    build_empty,
    build_filled,
    find_differences,
    name_differences,
)
from fewlabels.errors import FewLabelsError, FileFormatError, InputError

KEY = "ptmap_backbone"
VERSION = 1
JSON_AT = 8  # where a safetensors file, unlike pickles and zip files, has the "{" of its header


def save_backbone(
    path: str | Path,
    backbone: Backbone,
    *,
    name: str,
    options: Mapping[str, Any],
    transform: str,
    provenance: Mapping[str, str],
) -> None:
    """Write a safetensors file, all or nothing: when the disk is full, the old file stays.

    Args:
        path: Where; an existing file is replaced.
        backbone: Whose weights to write, on any device and in any memory format.
        name: Its name in `BACKBONES`.
        options: What `build_backbone` was given besides the name.
        transform: What images go through before it, as "resize(36) | crop(32) | normalize(..., ...)".
        provenance: Where the weights came from, in words.
    """
    path = Path(path)
    tensors = {
        key: tensor.detach().cpu().contiguous() for key, tensor in backbone.state_dict().items()
    }
    if differences := find_differences(build_empty(name, options).state_dict(), tensors):
        raise InputError(
            f"backbone must be a {name} with options {dict(options)}, but {name_differences(differences)}."
        )
    about = {
        "version": VERSION,
        "backbone": name,
        "options": dict(options),
        "transform": transform,
        "provenance": dict(provenance),
    }
    payload = safetensors.torch.save(tensors, metadata={KEY: json.dumps(about, sort_keys=True)})
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())  # on the disk before it takes the old file's place
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def load_backbone(path: str | Path, *, name: str | None = None) -> SavedBackbone:
    """Read a backbone that `save_backbone` wrote, or a checkpoint of the paper's authors, S2M2 or SimpleShot.

    Args:
        path: A .safetensors file of ours, or a .tar, .pth or .pth.tar file of theirs.
        name: The architecture that the file must be of; left out, it is found out.
    """
    path = Path(path)
    if name is not None:
        BACKBONES[name]  # refuses an unknown name
    if not path.is_file():
        found = "is a folder" if path.is_dir() else "does not exist"
        raise FileFormatError(
            f"{path} {found}; it must be a file with the weights of a backbone. Check the path."
        )
    try:
        with path.open("rb") as file:
            ours = file.read(JSON_AT + 1)[JSON_AT:] == b"{"
        return _read_ours(path, name) if ours else read_published(path, name=name)
    except FewLabelsError:
        raise
    except Exception as error:  # on damaged bytes, parsers raise whatever they stumble over
        reason = (str(error).splitlines() or [""])[0].rstrip(". ")[:160]
        raise FileFormatError(
            f"{path} cannot be read ({type(error).__name__}: {reason}). "
            "The file must be a whole checkpoint of a backbone; write it or copy it anew."
        ) from error


def _read_ours(path: Path, name: str | None) -> SavedBackbone:
    with safetensors.safe_open(path, framework="pt") as file:
        text = (file.metadata() or {}).get(KEY)
        if text is None:
            raise FileFormatError(
                f"{path} is a safetensors file, but not of a fewlabels backbone. Write one with save_backbone."
            )
        about = json.loads(text)
        if about["version"] > VERSION:
            raise FileFormatError(
                f"{path} has format version {about['version']}, this fewlabels reads up to {VERSION}. Upgrade fewlabels."
            )
        state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - safe_open is no dict
    found, options = about["backbone"], about["options"]
    if name is not None and found != name:
        raise FileFormatError(
            f"{path} must hold a backbone {name}, but holds {found}. Name the right file or the right backbone."
        )
    if found not in BACKBONES:
        raise FileFormatError(
            f"{path} holds a backbone {found}, which this fewlabels does not know. Upgrade fewlabels."
        )
    if differences := find_differences(build_empty(found, options).state_dict(), state):
        raise FileFormatError(
            f"{path} does not hold the {found} that it claims to: {name_differences(differences)}. Copy it anew."
        )
    return SavedBackbone(
        build_filled(found, options, state), found, options, about["transform"], about["provenance"]
    )
