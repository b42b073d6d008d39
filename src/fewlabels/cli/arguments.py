"""From argument names to option names: the core says "n_shot must", a command "--shots must"."""

import re
import sys
from collections.abc import Mapping
from typing import Any

from fewlabels.cli.console import say

# Arguments of the core that a command's parameter calls otherwise.
OTHER_NAMES = {
    "mean_features": "mean_of",
    "methods": "method",
    "n_episodes": "episodes",
    "n_shot": "shots",
    "n_way": "ways",
    "n_workers": "num_workers",
}


def option_names(command: Any) -> dict[str, str]:
    """What the command line calls each argument of a click command: "--labels", or "PHOTOS"."""
    names = {param.name: _option_name(param) for param in command.params}
    names |= {core: names[own] for core, own in OTHER_NAMES.items() if own in names}
    # Before torch is imported no message is about a knob, and importing it takes seconds.
    if "--set" in names.values() and "torch" in sys.modules:
        from fewlabels.methods.base import all_knobs

        names = {knob: f"--set {knob}" for knob in all_knobs()} | names
    return names


def _option_name(param: Any) -> str:
    long = [each for each in param.opts if each.startswith("--")]
    return long[0] if long else param.metavar or str(param.name).upper()


running: list[Any] = []  # the command that runs, as `GroupedCommand` tells


def say_remark(text: str) -> None:
    """Print a remark of the core on stderr, with the options of the command that runs."""
    say(to_options(text, option_names(running[-1])) if running else text)


def to_options(message: str, names: Mapping[str, str]) -> str:
    """A message of the core with the names of options in the place of arguments.

    >>> names = {"labels": "--labels", "output": "--output", "force": "--force"}
    >>> to_options("output must not be a.csv, which is labels already.", names)
    '--output must not be a.csv, which is --labels already.'
    >>> to_options("Give labels=FILE.csv, or overwrite with force=True.", names)
    'Give --labels FILE.csv, or overwrite with --force.'
    >>> to_options("got 3 columns. Name it with columns={'embedding': COLUMN}.", names)
    'got 3 columns. Rename the column.'
    """
    known = "|".join(map(re.escape, names))
    for pattern in (
        rf"^({known})(?= (?:must|needs|has no effect|holds)\b)",
        rf"(?<=which is )({known})(?= already)",
    ):
        message = re.sub(pattern, lambda found: names[found[1]], message)

    if "--column" in names.values():
        message = re.sub(r"\bcolumns=\{'(\w+)': (\w+)\}", r"--column \1=\2", message)
    else:  # the command takes no names of columns
        message = re.sub(
            r"(Name it|Choose another) with columns=\{[^}]*\}", "Rename the column", message
        )

    def with_value(found: re.Match[str]) -> str:
        option, value = names[found[1]], found[2].strip("'")
        return option if value == "True" else f"{option} {value}"

    for core in OTHER_NAMES.keys() & names.keys():
        if "_" in core:  # no common word: replaced anywhere
            message = re.sub(rf"\b{core}\b(?!=)", names[core], message)
    # as words of their own, not as parts of paths
    return re.sub(rf"(?<!\S)({known})=('[^']*'|[\w.]*\w)(?=[\s.,;)]|$)", with_value, message)
