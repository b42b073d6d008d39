"""The command line: one file a sub-command, no logic. Data on stdout, talk on stderr.

Heavy imports live inside the commands, so that `ptmap --help` is instant and needs no torch.
"""

import sys
from typing import Annotated

import typer

from ptmap import __version__
from ptmap.cli.evaluate import evaluate_command
from ptmap.errors import PtmapError

EXIT_BAD_INPUT = 2  # as for wrong options
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells expect

app = typer.Typer(
    name="ptmap",
    help="Few labels in, all labels out: PT-MAP few-shot classification.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("evaluate")(evaluate_command)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        typer.echo(f"ptmap {__version__}")
        raise typer.Exit


def main() -> None:
    """Run a command; an error of ours becomes one line on stderr."""
    try:
        app()
    except PtmapError as error:
        typer.echo(f"ptmap: {error}", err=True)
        sys.exit(EXIT_BAD_INPUT)
    except KeyboardInterrupt:
        typer.echo("ptmap: interrupted.", err=True)
        sys.exit(EXIT_INTERRUPTED)
