"""`fewlabels predict`: labels of single images by a model that `fewlabels label --model` wrote."""

import json
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from fewlabels.cli import options
from fewlabels.cli.arguments import say_remark
from fewlabels.cli.console import require_path
from fewlabels.cli.label import Abstain


def predict_command(
    images: Annotated[
        list[Path],
        Argument(
            help="Images, folders of images, or a file of features or texts.", metavar="IMAGES"
        ),
    ],
    model: options.Model,
    abstain: Abstain = 0.0,
    sub_classes: options.SubClasses = "",
    column: options.Column = None,
    text_column: options.TextColumn = None,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Predict labels of new images with a saved model, as CSV on stdout.

    fewlabels label photos --labels few.csv --model groceries.safetensors

    fewlabels predict new.jpg --model groceries.safetensors
    """
    for path in (model, *images):
        require_path(path)
    from fewlabels.labeling.outputs import to_csv
    from fewlabels.labeling.predict import predict_images

    rows, remarks = predict_images(
        model,
        images,
        abstain=abstain,
        device=device,
        columns=options.columns_by_role(column, text_column),
        sub_classes=sub_classes,
    )
    for remark in remarks:
        say_remark(remark)
    if as_json:
        typer.echo(json.dumps([row._asdict() for row in rows], indent=2, ensure_ascii=False))
    else:
        typer.echo(to_csv(rows), nl=False)
