"""The state of a training on disk: written whole or not at all, read back to the bit."""

import os
import secrets
from pathlib import Path
from typing import Any

import torch

from fewlabels.errors import FewLabelsError, FileFormatError, InputError

VERSION = 1


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Replace the checkpoint at `path`, all or nothing: a kill or a full disk leaves the last good one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("wb") as file:
            torch.save({"version": VERSION, **state}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except (OSError, RuntimeError) as error:  # torch turns a failed write into a RuntimeError
        kept = (
            "The last good one is untouched; free"
            if path.exists()
            else "There is no earlier one; free"
        )
        raise FewLabelsError(
            f"the checkpoint {path} could not be written ({error}). {kept} some space and run the same command again."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def read_state(path: Path, *, recipe: dict[str, Any], fingerprint: str) -> dict[str, Any]:
    """Read back what `write_state` wrote, if it is of the same training.

    Args:
        path: The checkpoint.
        recipe: Must be the recipe that it was made with.
        fingerprint: Must name the images that it was made with.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        version, made_with, images = state["version"], state["recipe"], state["images"]
    except Exception as error:  # on damaged bytes torch raises whatever it stumbles over
        reason = (str(error).splitlines() or [""])[0][:160]
        raise FileFormatError(
            f"{path} cannot be read as a checkpoint ({reason}). Remove it to start anew."
        ) from error
    if version > VERSION:
        raise FileFormatError(
            f"{path} has format version {version}, this fewlabels reads up to {VERSION}. Upgrade fewlabels."
        )
    different = [name for name in recipe if made_with.get(name) != recipe[name]]
    if different:
        name = different[0]
        raise InputError(
            f"{path} was made with another recipe ({name} was {made_with.get(name)!r}, now {recipe[name]!r}). "
            "Resume with the same recipe, or choose another output folder."
        )
    if images != fingerprint:
        raise InputError(
            f"{path} was made with other images. Resume with the same images, or choose another output folder."
        )
    return state
