"""Images to features: what the store has is taken from it, the rest goes through the networks."""

import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fewlabels.backbones.encoder import Encoder
from fewlabels.data.image_set import ImageSet
from fewlabels.data.transforms import ImageTransform
from fewlabels.devices import choose_device
from fewlabels.errors import FewLabelsError, FileFormatError, InputError, unknown_choice
from fewlabels.features.embedding import PRECISIONS, Column, embed_all
from fewlabels.features.feature_set import FeatureSet
from fewlabels.features.file_digests import Identity
from fewlabels.features.keeper import Keeper
from fewlabels.features.parallel import cut
from fewlabels.features.recipe import Recipe
from fewlabels.features.store import FeatureStore
from fewlabels.features.views import VIEWS

BATCH_SIZE = 128  # of an accelerator
CPU_BATCH_SIZE, CPU_BATCH_PIXELS = (
    32,
    220_000,
)  # four images of 224 px: with more, memory for the layers is fetched anew each time
N_NAMED = 5  # images that a warning lists


class Progress(NamedTuple):
    """How far extraction is: `done` of the `total` images that a stage has to work on."""

    stage: Literal["hash", "extract"]
    done: int
    total: int
    n_known: int = 0  # other images, that the store had
    n_failed: int = 0  # of those done, that cannot be read


def extract(
    images: ImageSet,
    encoders: Sequence[Encoder],
    *,
    store: FeatureStore | None,
    device: str = "cpu",
    batch_size: int | None = None,
    views: str = "center",
    precision: str = "float32",
    n_workers: int | None = None,
    strict: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> FeatureSet:
    """The features of images, those of several encoders side by side, in the order of the images.

    Rows that the store has are not computed again; those computed are kept as the work goes on, so that a
    kill costs ten seconds of it. On a CPU each worker takes a batch all the way from files to rows on one
    core; elsewhere the workers read and transform while the device computes.

    Batch size, workers and what the store had before change nothing but the time and, by the order in which
    floats are added, the last digits: rows agree within 1e-5 of the largest feature. The same call again after
    a kill gives the same bits as one that was left alone.

    Args:
        images: From any source; one that stands there twice is computed once.
        encoders: Networks with their transforms.
        store: Where rows are looked for and kept; None computes all and keeps none.
        device: "auto", "cpu", "cuda" or "mps".
        batch_size: Images that a network is given at once; left out, what suits the device.
        views: One of `VIEWS`: "center", or "flip" for the mean over an image and its mirror image, ...
        precision: What the network computes in: "float32", or "bfloat16" on CUDA, which is faster and keeps three digits.
        n_workers: Threads, 0 for the caller's alone; left out, as many as torch uses on a CPU, else one a core.
        strict: Raise at the first image that cannot be read, instead of leaving it out with a warning.
        on_progress: Told after each batch.

    Returns:
        Features in float32 with the labels, class names and names of the images; the provenance says dataset,
        split, backbone, weights, transform, views and precision.
    """
    device = choose_device(device)
    _check(
        len(images),
        len(encoders),
        device=device,
        batch_size=batch_size,
        views=views,
        precision=precision,
        n_workers=n_workers,
    )
    report = on_progress or (lambda _: None)
    if n_workers is None:
        n_workers = torch.get_num_threads() if device == "cpu" else os.cpu_count() or 1

    identities = [Identity(None, None)] * len(images)
    if store is not None:
        identities = store.files.identify(
            images, n_workers=n_workers, on_progress=lambda *count: report(Progress("hash", *count))
        )
    digests = [identity.digest for identity in identities]
    columns = [
        _look_up(store, make_recipe(encoder, views=views, precision=precision), encoder, digests)
        for encoder in encoders
    ]
    first = _first_alike(digests)  # (N,): who speaks for each image
    known = np.all([column.known for column in columns], axis=0)
    todo = np.flatnonzero(~known & (first == np.arange(len(images)))).tolist()
    n_known = int(known.sum())

    failures: dict[int, FewLabelsError] = {}
    if todo:
        report(Progress("extract", 0, len(todo), n_known))
        wanting = [column for column in columns if not column.known.all()]
        keeper = Keeper(store, [column.recipe for column in wanting], digests)
        # By all encoders, wanting or not: so that batches, and with them the last bits, are the same after a kill.
        batches = cut(
            todo,
            batch_size or choose_batch_size([column.recipe for column in columns], device=device),
        )
        n_done = 0
        with (
            keeper,
            closing(
                embed_all(images, identities, wanting, batches, device=device, n_workers=n_workers)
            ) as embedded,
        ):
            for batch in embedded:
                if batch.failures and strict:
                    raise next(iter(batch.failures.values()))
                failures |= batch.failures
                for column, indices, rows in zip(wanting, batch.indices, batch.rows, strict=True):
                    _refuse_broken(
                        rows, [images.names[i] for i in indices], backbone=column.recipe.backbone
                    )
                    column.rows[indices], column.known[indices] = rows, True
                keeper.add(batch)
                n_done += batch.n_images
                report(Progress("extract", n_done, len(todo), n_known, len(failures)))

    usable = np.all([column.known[first] for column in columns], axis=0)
    _report_failures(
        [images.names[i] for i in np.flatnonzero(~usable)], failures, n_images=len(images)
    )
    return FeatureSet(
        np.concatenate([column.rows[first[usable]] for column in columns], axis=1),
        images.labels[usable],
        images.class_names,
        _provenance(images, [column.recipe for column in columns]),
        tuple(images.names[i] for i in np.flatnonzero(usable)),
    )


def make_recipe(encoder: Encoder, *, views: str, precision: str) -> Recipe:
    """All that the rows of an encoder depend on besides the images."""
    return Recipe(
        backbone=encoder.name,
        weights=encoder.weights_digest,
        transform=str(ImageTransform.parse(encoder.transform)),
        views=views,
        precision=precision,
        dim=encoder.feature_dim,
    )


def choose_batch_size(recipes: Sequence[Recipe], *, device: str) -> int:
    """How many images a network is best given at once, by the size of the images.

    >>> small = Recipe(backbone="conv4", weights="", transform="square(32)", views="center", precision="float32", dim=64)
    >>> large = Recipe(backbone="vit", weights="", transform="square(224)", views="center", precision="float32", dim=384)
    >>> choose_batch_size([small], device="cpu"), choose_batch_size([small, large], device="cpu")
    (32, 4)
    """
    if device != "cpu":
        return BATCH_SIZE
    sides = [ImageTransform.parse(recipe.transform).size for recipe in recipes]
    n_pixels = max(224 if side is None else side for side in sides) ** 2
    return min(CPU_BATCH_SIZE, max(1, CPU_BATCH_PIXELS // n_pixels))


def _look_up(
    store: FeatureStore | None, recipe: Recipe, encoder: Encoder, digests: Sequence[str | None]
) -> Column:
    if store is None:
        return Column(
            encoder,
            recipe,
            np.zeros((len(digests), recipe.dim), np.float32),
            np.zeros(len(digests), np.bool_),
        )
    return Column(encoder, recipe, *store.get(recipe, digests))


def _first_alike(digests: Sequence[str | None]) -> NDArray[np.int64]:
    """For each image the first one with the same content, often itself, (N,)."""
    seen: dict[str, int] = {}
    return np.array(
        [
            index if digest is None else seen.setdefault(digest, index)
            for index, digest in enumerate(digests)
        ]
    )


def _check(
    n_images: int,
    n_encoders: int,
    *,
    device: str,
    batch_size: int | None,
    views: str,
    precision: str,
    n_workers: int | None,
) -> None:
    if not n_images:
        raise InputError("images must be at least one, got none.")
    if not n_encoders:
        raise InputError("encoders must be at least one, got none.")
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}.")
    if n_workers is not None and n_workers < 0:
        raise InputError(f"n_workers must be 0 or more, got {n_workers}.")
    if views not in VIEWS:
        raise unknown_choice("views", views, VIEWS)
    if precision not in PRECISIONS:
        raise unknown_choice("precision", precision, PRECISIONS)
    if precision != "float32" and device != "cuda":
        raise InputError(
            f"precision must be float32 on device '{device}', got {precision}. Only CUDA gains by it."
        )


def _refuse_broken(rows: NDArray[np.float32], names: Sequence[str], *, backbone: str) -> None:
    broken = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if broken.size:
        raise InputError(
            f"backbone {backbone} must give finite features, got NaN or infinity for {names[broken[0]]}. "
            "Its weights may be damaged, or the precision too low."
        )


def _report_failures(
    left_out: Sequence[str], failures: dict[int, FewLabelsError], *, n_images: int
) -> None:
    if not failures:
        return
    reason = next(iter(failures.values()))
    if len(left_out) == n_images:
        raise FileFormatError(f"none of the {n_images} images can be read. The first: {reason}")
    named = ", ".join(left_out[:N_NAMED]) + (
        f" and {len(left_out) - N_NAMED} more" if len(left_out) > N_NAMED else ""
    )
    warnings.warn(
        f"{len(left_out)} of {n_images} images cannot be read and are left out: {named}. The first: {reason}",
        stacklevel=3,
    )


def _provenance(images: ImageSet, recipes: Sequence[Recipe]) -> dict[str, str]:
    return {
        "dataset": images.name,
        "split": images.split,
        "backbone": "+".join(recipe.backbone for recipe in recipes),
        "weights": "+".join(recipe.weights for recipe in recipes),
        "transform": " + ".join(recipe.transform for recipe in recipes),
        "views": recipes[0].views,
        "precision": recipes[0].precision,
    }
