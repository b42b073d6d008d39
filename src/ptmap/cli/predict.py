"""`ptmap predict`: labels of single images by a model that `ptmap label --model` kept."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ptmap.cli import options
from ptmap.cli.console import say
from ptmap.cli.label import Abstain


def predict_command(
    model: Annotated[Path, typer.Argument(help="What `ptmap label --model` wrote.", show_default=False)],
    images: Annotated[list[Path], typer.Argument(help="Images, folders of images, or a file of features.", show_default=False)],
    abstain: Abstain = 0.0,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Labels of later images, one by one: CSV on stdout.

    ptmap label photos --labels few.csv --model groceries.safetensors

    ptmap predict groceries.safetensors new.jpg
    """
    from ptmap.labeling.exports import to_csv
    from ptmap.labeling.later import predict_later

    rows, remarks = predict_later(model, images, abstain=abstain, device=device)
    for remark in remarks:
        say(remark)
    typer.echo(json.dumps([row._asdict() for row in rows], indent=2, ensure_ascii=False) if as_json else to_csv(rows), nl=as_json)
