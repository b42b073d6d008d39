"""Images to features: known rows come from the store, the others are computed."""

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
from fewlabels.features.recipe import FeatureRecipe
from fewlabels.features.store import FeatureStore
from fewlabels.features.views import VIEWS
from fewlabels.io.words import JOIN, listing

BATCH_SIZE = 128  # images, on an accelerator
# On a CPU: at most 32 images and 220,000 pixels (four images of 224 x 224). In larger batches, the
# memory of the layers is returned to the system and requested again in every call.
CPU_BATCH_SIZE, CPU_BATCH_PIXELS = 32, 220_000
USUAL_SIDE = 224  # pixels of a transform without a fixed size


class Progress(NamedTuple):
    """Progress of extraction, and of a session's start: `done` of the `total` images."""

    stage: Literal["hash", "extract", "compare", "label"]
    done: int
    total: int
    n_known: int = 0  # other images, whose rows came from the store
    n_failed: int = 0  # images among `done` that cannot be read


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
    """The features of images in the order of the images, of several encoders side by side, (N, D).

    Rows that are in the store are not computed again. Computed rows are put into the store every
    ten seconds, so a kill costs at most ten seconds of work. On a CPU each worker takes a batch
    from files to rows on one core; on other devices the workers read and transform while the
    device computes.

    Batch size, number of workers and content of the store change only the time and the last digits
    (floats are added in another order): rows agree within 1e-5 of the largest feature. The same
    call after a kill gives the same bits as an undisturbed one.

    Args:
        images: From any source; identical images are computed once.
        encoders: Networks with their transforms.
        store: Where rows are found and kept; None computes all rows and keeps none.
        device: "auto", "cpu", "cuda" or "mps".
        batch_size: Images per call of a network; by default it depends on the device.
        views: One of `VIEWS`: "center", "flip" (mean over an image and its mirror image), "ten".
        precision: Of the network: "float32", or "bfloat16" on CUDA, faster, with three digits.
        n_workers: Threads, 0 for none; by default torch's number on a CPU, else one per core.
        strict: Raise at the first image that cannot be read, instead of leaving it out with a
            warning.
        on_progress: Called after each batch.

    Returns:
        Features in float32 with the labels, class names and names of the images. The provenance has
        dataset, split, backbone, weights, transform, views and precision.
    """
    device = choose_device(device)
    _check(len(images), len(encoders), device, batch_size, views, precision, n_workers)
    report = on_progress or (lambda _: None)
    if n_workers is None:
        n_workers = torch.get_num_threads() if device == "cpu" else os.cpu_count() or 1

    identities = [Identity(None, None)] * len(images)
    if store is not None:
        identities = store.files.identify(
            images, n_workers=n_workers, on_progress=lambda *done: report(Progress("hash", *done))
        )
    digests = [identity.digest for identity in identities]
    recipes = [make_recipe(each, views=views, precision=precision) for each in encoders]
    columns = [
        _look_up(store, recipe, encoder, digests)
        for recipe, encoder in zip(recipes, encoders, strict=True)
    ]
    first = _first_alike(digests)  # (N,): the image whose row is used for each image
    known = np.all([column.known for column in columns], axis=0)
    todo = np.flatnonzero(~known & (first == np.arange(len(images)))).tolist()
    n_known = int(known.sum())

    failures: dict[int, FewLabelsError] = {}
    if todo:
        report(Progress("extract", 0, len(todo), n_known))
        lacking = [column for column in columns if not column.known.all()]
        keeper = Keeper(store, [column.recipe for column in lacking], digests)
        # Batch size depends on all encoders, including fully cached ones, so that a resumed run
        # forms the same batches and gives the same bits.
        batches = cut(todo, batch_size or choose_batch_size(recipes, device=device))
        n_done = 0
        computing = embed_all(
            images, identities, lacking, batches, device=device, n_workers=n_workers
        )
        with keeper, closing(computing) as embedded:
            for batch in embedded:
                if batch.failures and strict:
                    raise next(iter(batch.failures.values()))
                failures |= batch.failures
                for column, indices, rows in zip(lacking, batch.indices, batch.rows, strict=True):
                    names = [images.names[i] for i in indices]
                    _refuse_broken(rows, names, backbone=column.recipe.backbone)
                    column.rows[indices], column.known[indices] = rows, True
                keeper.add(batch)
                n_done += batch.n_images
                report(Progress("extract", n_done, len(todo), n_known, len(failures)))

    usable = np.all([column.known[first] for column in columns], axis=0)
    left_out = [images.names[i] for i in np.flatnonzero(~usable)]
    _report_failures(left_out, failures, n_images=len(images))
    return FeatureSet(
        np.concatenate([column.rows[first[usable]] for column in columns], axis=1),
        images.labels[usable],
        images.class_names,
        _provenance(images, recipes),
        tuple(images.names[i] for i in np.flatnonzero(usable)),
    )


def make_recipe(encoder: Encoder, *, views: str, precision: str) -> FeatureRecipe:
    """Everything that the rows of an encoder depend on besides the images."""
    return FeatureRecipe(
        backbone=encoder.name,
        weights=encoder.weights_digest,
        transform=str(ImageTransform.parse(encoder.transform)),
        views=views,
        precision=precision,
        dim=encoder.feature_dim,
    )


def choose_batch_size(recipes: Sequence[FeatureRecipe], *, device: str) -> int:
    """Images per call of a network, from the device and the size of the images.

    >>> small = FeatureRecipe(backbone="conv4", weights="", transform="square(32)",
    ...                       views="center", precision="float32", dim=64)
    >>> large = FeatureRecipe(backbone="vit", weights="", transform="square(224)",
    ...                       views="center", precision="float32", dim=384)
    >>> choose_batch_size([small], device="cpu"), choose_batch_size([small, large], device="cpu")
    (32, 4)
    """
    if device != "cpu":
        return BATCH_SIZE
    sides = [ImageTransform.parse(recipe.transform).size for recipe in recipes]
    n_pixels = max(USUAL_SIDE if side is None else side for side in sides) ** 2
    return min(CPU_BATCH_SIZE, max(1, CPU_BATCH_PIXELS // n_pixels))


def _look_up(
    store: FeatureStore | None, recipe: FeatureRecipe, encoder: Encoder, digests: list[str | None]
) -> Column:
    if store is not None:
        return Column(encoder, recipe, *store.get(recipe, digests))
    n, dim = len(digests), recipe.dim
    return Column(encoder, recipe, np.zeros((n, dim), np.float32), np.zeros(n, np.bool_))


def _first_alike(digests: Sequence[str | None]) -> NDArray[np.int64]:
    """For each image the first image with the same content, (N,)."""
    seen: dict[str, int] = {}
    pairs = enumerate(digests)
    return np.array([i if digest is None else seen.setdefault(digest, i) for i, digest in pairs])


def _check(
    n_images: int,
    n_encoders: int,
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
            f"precision must be float32 on device '{device}', got {precision}. "
            "Other precisions are for CUDA."
        )


def _refuse_broken(rows: NDArray[np.float32], names: Sequence[str], *, backbone: str) -> None:
    broken = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if broken.size:
        raise InputError(
            f"backbone {backbone} must give finite features, "
            f"got NaN or infinity for {names[broken[0]]}. "
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
    warnings.warn(
        f"{len(left_out)} of {n_images} images cannot be read and are left out: "
        f"{listing(left_out)}. The first: {reason}",
        stacklevel=3,
    )


def _provenance(images: ImageSet, recipes: Sequence[FeatureRecipe]) -> dict[str, str]:
    known = {"views": recipes[0].views, "precision": recipes[0].precision}
    return {
        "dataset": images.name,
        "split": images.split,
        "backbone": JOIN.join(recipe.backbone for recipe in recipes),
        "weights": JOIN.join(recipe.weights for recipe in recipes),
        "transform": " + ".join(recipe.transform for recipe in recipes),
        **known,
    }
