"""The options that commands share, each defined once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

FILES = ".safetensors, .npz (features, labels), .npy (with --per-class), .parquet, .pt or .plk"
METHODS = "ncm-raw, ncm, kmeans, soft-kmeans, map, map-auto (proportions and sharpness estimated) or map-truth (told each episode's class sizes)"

FeaturesArgument = Annotated[
    Path | None,
    typer.Argument(
        help=f"Features: {FILES}. Default: the embedded CIFAR-FS set.",
        metavar="FEATURES",
        show_default=False,
    ),
]
FeaturesOption = Annotated[
    Path | None,
    typer.Option(
        "--features",
        help=f"Features: {FILES}. Default: the embedded CIFAR-FS set.",
        show_default=False,
    ),
]
PerClass = Annotated[
    int | None,
    typer.Option(help="Rows per class, in blocks, of files without labels.", show_default=False),
]
MeanOf = Annotated[
    Path | None,
    typer.Option(help="Features whose mean center(mean) subtracts.", show_default=False),
]

Shots = Annotated[
    list[int] | None,
    typer.Option(help="Labelled rows per class; may be repeated. [1]", show_default=False),
]
Ways = Annotated[int, typer.Option(min=2, help="Classes per episode.")]
QUERIES = "Queries per class, or N,N,... or dirichlet:A:N or present:K:N"
Queries = Annotated[
    list[str] | None, typer.Option(help=f"{QUERIES}; may be repeated. [15]", show_default=False)
]
Episodes = Annotated[int, typer.Option(help="Episodes per result.")]
Draws = Annotated[str, typer.Option(help="own, or authors for those of the published script.")]
Seed = Annotated[int, typer.Option(help="Of the draws.")]

Beta = Annotated[
    list[str] | None,
    typer.Option(
        help="Power of the transform, or auto for one that suits the features; may be repeated. [the paper's 0.5]",
        show_default=False,
    ),
]
Lam = Annotated[
    list[str] | None,
    typer.Option(
        help="Sharpness of MAP, or auto for each episode's own; may be repeated. [the paper's 10]",
        show_default=False,
    ),
]
Alpha = Annotated[
    list[float] | None,
    typer.Option(
        help="Step size of the centers; may be repeated. [the paper's]", show_default=False
    ),
]
NSteps = Annotated[int | None, typer.Option(help="Steps of MAP. [the paper's]", show_default=False)]
Proportions = Annotated[
    list[str] | None,
    typer.Option(
        help="Class sizes that map assumes: uniform, estimate, free, truth (each episode's own), or a fraction for each way "
        "such as 0.5,0.3,0.2; may be repeated. [the paper's uniform]",
        show_default=False,
    ),
]
Pipeline = Annotated[
    str | None,
    typer.Option(help="Another preprocessing, e.g. 'unit | center | unit'.", show_default=False),
]
Settings = Annotated[
    Path | None,
    typer.Option(
        help="Settings that `fewlabels tune` wrote; options given here win over them.",
        show_default=False,
    ),
]

Engine = Annotated[str, typer.Option(help="auto, torch, numba or triton.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Dtype = Annotated[
    str | None,
    typer.Option(
        help="float32 or float64, of the torch engine alone. [float32]", show_default=False
    ),
]

Force = Annotated[
    bool, typer.Option("--force", help="Overwrite results of other features in --output.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


def gather_knobs(
    beta: Beta, lam: Lam, alpha: Alpha, n_steps: NSteps, proportions: Proportions
) -> dict[str, Sequence[str | float]]:
    """The values to try of each knob of a method; none where the paper's is meant."""
    return {
        "beta": beta or [],
        "lam": lam or [],
        "alpha": alpha or [],
        "n_steps": [] if n_steps is None else [n_steps],
        "proportions": proportions or [],
    }
