"""`fewlabels evaluate`: accuracy of methods over many episodes of a feature file."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from fewlabels.cli import console, options
from fewlabels.cli.console import print_table, progress_bar, require_features, say
from fewlabels.errors import InputError


def evaluate_command(
    features: options.FeaturesArgument = None,
    method: options.Methods = None,
    baseline: Annotated[
        str | None,
        Option(
            help="Print paired differences to this method.",
            metavar="NAME",
            rich_help_panel=options.LABELS,
        ),
    ] = None,
    shots: options.Shots = None,
    ways: options.Ways = 5,
    queries: options.Queries = None,
    episodes: options.Episodes = 1000,
    draws: options.Draws = "own",
    seed: options.Seed = 0,
    knobs: options.Set = None,
    beta: options.Beta = None,
    lam: options.Lam = None,
    alpha: options.Alpha = None,
    pipeline: options.Pipeline = None,
    settings: options.Settings = None,
    mean_of: options.MeanOf = None,
    per_class: options.PerClass = None,
    engine: options.Engine = "auto",
    device: options.Device = "auto",
    dtype: options.Dtype = None,
    output: Annotated[
        Path | None,
        Option(
            "--output",
            "-o",
            help="Folder for result.json, accuracies.npz (one accuracy per episode) and, with "
            "several --queries, a figure of accuracy against imbalance.",
            metavar="FOLDER",
            rich_help_panel=options.OUTPUTS,
        ),
    ] = None,
    force: options.Force = False,
    markdown: Annotated[
        bool, Option("--markdown", help="Print a Markdown table.", rich_help_panel=options.OUTPUTS)
    ] = False,
    latex: Annotated[
        bool,
        Option(
            "--latex", help="Print a LaTeX tabular (booktabs).", rich_help_panel=options.OUTPUTS
        ),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Accuracy of few-shot methods, mean and 95 % interval, on the same episodes.

    fewlabels evaluate --method ncm --method map --shots 1 --shots 5 --episodes 10000

    fewlabels evaluate --method ncm --method map --baseline ncm
    """
    if markdown + latex + as_json > 1:
        raise InputError("give one of --markdown, --latex and --json, not several.")
    if features is not None and (features.suffix or len(features.parts) > 1):
        require_features(features)  # a bare word may be a method, see below
    from fewlabels.evaluation import tables
    from fewlabels.evaluation.comparison import compare_results
    from fewlabels.evaluation.draw_imbalance import draw_imbalance
    from fewlabels.evaluation.folder import open_folder, write_results
    from fewlabels.evaluation.plots import can_draw
    from fewlabels.evaluation.settings import read_settings
    from fewlabels.evaluation.sweep import evaluate_cells, idle_knobs, plan_cells
    from fewlabels.io.files import write_file
    from fewlabels.methods import method_names

    if features is not None and str(features) in method_names() and not features.exists():
        raise InputError(
            f"features must be a file, got '{features}', which is a method: "
            f"write --method {features}."
        )
    tuned = None if settings is None else read_settings(settings)
    feature_set = console.load_features(features, per_class=per_class)
    names = method or list(tuned or ["map"])
    given = options.gather_knobs(knobs, beta=beta, lam=lam, alpha=alpha)
    cells = plan_cells(
        names,
        shots=shots or [1],
        queries=queries or ["15"],
        dataset=feature_set.provenance.get("dataset"),
        knobs=given,
        pipeline=pipeline,
        tuned=tuned,
    )
    if baseline is not None and baseline not in names:
        raise InputError(
            f"baseline must be one of the methods {', '.join(names)}, got '{baseline}'."
        )
    if baseline is not None and len(cells[0].methods) < 2:
        raise InputError(
            f"baseline needs another method to compare with, got only {baseline}. "
            "Give --method several times, or several values of a knob."
        )
    for knob, name in idle_knobs(names, given):
        say(f"knob {knob} has no effect on {name}, which has its own.")
    folder, about = None, console.describe_features(feature_set)
    if output is not None:
        folder = open_folder(output, fingerprint=feature_set.fingerprint, force=force)
    kind: Any = {"n_way": ways, "n_episodes": episodes, "draws": draws, "seed": seed}
    how: Any = {"engine": engine, "device": device, "dtype": dtype}
    how["mean_features"] = console.load_mean_features(mean_of)
    with progress_bar("evaluate", episodes * sum(len(cell.methods) for cell in cells)) as advance:
        results, interrupted = evaluate_cells(
            feature_set, cells, **kind, **how, on_progress=advance
        )
    if baseline is None:
        found = [result.to_dict() for result in results]
        table = tables.tabulate_results(results, about=about)
    else:
        comparisons = compare_results(results, baseline=baseline)
        found = [comparison.to_dict() for comparison in comparisons]
        table = tables.tabulate_comparisons(comparisons, about=about)
    if as_json:
        typer.echo(json.dumps({"results": found}, indent=2))
    elif markdown or latex:
        typer.echo(tables.to_markdown(table) if markdown else tables.to_latex(table))
    else:
        print_table(table)
    if folder is not None:
        command = console.command_line()
        write_results(folder, results, fingerprint=feature_set.fingerprint, command=command)
        written = ["result.json", "accuracies.npz"]
        several = len({result.queries for result in results}) > 1
        drawn = draw_imbalance(results, about=about) if several and can_draw(None) else {}
        for suffix, content in drawn.items():
            written.append(f"imbalance.{suffix}")
            write_file(folder / written[-1], content)
        say(f"Written to {folder}: {', '.join(written)}")
        if several and not drawn:
            say("No figure drawn: that needs matplotlib, pip install 'fewlabels[plot]'")
    if interrupted:
        console.end_interrupted("the results cover the episodes done so far.")
