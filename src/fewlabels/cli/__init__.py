"""The command line: one file per command, no logic. Data on stdout, messages on stderr.

Heavy imports live inside the commands, so that `fewlabels --help` is instant and needs no torch.
"""

import errno
from typing import Annotated, Any

import typer
import typer.core
from typer import Option

from fewlabels import __version__
from fewlabels.cli.arguments import option_names, to_options
from fewlabels.cli.check import check_command
from fewlabels.cli.console import EXIT_INTERRUPTED, say
from fewlabels.cli.data import data_app
from fewlabels.cli.doctor import doctor_command
from fewlabels.cli.evaluate import evaluate_command
from fewlabels.cli.export import ExportCommand, export_command
from fewlabels.cli.extract import extract_command
from fewlabels.cli.label import label_command, next_command
from fewlabels.cli.leaderboard import leaderboard_command
from fewlabels.cli.options import GroupedCommand, MethodCommand
from fewlabels.cli.people import merge_command, people_command
from fewlabels.cli.predict import predict_command
from fewlabels.cli.reproduce import reproduce_command
from fewlabels.cli.serve import serve_command
from fewlabels.cli.train import train_command
from fewlabels.cli.tune import tune_command
from fewlabels.cli.undo import move_command, undo_command
from fewlabels.cli.watch import watch_command
from fewlabels.errors import FewLabelsError

EXIT_BAD_INPUT = 2  # as for wrong options


class Commands(typer.core.TyperGroup):
    """The commands; an error of ours and Ctrl-C end in one line on stderr."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except FewLabelsError as error:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            names = {} if command is None else option_names(command)
            say(f"fewlabels: {to_options(str(error), names) if names else error}")
            raise typer.Exit(EXIT_BAD_INPUT) from error
        except OSError as error:  # a full or read-only disk, a folder that is gone
            if error.errno == errno.EPIPE or not error.strerror:
                raise
            where = error.filename or "a file"
            say(f"fewlabels: {where} cannot be read or written ({error.strerror}).")
            raise typer.Exit(EXIT_BAD_INPUT) from error
        except KeyboardInterrupt:
            say("fewlabels: interrupted.")
            raise typer.Exit(EXIT_INTERRUPTED) from None


app = typer.Typer(
    name="fewlabels",
    cls=Commands,
    help="Few labels in, all labels out: PT-MAP few-shot classification.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# In the order in which a new user needs them: label, look at features, compare, train.
app.command("label", cls=GroupedCommand, short_help="Label all images from a few labels.")(
    label_command
)
app.command("next", cls=GroupedCommand, short_help="List the images to label next.")(next_command)
app.command("serve", cls=GroupedCommand, short_help="Check and correct labels on a local page.")(
    serve_command
)
app.command("predict", cls=GroupedCommand, short_help="Label new images with a saved model.")(
    predict_command
)
app.command("watch", cls=GroupedCommand, short_help="Label images as they arrive in a folder.")(
    watch_command
)
app.command("export", cls=ExportCommand, short_help="Labels in the layout of other tools.")(
    export_command
)
app.command("move", cls=GroupedCommand, short_help="Move photographs into class folders.")(
    move_command
)
app.command("undo", cls=GroupedCommand, short_help="Move photographs back.")(undo_command)
app.command("merge", cls=GroupedCommand, short_help="Join two people's projects.")(merge_command)
app.command("people", cls=GroupedCommand, short_help="Who decided, and where people disagree.")(
    people_command
)
app.command("check", cls=GroupedCommand, short_help="Verify a project, and repair it.")(
    check_command
)
app.command("extract", cls=GroupedCommand, short_help="Compute features of images.")(
    extract_command
)
app.command("doctor", cls=GroupedCommand, short_help="Examine a file of features.")(doctor_command)
app.command("evaluate", cls=MethodCommand, short_help="Measure the accuracy of methods.")(
    evaluate_command
)
app.command("tune", cls=MethodCommand, short_help="Choose the knobs of a method.")(tune_command)
app.command("leaderboard", cls=MethodCommand, short_help="All methods in one table.")(
    leaderboard_command
)
app.command(
    "reproduce", cls=GroupedCommand, short_help="The paper's tables and figures, and ours."
)(reproduce_command)
app.add_typer(data_app, name="data")
app.command("train", cls=GroupedCommand, short_help="Train a backbone, or a system on episodes.")(
    train_command
)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"fewlabels {__version__}")
        raise typer.Exit


def main() -> None:
    """Run a command."""
    app()
