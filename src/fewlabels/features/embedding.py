"""One batch: images to pixels, pixels to rows of features."""

import copy
from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fewlabels.backbones.encoder import Encoder
from fewlabels.data.image_set import ImageSet
from fewlabels.data.transforms import ImageTransform
from fewlabels.errors import FewLabelsError, InputError
from fewlabels.features.file_digests import Identity, take_stamp
from fewlabels.features.parallel import map_in_order
from fewlabels.features.recipe import FeatureRecipe
from fewlabels.features.views import VIEWS

PRECISIONS = ("float32", "bfloat16")


class Pixels(NamedTuple):
    """A batch after reading and transforming."""

    indices: list[int]  # of the images that could be read
    tensors: dict[str, Tensor]  # transform: (n, 3, H, W)
    changed: set[int]  # images that changed since their digest was computed
    failures: dict[int, FewLabelsError]  # why the others could not be read


class Column(NamedTuple):
    """The rows of one encoder for all images."""

    encoder: Encoder
    recipe: FeatureRecipe
    rows: NDArray[np.float32]  # (N, D)
    known: NDArray[np.bool_]  # (N,)


class Embedded(NamedTuple):
    """A batch after the networks."""

    indices: list[list[int]]  # for each network, the images that it computed
    rows: list[NDArray[np.float32]]  # for each network, (n, D)
    changed: set[int]
    failures: dict[int, FewLabelsError]
    n_images: int  # readable or not


def read_pixels(
    images: ImageSet,
    identities: Sequence[Identity],
    indices: Sequence[int],
    *,
    transforms: list[str],
) -> Pixels:
    """Read and transform a batch; each image is decoded once for all transforms.

    Args:
        identities: Of all images, from before the store was asked for their rows.
    """
    parsed = [ImageTransform.parse(text) for text in transforms]
    pixels = Pixels([], {}, set(), {})
    made: list[list[Tensor]] = []
    for index in indices:
        try:
            image = images.read(index)
            made.append([transform(image) for transform in parsed])
        except FewLabelsError as error:
            pixels.failures[index] = error
            continue
        pixels.indices.append(index)
        if not _is_unchanged(images, index, identities[index]):
            pixels.changed.add(index)
    # `made` is empty where no image could be read.
    for text, column in zip(transforms, zip(*made, strict=True), strict=False):
        pixels.tensors[text] = _stack(column, text)
    return pixels


def _is_unchanged(images: ImageSet, index: int, identity: Identity) -> bool:
    """Whether the digest is still that of the image; only then may its row be kept."""
    if identity.digest is None:
        return False
    path = images.path(index)
    if path is not None and identity.stamp is not None:
        return take_stamp(path) == identity.stamp
    try:
        return images.digest(index) == identity.digest
    except FewLabelsError:
        return False


def _stack(tensors: Sequence[Tensor], transform: str) -> Tensor:
    if sizes := {tuple(tensor.shape[1:]) for tensor in tensors if tensor.shape != tensors[0].shape}:
        raise InputError(
            f"transform '{transform}' must make all images of one size, "
            f"got {tuple(tensors[0].shape[1:])} and {sizes.pop()}. "
            "Give it a crop(S) or a square(S)."
        )
    return torch.stack(list(tensors))


class Network:
    """A copy of an encoder's network on a device; the original is not moved or changed."""

    def __init__(self, module: nn.Module, recipe: FeatureRecipe, *, device: str) -> None:
        self.recipe = recipe
        self.device = device
        self.module = copy.deepcopy(module).to(device).to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]

    def __call__(self, pixels: Tensor) -> NDArray[np.float32]:
        """The rows of a batch, (n, 3, H, W) -> (n, D)."""
        with torch.inference_mode(), self._precision():
            views = VIEWS[self.recipe.views](pixels.to(self.device))
            try:
                ordered = (view.contiguous(memory_format=torch.channels_last) for view in views)
                seen = [self.module(view).float() for view in ordered]
            except torch.OutOfMemoryError as error:
                raise InputError(
                    f"batch_size must fit into the memory of '{self.device}', "
                    f"got {len(pixels)}. Halve it."
                ) from error
            rows: NDArray[np.float32] = (sum(seen[1:], seen[0]) / len(seen)).cpu().numpy()
        if rows.shape != (len(pixels), self.recipe.dim):
            raise InputError(
                f"backbone {self.recipe.backbone} must give {self.recipe.dim} numbers per image, "
                f"as its feature_dim says, got shape {rows.shape} for {len(pixels)} images."
            )
        return rows

    def _precision(self) -> AbstractContextManager[object]:
        if self.recipe.precision == "bfloat16":
            return torch.autocast(self.device, dtype=torch.bfloat16)
        if self.device == "cuda":  # TF32, the default on CUDA, keeps only three digits
            how = {"benchmark": False, "deterministic": False, "allow_tf32": False}
            return torch.backends.cudnn.flags(enabled=True, **how)
        return nullcontext()


def embed(
    pixels: Pixels, *, networks: Sequence[Network], missing: Sequence[NDArray[np.bool_]]
) -> Embedded:
    """Compute with each network the rows that it lacks.

    Args:
        missing: For each network, which of all images have no row, (N,).
    """
    n_images = len(pixels.indices) + len(pixels.failures)
    batch = Embedded([], [], pixels.changed, pixels.failures, n_images)
    for network, needed in zip(networks, missing, strict=True):
        places = [place for place, index in enumerate(pixels.indices) if needed[index]]
        batch.indices.append([pixels.indices[place] for place in places])
        if places:
            batch.rows.append(network(pixels.tensors[network.recipe.transform][places]))
        else:
            batch.rows.append(np.empty((0, network.recipe.dim), np.float32))
    return batch


def embed_all(
    images: ImageSet,
    identities: Sequence[Identity],
    columns: Sequence[Column],
    batches: Iterable[Sequence[int]],
    *,
    device: str,
    n_workers: int,
) -> Generator[Embedded, None, None]:
    """Read the batches and compute the missing rows with each network, in order."""
    networks = [Network(column.encoder.module, column.recipe, device=device) for column in columns]
    missing = [~column.known for column in columns]
    transforms = sorted({column.recipe.transform for column in columns})
    read = partial(read_pixels, images, identities, transforms=transforms)
    compute = partial(embed, networks=networks, missing=missing)
    in_threads = partial(map_in_order, n_workers=n_workers, set_up=_use_one_thread)
    try:
        if device == "cpu":
            # One batch per core is faster than one batch on all cores, because then all threads
            # wait for one another at every layer.
            yield from in_threads(lambda batch: compute(read(batch)), batches)
        else:
            yield from map(compute, in_threads(read, batches))
    finally:
        torch.set_num_threads(torch.get_num_threads())  # for threads that the caller starts later


def _use_one_thread() -> None:
    """Torch keeps this number per thread; threads that already run keep theirs."""
    torch.set_num_threads(1)
