"""Published checkpoints: of the paper's authors, of S2M2 and of SimpleShot.

They are pickles and are opened with `weights_only=True`: no code in them is run.
"""

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from fewlabels.backbones import saved
from fewlabels.backbones.layout import S2M2_CONTAINER, SIMPLESHOT_CONTAINER
from fewlabels.backbones.registry import BACKBONES
from fewlabels.backbones.saved import SavedBackbone, find_differences, name_differences
from fewlabels.errors import FileFormatError
from fewlabels.io.files import check_zip

CONTAINERS = (S2M2_CONTAINER, SIMPLESHOT_CONTAINER)
COUNTER = "num_batches_tracked"  # of batch norms: old files lack it, features do not depend on it


def read_published(path: Path, *, name: str | None) -> SavedBackbone:
    """Read a published checkpoint as the first architecture and layout that fit it."""
    state, container = _open_pickle(path)
    misfits: list[tuple[list[str], str]] = []
    for candidate in BACKBONES if name is None else [name]:
        # Two layouts can have the same names; then the container decides which transform is right.
        layouts = BACKBONES[candidate].layouts
        for layout in sorted(layouts, key=lambda layout: layout.container != container):
            expected = saved.build_empty(candidate, {}).state_dict()
            counters = {key: torch.tensor(0) for key in expected if key.endswith(COUNTER)}
            weights = counters | layout.translate(state)
            differences = find_differences(expected, weights)
            if not differences:
                provenance = {"file": path.name, "layout": layout.source}
                backbone = saved.build_filled(candidate, {}, weights)
                return SavedBackbone(backbone, candidate, {}, layout.transform, provenance)
            misfits.append((differences, f"{candidate} of {layout.source}"))
    if not misfits:
        raise FileFormatError(
            f"{path} must be a safetensors file for {name}, of which no published weights are "
            "known. Use save_backbone."
        )
    differences, closest = min(misfits, key=lambda misfit: len(misfit[0]))
    raise FileFormatError(
        f"{path} must be a checkpoint of {name or 'a known backbone'}; compared with {closest}, "
        f"{name_differences(differences)}. Name the right file or the right backbone."
    )


def _open_pickle(path: Path) -> tuple[Mapping[str, Tensor], str | None]:
    """The weights by name, and the entry of the file that holds them; None for the file itself."""
    try:
        check_zip(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # torch's message suggests an unsafe way to load it
        raise FileFormatError(
            f"{path} must hold only tensors and plain data, got other objects or damaged bytes. "
            "Copy it again, or save only its state_dict."
        ) from error
    keys = CONTAINERS if isinstance(content, dict) else ()
    container = next((key for key in keys if key in content), None)
    content = content if container is None else content[container]
    tensors = isinstance(content, dict) and [isinstance(each, Tensor) for each in content.values()]
    if not tensors or not all(tensors):
        raise FileFormatError(
            f"{path} must hold tensors by name, at the top or under {' or '.join(CONTAINERS)}. "
            "Save the state_dict again."
        )
    return content, container
