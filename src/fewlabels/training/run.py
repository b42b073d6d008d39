"""A training from image sets and a recipe to a folder with backbone, log and features."""

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from fewlabels.backbones import Backbone, load_encoder, save_backbone
from fewlabels.data import ImageSet
from fewlabels.data.decoding import UnreadableImageError
from fewlabels.data.image_set import ALL
from fewlabels.errors import InputError, unknown_choice
from fewlabels.evaluation.results import versions
from fewlabels.features import FeatureSet, extraction
from fewlabels.features.views import VIEWS
from fewlabels.io.files import make_folder, write_file
from fewlabels.io.stamps import short_hash
from fewlabels.io.words import listing
from fewlabels.training.embedding import embed
from fewlabels.training.episodic import AnyRecipe
from fewlabels.training.loop import DecodedImages, Report, Trained, train
from fewlabels.training.processes import join_processes
from fewlabels.training.recipe import Recipe
from fewlabels.training.validation import validate

MODEL = "backbone.safetensors"
METRICS = "metrics.json"
BEST = "best"
N_VALIDATION_EPISODES = 600  # a 95 % interval of about ± 1 point of accuracy


def train_backbone(
    base: ImageSet,
    recipe: Recipe,
    *,
    output: Path,
    val: ImageSet | None = None,
    extract: Sequence[ImageSet] = (),
    views: str = "center",
    device: str = "auto",
    validate_every: int = 5,
    checkpoint_every: int = 5,
    stop_after: float | None = None,
    finish: bool = False,
    strict: bool = False,
    command: str = "",
    on_epoch: Callable[[Report], object] | None = None,
    on_extraction: Callable[[extraction.Progress], None] | None = None,
) -> Trained:
    """Train on the base classes and write backbone.safetensors, log.jsonl and metrics.json.

    A training that `output` already holds is resumed.

    Args:
        output: Folder for all files; made if it is missing.
        extract: Sets whose features are written to <split>.safetensors at the end, in root8.
        views: The views of an image that these features are averaged over, one of
            `fewlabels.features.views.VIEWS`, or "best": those with the best validation.
        stop_after: Seconds after which to stop with a checkpoint; the same call resumes it.
        finish: Write backbone and features also where it was stopped, of the weights of then.
        strict: Refuse images that cannot be read, instead of leaving them out with a warning.
    """
    if views not in (*VIEWS, BEST):
        raise unknown_choice("views", views, (*VIEWS, BEST))
    if views == BEST and val is None:
        raise InputError(
            "views='best' needs validation classes, got none. Give val, or name the views."
        )
    check_disjoint(base, *([] if val is None else [val]), *extract)
    make_folder(output)
    stored = decode(base, size=recipe.storage_size, crop=recipe.storage_size, strict=strict)
    seen = None
    if val is not None:
        size, crop = recipe.shown_sizes[0]
        seen = decode(val, size=size, crop=crop, strict=strict)
    with join_processes(device) as processes:
        kind = processes.device.type
        on_cuda, bf16 = kind == "cuda", recipe.precision == "bf16"
        judge_on = "cuda" if on_cuda else "cpu"
        judge = partial(validate, n_episodes=N_VALIDATION_EPISODES, device=judge_on)

        def score(backbone: Backbone, images: DecodedImages, *, views: str) -> dict[str, float]:
            stack = torch.from_numpy(images.stack).to(processes.device)
            return judge(embed(backbone, stack, views=views, bf16=bf16), images.labels)

        trained = train(
            stored,
            recipe,
            output=output,
            processes=processes,
            fingerprint=fingerprint(stored),
            val=seen,
            validate=judge,
            validate_every=validate_every,
            checkpoint_every=checkpoint_every,
            stop_after=stop_after,
            on_epoch=on_epoch,
        )
        if not (processes.first and (trained.finished or finish)):
            return trained
        save_trained(output / MODEL, trained, recipe, provenance=describe(trained, recipe, base))
        scores = {}
        if views == BEST and seen is not None:
            scores = {name: score(trained.backbone, seen, views=name) for name in VIEWS}
        chosen = max(scores, key=lambda name: sum(scores[name].values())) if scores else views
        for images in extract:
            by_size = [
                extraction.extract(
                    images,
                    [load_encoder(output / MODEL, transform=transform)],
                    store=None,  # a newly trained backbone has no rows in a store
                    device=kind,
                    views=chosen,
                    precision="bfloat16" if bf16 and on_cuda else "float32",
                    strict=strict,
                    on_progress=on_extraction,
                )
                for transform in recipe.transforms
            ]
            average_sizes(by_size).save(output / f"{images.split}.safetensors", encoding="root8")
        metrics = {
            **{"backbone": recipe.backbone, "dataset": base.name, "n_images": len(base)},
            "n_parameters": sum(weight.numel() for weight in trained.backbone.parameters()),
            "device": torch.cuda.get_device_name() if on_cuda else kind,
            **{"command": command, "versions": versions(), "recipe": recipe.to_dict()},
            "kept_epoch": trained.reports[trained.epoch - 1],
            "views": {"chosen": chosen, **scores},
        }
        write_file(output / METRICS, (json.dumps(metrics, indent=1) + "\n").encode())
    return trained


def average_sizes(sets: Sequence[FeatureSet]) -> FeatureSet:
    """The mean of features of the same images at several sizes; `transform` names all of them."""
    features = np.mean([each.features for each in sets], axis=0)
    transform = " and ".join(each.provenance["transform"] for each in sets)
    return replace(
        sets[0], features=features, provenance={**sets[0].provenance, "transform": transform}
    )


def describe(trained: Trained, recipe: AnyRecipe, base: ImageSet) -> dict[str, str]:
    """What the files of a trained backbone or system record about it."""
    return {
        "dataset": base.name,
        "recipe": json.dumps(recipe.to_dict()),
        "epoch": str(trained.epoch),
    }


def save_trained(
    path: Path, trained: Trained, recipe: AnyRecipe, *, provenance: dict[str, str]
) -> None:
    """Write the backbone of a training with its transform."""
    save_backbone(
        path,
        trained.backbone,
        name=recipe.backbone,
        options={"dropout": recipe.dropout, "image_size": recipe.image_size},
        transform=recipe.transform,
        provenance=provenance,
    )


def check_disjoint(*sets: ImageSet) -> None:
    """Refuse base classes that are also classes of the other sets."""
    base, *others = sets
    for other in others:
        if shared := sorted(set(base.class_names) & set(other.class_names)):
            what = "validation" if other.split == ALL else other.split
            raise InputError(
                f"base classes must not be among the {what} classes, "
                f"got {len(shared)} in both, such as '{shared[0]}'. "
                "Features would be evaluated on classes that they were trained on."
            )


def decode(images: ImageSet, *, size: int, crop: int, strict: bool = False) -> DecodedImages:
    """All images with short side `size`, center crop of `crop` pixels -> (N, crop, crop, 3).

    An image that cannot be read is left out with a warning, or refused if strict. Every image must
    have a class, and every class an image.
    """
    if (images.labels < 0).any():
        raise InputError(
            f"every image of {images.name} must have a class, "
            f"got {(images.labels < 0).sum()} without. Use a folder per class."
        )
    try:
        stack = images.stack(size)
    except UnreadableImageError:
        if strict:
            raise
        images = leave_out_unreadable(images)  # decodes all images again
        stack = images.stack(size)
    sizes = zip(images.class_names, images.class_sizes, strict=True)
    if empty := [name for name, count in sizes if not count]:
        raise InputError(
            f"every class of {images.name} must have at least one image, "
            f"got none for '{empty[0]}'. Add some or drop the class."
        )
    edge = (size - crop) // 2
    square = stack[:, edge : edge + crop, edge : edge + crop]
    return DecodedImages(np.ascontiguousarray(square), images.labels)


def leave_out_unreadable(images: ImageSet) -> ImageSet:
    """The images that can be read; a warning names those that cannot."""
    broken: dict[int, str] = {}
    for index in range(len(images)):
        try:
            images.read(index)
        except UnreadableImageError as error:
            broken[index] = str(error)
    warnings.warn(
        f"{len(broken)} of {len(images)} images cannot be read and are left out: "
        f"{listing(images.names[index] for index in broken)}. "
        f"The first: {next(iter(broken.values()))}",
        stacklevel=3,
    )
    return images.subset([index for index in range(len(images)) if index not in broken])


def fingerprint(images: DecodedImages) -> str:
    """16 hex digits that name pixels and labels."""
    return short_hash(images.labels.tobytes(), images.stack.data)
