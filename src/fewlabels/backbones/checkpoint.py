"""Backbones as files.

    tensors   the weights of the backbone, by name
    metadata  ptmap_backbone    JSON: version, backbone, options, transform, provenance

`published` reads the files of other projects.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fewlabels.backbones import saved
from fewlabels.backbones.backbone import Backbone
from fewlabels.backbones.published import read_published
from fewlabels.backbones.registry import BACKBONES
from fewlabels.backbones.saved import SavedBackbone, find_differences, name_differences
from fewlabels.errors import FileFormatError, InputError
from fewlabels.io.container import Container
from fewlabels.io.files import reading

FORMAT = Container(
    key="ptmap_backbone",
    version=1,
    holds="a backbone that save_backbone wrote",
    way_out="Write one with save_backbone.",
    framework="pt",
)
HOLDS = "the weights of a backbone"
JSON_AT = 8  # byte where a safetensors file has the "{" of its header, unlike pickles and zip files


def save_backbone(
    path: str | Path,
    backbone: Backbone,
    *,
    name: str,
    options: Mapping[str, Any],
    transform: str,
    provenance: Mapping[str, str],
) -> None:
    """Write a safetensors file atomically: on a full disk, the old file stays.

    Args:
        options: The arguments of `build_backbone` besides the name.
        transform: Of the images, such as "resize(36) | crop(32) | normalize(..., ...)".
        provenance: Where the weights came from, as texts by name.
    """
    weights = backbone.state_dict().items()
    tensors = {key: tensor.detach().cpu().contiguous() for key, tensor in weights}
    if differences := find_differences(saved.build_empty(name, options).state_dict(), tensors):
        raise InputError(
            f"backbone must be a {name} with options {dict(options)}, "
            f"but {name_differences(differences)}."
        )
    kind = {"backbone": name, "options": dict(options)}
    about = {"transform": transform, "provenance": dict(provenance)}
    FORMAT.write(Path(path), tensors, {**kind, **about})


def load_backbone(path: str | Path, *, name: str | None = None) -> SavedBackbone:
    """Read a backbone of `save_backbone`, or a checkpoint of the paper, of S2M2 or of SimpleShot.

    Args:
        name: The architecture that the file must hold; by default it is recognized.
    """
    path = Path(path)
    if name is not None:
        BACKBONES[name]  # refuses an unknown name
    with reading(path, holds=HOLDS):
        with path.open("rb") as file:
            ours = file.read(JSON_AT + 1)[JSON_AT:] == b"{"
        return _read_ours(path, name) if ours else read_published(path, name=name)


def _read_ours(path: Path, name: str | None) -> SavedBackbone:
    header, state = FORMAT.read(path)
    found, options = header["backbone"], header["options"]
    if name is not None and found != name:
        raise FileFormatError(
            f"{path} must hold a backbone {name}, but holds {found}. "
            "Name the right file or the right backbone."
        )
    if found not in BACKBONES:
        raise FileFormatError(
            f"{path} holds a backbone {found}, which this fewlabels does not know. "
            "Upgrade fewlabels."
        )
    if differences := find_differences(saved.build_empty(found, options).state_dict(), state):
        raise FileFormatError(
            f"{path} does not hold the {found} that its header names: "
            f"{name_differences(differences)}. Copy it again."
        )
    backbone = saved.build_filled(found, options, state)
    return SavedBackbone(backbone, found, options, header["transform"], header["provenance"])
