"""Tune the methods of the leaderboard on validation classes, once, and record the settings.

    python benchmarks/leaderboard.py [--episodes 100] [--method NAME ...]

Every method that has knobs to tune, at 1 and 5 shots, by `evaluation.tuning.tune`: one knob after
the other, the power of the features left at the paper's. Methods for unknown class sizes are tuned
on class proportions from Dirichlet(2), all others on balanced classes, as their papers do.
Validation classes of CIFAR-FS, own WRN. Writes src/fewlabels/evaluation/leaderboard.toml after
every method; with --method, replaces only these.
"""

import argparse
from pathlib import Path
from typing import Any

import torch

from fewlabels import FeatureSet, method_names
from fewlabels.evaluation.leaderboard import FOR_FOLDERS, recorded_settings
from fewlabels.evaluation.settings import Tuned, format_settings
from fewlabels.evaluation.tuning import tune, tuning_grids

ROOT = Path(__file__).parents[1]
FEATURES = ROOT / "artifacts" / "cifar-fs" / "wrn28-10" / "val.safetensors"
SETTINGS = ROOT / "src" / "fewlabels" / "evaluation" / "leaderboard.toml"
UNKNOWN_SIZES = ("alpha-tim", "paddle", "bms", "anchored", "bavardage", "alpha-am")
SLOW = {"protolp": 50, "ilpc": 50, "am": 30, "alpha-am": 30}  # episodes of these, at most
# The first has constants of its own, the others are as PT+MAP.
NOT_TUNED = ("map-auto", "map-truth", "soft-kmeans")


def main() -> None:
    """Tune, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--method", action="append")
    options = parser.parse_args()
    torch.set_num_threads(1)
    features = FeatureSet.load(FEATURES)
    tuned: Tuned = recorded_settings() if options.method else {}
    for name in options.method or method_names():
        own = {knob for knob in tuning_grids(name) if knob != "beta"}
        if not own or name in (*FOR_FOLDERS, *NOT_TUNED):
            continue
        queries = "dirichlet:2:75" if name in UNKNOWN_SIZES else "15"
        fixed: dict[str, Any] = {"beta": 0.5} if "beta" in tuning_grids(name) else {}
        for n_shot in (1, 5):
            found = tune(
                features,
                method=name,
                n_shot=n_shot,
                queries=queries,
                n_episodes=min(options.episodes, SLOW.get(name, options.episodes)),
                settings=fixed,
                engine="torch",
                device="cpu",
            )
            chosen = {knob: value for knob, value in found.chosen.items() if knob in own}
            tuned.setdefault(name, {})[n_shot] = chosen
            gain = found.result.accuracy - found.start.accuracy
            print(f"{name:16} {n_shot}-shot {queries:15} {chosen} {gain:+.2f}", flush=True)
        comments = [
            "Written by: python benchmarks/leaderboard.py",
            f"Features: CIFAR-FS, WRN-28-10, validation classes; {options.episodes} episodes ("
            + ", ".join(f"{slow} {number}" for slow, number in SLOW.items())
            + ")",
            f"Tuned on dirichlet:2:75: {', '.join(UNKNOWN_SIZES)}; all others on 15 per class",
        ]
        SETTINGS.write_text(format_settings(tuned, comments=comments))


if __name__ == "__main__":
    main()
