"""`fewlabels train`: train a backbone on base classes."""

import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from fewlabels.cli import options
from fewlabels.cli.console import command_line, require_path, say, saying_warnings
from fewlabels.cli.extract import ExtractionBar, read_image_set
from fewlabels.errors import InputError

if TYPE_CHECKING:
    from fewlabels.data import ImageSet

SECONDS_PER_MINUTE = 60


def train_command(
    images: Annotated[
        Path,
        Argument(
            help="Folder of the benchmark, or of base classes, one sub-folder each.",
            metavar="IMAGES",
        ),
    ],
    output: Annotated[
        Path,
        Option(
            "--output",
            "-o",
            help="Folder for checkpoint, log, backbone, features; a training in it is resumed.",
            metavar="FOLDER",
            rich_help_panel=options.OUTPUTS,
        ),
    ],
    recipe: Annotated[
        str,
        Option(
            help="modern, dct, s2m2, simpleshot; on episodes: protonet, matching, maml, "
            "baseline++, dsn, mct, leo; or a TOML file."
        ),
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
    evaluate: Annotated[
        list[str] | None,
        Option(help="Split to evaluate a recipe for episodes on, by its own head; repeatable."),
    ] = None,
    episodes: options.Episodes = 10_000,
    minutes: Annotated[
        float | None, Option(help="Stop after this time with a checkpoint; rerun to resume.")
    ] = None,
    validate_every: Annotated[int, Option(help="Epochs between validations.")] = 5,
    checkpoint_every: Annotated[int, Option(help="Epochs between checkpoints.")] = 5,
    tensorboard: Annotated[
        bool, Option("--tensorboard", help="Write TensorBoard logs beside the checkpoint.")
    ] = False,
    strict: Annotated[
        bool, Option("--strict", help="Stop at an image that cannot be read.")
    ] = False,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Train a backbone on base classes (S2M2_R or plain), or a system on episodes.

    Validation is by PT+MAP, or by the system's own head.

    fewlabels train cifar-fs --dataset cifar-fs --backbone resnet18 --output runs/resnet18

    fewlabels train cifar-fs --dataset cifar-fs --recipe protonet --output runs/p --evaluate novel
    """
    require_path(images)
    from fewlabels.io.files import held
    from fewlabels.training.episodic import EpisodicRecipe, load_recipe
    from fewlabels.training.progress import reporting
    from fewlabels.training.run import METRICS, train_backbone
    from fewlabels.training.system_run import train_system

    changes = [*(change or []), *([] if backbone is None else [f"backbone={backbone}"])]
    chosen = load_recipe(recipe, changes)
    if isinstance(chosen, EpisodicRecipe):
        if extract:
            raise InputError(
                f"--extract must be left out with --recipe {recipe}, which trains on episodes. "
                f"Use `fewlabels extract --backbone {output}/backbone.safetensors` afterwards."
            )
    elif evaluate:
        raise InputError(
            f"--evaluate must be left out with --recipe {recipe}, which has no head of its own. "
            "Use --extract and `fewlabels evaluate`."
        )
    if dataset is None and (extract or evaluate):
        option = "--extract" if extract else "--evaluate"
        raise InputError(
            f"{option} must name splits of a benchmark, got no --dataset. Give --dataset"
            f"{', or use `fewlabels extract` on a folder' if extract else ''}."
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
    first = os.environ.get("RANK", "0") == "0"  # of the processes that train together
    with (
        held(output) if first else nullcontext(),
        saying_warnings(),
        reporting(output, say, tensorboard=tensorboard) as on_epoch,
        ExtractionBar() as bar,
    ):
        shared: dict[str, Any] = {
            "output": output,
            "val": val_set,
            "device": device,
            "validate_every": validate_every,
            "checkpoint_every": checkpoint_every,
            "stop_after": None if minutes is None else SECONDS_PER_MINUTE * minutes,
            "strict": strict,
            "command": command_line(),
            "on_epoch": on_epoch,
        }
        if isinstance(chosen, EpisodicRecipe):
            sets = [read(images, split) for split in evaluate or []]
            trained = train_system(base_set, chosen, evaluate=sets, n_episodes=episodes, **shared)
        else:
            sets = [read(images, split) for split in extract or []]
            trained = train_backbone(
                base_set, chosen, extract=sets, views=views, on_extraction=bar, **shared
            )
    if trained.finished:
        model = "system" if isinstance(chosen, EpisodicRecipe) else "backbone"
        say(f"Written to {output}: {model}.safetensors, metrics.json, log.jsonl")
    else:
        say(f"Stopped after epoch {trained.reports[-1]['epoch']}; the same command resumes it.")
    if as_json and first:
        metrics = output / METRICS
        found = {
            "output": str(output),
            "finished": trained.finished,
            "epochs": trained.reports,
            "metrics": json.loads(metrics.read_text("utf-8")) if trained.finished else None,
        }
        typer.echo(json.dumps(found, indent=2))
