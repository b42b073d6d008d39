"""The state of a training on disk: written atomically, restored exactly."""

from pathlib import Path
from typing import Any

import torch

from fewlabels.errors import FileFormatError, InputError
from fewlabels.io.container import check_version
from fewlabels.io.files import check_zip, unwritable, write_file
from fewlabels.io.words import first_line

VERSION = 1


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Replace the checkpoint at `path` atomically; a kill or a full disk keeps the last one."""
    kept = "The last good one is unchanged" if path.exists() else "There is no earlier one"
    way_out = f"{kept}. Free some space and run the same command again."
    try:
        write_file(
            path, lambda file: torch.save({"version": VERSION, **state}, file), way_out=way_out
        )
    except RuntimeError as error:  # torch.save raises it for a failed write
        raise unwritable(path, error, way_out=way_out) from error


def read_state(path: Path, *, recipe: dict[str, Any], fingerprint: str) -> dict[str, Any]:
    """Read what `write_state` wrote, if it belongs to the same training."""
    try:
        check_zip(path)
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        version, made_with, images = state["version"], state["recipe"], state["images"]
    except Exception as error:  # damaged bytes raise errors of any class
        raise FileFormatError(
            f"{path} cannot be read as a checkpoint ({first_line(error)}). "
            "Remove it to start from the beginning."
        ) from error
    check_version(path, version, VERSION)
    if different := [name for name in recipe if made_with.get(name) != recipe[name]]:
        name = different[0]
        raise InputError(
            f"{path} was made with another recipe "
            f"({name} was {made_with.get(name)!r}, now {recipe[name]!r}). "
            "Resume with the same recipe, or choose another output folder."
        )
    if images != fingerprint:
        raise InputError(
            f"{path} was made with other images. "
            "Resume with the same images, or choose another output folder."
        )
    return state
