"""`fewlabels check`: whether a labelling project is whole, and its repair."""

import json
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from fewlabels.cli import options
from fewlabels.cli.console import require_path, say

EXIT_DAMAGED = 1


def check_command(
    project: Annotated[Path, Argument(help="Labelling project.", metavar="PROJECT")],
    repair: Annotated[
        bool,
        Option(
            "--repair",
            help="Rebuild the journal from decisions.jsonl; the damaged one is put aside.",
        ),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Check that a labelling project is whole: journal, its copy, features, images.

    fewlabels check photos.fewlabels

    fewlabels check photos.fewlabels --repair
    """
    require_path(project)
    from fewlabels.labeling.check import check_project
    from fewlabels.labeling.project import Project

    if repair:
        aside = Project.repair(project)
        say(f"Rebuilt from decisions.jsonl{f'; the old one is {aside}' if aside else ''}.")
    found = check_project(project)
    right = all(each.right for each in found)
    if as_json:
        about = {"right": right, "found": [each._asdict() for each in found]}
        typer.echo(json.dumps(about, indent=2, ensure_ascii=False))
    else:
        for each in found:
            typer.echo(each.describe())
    if not right:
        raise typer.Exit(EXIT_DAMAGED)
