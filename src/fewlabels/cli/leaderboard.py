"""`fewlabels leaderboard`: all methods on the same episodes, accuracy beside time."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from fewlabels.cli import console, options
from fewlabels.cli.console import print_table, progress_bar, require_features, say
from fewlabels.errors import InputError


def leaderboard_command(
    features: options.FeaturesArgument = None,
    method: Annotated[
        list[str] | None,
        Option("--method", help="A method; may be repeated. [all]", metavar="NAME"),
    ] = None,
    shots: Annotated[
        list[int] | None, Option(help="Labelled rows per class; may be repeated. [1, 5]")
    ] = None,
    ways: options.Ways = 5,
    queries: Annotated[
        list[str] | None,
        Option(help=f"{options.QUERIES}; may be repeated. [15, dirichlet:2:75, present:2:75]"),
    ] = None,
    episodes: Annotated[
        int, Option(help="Episodes per kind; a tenth of them, at least ten, for slow methods.")
    ] = 200,
    draws: options.Draws = "own",
    seed: options.Seed = 0,
    settings: Annotated[
        Path | None,
        Option(help="Settings of the methods. [tuned on validation classes, in the package]"),
    ] = None,
    beta: Annotated[
        str | None,
        Option(
            help="Power of the methods that have this knob; auto reads it from the features, and "
            "keeps the signs. [their own]",
            metavar="VALUE",
        ),
    ] = None,
    mean_of: options.MeanOf = None,
    per_class: options.PerClass = None,
    engine: options.Engine = "auto",
    device: options.Device = "auto",
    output: Annotated[
        Path | None,
        Option(
            "--output",
            "-o",
            help="Folder for leaderboard.json, .md and .html (with plots).",
            metavar="FOLDER",
            rich_help_panel=options.OUTPUTS,
        ),
    ] = None,
    force: options.Force = False,
    markdown: Annotated[bool, Option("--markdown", help="Print Markdown tables.")] = False,
    as_json: options.Json = False,
) -> None:
    """All methods on the same episodes: accuracy, difference to PT+MAP, time per episode.

    fewlabels leaderboard features.npz --output board
    """
    if markdown and as_json:
        raise InputError("give one of --markdown and --json, not both.")
    require_features(features)
    from fewlabels.evaluation.folder import LEADERBOARD, open_folder, to_json
    from fewlabels.evaluation.leaderboard import (
        QUERIES,
        SHOTS,
        choose_methods,
        make_leaderboard,
        recorded_settings,
        tabulate_leaderboard,
    )
    from fewlabels.evaluation.leaderboard_page import write_leaderboard_page
    from fewlabels.evaluation.settings import read_settings
    from fewlabels.evaluation.tables import to_markdown
    from fewlabels.io.files import write_file

    tuned = recorded_settings() if settings is None else read_settings(settings)
    feature_set = console.load_features(features, per_class=per_class)
    folder = None
    if output is not None:
        folder = open_folder(output, fingerprint=feature_set.fingerprint, force=force)
    how: Any = {"draws": draws, "seed": seed, "engine": engine, "device": device}
    how |= {"shots": shots or SHOTS, "queries": queries or QUERIES, "n_way": ways}
    how["mean_features"] = console.load_mean_features(mean_of)
    about = console.describe_features(feature_set)
    names, _ = choose_methods(method, with_mean=mean_of is not None)
    n_kinds = len(set(how["shots"])) * len(set(how["queries"]))
    with progress_bar("leaderboard", episodes * len(names) * n_kinds) as advance:
        board = make_leaderboard(
            feature_set,
            method,
            n_episodes=episodes,
            tuned=tuned,
            beta=beta,
            about=about,
            on_progress=advance,
            **how,
        )
    tables = [tabulate_leaderboard(board, paired=paired) for paired in (False, True)]
    text = "\n\n".join(map(to_markdown, tables))
    found = {
        "command": console.command_line(),
        "fingerprint": feature_set.fingerprint,
        **board.to_dict(),
    }
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    elif markdown:
        typer.echo(text)
    else:
        for table in tables:
            print_table(table)
    if folder is not None:
        page = write_leaderboard_page(board, command=console.command_line())
        write_file(folder / LEADERBOARD, to_json(found))
        write_file(folder / "leaderboard.md", f"{text}\n".encode())
        write_file(folder / "leaderboard.html", page.encode())
        say(f"Written to {folder}: {LEADERBOARD}, leaderboard.md, leaderboard.html")
