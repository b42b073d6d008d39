"""The options that commands share, each defined once."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
from typer import Argument, Option

from fewlabels.cli.arguments import running
from fewlabels.errors import InputError

# Groups of options in the help of `GroupedCommand`.
LABELS, OUTPUTS, COMPUTING = "Labels and method", "Results", "Computing"
EPISODES = "Episodes"

FILES = ".safetensors, .npz (features, labels), .npy (with --per-class), .parquet, .pt or .plk"

FeaturesArgument = Annotated[
    Path | None,
    Argument(
        help=f"Features: {FILES}; A+B puts those of two files side by side. "
        "Default: the embedded CIFAR-FS set.",
        metavar="FEATURES",
    ),
]
PerClass = Annotated[int | None, Option(help="Rows per class, in blocks, of files without labels.")]
MeanOf = Annotated[
    Path | None, Option(help="Unlabelled features of other classes: their mean is subtracted.")
]

Model = Annotated[
    Path,
    Option(
        help="What `fewlabels label --model` wrote, or a labelling project.",
        metavar="FILE|PROJECT",
        rich_help_panel=LABELS,
    ),
]

Shots = Annotated[
    list[int] | None,
    Option(help="Labelled rows per class; may be repeated. [1]", rich_help_panel=EPISODES),
]
Ways = Annotated[int, Option(min=2, help="Classes per episode.", rich_help_panel=EPISODES)]
QUERIES = (
    "Queries per class: N or N,N,...; or N in all: dirichlet:A:N (uneven classes), present:K:N or "
    "present:A-B:N (some classes)"
)
Queries = Annotated[
    list[str] | None, Option(help=f"{QUERIES}; may be repeated. [15]", rich_help_panel=EPISODES)
]
Episodes = Annotated[int, Option(help="Episodes per result.", rich_help_panel=EPISODES)]
Draws = Annotated[
    str,
    Option(
        help="own, or authors for those of the published script.",
        metavar="NAME",
        rich_help_panel=EPISODES,
    ),
]
Seed = Annotated[int, Option(help="Random seed of the draws.", rich_help_panel=EPISODES)]

Method = Annotated[
    str, Option(help="A method; the list is below.", metavar="NAME", rich_help_panel=LABELS)
]
Methods = Annotated[
    list[str] | None,
    Option(
        "--method",
        help="A method, see the list below; may be repeated. [map]",
        metavar="NAME",
        rich_help_panel=LABELS,
    ),
]
Beta = Annotated[
    list[str] | None,
    Option(help="Short for --set beta=VALUE.", metavar="VALUE", rich_help_panel=LABELS),
]
Lam = Annotated[
    list[str] | None,
    Option(help="Short for --set lam=VALUE.", metavar="VALUE", rich_help_panel=LABELS),
]
Alpha = Annotated[
    list[str] | None,
    Option(help="Short for --set alpha=VALUE.", metavar="VALUE", rich_help_panel=LABELS),
]
Set = Annotated[
    list[str] | None,
    Option(
        "--set",
        help="Value of a knob of the method (`fewlabels evaluate --help`); may be repeated.",
        metavar="KNOB=VALUE",
        rich_help_panel=LABELS,
    ),
]
Pipeline = Annotated[
    str | None,
    Option(
        help="Another preprocessing, e.g. 'unit | center | unit'.",
        metavar="STEPS",
        rich_help_panel=LABELS,
    ),
]
Settings = Annotated[
    Path | None,
    Option(
        help="Settings that `fewlabels tune` wrote; options given here win over them.",
        metavar="FILE",
        rich_help_panel=LABELS,
    ),
]

Engine = Annotated[
    str, Option(help="auto, torch, numba or triton.", metavar="NAME", rich_help_panel=COMPUTING)
]
Device = Annotated[
    str, Option(help="auto, cpu, cuda or mps.", metavar="NAME", rich_help_panel=COMPUTING)
]
Dtype = Annotated[
    str | None,
    Option(
        help="float32 or float64, of the torch engine alone. [float32]",
        metavar="NAME",
        rich_help_panel=COMPUTING,
    ),
]

Force = Annotated[
    bool,
    Option(
        "--force", help="Overwrite results of other features in --output.", rich_help_panel=OUTPUTS
    ),
]
Json = Annotated[
    bool,
    Option("--json", help="Print one JSON object instead of a table.", rich_help_panel=OUTPUTS),
]
# of `export` and `move`
WrittenLabels = Annotated[
    Path | None,
    Option(
        help="CSV with columns path and label, such as labels.csv. "
        "[those of the project, or sub-folders]",
        metavar="CSV",
        rich_help_panel=LABELS,
    ),
]
PhotosNow = Annotated[
    Path | None,
    Option(
        help="Where the images of the project are now.", metavar="FOLDER", rich_help_panel=LABELS
    ),
]
ClassFrom = Annotated[
    str,
    Option(
        help="Which sub-folder names the class: deepest, path (all of them), or a level: 1, 2, ...",
        metavar="deepest|path|N",
        rich_help_panel=LABELS,
    ),
]
Boxes = Annotated[
    Path | None,
    Option(
        help="Label crops, not images: boxes in CSV, or in COCO's or MegaDetector's JSON.",
        metavar="FILE",
        rich_help_panel=LABELS,
    ),
]
Every = Annotated[
    float | None,
    Option(
        help="Label frames of videos too, one every so many seconds.",
        metavar="SECONDS",
        rich_help_panel=LABELS,
    ),
]
SubClasses = Annotated[
    str,
    Option(
        help="What stands between class and sub-class, such as / in animal/dog: folders are nested,"
        " and a doubtful sub-class becomes its class where that is sure.",
        metavar="SEPARATOR",
        rich_help_panel=LABELS,
    ),
]
Column = Annotated[
    list[str] | None,
    Option(
        help="Of a table: which column is name, label, embedding, text, image or audio. "
        "Repeatable.",
        metavar="ROLE=COLUMN",
        rich_help_panel=LABELS,
    ),
]
TextColumn = Annotated[
    str | None,
    Option(
        help="Of a table: the column of texts. Short for --column text=COLUMN.",
        metavar="COLUMN",
        rich_help_panel=LABELS,
    ),
]
Classes = Annotated[
    Path | None,
    Option(
        help="Names of classes, one per line: labels are found from names alone. Needs --backbone "
        "clip:ORG/NAME, or minilm for texts.",
        metavar="FILE",
        rich_help_panel=LABELS,
    ),
]
LABEL_STUDIO_PREFIX = "/data/local-files/?d="
LabelStudioPrefix = Annotated[
    str,
    Option(
        help="What Label Studio needs before each path.",
        metavar="PREFIX",
        rich_help_panel=OUTPUTS,
    ),
]


def gather_knobs(
    given: Sequence[str] | None, **short: Sequence[Any] | None
) -> dict[str, list[Any]]:
    """The values to try of each knob, from --set and from the short forms.

    >>> gather_knobs(["lam=5", "lam=auto"], beta=["0.3"], alpha=None)
    {'beta': ['0.3'], 'lam': ['5', 'auto']}
    """
    found: dict[str, list[Any]] = {knob: list(values) for knob, values in short.items() if values}
    for text in given or []:
        knob, equals, value = text.partition("=")
        if not equals or not knob.strip() or not value.strip():
            raise InputError(f"--set must be KNOB=VALUE such as 'lam=5', got '{text}'.")
        found.setdefault(knob.strip().replace("-", "_"), []).append(value.strip())
    return found


def columns_by_role(
    given: Sequence[str] | None, text_column: str | None = None
) -> dict[str, str] | None:
    """Columns by role, from --column and --text-column.

    >>> columns_by_role(["name=photo", "label=species"], "body")
    {'text': 'body', 'name': 'photo', 'label': 'species'}
    """
    found = {} if text_column is None else {"text": text_column}
    for text in given or []:
        role, equals, column = text.partition("=")
        if not equals or not column:
            raise InputError(f"--column must be ROLE=COLUMN such as 'name=id', got '{text}'.")
        found[role.strip()] = column
    return found or None


def single_knobs(given: Sequence[str] | None) -> dict[str, Any]:
    """One value of each knob, from --set; a knob that is given twice is refused."""
    found = gather_knobs(given)
    for knob, values in found.items():
        if len(values) > 1:
            raise InputError(f"--set {knob} must be given once here, got {', '.join(values)}.")
    return {knob: values[0] for knob, values in found.items()}


_TYPE = re.compile(r"<(?:list\[)?(\w+)[^>]*>")  # as typer writes the type of a value
_VALUES = {"int": "N", "float": "NUMBER", "path": "PATH", "Path": "PATH"}


def _value_name(found: re.Match[str]) -> str:
    """What a person calls a value of this type."""
    return _VALUES.get(found[1], "TEXT")


class GroupedCommand(typer.core.TyperCommand):
    """A command whose help shows options in groups, and arguments by name only."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; remarks are told in its options."""
        running[:] = [self]
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The arguments without braces."""
        return [
            piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)
        ]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the groups in the order of their first options."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is None:
                continue
            group = getattr(parameter, "rich_help_panel", None) or "Options"
            names, words = record
            if parameter.param_type_name == "argument":
                group, names = "Arguments", names.partition(" <")[0]
            groups.setdefault(group, []).append((_TYPE.sub(_value_name, names), words))
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)


class MethodCommand(GroupedCommand):
    """A command whose help ends with the list of methods, and of their knobs if it takes them."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the list."""
        from fewlabels.methods import find_method, method_names
        from fewlabels.methods.base import all_knobs

        methods = []
        settable = any("--set" in parameter.opts for parameter in self.get_params(ctx))
        for method in map(find_method, method_names()):
            taken = ", ".join(method.knobs_for()) if settable else ""
            methods.append((method.name, method.title + (f"; knobs: {taken}" if taken else "")))
        with formatter.section("Methods (--method)"):
            formatter.write_dl(methods)
        if settable:
            with formatter.section("Knobs (--set KNOB=VALUE)"):
                formatter.write_dl([(name, knob.words) for name, knob in all_knobs().items()])
