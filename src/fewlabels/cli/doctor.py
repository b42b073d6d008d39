"""`fewlabels doctor`: contents of a feature file, settings that suit it, gain of transduction."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from fewlabels.cli import options
from fewlabels.cli.console import (
    describe_features,
    fit,
    load_features,
    progress_bar,
    require_features,
    say,
)
from fewlabels.errors import InputError
from fewlabels.io.words import percent

if TYPE_CHECKING:
    from fewlabels.evaluation.reliability import Reliability


def doctor_command(
    features: options.FeaturesArgument = None,
    per_class: options.PerClass = None,
    episodes: Annotated[
        int, Option(help="Episodes of the trial that measures the gain of transduction.")
    ] = 200,
    seed: options.Seed = 0,
    reliability: Annotated[
        Path | None,
        Option(
            help="Figure (.png or .svg) of confidence against accuracy, with and without "
            "calibration."
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Examine features before using them.

    fewlabels doctor features.safetensors --reliability reliability.png
    """
    require_features(features)
    from fewlabels.evaluation.checkup import TRIED, check_reliability, check_up
    from fewlabels.evaluation.draw_reliability import draw_reliability
    from fewlabels.evaluation.plots import can_draw
    from fewlabels.io.files import make_folder, write_file

    if reliability is not None:
        if reliability.suffix not in (".png", ".svg"):
            raise InputError(f"--reliability must be a .png or .svg file, got '{reliability}'.")
        can_draw()
        make_folder(reliability.parent)
    feature_set = load_features(features, per_class=per_class)
    with progress_bar("Trying methods", len(TRIED) * episodes) as advance:
        found = check_up(feature_set, n_episodes=episodes, seed=seed, on_progress=advance)
    measured = []
    if reliability is not None:
        measured = check_reliability(feature_set, n_episodes=episodes, seed=seed)
        figure = draw_reliability(measured, about=describe_features(feature_set))
        write_file(reliability, figure[reliability.suffix.removeprefix(".")])
        say(f"Written: {reliability}")
    if as_json:
        more = {"reliability": [each.to_dict() for each in measured]} if measured else {}
        typer.echo(json.dumps({**found.to_dict(), **more}, indent=2))
        return
    typer.echo(describe_features(feature_set))
    low, middle, high = found.norms
    before, after = found.skewness
    zeros = f"{percent(found.zeros, 1)} of the values"
    rows = f"{found.rows:,} x {found.dim}, {found.classes} classes"
    for name, value in (
        ("rows", f"{rows}, {found.unlabelled:,} unlabelled"),
        ("zeros", f"{zeros}, {found.zero_rows} rows without any other value"),
        ("negatives", f"{percent(found.negatives, 1)} of the values"),
        ("norms", f"{low:.3g} to {high:.3g}, median {middle:.3g}"),
        ("duplicates", f"{found.duplicates} rows equal an earlier one"),
        ("skewness", f"{before:.2f} before, {after:.2f} after {found.power}"),
        ("before", found.histogram[0]),
        ("after", found.histogram[1]),
        ("power", found.power),
        ("lam", "unknown without labels" if found.lam is None else f"{found.lam:.1f}"),
        ("trial", found.trial),
    ):
        typer.echo(f"  {name:<11} {value}")
    if found.inductive is not None and found.transductive is not None:
        gain = found.transductive - found.inductive
        typer.echo(
            f"  {'gain':<11} {gain:+.1f} points by transduction: "
            f"{found.inductive:.1f} to {found.transductive:.1f} %"
        )
    for each in measured:
        _print_reliability(each)
    typer.echo("Diagnosis")
    for words in found.diagnose():
        typer.echo(fit(f"  - {words}", sys.stdout))


def _print_reliability(found: "Reliability") -> None:
    from fewlabels.evaluation.reliability import WANTED
    from fewlabels.evaluation.tables import describe_queries

    kept = f"{percent(found.coverage)} of the labels are kept"
    kept += f", {percent(found.accuracy, 1)} of them right" if found.coverage else ""
    typer.echo(
        f"  {'calibration':<11} {found.n_episodes} episodes, {found.n_way}-way "
        f"{found.n_shot}-shot, {describe_queries(found.queries)}: "
        f"expected error {percent(found.confidence.error, 1)}; "
        f"where {percent(WANTED)} are expected to be right, {kept}"
    )
