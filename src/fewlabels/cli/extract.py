"""`fewlabels extract`: compute features of images with a backbone and write them to a file."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from fewlabels.cli import console, options
from fewlabels.cli.console import ProgressBar, require_path, say
from fewlabels.errors import FileFormatError, InputError, unknown_choice
from fewlabels.io.words import listing, split_names

if TYPE_CHECKING:
    from fewlabels.backbones.encoder import Encoder
    from fewlabels.data import ImageSet
    from fewlabels.features.extraction import Progress

BACKBONES = (
    "fast, good, best, efficientnet-lite0 or -lite2, timm:NAME, hf:ORG/NAME, the path of a "
    "checkpoint, or an architecture with --weights"
)
DEFAULT_BACKBONE = "efficientnet-lite0"  # its weights are a pip package: no further download
DEFAULT_SPLIT = "novel"
SUFFIX, NPZ = ".safetensors", ".npz"
MEGABYTE = 1e6  # bytes
STAGES = {  # of `features.extraction.Progress`, in words
    "hash": "Reading images",
    "extract": "Computing features",
    "compare": "Comparing images",
    "label": "Labelling",
}


def extract_command(
    images: Annotated[
        Path,
        Argument(
            help="Folder of images, a sub-folder per class; with --dataset, of a benchmark.",
            metavar="IMAGES",
        ),
    ],
    backbone: Annotated[
        list[str] | None,
        Option(
            help=f"{BACKBONES}; repeated, or as a+b: features side by side. [{DEFAULT_BACKBONE}]"
        ),
    ] = None,
    weights: Annotated[
        Path | None, Option(help="Checkpoint for an architecture, e.g. wrn28-10.")
    ] = None,
    dataset: Annotated[
        str | None, Option(help="Benchmark that the folder holds; see fewlabels data list.")
    ] = None,
    split: Annotated[
        str | None, Option(help=f"base, val, novel or all, of --dataset. [{DEFAULT_SPLIT}]")
    ] = None,
    output: Annotated[
        Path,
        Option(
            "--output",
            "-o",
            help="File of features to write.",
            metavar="FILE",
            rich_help_panel=options.OUTPUTS,
        ),
    ] = Path("features.safetensors"),
    encoding: Annotated[
        str, Option(help="float32, float16, or root8: 8 bits, for non-negative features.")
    ] = "float32",
    views: Annotated[
        str, Option(help="Average features over center, flip (2 views) or ten (crops).")
    ] = "center",
    precision: Annotated[str, Option(help="float32, or bfloat16 on CUDA.")] = "float32",
    device: options.Device = "auto",
    batch_size: Annotated[
        int | None, Option(help="Images per batch: changes only the time. [by device]")
    ] = None,
    num_workers: Annotated[int | None, Option(help="Threads, 0 for none. [one per core]")] = None,
    strict: Annotated[
        bool, Option("--strict", help="Stop at an image that cannot be read.")
    ] = False,
    store: Annotated[
        Path | None,
        Option(
            help="Folder where computed features are kept. [FEWLABELS_CACHE, or the user's cache]"
        ),
    ] = None,
    no_cache: Annotated[
        bool, Option("--no-cache", help="Compute everything, and keep only the output.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Compute features of a folder of images; only new and changed images are computed.

    fewlabels extract photos --output photos.safetensors

    fewlabels extract cifar-fs --dataset cifar-fs --backbone wrn28-10 --weights backbone.safetensors
    """
    require_path(images)
    from fewlabels.features import FeatureStore, extract
    from fewlabels.features.storage import ENCODINGS
    from fewlabels.io.files import make_folder

    if encoding not in ENCODINGS:
        raise unknown_choice("encoding", encoding, ENCODINGS)
    if store is not None and no_cache:
        raise InputError("--store and --no-cache must not be given together. Leave one out.")
    image_set = read_image_set(images, dataset=dataset, split=split, strict=strict)
    if output.suffix not in (SUFFIX, NPZ) or output.is_dir():  # refused before the work
        raise InputError(
            f"--output must be a file that ends in {SUFFIX} or {NPZ}, the formats that are "
            f"written, got {output}."
        )
    make_folder(output.absolute().parent)
    kept_in = None if no_cache else FeatureStore(store)
    encoders = load_encoders(backbone or [DEFAULT_BACKBONE], weights=weights)
    begun = time.perf_counter()
    how: Any = {"device": device, "batch_size": batch_size, "n_workers": num_workers}
    what: Any = {"views": views, "precision": precision, "strict": strict}
    with console.saying_warnings(), ExtractionBar() as bar:
        try:
            features = extract(image_set, encoders, store=kept_in, on_progress=bar, **how, **what)
        except KeyboardInterrupt:
            if kept_in is None or kept_in.n_lost:
                raise
            console.end_interrupted(
                f"computed features are kept in {kept_in.root}; the same command continues."
            )
    seconds = time.perf_counter() - begun
    if output.suffix == NPZ:
        features.save_npz(output)
    else:
        features.save(output, encoding=encoding)
    found: dict[str, Any] = {
        "images": len(features),
        "classes": features.n_classes,
        "dim": features.dim,
        "computed": bar.n_computed,
        "from_cache": len(image_set) if bar.n_known is None else bar.n_known,
        "images_per_second": bar.speed,
        "seconds": seconds,
        "left_out": sorted({*image_set.names} - {*(features.names or ())}),
        "passed_over": [str(problem) for problem in image_set.problems],
        "fingerprint": features.fingerprint,
        "provenance": features.provenance,
        "output": str(output),
        "store": None if kept_in is None else str(kept_in.root),
        "store_bytes": 0 if kept_in is None else kept_in.n_bytes,
    }
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        _print_summary(found, about=console.describe_features(features))
    say(f"Written to {output}")
    if kept_in is not None and not kept_in.n_lost:  # otherwise a warning was printed
        size = f"{found['store_bytes'] / MEGABYTE:,.1f} MB"
        say(f"Computed features are kept in {kept_in.root}, {size} in total.")


def read_image_set(
    folder: Path, *, dataset: str | None, split: str | None, strict: bool
) -> "ImageSet":
    """A folder of images or a split of a benchmark; problems are reported, or refused."""
    from fewlabels.data import read_benchmark, read_images

    if dataset is None:
        if split is not None:
            raise InputError(
                f"--split must come with --dataset, got {split} alone. "
                "Name the benchmark that the folder holds."
            )
        images = read_images(folder, strict=strict)
    else:
        images = read_benchmark(dataset, folder, split=split or DEFAULT_SPLIT)
    if images.problems:
        problems = listing(images.problems, most=1, separator="; ")
        if strict:
            raise FileFormatError(
                f"{folder} must be without problems, got {problems}. "
                "Repair it, or do without --strict."
            )
        say(f"{folder} has problems: {problems}. `fewlabels data check` lists all.")
    return images


def load_encoders(specs: Sequence[str], *, weights: Path | None) -> "list[Encoder]":
    """The encoders of all specs; "a+b" stands for two, unless it is an existing path."""
    from fewlabels.backbones.encoder import QUALITIES, load_encoder

    single = [name for spec in specs for name in split_names(QUALITIES.get(spec, spec))]
    if weights is not None and len(single) > 1:
        raise InputError(
            f"--weights must come with one --backbone, got {len(single)}. "
            "Give the paths of the checkpoints as backbones."
        )
    return [load_encoder(spec, weights=weights) for spec in single]


class ExtractionBar(ProgressBar):
    """The progress bar of extraction, with counts for the summary."""

    def __init__(self) -> None:
        super().__init__("images")
        self.n_computed = 0  # images
        self.n_known: int | None = None  # images from the store; None if all were

    def __call__(self, progress: "Progress") -> None:
        """Show the progress of extraction."""
        self.show(STAGES[progress.stage], progress.done, progress.total)
        if progress.stage == "extract":
            self.n_computed = progress.done - progress.n_failed
            self.n_known = progress.n_known


def _print_summary(found: dict[str, Any], *, about: str) -> None:
    from fewlabels.evaluation.tables import NONE, Table

    n_images = found["images"] + len(found["left_out"])
    row = {
        "images": f"{found['images']:,}",
        "classes": str(found["classes"]),
        "dims": f"{found['dim']:,}",
        "from cache": f"{100 * found['from_cache'] / n_images:.0f} %",
        "left out": str(len(found["left_out"])),
        "seconds": f"{found['seconds']:.1f}",
        "images/s": f"{found['images_per_second']:.0f}" if found["computed"] else NONE,
    }
    rows, caption = [[tuple(row.values())]], f"fingerprint {found['fingerprint']}"
    console.print_table(Table(about, tuple(row), rows, caption))
