"""Features of base classes by networks that were not trained on them, to fit rules on many classes.

    python benchmarks/folds.py IMAGES OUTPUT --dataset cifar-fs --fold 0 [--set dropout=0.3 ...]

Of `--folds` parts of the base classes (every second class, if two), part `--fold` is left out. A
network is trained on the other parts and on the validation classes; its features of the part that
was left out are written to OUTPUT/base.safetensors. For these classes it is what a network of the
benchmark is for novel ones. The novel classes are not read. Runs on a machine without the command
`fewlabels`, and goes on from the last checkpoint in OUTPUT.

benchmarks/folds has features of eight such networks: 100 images per class of CIFAR-FS, all of CUB
(docs/rivals.md, "Fitted again").
"""

import argparse
import json
import shlex
import sys
from pathlib import Path

import numpy as np

from fewlabels.data import ImageSet, read_benchmark
from fewlabels.training.episodic import load_recipe
from fewlabels.training.recipe import Recipe
from fewlabels.training.run import train_backbone


def join(first: ImageSet, second: ImageSet) -> ImageSet:
    """The classes and images of both sets, under the name and split of the first."""
    return ImageSet(
        first.name,
        first.split,
        first.class_names + second.class_names,
        np.concatenate([first.labels, second.labels + len(first.class_names)]),
        first.names + second.names,
        first.sources + second.sources,
    )


def main() -> None:
    """Train without one part of the base classes, and write the features of that part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--fold", type=int, required=True)
    parser.add_argument("--folds", type=int, default=2)
    parser.add_argument("--recipe", default="modern")
    parser.add_argument("--set", action="append", default=[], dest="changes")
    parser.add_argument("--views", default="ten")
    parser.add_argument("--minutes", type=float, help="of training, at most")
    options = parser.parse_args()
    recipe = load_recipe(options.recipe, [*options.changes, "keep=last"])
    if not isinstance(recipe, Recipe):
        parser.error(f"--recipe must be one for a backbone, got {options.recipe}.")
    base, val = (
        read_benchmark(options.dataset, options.images, split=split) for split in ("base", "val")
    )
    left_out = base.class_names[options.fold :: options.folds]
    kept = [name for name in base.class_names if name not in left_out]
    train_backbone(
        join(base.of_classes(kept), val),
        recipe,
        output=options.output,
        extract=[base.of_classes(left_out)],
        views=options.views,
        stop_after=None if options.minutes is None else 60 * options.minutes,
        finish=True,
        command=shlex.join(["python", *sys.argv]),
        on_epoch=lambda report: print(json.dumps(report), flush=True),
    )


if __name__ == "__main__":
    main()
