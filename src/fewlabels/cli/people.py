"""`fewlabels merge`: two people's projects joined; `fewlabels people`: how well they agree."""

import json
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from fewlabels.cli import options
from fewlabels.cli.console import require_path, say


def merge_command(
    project: Annotated[Path, Argument(help="Project that gets the decisions.", metavar="PROJECT")],
    other: Annotated[
        Path, Argument(help="Another project of the same images; only read.", metavar="OTHER")
    ],
    person: Annotated[
        str,
        Option(
            help="Who made the decisions of OTHER that have no name. [name of the folder]",
            metavar="NAME",
            rich_help_panel=options.LABELS,
        ),
    ] = "",
    as_json: options.Json = False,
) -> None:
    """Take the decisions of another project of the same images into a project.

    Images that people decided differently get no label: `fewlabels serve` shows them first.
    Merging twice changes nothing.

    fewlabels merge photos.fewlabels ben.fewlabels --person ben
    """
    require_path(project)
    require_path(other)
    from fewlabels.labeling.merging import merge_projects

    merged = merge_projects(project, other, person=person)
    if as_json:
        typer.echo(json.dumps(merged._asdict(), indent=2, ensure_ascii=True))
        return
    typer.echo(merged.describe().encode(errors="replace").decode())
    if merged.conflicts:
        say("To decide about them on a page:")
        say(f"  fewlabels serve {project}", whole=True)


def people_command(
    project: Annotated[Path, Argument(help="Labelling project.", metavar="PROJECT")],
    as_json: options.Json = False,
) -> None:
    """Who decided how much, how well people agree (Cohen's kappa), and a list of disagreements.

    fewlabels people photos.fewlabels
    """
    require_path(project)
    from fewlabels.io.words import count
    from fewlabels.labeling.agreement import find_agreement
    from fewlabels.labeling.project import Project

    with Project.open(project) as opened:
        found = find_agreement(opened.journal)
    if as_json:
        about = {
            "decided": found.n_decided,
            "pairs": [each._asdict() for each in found.pairs],
            "disagreements": [each._asdict() for each in found.disagreements],
        }
        typer.echo(json.dumps(about, indent=2, ensure_ascii=True))
        return
    for person, n in found.n_decided.items():
        typer.echo(f"{person}: {count(n, 'item')} decided")
    for pair in found.pairs:
        typer.echo(pair.describe())
    for each in found.disagreements:
        said = ", ".join(f"{person}: {label}" for person, label in each.opinions.items())
        now = "open" if each.is_open else f"now {each.label or 'without a label'}"
        typer.echo(f"{each.path}: {said} ({now})".encode(errors="replace").decode())
    if not found.pairs:
        say("No item was decided by two people.")
