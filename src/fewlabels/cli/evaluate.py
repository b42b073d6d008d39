"""`fewlabels evaluate`: accuracy of methods over many episodes of a feature file."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fewlabels.cli import options
from fewlabels.cli.console import (
    command_line,
    describe_features,
    end_interrupted,
    load_features,
    load_mean_features,
    print_table,
    progress_bar,
    say,
)


def evaluate_command(
    features: options.FeaturesArgument = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help=f"{options.METHODS}; may be repeated. [map]", show_default=False),
    ] = None,
    shots: options.Shots = None,
    ways: options.Ways = 5,
    queries: options.Queries = None,
    episodes: options.Episodes = 1000,
    draws: options.Draws = "own",
    seed: options.Seed = 0,
    beta: options.Beta = None,
    lam: options.Lam = None,
    alpha: options.Alpha = None,
    n_steps: options.NSteps = None,
    proportions: options.Proportions = None,
    pipeline: options.Pipeline = None,
    settings: options.Settings = None,
    mean_of: options.MeanOf = None,
    per_class: options.PerClass = None,
    engine: options.Engine = "auto",
    device: options.Device = "auto",
    dtype: options.Dtype = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder for result.json and accuracies.npz, one accuracy an episode.",
            show_default=False,
        ),
    ] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Accuracy of few-shot methods, mean and 95 % confidence interval.

    fewlabels evaluate --method ncm --method map --shots 1 --shots 5 --episodes 10000
    """
    from fewlabels.evaluation.folder import open_folder, write_results
    from fewlabels.evaluation.settings import read_settings
    from fewlabels.evaluation.sweep import evaluate_cells, plan_cells, remark_idle_knobs
    from fewlabels.evaluation.tables import tabulate_results

    tuned = None if settings is None else read_settings(settings)
    feature_set = load_features(features, per_class=per_class)
    names = method or list(tuned or ["map"])
    knobs = options.gather_knobs(beta, lam, alpha, n_steps, proportions)
    cells = plan_cells(
        names,
        shots=shots or [1],
        queries=queries or ["15"],
        dataset=feature_set.provenance.get("dataset"),
        knobs=knobs,
        pipeline=pipeline,
        tuned=tuned,
    )
    for remark in remark_idle_knobs(names, knobs):
        say(remark)
    folder = (
        None
        if output is None
        else open_folder(output, fingerprint=feature_set.fingerprint, force=force)
    )
    with progress_bar("evaluate", episodes * sum(len(cell.methods) for cell in cells)) as advance:
        results, interrupted = evaluate_cells(
            feature_set,
            cells,
            n_way=ways,
            n_episodes=episodes,
            draws=draws,
            seed=seed,
            engine=engine,
            device=device,
            dtype=dtype,
            mean_features=load_mean_features(mean_of),
            on_progress=advance,
        )
    if as_json:
        typer.echo(json.dumps({"results": [result.to_dict() for result in results]}, indent=2))
    else:
        print_table(tabulate_results(results, about=describe_features(feature_set)))
    if folder is not None:
        write_results(folder, results, fingerprint=feature_set.fingerprint, command=command_line())
        say(f"Written to {folder}: result.json, accuracies.npz")
    if interrupted:
        end_interrupted("the results cover the episodes done so far.")
