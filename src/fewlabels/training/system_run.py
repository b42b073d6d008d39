"""A training on episodes, from image sets and a recipe to a folder with the system and its record.

system.safetensors, log.jsonl, metrics.json, evaluation.json; and backbone.safetensors where the
backbone alone gives features.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch

from fewlabels.backbones import load_backbone
from fewlabels.data import ImageSet
from fewlabels.evaluation.results import versions
from fewlabels.io.files import make_folder, write_file
from fewlabels.training.embedding import embed
from fewlabels.training.episodic import EpisodicRecipe
from fewlabels.training.judging import evaluate_system, validate_system
from fewlabels.training.loop import DecodedImages, Report, Trained, train
from fewlabels.training.processes import join_processes
from fewlabels.training.run import (
    METRICS,
    MODEL,
    N_VALIDATION_EPISODES,
    check_disjoint,
    decode,
    describe,
    fingerprint,
    save_trained,
)
from fewlabels.training.system_files import save_system
from fewlabels.training.tasks import represent
from fewlabels.training.validation import MOST_WAYS, SHOTS

SYSTEM, EVALUATION = "system.safetensors", "evaluation.json"


def train_system(
    base: ImageSet,
    recipe: EpisodicRecipe,
    *,
    output: Path,
    val: ImageSet | None = None,
    evaluate: Sequence[ImageSet] = (),
    n_episodes: int = 10_000,
    device: str = "auto",
    validate_every: int = 5,
    checkpoint_every: int = 5,
    stop_after: float | None = None,
    strict: bool = False,
    command: str = "",
    on_epoch: Callable[[Report], object] | None = None,
) -> Trained:
    """Train a system on the base classes, then evaluate it by its own head.

    A training that `output` already holds is resumed.

    Args:
        base: Images of the base classes.
        recipe: All settings of the training.
        output: Folder for all files; made if it is missing.
        val: Images of classes to validate on.
        evaluate: Sets to evaluate the system on at the end, 1-shot and 5-shot.
        n_episodes: Of these evaluations.
        device: "auto", "cpu", "cuda" or "mps".
        validate_every: Epochs between validations.
        checkpoint_every: Epochs between checkpoints.
        stop_after: Seconds after which to stop with a checkpoint; the same call resumes it.
        strict: Refuse images that cannot be read, instead of leaving them out with a warning.
        command: The command line, for metrics.json.
        on_epoch: Called with the report of each epoch.
    """
    check_disjoint(base, *([] if val is None else [val]), *evaluate)
    make_folder(output)
    with join_processes(device) as processes:

        def read(images: ImageSet, *, crop: int) -> DecodedImages:
            pixels = decode(images, size=recipe.storage_size, crop=crop, strict=strict)
            return _embed_frozen(pixels, recipe, processes.device) if recipe.kind.frozen else pixels

        stored = read(base, crop=recipe.image_size if recipe.kind.frozen else recipe.storage_size)
        trained = train(
            stored,
            recipe,
            output=output,
            processes=processes,
            fingerprint=fingerprint(stored),
            val=None if val is None else read(val, crop=recipe.image_size),
            validate=partial(
                validate_system,
                n_episodes=N_VALIDATION_EPISODES,
                shots=recipe.validation_shots,
            ),
            validate_every=validate_every,
            checkpoint_every=checkpoint_every,
            stop_after=stop_after,
            on_epoch=on_epoch,
        )
        if trained.finished and processes.first:
            record_system(
                trained,
                recipe,
                output=output,
                base=base,
                evaluate={
                    images.split: read(images, crop=recipe.image_size) for images in evaluate
                },
                n_episodes=n_episodes,
                device=processes.device,
                command=command,
            )
    return trained


def record_system(
    trained: Trained,
    recipe: EpisodicRecipe,
    *,
    output: Path,
    base: ImageSet,
    evaluate: Mapping[str, DecodedImages],
    n_episodes: int,
    device: torch.device,
    command: str,
) -> None:
    """Write the system, its evaluations by split, and the record of its training."""
    system = trained.kept
    about = describe(trained, recipe, base)
    save_system(output / SYSTEM, system, recipe, provenance=about)
    if recipe.kind.gives_features:
        save_trained(output / MODEL, trained, recipe, provenance=about)
    found: dict[str, dict[str, object]] = {}
    for split, images in evaluate.items():
        pixels = torch.from_numpy(images.stack).to(device)
        subject = represent(system, pixels, bf16=recipe.precision == "bf16")
        found[split] = {
            str(n_shot): evaluate_system(
                subject,
                images.labels,
                n_way=recipe.n_way if recipe.kind.fixed_n_way else MOST_WAYS,
                n_shot=n_shot,
                n_episodes=n_episodes,
                provenance={"dataset": base.name, "split": split, "backbone": recipe.backbone},
            ).to_dict()
            for n_shot in SHOTS
        }
    metrics = {
        "system": recipe.system,
        "backbone": recipe.backbone,
        "dataset": base.name,
        "n_images": len(base),
        "n_parameters": sum(weight.numel() for weight in system.parameters()),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else device.type,
        "command": command,
        "versions": versions(),
        "recipe": recipe.to_dict(),
        "kept_epoch": trained.reports[trained.epoch - 1],
    }
    write_file(output / METRICS, (json.dumps(metrics, indent=1) + "\n").encode())
    if found:
        write_file(output / EVALUATION, (json.dumps(found, indent=1) + "\n").encode())


def _embed_frozen(
    pixels: DecodedImages, recipe: EpisodicRecipe, device: torch.device
) -> DecodedImages:
    """Features of images by the backbone that the recipe starts from."""
    backbone = load_backbone(recipe.start, name=recipe.backbone).backbone.to(device).eval()
    stack = torch.from_numpy(pixels.stack).to(device)
    return DecodedImages(embed(backbone, stack, bf16=recipe.precision == "bf16"), pixels.labels)
