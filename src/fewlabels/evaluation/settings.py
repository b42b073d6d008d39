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

from fewlabels.errors import FileFormatError, InputError, unknown_choice
from fewlabels.methods.base import KNOBS, configure, find_method

NUMBERS = (
    "beta",
    "lam",
    "alpha",
    "n_steps",
)  # the knobs that are numbers, in the order of the paper
ALL_KNOBS = (*NUMBERS, "proportions")
FROM_FEATURES = ("beta", "lam")  # may be "auto"
PROPORTIONS = ("uniform", "estimate", "free", "truth")
Value = float | str | tuple[float, ...]  # of a knob
Tuned = dict[str, dict[int, dict[str, float]]]  # method, shots, knob

_POWER = re.compile(r"power\(([^()a-z]+)\)")  # a number, not power(auto)


def knobs_taken(name: str, pipeline: str | None = None) -> tuple[str, ...]:
    """The knobs of a method; beta is one where the pipeline has a power step, and what makes a variant is none.

    >>> knobs_taken("ncm"), knobs_taken("map"), knobs_taken("map-auto")
    (('beta',), ('beta', 'lam', 'alpha', 'n_steps', 'proportions'), ('alpha', 'n_steps'))
    """
    _, line, classifier, preset = find_method(name)
    taken = (
        KNOBS[classifier]
        if beta_of(line if pipeline is None else pipeline) is None
        else ("beta", *KNOBS[classifier])
    )
    return tuple(knob for knob in ALL_KNOBS if knob in taken and knob not in preset)


def parse_knob(knob: str, word: Value) -> Value:
    """The value of a knob from its word: a number, "auto", or what `--proportions` takes.

    >>> parse_knob("lam", "7.5"), parse_knob("beta", "auto"), parse_knob("proportions", "0.5,0.3,0.2")
    (7.5, 'auto', (0.5, 0.3, 0.2))
    """
    if not isinstance(word, str):
        return word
    if knob == "proportions":
        return word if word in PROPORTIONS else _parse_sizes(word)
    if knob in FROM_FEATURES and word == "auto":
        return word
    try:
        return float(word)
    except ValueError:
        also = " or auto" if knob in FROM_FEATURES else ""
        raise InputError(f"{_option(knob)} must be a number{also}, got '{word}'.") from None


def _parse_sizes(word: str) -> tuple[float, ...]:
    try:
        sizes = tuple(float(part) for part in word.split(","))
    except ValueError:
        sizes = ()
    if len(sizes) < 2:
        raise unknown_choice(
            "--proportions", word, (*PROPORTIONS, "a fraction for each way such as 0.5,0.3,0.2")
        )
    if not all(0 <= size < float("inf") for size in sizes):
        raise InputError(f"--proportions must not be negative nor infinite, got '{word}'.")
    return sizes


def _option(knob: str) -> str:
    return "--" + knob.replace("_", "-")


def knobs_used(pipeline: str, settings: Mapping[str, Any]) -> dict[str, float]:
    """The numeric knobs that a result was made with, beta read from its pipeline.

    >>> knobs_used("power(0.5) | unit", {"lam": 10.0, "proportions": "uniform"})
    {'beta': 0.5, 'lam': 10.0}
    """
    found = {"beta": beta_of(pipeline), **settings}
    return {
        knob: found[knob] for knob in NUMBERS if isinstance(found.get(knob), (int, float))
    }  # not lam="auto"


def knobs_shown(pipeline: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """All knobs that a result was made with, as words.

    >>> knobs_shown("power(0.5) | unit", {"lam": "auto", "proportions": (0.5, 0.5)})
    {'beta': '0.5', 'lam': 'auto', 'proportions': '0.5,0.5'}
    """
    found = {"beta": beta_of(pipeline), **settings}
    return {knob: _word(found[knob]) for knob in ALL_KNOBS if found.get(knob) is not None}


def knobs_changed(
    name: str,
    pipeline: str,
    settings: Mapping[str, Any],
    *,
    n_shot: int,
    dataset: str | None = None,
) -> dict[str, str]:
    """The knobs that are not those that the method has by itself, as words; the whole pipeline where more than its power is another.

    >>> knobs_changed("map", "power(1) | unit | center | unit", {"lam": 3.0, "alpha": 0.2}, n_shot=5)
    {'beta': '1', 'lam': '3'}
    >>> knobs_changed("ncm", "unit", {}, n_shot=1)
    {'pipeline': 'unit'}
    """
    usual = configure(name, n_shot=n_shot, dataset=dataset)
    known = knobs_shown(str(usual.pipeline), usual.settings)
    changed = {
        knob: word
        for knob, word in knobs_shown(pipeline, settings).items()
        if word != known.get(knob)
    }
    power = (
        r"(signed_)?power\([^()]*\)" if usual.pipeline.undecided else r"power\([^()]*\)"
    )  # what the features suggest is its own
    centered = configure(
        name, n_shot=n_shot, dataset=dataset, proportions=settings.get("proportions")
    ).pipeline  # "estimate" has its own
    if re.sub(power, "power", pipeline) != re.sub(power, "power", str(centered)):
        return {
            **{knob: word for knob, word in changed.items() if knob != "beta"},
            "pipeline": pipeline,
        }
    return {
        knob: word
        for knob, word in changed.items()
        if not (knob == "beta" and usual.pipeline.undecided)
    }


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value
    return (
        f"{value:g}" if isinstance(value, (int, float)) else ",".join(f"{part:g}" for part in value)
    )


def beta_of(pipeline: str) -> float | None:
    """The power of a pipeline's line, None where it has none."""
    match = _POWER.search(pipeline)
    return None if match is None else float(match[1])


def format_settings(tuned: Tuned, *, comments: Sequence[str] = ()) -> str:
    """Tuned settings as TOML, headed by comments; `read_settings` reads it back."""
    blocks = (
        ["\n".join(f"# {' '.join(line.split())}".rstrip() for line in comments)] if comments else []
    )
    for method, by_shots in tuned.items():
        taken = knobs_taken(method)  # a variant's own power is found anew in each feature set
        for n_shot, knobs in by_shots.items():
            lines = (f"{knob} = {value!r}" for knob, value in knobs.items() if knob in taken)
            blocks.append("\n".join([f"[{method}.{n_shot}-shot]", *lines]))
    return "\n\n".join(blocks) + "\n"


def read_settings(path: Path) -> Tuned:
    """Read what `fewlabels tune` wrote, or a person did in the same form."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileFormatError(f"{path} does not exist. `fewlabels tune` writes settings.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(
            f"{path} cannot be read ({error}). Give the settings.toml that `fewlabels tune` wrote."
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise FileFormatError(
            f"{path} is not TOML ({error}). Write it anew with `fewlabels tune`."
        ) from error
    try:
        tuned = {method: _read_method(method, shots) for method, shots in content.items()}
    except InputError as error:
        raise FileFormatError(f"{path}: {error}") from error
    if not tuned:
        raise FileFormatError(
            f"{path} must hold a table such as [map.1-shot], got none. Write it anew with `fewlabels tune`."
        )
    return tuned


def _read_method(method: str, by_shots: Any) -> dict[int, dict[str, float]]:
    taken = [knob for knob in knobs_taken(method) if knob in NUMBERS]
    if not isinstance(by_shots, dict) or not by_shots:
        raise InputError(
            f"'{method}' must hold tables such as [{method}.1-shot], got {by_shots!r}."
        )
    found: dict[int, dict[str, float]] = {}
    for title, knobs in by_shots.items():
        match = re.fullmatch(r"([1-9][0-9]*)-shot", title)
        if match is None or not isinstance(knobs, dict):
            raise InputError(
                f"the table [{method}.{title}] must be named by its shots, such as [{method}.1-shot]."
            )
        for knob, value in knobs.items():
            if knob not in taken:
                raise unknown_choice(f"a knob of [{method}.{title}]", knob, taken)
            whole = knob == "n_steps"
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                raise InputError(
                    f"{knob} of [{method}.{title}] must be a {'whole ' if whole else ''}number, got {value!r}."
                )
        found[int(match[1])] = knobs
    return found
