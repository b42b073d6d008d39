"""Knobs of results: which were used, which differ from the method's own, and tuned ones as TOML.

[map.1-shot]
beta = 0.5
lam = 10.0
alpha = 0.4
n_steps = 30

All of it is derived from `Method.knobs`.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fewlabels.errors import FileFormatError, InputError, unknown_choice
from fewlabels.methods import configure, find_method
from fewlabels.methods.base import BETA, all_knobs
from fewlabels.preprocess import Pipeline

SETTINGS = "settings.toml"  # in a folder of `fewlabels tune`
Tuned = dict[str, dict[int, dict[str, Any]]]  # method, shots, knob


def knobs_taken(name: str, pipeline: str | None = None) -> tuple[str, ...]:
    """The names of the knobs of a method; beta where the pipeline has a power that is a number.

    >>> knobs_taken("ncm"), knobs_taken("map"), knobs_taken("map-auto")
    (('beta',), ('beta', 'lam', 'alpha', 'n_steps', 'prior'), ('alpha', 'n_steps'))
    """
    return tuple(find_method(name).knobs_for(pipeline))


def axis_name(knob: str) -> str:
    """What a figure calls a knob: "sharpness λ"; its name where no method gives it a symbol."""
    found = all_knobs().get(knob)
    return found.symbol if found is not None and found.symbol else knob


def knobs_used(pipeline: str, settings: Mapping[str, Any]) -> dict[str, float]:
    """The numeric knobs that a result was made with, beta read from its pipeline.

    >>> knobs_used("power(0.5) | unit", {"lam": 10.0, "prior": "uniform"})
    {'beta': 0.5, 'lam': 10.0}
    """
    found = _values(pipeline, settings)
    return {knob: value for knob, value in found.items() if isinstance(value, int | float)}


def knobs_shown(pipeline: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """All knobs that a result was made with, as text.

    >>> knobs_shown("power(0.5) | unit", {"lam": "auto"})
    {'beta': '0.5', 'lam': 'auto'}
    """
    return {knob: BETA.show(value) for knob, value in _values(pipeline, settings).items()}


def _values(pipeline: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    power = Pipeline.parse(pipeline).power
    return {**({} if power is None else {BETA.name: power}), **settings}


def knobs_changed(
    name: str,
    pipeline: str,
    settings: Mapping[str, Any],
    *,
    n_shot: int,
    dataset: str | None = None,
) -> dict[str, str]:
    """The knobs that differ from the method's own, as text.

    The whole pipeline is one of them where more than its power is another.

    >>> knobs_changed("map", "power(1) | unit | center | unit", {"lam": 3.0}, n_shot=5)
    {'beta': '1', 'lam': '3'}
    >>> knobs_changed("ncm", "unit", {}, n_shot=1)
    {'pipeline': 'unit'}
    """
    usual = configure(name, n_shot=n_shot, dataset=dataset)
    known = knobs_shown(str(usual.pipeline), usual.settings)
    shown = knobs_shown(pipeline, settings)
    changed = {knob: text for knob, text in shown.items() if text != known.get(knob)}
    has_prior = "prior" in settings and "prior" in changed and "prior" in knobs_taken(name)
    given = {"prior": settings["prior"]} if has_prior else {}  # "estimate" has its own pipeline
    own = configure(name, n_shot=n_shot, dataset=dataset, **given).pipeline
    if _without_power(Pipeline.parse(pipeline)) != _without_power(own):
        changed.pop(BETA.name, None)
        return {**changed, "pipeline": pipeline}
    if usual.pipeline.undecided:  # a power that was read from the features is the method's own
        changed.pop(BETA.name, None)
    return changed


def _without_power(pipeline: Pipeline) -> list[str]:
    return ["power" if step.is_power else str(step) for step in pipeline.steps]


def format_settings(tuned: Tuned, *, comments: Sequence[str] = ()) -> str:
    """Tuned settings as TOML, headed by comments; `read_settings` reads it back."""
    head = "\n".join(f"# {' '.join(line.split())}".rstrip() for line in comments)
    blocks = [head] if comments else []
    for method, by_shots in tuned.items():
        taken = knobs_taken(method)  # a power that is read from the features is none of them
        for n_shot, knobs in by_shots.items():
            lines = (f"{knob} = {value!r}" for knob, value in knobs.items() if knob in taken)
            blocks.append("\n".join([f"[{method}.{n_shot}-shot]", *lines]))
    return "\n\n".join(blocks) + "\n"


def read_settings(path: Path) -> Tuned:
    """Read what `fewlabels tune` wrote, the file or its folder, or a person did in that form."""
    path = path / SETTINGS if (path / SETTINGS).is_file() else path
    again = "Write it again with `fewlabels tune`."
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileFormatError(f"{path} does not exist. `fewlabels tune` writes settings.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(
            f"{path} cannot be read ({error}). Give the {SETTINGS} that `fewlabels tune` wrote."
        ) from error
    except (ValueError, RecursionError) as error:  # also of nested lists and very long numbers
        raise FileFormatError(f"{path} is not TOML ({error}). {again}") from error
    try:
        tuned = {method: _read_method(method, shots) for method, shots in content.items()}
    except InputError as error:
        raise FileFormatError(f"{path}: {error}") from error
    if not tuned:
        raise FileFormatError(f"{path} must hold a table such as [map.1-shot], got none. {again}")
    return tuned


def _read_method(method: str, by_shots: Any) -> dict[int, dict[str, Any]]:
    known = find_method(method).knobs_for()
    if not isinstance(by_shots, dict) or not by_shots:
        raise InputError(
            f"'{method}' must hold tables such as [{method}.1-shot], got {by_shots!r}."
        )
    found: dict[int, dict[str, Any]] = {}
    for title, knobs in by_shots.items():
        match = re.fullmatch(r"([1-9][0-9]*)-shot", title)
        if match is None or not isinstance(knobs, dict):
            raise InputError(
                f"the table [{method}.{title}] must be named by its shots, "
                f"such as [{method}.1-shot]."
            )
        for knob, value in knobs.items():
            if knob not in known:
                raise unknown_choice(f"a knob of [{method}.{title}]", knob, known)
            try:
                known[knob].check(value)
            except InputError as error:
                raise InputError(f"[{method}.{title}]: {error}") from error
        found[int(match[1])] = knobs
    return found
