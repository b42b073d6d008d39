"""Knobs: which ones a method takes, which ones a result was made with, and tuned ones as a TOML file.

[map.1-shot]
beta = 0.5
lam = 10.0
alpha = 0.4
n_steps = 30
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ptmap.errors import FileFormatError, InputError, unknown_choice
from ptmap.methods import KNOBS, find_method

NUMBERS = ("beta", "lam", "alpha", "n_steps")  # the knobs that are numbers, in the order of the paper
Tuned = dict[str, dict[int, dict[str, float]]]  # method, shots, knob

_POWER = re.compile(r"power\(([^()a-z]+)\)")  # a number, not power(auto)


def knobs_taken(name: str, pipeline: str | None = None) -> tuple[str, ...]:
    """The numeric knobs of a method; beta is one where the pipeline has a power step.

    >>> knobs_taken("ncm"), knobs_taken("map")
    (('beta',), ('beta', 'lam', 'alpha', 'n_steps'))
    """
    _, line, classifier, _ = find_method(name)
    taken = KNOBS[classifier] if beta_of(line if pipeline is None else pipeline) is None else ("beta", *KNOBS[classifier])
    return tuple(knob for knob in NUMBERS if knob in taken)


def knobs_used(pipeline: str, settings: Mapping[str, Any]) -> dict[str, float]:
    """The numeric knobs that a result was made with, beta read from its pipeline.

    >>> knobs_used("power(0.5) | unit", {"lam": 10.0, "proportions": "uniform"})
    {'beta': 0.5, 'lam': 10.0}
    """
    found = {"beta": beta_of(pipeline), **settings}
    return {knob: found[knob] for knob in NUMBERS if isinstance(found.get(knob), (int, float))}  # not lam="auto"


def beta_of(pipeline: str) -> float | None:
    """The power of a pipeline's line, None where it has none."""
    match = _POWER.search(pipeline)
    return None if match is None else float(match[1])


def format_settings(tuned: Tuned, *, comments: Sequence[str] = ()) -> str:
    """Tuned settings as TOML, headed by comments; `read_settings` reads it back."""
    blocks = ["\n".join(f"# {' '.join(line.split())}".rstrip() for line in comments)] if comments else []
    for method, by_shots in tuned.items():
        for n_shot, knobs in by_shots.items():
            blocks.append("\n".join([f"[{method}.{n_shot}-shot]", *(f"{knob} = {value!r}" for knob, value in knobs.items())]))
    return "\n\n".join(blocks) + "\n"


def read_settings(path: Path) -> Tuned:
    """Read what `ptmap tune` wrote, or a person did in the same form."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileFormatError(f"{path} does not exist. `ptmap tune` writes settings.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path} cannot be read ({error}). Give the settings.toml that `ptmap tune` wrote.") from error
    except tomllib.TOMLDecodeError as error:
        raise FileFormatError(f"{path} is not TOML ({error}). Write it anew with `ptmap tune`.") from error
    try:
        tuned = {method: _read_method(method, shots) for method, shots in content.items()}
    except InputError as error:
        raise FileFormatError(f"{path}: {error}") from error
    if not tuned:
        raise FileFormatError(f"{path} must hold a table such as [map.1-shot], got none. Write it anew with `ptmap tune`.")
    return tuned


def _read_method(method: str, by_shots: Any) -> dict[int, dict[str, float]]:
    taken = knobs_taken(method)
    if not isinstance(by_shots, dict) or not by_shots:
        raise InputError(f"'{method}' must hold tables such as [{method}.1-shot], got {by_shots!r}.")
    found: dict[int, dict[str, float]] = {}
    for title, knobs in by_shots.items():
        match = re.fullmatch(r"([1-9][0-9]*)-shot", title)
        if match is None or not isinstance(knobs, dict):
            raise InputError(f"the table [{method}.{title}] must be named by its shots, such as [{method}.1-shot].")
        for knob, value in knobs.items():
            if knob not in taken:
                raise unknown_choice(f"a knob of [{method}.{title}]", knob, taken)
            whole = knob == "n_steps"
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                raise InputError(f"{knob} of [{method}.{title}] must be a {'whole ' if whole else ''}number, got {value!r}.")
        found[int(match[1])] = knobs
    return found
