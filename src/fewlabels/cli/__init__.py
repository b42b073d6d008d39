"""The command line: one file a sub-command, no logic. Data on stdout, talk on stderr.

Heavy imports live inside the commands, so that `fewlabels --help` is instant and needs no torch.
"""

import sys
from typing import Annotated, Any

import typer
import typer.core

from fewlabels import __version__
from fewlabels.cli.compare import compare_command
from fewlabels.cli.console import EXIT_INTERRUPTED, say
from fewlabels.cli.data import data_app
from fewlabels.cli.doctor import doctor_command
from fewlabels.cli.evaluate import evaluate_command
from fewlabels.cli.extract import extract_command
from fewlabels.cli.label import label_command, next_command
from fewlabels.cli.predict import predict_command
from fewlabels.cli.reproduce import reproduce_command
from fewlabels.cli.serve import serve_command
from fewlabels.cli.train import train_command
from fewlabels.cli.tune import tune_command
from fewlabels.errors import FewLabelsError

EXIT_BAD_INPUT = 2  # as for wrong options


class Commands(typer.core.TyperGroup):
    """The commands; Ctrl-C before there is anything to report ends in one line, where typer would end in none."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            say("fewlabels: interrupted.")
            raise typer.Exit(EXIT_INTERRUPTED) from None


app = typer.Typer(
    name="fewlabels",
    cls=Commands,
    help="Few labels in, all labels out: PT-MAP few-shot classification.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# In the order in which a newcomer meets them: label a folder, look at features, compare methods, make backbones.
app.command("label")(label_command)
app.command("next")(next_command)
app.command("serve")(serve_command)
app.command("predict")(predict_command)
app.command("extract")(extract_command)
app.command("doctor")(doctor_command)
app.command("evaluate")(evaluate_command)
app.command("compare")(compare_command)
app.command("tune")(tune_command)
app.command("reproduce")(reproduce_command)
app.add_typer(data_app, name="data")
app.command("train")(train_command)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"fewlabels {__version__}")
        raise typer.Exit


def main() -> None:
    """Run a command; an error of ours becomes one line on stderr."""
    try:
        app()
    except FewLabelsError as error:
        say(f"fewlabels: {error}")
        sys.exit(EXIT_BAD_INPUT)
