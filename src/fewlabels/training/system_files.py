"""Systems as files.

    tensors   weights in float16, statistics of batch norms in float32
    metadata  ptmap_system    JSON: version, recipe, feature_dim, n_classes, provenance

A frozen system's file does not hold its backbone; `start` of its recipe names the file that does.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from fewlabels.backbones.saved import build_empty, find_differences, name_differences
from fewlabels.errors import FileFormatError
from fewlabels.io.container import Container
from fewlabels.io.files import reading
from fewlabels.training.episodic import EpisodicRecipe
from fewlabels.training.systems import System
from fewlabels.training.tasks import build_system

FORMAT = Container(
    key="ptmap_system",
    version=1,
    holds="a system that save_system wrote",
    way_out="Train one with a recipe for episodes.",
    framework="pt",
)


def halve(system: System) -> dict[str, Tensor]:
    """The tensors of a system's file: weights in float16, all else as it is."""
    weights = {name for name, _ in system.named_parameters()}
    return {
        name: (value.half() if name in weights else value).detach().cpu().contiguous()
        for name, value in system.state_dict().items()
    }


def save_system(
    path: Path, system: System, recipe: EpisodicRecipe, *, provenance: Mapping[str, str]
) -> None:
    """Write a safetensors file atomically, and round the system's weights to what it holds."""
    tensors = halve(system)
    header = {
        "recipe": recipe.to_dict(),
        "feature_dim": system.feature_dim,
        "n_classes": system.n_classes,
        "provenance": dict(provenance),
    }
    FORMAT.write(path, tensors, header)
    system.load_state_dict(tensors)


def load_system(path: str | Path) -> tuple[System, EpisodicRecipe, dict[str, str]]:
    """A system in eval mode, its recipe and its provenance."""
    path = Path(path)
    with reading(path, holds=FORMAT.holds):
        header, tensors = FORMAT.read(path)
        recipe = EpisodicRecipe.from_dict(header["recipe"])
        options = {"dropout": recipe.dropout, "image_size": recipe.image_size}
        backbone = None if recipe.kind.frozen else build_empty(recipe.backbone, options)
        with torch.device("meta"):
            system = build_system(
                recipe,
                backbone,
                feature_dim=header["feature_dim"],
                n_classes=header["n_classes"],
            )
    if differences := find_differences(system.state_dict(), tensors):
        raise FileFormatError(
            f"{path} does not hold the system that its header names: "
            f"{name_differences(differences)}. Copy it again."
        )
    system = system.to_empty(device="cpu")
    system.load_state_dict(tensors)
    return system.eval(), recipe, header["provenance"]
