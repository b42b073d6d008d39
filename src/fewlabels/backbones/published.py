"""Checkpoints that others published: the paper's authors', S2M2's and SimpleShot's.

They are pickles, and are opened with `weights_only=True`: nothing that they ask for is run.
"""

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from fewlabels.backbones.layout import S2M2_CONTAINER, SIMPLESHOT_CONTAINER
from fewlabels.backbones.registry import BACKBONES
from fewlabels.backbones.saved import (
    SavedBackbone,
    build_empty,
    build_filled,
    find_differences,
    name_differences,
)
from fewlabels.errors import FileFormatError

CONTAINERS = (S2M2_CONTAINER, SIMPLESHOT_CONTAINER)
COUNTER = (
    "num_batches_tracked"  # of batch norms: old files lack it, and features do not depend on it
)


def read_published(path: Path, *, name: str | None) -> SavedBackbone:
    """Read a checkpoint of others as the first architecture and layout that fit it.

    Args:
        path: A .tar, .pth or .pth.tar file.
        name: The architecture that it must be of; left out, all are tried.
    """
    state, container = _open_pickle(path)
    misfits: list[tuple[list[str], str]] = []
    for candidate in BACKBONES if name is None else [name]:
        # Names may be the same in two layouts; the container then tells whose transform it is.
        for layout in sorted(
            BACKBONES[candidate].layouts, key=lambda layout: layout.container != container
        ):
            expected = build_empty(candidate, {}).state_dict()
            weights = {
                key: torch.tensor(0) for key in expected if key.endswith(COUNTER)
            } | layout.translate(state)
            differences = find_differences(expected, weights)
            if not differences:
                provenance = {"file": path.name, "layout": layout.source}
                return SavedBackbone(
                    build_filled(candidate, {}, weights),
                    candidate,
                    {},
                    layout.transform,
                    provenance,
                )
            misfits.append((differences, f"{candidate} of {layout.source}"))
    if not misfits:
        raise FileFormatError(
            f"{path} must be a safetensors file for {name}, of which no weights by others are known. Use save_backbone."
        )
    differences, closest = min(misfits, key=lambda misfit: len(misfit[0]))
    raise FileFormatError(
        f"{path} must be a checkpoint of {name or 'a known backbone'}; compared with {closest}, {name_differences(differences)}. "
        "Name the right file or the right backbone."
    )


def _open_pickle(path: Path) -> tuple[Mapping[str, Tensor], str | None]:
    """The weights by name, and the entry of the file that holds them where it is not the file itself."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # torch's own text tells how to load it all the same
        raise FileFormatError(
            f"{path} must hold only tensors and plain data, got other objects or damaged bytes. Copy it anew, or save its state_dict alone."
        ) from error
    container = next(
        (key for key in CONTAINERS if isinstance(content, dict) and key in content), None
    )
    content = content if container is None else content[container]
    if (
        not isinstance(content, dict)
        or not content
        or not all(isinstance(value, Tensor) for value in content.values())
    ):
        raise FileFormatError(
            f"{path} must hold tensors by name, at the top or under {' or '.join(CONTAINERS)}. Save the state_dict anew."
        )
    return content, container
