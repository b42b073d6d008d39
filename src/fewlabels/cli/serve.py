"""`fewlabels serve`: a local web page to finish the labelling of a project."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from fewlabels.cli import options
from fewlabels.cli.console import say
from fewlabels.cli.label import Backbone, BatchSize, Method, NumWorkers, resumable


def serve_command(
    project: Annotated[Path, Argument(help="Folder of the project; it is begun with --photos.")],
    photos: Annotated[
        Path | None,
        Option(help="Begin the project with this folder of images or file of features."),
    ] = None,
    labels: Annotated[
        Path | None,
        Option(
            help="Import labels: a CSV with columns path and label, "
            "or for a new project a folder with one sub-folder per class."
        ),
    ] = None,
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 0,
    open_browser: Annotated[bool, Option("--open", help="Open the page in the browser.")] = False,
    method: Method = None,
    settings: options.Set = None,
    backbone: Backbone = None,
    device: options.Device = "auto",
    batch_size: BatchSize = None,
    num_workers: NumWorkers = None,
) -> None:
    """Finish the labelling on a local web page: confirm, correct, undo, download.

    fewlabels serve groceries.fewlabels --photos photos --labels few.csv

    fewlabels serve groceries.fewlabels
    """
    from fewlabels.features.store import FeatureStore
    from fewlabels.labeling.answer import DEFAULT_METHOD
    from fewlabels.labeling.collection import Extraction
    from fewlabels.labeling.server import serve
    from fewlabels.labeling.session import open_session

    with resumable() as bar:
        session = open_session(
            project,
            photos=photos,
            labels=labels,
            extraction=Extraction(backbone, device, batch_size, num_workers, FeatureStore(), bar),
            method=method or DEFAULT_METHOD,
            settings=options.single_knobs(settings),
            on_remark=say,
        )

    def ready(address: str) -> None:
        typer.echo(address)
        say(
            "Open this address in a browser on this machine. "
            "Ctrl-C stops the server; every decision is kept."
        )
        if open_browser:
            typer.launch(address)

    try:
        serve(session, port=port, on_ready=ready)
    finally:
        session.close()
