"""`fewlabels train`: train a backbone on base classes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from fewlabels.cli import options
from fewlabels.cli.console import command_line, say, saying_warnings
from fewlabels.cli.extract import ExtractionBar, read_image_set
from fewlabels.errors import InputError

if TYPE_CHECKING:
    from fewlabels.data import ImageSet

SECONDS_PER_MINUTE = 60


def train_command(
    images: Annotated[
        Path, Argument(help="Folder of the benchmark, or of base classes, one sub-folder each.")
    ],
    output: Annotated[
        Path,
        Option(help="Folder for checkpoint, log, backbone, features; a training in it is resumed."),
    ],
    recipe: Annotated[
        str, Option(help="modern, dct, s2m2, simpleshot, or a TOML file.")
    ] = "modern",
    dataset: Annotated[
        str | None,
        Option(help="Benchmark whose base and val classes to take; see fewlabels data list."),
    ] = None,
    val: Annotated[
        Path | None, Option(help="Folder of validation classes, without --dataset.")
    ] = None,
    backbone: Annotated[str | None, Option(help="Architecture, instead of the recipe's.")] = None,
    change: Annotated[
        list[str] | None,
        Option("--set", help="Change the recipe: optimizer.lr=0.05, stages.0.epochs=10."),
    ] = None,
    extract: Annotated[
        list[str] | None,
        Option(help="Split whose features are written at the end: val, novel; repeatable."),
    ] = None,
    views: Annotated[
        str, Option(help="Views averaged into these features: center, flip, ten, or best on val.")
    ] = "center",
    minutes: Annotated[
        float | None, Option(help="Stop after this time with a checkpoint; rerun to resume.")
    ] = None,
    validate_every: Annotated[int, Option(help="Epochs between validations by PT+MAP.")] = 5,
    checkpoint_every: Annotated[int, Option(help="Epochs between checkpoints.")] = 5,
    tensorboard: Annotated[
        bool, Option("--tensorboard", help="Write TensorBoard logs beside the checkpoint.")
    ] = False,
    strict: Annotated[
        bool, Option("--strict", help="Stop at an image that cannot be read.")
    ] = False,
    device: options.Device = "auto",
) -> None:
    """Train a backbone on base classes (S2M2_R or plain), with validation by PT+MAP.

    fewlabels train cifar-fs --dataset cifar-fs --backbone resnet18 --output runs/resnet18
    """
    from fewlabels.training.progress import reporting
    from fewlabels.training.recipe import Recipe
    from fewlabels.training.run import train_backbone

    changes = [*(change or []), *([] if backbone is None else [f"backbone={backbone}"])]
    if dataset is None and extract:
        raise InputError(
            "--extract must name splits of a benchmark, got no --dataset. Give --dataset, or use "
            "`fewlabels extract` on a folder."
        )
    if dataset is not None and val is not None:
        raise InputError(
            "--val must be left out with --dataset, which has its own validation classes."
        )

    def read(folder: Path, split: str | None) -> "ImageSet":
        return read_image_set(folder, dataset=dataset, split=split, strict=strict)

    if dataset is None:
        base_set, val_set = read(images, None), None if val is None else read(val, None)
    else:
        base_set, val_set = read(images, "base"), read(images, "val")
    with (
        saying_warnings(),
        reporting(output, say, tensorboard=tensorboard) as on_epoch,
        ExtractionBar() as bar,
    ):
        trained = train_backbone(
            base_set,
            Recipe.load(recipe, changes),
            output=output,
            val=val_set,
            extract=[read(images, split) for split in extract or []],
            views=views,
            device=device,
            validate_every=validate_every,
            checkpoint_every=checkpoint_every,
            stop_after=None if minutes is None else SECONDS_PER_MINUTE * minutes,
            strict=strict,
            command=command_line(),
            on_epoch=on_epoch,
            on_extraction=bar,
        )
    if trained.finished:
        say(f"Written to {output}: backbone.safetensors, metrics.json, log.jsonl")
    else:
        say(f"Stopped after epoch {trained.reports[-1]['epoch']}; the same command resumes it.")
