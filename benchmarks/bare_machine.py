"""Train a backbone where torch is installed, but not all that the command `fewlabels` needs.

    python benchmarks/bare_machine.py IMAGES OUTPUT --dataset cub --recipe dct --minutes 21 \
        --set image_size=84 --set stored_size=96 --set stages.0.image_size=56

It does what `fewlabels train IMAGES --views ten --extract val --extract novel` does. Where the time
is over before the last epoch, features of the weights of then are written. A call that was killed
goes on from the last checkpoint in OUTPUT.
"""

import argparse
import json
import shlex
import sys
import time
from pathlib import Path

from fewlabels.data import read_benchmark
from fewlabels.training.episodic import load_recipe
from fewlabels.training.recipe import Recipe
from fewlabels.training.run import train_backbone


def main() -> None:
    """Train, and write backbone, log, metrics and features."""
    parser = argparse.ArgumentParser()
    parser.add_argument("images", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--recipe", default="modern")
    parser.add_argument("--set", action="append", default=[], dest="changes")
    parser.add_argument("--minutes", type=float, required=True, help="of training")
    parser.add_argument("--views", default="ten")
    parser.add_argument("--validate-every", type=int, default=10)
    parser.add_argument("--checkpoint-every", type=int, default=10)
    options = parser.parse_args()
    recipe = load_recipe(options.recipe, options.changes)
    if not isinstance(recipe, Recipe):
        parser.error(f"--recipe must be one for a backbone, got {options.recipe}.")
    begun = time.perf_counter()
    sets = {
        split: read_benchmark(options.dataset, options.images, split=split)
        for split in ("base", "val", "novel")
    }
    trained = train_backbone(
        sets["base"],
        recipe,
        output=options.output,
        val=sets["val"],
        extract=[sets["val"], sets["novel"]],
        views=options.views,
        validate_every=options.validate_every,
        checkpoint_every=options.checkpoint_every,
        stop_after=60 * options.minutes,
        finish=True,
        command=shlex.join(["python", *sys.argv]),
        on_epoch=lambda report: print(json.dumps(report), flush=True),
    )
    minutes = (time.perf_counter() - begun) / 60
    print(f"epoch {trained.epoch} of {recipe.n_epochs} after {minutes:.1f} min", flush=True)


if __name__ == "__main__":
    main()
