"""`ptmap doctor`: what a feature file holds, which settings suit it, what transduction would gain."""

import json
from typing import Annotated

import typer

from ptmap.cli import options
from ptmap.cli.console import describe_features, load_features


def doctor_command(
    features: options.FeaturesArgument = None,
    per_class: options.PerClass = None,
    episodes: Annotated[int, typer.Option(help="Of the trial that tells what transduction gains.")] = 200,
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Look at features before classifying them.

    ptmap doctor features.safetensors
    """
    from ptmap.evaluation.checkup import check_up

    feature_set = load_features(features, per_class=per_class)
    found = check_up(feature_set, n_episodes=episodes, seed=seed)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2))
        return
    typer.echo(describe_features(feature_set))
    for name, value in (
        ("rows", f"{found.rows:,} x {found.dim}, {found.classes} classes, {found.unlabelled:,} unlabelled"),
        ("zeros", f"{found.zeros:.1%} of the values, {found.zero_rows} rows without any other value"),
        ("negatives", f"{found.negatives:.1%} of the values"),
        ("norms", f"{found.norms[0]:.3g} to {found.norms[2]:.3g}, median {found.norms[1]:.3g}"),
        ("duplicates", f"{found.duplicates} rows equal an earlier one"),
        ("skewness", f"{found.skewness[0]:.2f} before, {found.skewness[1]:.2f} after {found.power}"),
        ("before", found.histogram[0]),
        ("after", found.histogram[1]),
        ("power", found.power),
        ("lam", "unknown without labels" if found.lam is None else f"{found.lam:.1f}"),
        ("trial", found.trial),
    ):
        typer.echo(f"  {name:<11} {value}")
    if found.inductive is not None and found.transductive is not None:
        gain = found.transductive - found.inductive
        typer.echo(f"  {'gain':<11} {gain:+.1f} points by transduction: {found.inductive:.1f} to {found.transductive:.1f} %")
