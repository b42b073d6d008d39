"""`fewlabels compare`: paired differences between methods on the same episodes."""

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
from fewlabels.errors import InputError


def compare_command(
    methods: Annotated[
        list[str],
        typer.Argument(
            help=f"{options.METHODS}; two or more, or one with several values of a knob."
        ),
    ],
    baseline: Annotated[
        str | None, typer.Option(help="Method to compare with. [the first]", show_default=False)
    ] = None,
    features: options.FeaturesOption = None,
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
            help="Folder for result.json, accuracies.npz and, with several --queries, a figure of accuracy against imbalance.",
            show_default=False,
        ),
    ] = None,
    force: options.Force = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    latex: Annotated[
        bool, typer.Option("--latex", help="Print a LaTeX tabular (booktabs).")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Paired differences between methods on the same episodes.

    fewlabels compare ncm kmeans map --shots 1 --shots 5 --queries 15 --queries dirichlet:2:75 --output results
    """
    if markdown + latex + as_json > 1:
        raise InputError("give one of --markdown, --latex and --json, not several.")
    from fewlabels.evaluation.comparison import compare_results
    from fewlabels.evaluation.draw_imbalance import draw_imbalance
    from fewlabels.evaluation.folder import open_folder, write_file, write_results
    from fewlabels.evaluation.plots import can_draw
    from fewlabels.evaluation.settings import read_settings
    from fewlabels.evaluation.sweep import evaluate_cells, plan_cells, remark_idle_knobs
    from fewlabels.evaluation.tables import tabulate_comparisons, to_latex, to_markdown

    feature_set = load_features(features, per_class=per_class)
    knobs = options.gather_knobs(beta, lam, alpha, n_steps, proportions)
    cells = plan_cells(
        methods,
        shots=shots or [1],
        queries=queries or ["15"],
        dataset=feature_set.provenance.get("dataset"),
        knobs=knobs,
        pipeline=pipeline,
        tuned=None if settings is None else read_settings(settings),
    )
    if baseline is not None and baseline not in methods:
        raise InputError(
            f"--baseline must be one of the compared methods, {', '.join(methods)}, got '{baseline}'."
        )
    if len(cells[0].methods) < 2:
        raise InputError(
            f"compare needs at least two methods, got {cells[0].methods[0].name}. Name another, or several values of a knob."
        )
    for remark in remark_idle_knobs(methods, knobs):
        say(remark)
    folder = (
        None
        if output is None
        else open_folder(output, fingerprint=feature_set.fingerprint, force=force)
    )
    with progress_bar("compare", episodes * sum(len(cell.methods) for cell in cells)) as advance:
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
    comparisons = compare_results(results, baseline=baseline)
    table = tabulate_comparisons(comparisons, about=describe_features(feature_set))
    if as_json:
        typer.echo(
            json.dumps({"results": [comparison.to_dict() for comparison in comparisons]}, indent=2)
        )
    elif markdown or latex:
        typer.echo(to_markdown(table) if markdown else to_latex(table))
    else:
        print_table(table)
    if folder is not None:
        write_results(folder, results, fingerprint=feature_set.fingerprint, command=command_line())
        written = ["result.json", "accuracies.npz"]
        several = len({result.queries for result in results}) > 1
        drawn = (
            draw_imbalance(results, about=describe_features(feature_set))
            if several and can_draw(None)
            else {}
        )
        for suffix, content in drawn.items():
            written.append(f"imbalance.{suffix}")
            write_file(folder / written[-1], content)
        say(f"Written to {folder}: {', '.join(written)}")
        if several and not drawn:
            say("No figure drawn: that needs matplotlib, pip install 'fewlabels[plot]'")
    if interrupted:
        end_interrupted("the comparison covers the episodes done so far.")
