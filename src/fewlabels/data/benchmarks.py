"""Benchmarks of the literature, read from any of their forms on disk."""

from collections.abc import Callable
from pathlib import Path

from fewlabels.data.class_lists import Benchmark, find_benchmark
from fewlabels.data.forms import Form, find_form
from fewlabels.data.image_set import ALL, SPLITS, ImageSet, Problem
from fewlabels.data.listing import ListedImage, collect
from fewlabels.errors import FileFormatError, unknown_choice
from fewlabels.io.words import listing


def read_benchmark(name: str, folder: str | Path, *, split: str) -> ImageSet:
    """Read one split of a benchmark, without decoding its images.

    Classes are in the order of the published lists, the images of each class in an order that
    depends only on the form. Skipped files, and counts below those of the literature, are in
    `problems` of the result.

    Args:
        name: "cifar-fs", "fc100", "mini-imagenet", "tiered-imagenet" or "cub".
        folder: The folder that holds it, in one of the forms that `fewlabels data list` names.
        split: "base", "val", "novel" or "all".
    """
    benchmark = find_benchmark(name)
    if split not in (*SPLITS, ALL):
        raise unknown_choice("split", split, (*SPLITS, ALL))
    form = find_form(Path(folder), benchmark)
    images = gather(form, split, form.list_class)
    sizes = list(zip(images.class_names, images.class_sizes, strict=True))
    if missing := [name for name, size in sizes if size == 0]:
        raise FileFormatError(
            f"{folder} must hold images of all {len(images.class_names)} {split} classes of "
            f"{benchmark.title}, got none of {listing(missing)}. "
            "Unpack the data again; `fewlabels data check` lists all problems."
        )
    for name, size in sizes:
        if benchmark.per_class is not None and size > benchmark.per_class:
            raise FileFormatError(
                f"{folder} must hold {benchmark.per_class} images of each class of "
                f"{benchmark.title}, got {size} of {name}. "
                "Keep only those that the published lists name."
            )
    return images


def gather(form: Form, split: str, read_class: Callable[[str], list[ListedImage]]) -> ImageSet:
    """The images of a split, or of all three; `read_class` lists those of one class."""
    found: dict[str, list[ListedImage]] = {}
    problems: list[Problem] = []
    for each in SPLITS if split == ALL else (split,):
        classes = {name: read_class(name) for name in form.class_names(each)}
        sizes = {name: len(listed) for name, listed in classes.items()}
        problems += count_problems(form.benchmark, each, sizes)
        found |= classes
    return collect(form.benchmark.name, split, found, (*form.problems, *problems))


def count_problems(benchmark: Benchmark, split: str, sizes: dict[str, int]) -> list[Problem]:
    """Differences from the literature in the images per class, or in their sum."""
    counts = "{:,} {} where the literature counts {:,}".format
    if benchmark.per_class is not None:
        return [
            Problem(name, counts(size, "images", benchmark.per_class))
            for name, size in sizes.items()
            if size != benchmark.per_class
        ]
    wanted = (len(benchmark.classes[split]), "classes"), (benchmark.n_images[split], "images")
    got = sum(1 for size in sizes.values() if size), sum(sizes.values())
    return [
        Problem(split, counts(number, what, goal))
        for number, (goal, what) in zip(got, wanted, strict=True)
        if number != goal
    ]
