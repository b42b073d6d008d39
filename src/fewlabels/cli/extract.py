"""`fewlabels extract`: images through a backbone to a file of features."""

import json
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from fewlabels.cli import options
from fewlabels.cli.console import describe_features, end_interrupted, print_table, say
from fewlabels.errors import FileFormatError, InputError, unknown_choice

if TYPE_CHECKING:
    from fewlabels.backbones.encoder import Encoder
    from fewlabels.data import ImageSet
    from fewlabels.features.extraction import Progress

BACKBONES = "efficientnet-lite0, timm:NAME, hf:ORG/NAME, the path of a checkpoint, or an architecture with --weights"
DEFAULT_BACKBONE = "efficientnet-lite0"  # its weights come by pip: no account, no download later
DEFAULT_SPLIT = "novel"
SUFFIX = ".safetensors"
MEGABYTE = 1e6  # bytes


def extract_command(
    images: Annotated[
        Path,
        typer.Argument(
            help="Folder of images, a sub-folder a class; with --dataset, of a benchmark."
        ),
    ],
    backbone: Annotated[
        list[str] | None,
        typer.Option(
            help=f"{BACKBONES}; repeated, or as a+b: features side by side. [{DEFAULT_BACKBONE}]",
            show_default=False,
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(help="Checkpoint for an architecture, e.g. wrn28-10.", show_default=False),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Benchmark that the folder holds; see fewlabels data list.", show_default=False
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help=f"base, val, novel or all, of --dataset. [{DEFAULT_SPLIT}]", show_default=False
        ),
    ] = None,
    output: Annotated[Path, typer.Option(help="File of features to write.")] = Path(
        "features.safetensors"
    ),
    encoding: Annotated[
        str, typer.Option(help="float32, float16, or root8: 8 bits, for non-negative features.")
    ] = "float32",
    views: Annotated[
        str, typer.Option(help="Average features over center, flip (2 views) or ten (crops).")
    ] = "center",
    precision: Annotated[str, typer.Option(help="float32, or bfloat16 on CUDA.")] = "float32",
    device: options.Device = "auto",
    batch_size: Annotated[
        int | None,
        typer.Option(help="Images at once: only a matter of time. [by device]", show_default=False),
    ] = None,
    num_workers: Annotated[
        int | None, typer.Option(help="Threads, 0 for none. [one a core]", show_default=False)
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at an image that cannot be read.")
    ] = False,
    store: Annotated[
        Path | None,
        typer.Option(
            help="Folder where computed features are kept. [FEWLABELS_CACHE, or the user's cache]",
            show_default=False,
        ),
    ] = None,
    no_cache: Annotated[
        bool,
        typer.Option("--no-cache", help="Compute everything, and keep nothing but the output."),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Features of a folder of images; only those of new and changed images are computed.

    fewlabels extract photos --output photos.safetensors

    fewlabels extract cifar-fs --dataset cifar-fs --backbone wrn28-10 --weights backbone.safetensors
    """
    from fewlabels.evaluation.folder import make_folder
    from fewlabels.features import FeatureStore, extract
    from fewlabels.features.storage import ENCODINGS

    if encoding not in ENCODINGS:
        raise unknown_choice("encoding", encoding, ENCODINGS)
    if store is not None and no_cache:
        raise InputError("--store and --no-cache must not be given together. Leave one out.")
    image_set = read_image_set(images, dataset=dataset, split=split, strict=strict)
    if output.suffix != SUFFIX or output.is_dir():  # better refused now than after the work
        raise InputError(
            f"--output must be a file that ends in {SUFFIX}, as that is what is written, got {output}."
        )
    make_folder(output.absolute().parent)
    kept_in = None if no_cache else FeatureStore(store)
    encoders = load_encoders(backbone or [DEFAULT_BACKBONE], weights=weights)
    begun = time.perf_counter()
    with saying_warnings(), ExtractionBar() as bar:
        try:
            features = extract(
                image_set,
                encoders,
                store=kept_in,
                device=device,
                batch_size=batch_size,
                views=views,
                precision=precision,
                n_workers=num_workers,
                strict=strict,
                on_progress=bar,
            )
        except KeyboardInterrupt:
            if kept_in is None or kept_in.n_lost:
                raise
            end_interrupted(
                f"what was done is kept in {kept_in.root}; the same command goes on from there."
            )
    seconds = time.perf_counter() - begun
    try:
        features.save(output, encoding=encoding)
    except OSError as error:
        raise InputError(
            f"{output} cannot be written ({error.strerror or error}). Choose another --output."
        ) from error
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
        _print_summary(found, about=describe_features(features))
    say(f"Written to {output}")
    if kept_in is not None and not kept_in.n_lost:  # else a warning has said so
        say(
            f"Computed features are kept in {kept_in.root}, {found['store_bytes'] / MEGABYTE:,.1f} MB in all."
        )


def read_image_set(
    folder: Path, *, dataset: str | None, split: str | None, strict: bool
) -> "ImageSet":
    """A folder of one's own images or a split of a benchmark; what is passed over is said, or refused if strict."""
    from fewlabels.data import read_benchmark, read_images

    if dataset is None:
        if split is not None:
            raise InputError(
                f"--split must come with --dataset, got {split} alone. Name the benchmark that the folder holds."
            )
        images = read_images(folder, strict=strict)
    else:
        images = read_benchmark(dataset, folder, split=split or DEFAULT_SPLIT)
    if images.problems:
        others = f", and {len(images.problems) - 1} more" if len(images.problems) > 1 else ""
        if strict:
            raise FileFormatError(
                f"{folder} must be without problems, got {images.problems[0]}{others}. Repair it, or do without --strict."
            )
        say(
            f"{folder}: passed over {images.problems[0]}{others}. `fewlabels data check` tells all."
        )
    return images


def load_encoders(specs: Sequence[str], *, weights: Path | None) -> "list[Encoder]":
    """The encoders of all specs; "a+b" stands for two, unless it is the path of a file."""
    from fewlabels.backbones.encoder import load_encoder

    single = [
        word for spec in specs for word in ([spec] if Path(spec).exists() else spec.split("+"))
    ]
    if weights is not None and len(single) > 1:
        raise InputError(
            f"--weights must come with one --backbone, got {len(single)}. Give the paths of the checkpoints as backbones."
        )
    return [load_encoder(spec, weights=weights) for spec in single]


@contextmanager
def saying_warnings() -> Iterator[None]:
    """Warnings as remarks on stderr, without the line of code they come from."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, *_, **__: say(f"fewlabels: {message}")
        yield


class ExtractionBar:
    """Shows how far extraction is, with images a second and the time left, on stderr where that is a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self.n_computed = 0  # images
        self.n_known: int | None = (
            None  # that the store had; None where it had all, and there is nothing to show
        )
        self.speed = 0.0  # images a second
        self._begun = 0.0
        talk = Console(stderr=True)
        columns = (
            *(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("images"),
            ),
            *(TextColumn("{task.fields[speed]}"), TimeRemainingColumn()),
        )
        self._progress = Progress(
            *columns, console=talk, transient=True, disable=not talk.is_terminal
        )
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, progress: "Progress") -> None:
        """Move on."""
        if progress.stage not in self._tasks:
            self._tasks[progress.stage] = self._progress.add_task(
                progress.stage, total=progress.total, speed=""
            )
            self._begun = time.perf_counter()
        speed = progress.done / max(time.perf_counter() - self._begun, 1e-9)
        shown = f"{speed:,.0f}/s" if progress.done else ""
        unfinished = progress.done < progress.total
        self._progress.update(
            self._tasks[progress.stage], completed=progress.done, speed=shown, visible=unfinished
        )
        if progress.stage == "extract":
            self.n_computed, self.n_known, self.speed = (
                progress.done - progress.n_failed,
                progress.n_known,
                speed,
            )


def _print_summary(found: dict[str, Any], *, about: str) -> None:
    from fewlabels.evaluation.tables import NONE, Table

    row = {
        "images": f"{found['images']:,}",
        "classes": str(found["classes"]),
        "dims": f"{found['dim']:,}",
        "from cache": f"{100 * found['from_cache'] / (found['images'] + len(found['left_out'])):.0f} %",
        "left out": str(len(found["left_out"])),
        "seconds": f"{found['seconds']:.1f}",
        "images/s": f"{found['images_per_second']:.0f}" if found["computed"] else NONE,
    }
    print_table(
        Table(about, tuple(row), [[tuple(row.values())]], f"fingerprint {found['fingerprint']}")
    )
