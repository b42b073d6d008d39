"""`fewlabels reproduce`: the paper's tables and figures, our numbers beside the published."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from fewlabels.cli import options
from fewlabels.cli.console import command_line, end_interrupted, print_table, progress_bar, say
from fewlabels.errors import InputError

EXIT_NOTHING_FOUND = 1
ARTIFACTS = Path("artifacts")  # it may be missing: --features names single files


def reproduce_command(
    names: Annotated[
        list[str] | None,
        Argument(
            help="table1 to table8, figure1 to figure4, time, orderings, or all.", metavar="NAME..."
        ),
    ] = None,
    listing: Annotated[
        bool,
        Option(
            "--list", help="List what can be reproduced, what it needs, and whether that is here."
        ),
    ] = False,
    artifacts: Annotated[
        Path | None,
        Option(
            help=f"Folder of features: DATASET/BACKBONE/{{val,novel}}.safetensors. [{ARTIFACTS}]"
        ),
    ] = None,
    features: Annotated[
        list[str] | None, Option(help="One file: DATASET:BACKBONE:SPLIT=FILE; may be repeated.")
    ] = None,
    per_class: options.PerClass = None,
    output: Annotated[
        Path,
        Option(
            "--output",
            "-o",
            help="Folder for JSON, Markdown, LaTeX, pictures and index.html.",
            metavar="FOLDER",
            rich_help_panel=options.OUTPUTS,
        ),
    ] = Path("results"),
    readme: Annotated[
        Path | None, Option(help="Write the results table of --output into this file.")
    ] = None,
    stored: Annotated[
        bool,
        Option(
            "--stored",
            help="Take all cells of --output, also those that another version of the code "
            "measured: new pages without measuring again.",
        ),
    ] = False,
    episodes: options.Episodes = 10_000,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    plot: Annotated[
        bool | None, Option(help="Draw pictures. [where matplotlib is installed]")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """The paper's tables and figures, our numbers beside the published.

    fewlabels reproduce table5 --features cifar-fs:wrn28-10:novel=novel.npy --per-class 600

    fewlabels reproduce all --artifacts artifacts --output results
    """
    from fewlabels.evaluation.plots import can_draw
    from fewlabels.io.files import held
    from fewlabels.paper.exhibits import (
        PAGE,
        all_experiments,
        choose_exhibits,
        list_exhibits,
        publish,
    )
    from fewlabels.paper.ledger import Ledger
    from fewlabels.paper.library import Library, parse_given
    from fewlabels.paper.readme import update_readme

    if artifacts is not None and not artifacts.is_dir():
        raise InputError(
            f"--artifacts must be a folder, got {artifacts}, which is none. "
            "Check the path for typos."
        )
    library = Library(artifacts or ARTIFACTS, parse_given(features or []), per_class=per_class)
    if listing:
        table = list_exhibits(library)
        if as_json:
            rows = [
                dict(zip(table.header, row, strict=True)) for each in table.sections for row in each
            ]
            typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        else:
            print_table(table)
        return
    if not names and readme is None:
        raise InputError(
            "name what to reproduce, such as table5, figure4 or all. --list shows what there is."
        )
    exhibits = choose_exhibits(names or [])
    if exhibits:
        experiments = all_experiments(exhibits, library)
        needed = [source for exhibit in exhibits for source in exhibit.sources()]
        library.check_given(needed)
        if needed and not any(library.has(source) for source in needed):
            names_asked = ", ".join(each.name for each in exhibits)
            say(
                f"fewlabels: no features for {names_asked} in {library.artifacts}. Run this in the "
                "repository, or name them with --artifacts or --features; --list shows which."
            )
            raise typer.Exit(EXIT_NOTHING_FOUND)
        drawing = can_draw(plot)
        how: Any = {"n_episodes": episodes, "seed": seed, "device": device, "stored": stored}
        with held(output):
            ledger = Ledger(output, library, **how)
            waiting = ledger.to_measure(experiments)
            try:
                with progress_bar("reproduce", episodes * len(waiting)) as ledger.on_progress:
                    ledger.measure(waiting)
            except KeyboardInterrupt:
                done = len(waiting) - len(ledger.to_measure(waiting))
                end_interrupted(
                    f"{done} of {len(waiting)} new cells are kept in {output}; "
                    "the same command continues from there."
                )
            reports = publish(exhibits, ledger, drawing=drawing, command=command_line())
            if as_json:  # what was written
                texts = [(output / f"{report.name}.json").read_text("utf-8") for report in reports]
                typer.echo(json.dumps(list(map(json.loads, texts)), indent=2, ensure_ascii=False))
            for report in () if as_json else reports:
                print_table(report.table)
                for note in report.notes:
                    typer.echo(f"  {note}")
                typer.echo()
        kinds = "JSON, Markdown, LaTeX and pictures" if drawing else "JSON, Markdown and LaTeX"
        written = ", ".join(exhibit.name for exhibit in exhibits)
        say(f"Written to {output}: {PAGE}, and {kinds} of {written}")
        if not drawing and plot is None:
            say("No pictures drawn: that needs matplotlib, pip install 'fewlabels[plot]'")
    if readme is not None:
        changed = update_readme(readme, output)
        say(f"{readme}: results table {'rewritten' if changed else 'already up to date'}")
