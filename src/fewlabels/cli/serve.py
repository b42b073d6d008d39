"""`fewlabels serve`: a local web page to finish the labelling of a project."""

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from fewlabels.cli import options
from fewlabels.cli.arguments import say_remark
from fewlabels.cli.console import require_path, say
from fewlabels.cli.label import Backbone, BatchSize, Method, NumWorkers, resumable
from fewlabels.errors import FileFormatError

if TYPE_CHECKING:
    from fewlabels.labeling.predict import Predictor
    from fewlabels.labeling.rest import Backend


def serve_command(
    project: Annotated[
        Path,
        Argument(
            help="Folder of images, file of features, table of texts, or project. "
            "The project of PHOTOS is the folder PHOTOS.fewlabels beside it.",
            metavar="PHOTOS",
        ),
    ],
    photos: Annotated[
        Path | None,
        Option(
            help="Begin a project of another name with this folder of images or file of features; "
            "or tell a project where its images were moved.",
            metavar="FOLDER|FILE",
            rich_help_panel=options.LABELS,
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        Option(
            help="Import labels: a CSV with columns path and label, "
            "or for a new project a folder with one sub-folder per class.",
            metavar="CSV|FOLDER",
            rich_help_panel=options.LABELS,
        ),
    ] = None,
    port: Annotated[
        int | None,
        Option(
            min=0,
            max=65535,
            help="Port; 0 picks a free one. [the one of the last time]",
            metavar="N",
            rich_help_panel="Page",
        ),
    ] = None,
    open_browser: Annotated[
        bool | None,
        Option(
            "--open/--no-open",
            help="Open the page in the browser. [if run in a terminal]",
            rich_help_panel="Page",
        ),
    ] = None,
    share: Annotated[
        bool,
        Option(
            "--share",
            help="Serve the local network instead of this machine only, and print a QR code. "
            "Whoever has the link can see the images and change labels; nothing is encrypted.",
            rich_help_panel="Page",
        ),
    ] = False,
    person: Annotated[
        str,
        Option(
            help="Who decides: kept with each decision. Each browser may set another name.",
            metavar="NAME",
            rich_help_panel="Page",
        ),
    ] = "",
    api: Annotated[
        bool,
        Option(
            "--api",
            help="Serve programs instead of a page: OpenAPI at /openapi.json, and Label Studio's "
            "ML backend. PHOTOS may then be a saved model too.",
            rich_help_panel="Page",
        ),
    ] = False,
    class_from: options.ClassFrom = "deepest",
    sub_classes: options.SubClasses = "",
    column: options.Column = None,
    text_column: options.TextColumn = None,
    boxes: options.Boxes = None,
    every: options.Every = None,
    classes: options.Classes = None,
    method: Method = None,
    settings: options.Set = None,
    backbone: Backbone = None,
    device: options.Device = "auto",
    batch_size: BatchSize = None,
    num_workers: NumWorkers = None,
) -> None:
    """Finish the labelling on a local web page: confirm, correct, undo, download.

    fewlabels serve photos --labels few.csv

    fewlabels serve groceries.fewlabels --photos photos

    fewlabels serve photos --share --person anna

    fewlabels serve texts.csv --text-column body

    fewlabels serve groceries.safetensors --api
    """
    if photos is None:
        require_path(project)
    from fewlabels.features.store import FeatureStore
    from fewlabels.labeling.answer import DEFAULT_METHOD
    from fewlabels.labeling.collection import Extraction
    from fewlabels.labeling.server import HOST, find_address, serve
    from fewlabels.labeling.session import open_session

    host = find_address() if share else HOST  # refused before the work
    if api and (predictor := _find_model(project, device)) is not None:
        from fewlabels.labeling.rest import Backend

        _serve_api(Backend(predictor, photos=photos), port, host)
        return
    with resumable() as bar:
        session = open_session(
            project,
            photos=photos,
            labels=labels,
            extraction=Extraction(backbone, device, batch_size, num_workers, FeatureStore(), bar),
            method=method or DEFAULT_METHOD,
            settings=options.single_knobs(settings),
            class_from=class_from,
            sub_classes=sub_classes,
            boxes=boxes,
            every=every,
            person=person,
            columns=options.columns_by_role(column, text_column),
            classes=classes,
            on_remark=say_remark,
        )

    if api:
        from fewlabels.labeling.rest import Backend

        try:
            _serve_api(Backend(session=session), port, host)
        finally:
            session.close()
        return

    def ready(address: str) -> None:
        typer.echo(address)
        if share:
            say(f"\n{draw_qr(address)}", whole=True)
            say("Open this address on a phone or computer in your network.")
            say("Whoever has it can see the images and change labels; nothing is encrypted.")
        else:
            say("Open this address in a browser on this machine.")
        say("Ctrl-C stops the server; every decision is kept.")
        if sys.stdout.isatty() if open_browser is None else open_browser:
            typer.launch(address)

    try:
        serve(session, port=port, host=host, on_ready=ready)
    finally:
        session.close()
    say("Stopped; every decision is kept.")


def _find_model(path: Path, device: str) -> "Predictor | None":
    """A saved model, if the path is one."""
    from fewlabels.labeling.predict import Predictor

    if path.suffix.lower() != ".safetensors" or not path.is_file():
        return None
    try:
        return Predictor.load(path, device=device)
    except FileFormatError:  # features
        return None


def _serve_api(backend: "Backend", port: int | None, host: str) -> None:
    from fewlabels.labeling.rest import serve_api

    def ready(address: str, token: str) -> None:
        typer.echo(address)
        typer.echo(token)
        say(f"The API is described at {address}/openapi.json.")
        say(f"Requests need the header: Authorization: Bearer {token}", whole=True)
        say("For Label Studio, add a model with this address, and the token as the password.")
        say("Ctrl-C stops the server.")

    serve_api(backend, port=port, host=host, on_ready=ready)
    say("Stopped.")


def draw_qr(text: str) -> str:
    """A QR code of half blocks, two modules per character; white on black in every terminal."""
    import segno  # pure Python; only here is it needed

    drawn = io.StringIO()
    segno.make_qr(text, error="l").terminal(out=drawn, compact=True)
    lines = drawn.getvalue().splitlines()
    if sys.stderr.isatty():
        lines = [f"\x1b[97;40m{line}\x1b[0m" for line in lines]
    return "\n".join(lines)
