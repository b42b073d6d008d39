"""Tuning as in the paper (Section 4.3, Figure 4): curves of accuracy on validation classes.

Every setting is measured on the same episodes. The settings are chosen on the validation classes
alone; novel classes are measured afterwards and not used for selection.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from fewlabels.errors import InputError
from fewlabels.evaluation.curves import Curve, Tuning
from fewlabels.evaluation.results import EvaluationResult
from fewlabels.evaluation.run import evaluate
from fewlabels.evaluation.sampling import make_draws
from fewlabels.evaluation.settings import knobs_taken, knobs_used
from fewlabels.features import FeatureSet
from fewlabels.methods import ConfiguredMethod, configure, find_method, method_names

TIE = 1e-9  # percent: means of the same episodes that differ by less are equal

Setting = tuple[float, ...]  # one value per knob, in the order of the ranges
Ranges = Mapping[str, tuple[float, ...]]


def tune(
    features: FeatureSet,
    *,
    method: str = "map",
    n_shot: int = 1,
    ranges: Mapping[str, Iterable[float]] | None = None,
    grid: bool = False,
    novel: FeatureSet | None = None,
    settings: Mapping[str, Any] | None = None,
    on_progress: Callable[[int], object] | None = None,
    **options: Any,
) -> Tuning:
    """Choose the knobs of a method by its mean accuracy on validation classes.

    One knob after the other: its curve is measured with the knobs before it at their choice and
    those after it at the paper's values, and its peak is chosen. With `grid`, every combination is
    measured and the best chosen; the curves are then the lines through it. Of equal means the
    setting closest to the paper's is chosen. Ctrl-C ends early with the curves that were finished.

    Args:
        ranges: Values to try, by knob; `Knob.grid` for those left out.
        novel: Features of novel classes, to measure the same curves on; not used for selection.
        settings: Values of knobs that are not tuned, such as n_steps, or beta "auto".
        on_progress: As in `evaluate`; `count_settings` times n_episodes is the total.
        **options: n_way, queries, n_episodes, draws, seed, engine, device, dtype, as in `evaluate`.
    """
    wanted = check_ranges(method, ranges, fixed=settings or {})
    names = tuple(wanted)

    def meter(of: FeatureSet) -> _Meter:
        how = {"n_shot": n_shot, "on_progress": on_progress, **options}
        return _Meter(of, method, names, settings or {}, how)

    on_validation, on_novel = meter(features), None if novel is None else meter(novel)
    paper = on_validation.paper()
    start: Setting = tuple(
        min(values, key=lambda value: abs(value - at))
        for values, at in zip(wanted.values(), paper, strict=True)
    )
    axes = list(enumerate(wanted.values()))
    for of in (on_validation, on_novel):  # what does not fit is refused before anything is run
        if of is not None:
            of.check(each for axis, values in axes for each in _line(start, axis, values))
    on_validation.measure([start])
    chosen, lines, interrupted = start, list[list[Setting]](), False
    try:
        if grid:
            for first in wanted[names[0]]:  # value by value, so that Ctrl-C keeps what is done
                on_validation.measure(product((first,), *list(wanted.values())[1:]))
            chosen = choose(on_validation.accuracies(), paper=paper, ranges=wanted)
            lines = [_line(chosen, axis, values) for axis, values in axes]
        else:
            for axis, values in axes:
                line = _line(chosen, axis, values)
                on_validation.measure(line)
                chosen = choose(on_validation.accuracies(line), paper=paper, ranges=wanted)
                lines.append(line)
        if on_novel is not None:  # after the choice
            on_novel.measure(setting for line in lines for setting in line)
    except KeyboardInterrupt:
        chosen, interrupted = choose(on_validation.accuracies(), paper=paper, ranges=wanted), True
    result = on_validation.results[chosen]
    used: dict[str, float | str] = {**knobs_used(result.pipeline, result.settings)}
    used |= {k: str(v) for k, v in (settings or {}).items() if not isinstance(v, int | float)}
    curves = (
        _curve(axis, line, chosen, wanted, on_validation, on_novel)
        for axis, line in enumerate(lines)
    )
    return Tuning(
        method=method,
        n_shot=n_shot,
        chosen={knob: value for knob, value in used.items() if knob in knobs_taken(method)},
        result=result,
        start=on_validation.results[start],
        curves=tuple(curves),
        tried=tuple(on_validation.results.values()),
        interrupted=interrupted,
    )


def choose(accuracies: Mapping[Setting, float], *, paper: Setting, ranges: Ranges) -> Setting:
    """The setting of the best mean; of equal ones the closest to the paper's, in range widths."""
    widths = [max(values) - min(values) or 1.0 for values in ranges.values()]

    def distance(setting: Setting) -> float:
        return sum(abs(a - b) / width for a, b, width in zip(setting, paper, widths, strict=True))

    best = max(accuracies.values())
    equal = [setting for setting, accuracy in accuracies.items() if accuracy >= best - TIE]
    return min(equal, key=lambda setting: (distance(setting), setting))


def check_ranges(
    method: str, ranges: Mapping[str, Iterable[float]] | None, *, fixed: Container[str] = ()
) -> dict[str, tuple[float, ...]]:
    """The values to try of each knob that is not fixed, sorted; a knob not taken is refused."""
    grids = {knob: grid for knob, grid in tuning_grids(method).items() if knob not in fixed}
    if not grids:
        others = ", ".join(name for name in method_names() if tuning_grids(name))
        raise InputError(f"method '{method}' has no knob to tune. Tune one of {others}.")
    given = {knob: sorted(set(values)) for knob, values in (ranges or {}).items()}
    for knob, values in given.items():
        if values and knob not in grids:
            raise InputError(
                f"{knob} has no effect on {method}, which takes {', '.join(grids)}. Leave it out."
            )
    return {knob: tuple(given.get(knob) or grid) for knob, grid in grids.items()}


def split_knobs(
    method: str, given: Mapping[str, Iterable[Any]]
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Given values of knobs as ranges to try, and as single values of knobs that have no range."""
    known = find_method(method).knobs_for()
    ranges: dict[str, list[float]] = {}
    settings: dict[str, Any] = {}
    for name, texts in given.items():
        if name not in known:
            taken = ", ".join(known) or "none"
            raise InputError(
                f"{name} has no effect on {method}, which takes {taken}. Leave it out."
            )
        values = [known[name].parse(text) for text in texts]
        if known[name].grid and not any(isinstance(value, str) for value in values):
            ranges[name] = values
        elif len(values) == 1:
            settings[name] = values[0]
        else:
            raise InputError(f"{name} must be given once, because it is not tuned.")
    return ranges, settings


def tuning_grids(method: str) -> dict[str, tuple[float, ...]]:
    """The values that are tried of each knob of a method that has such values."""
    knobs = find_method(method).knobs_for().values()
    return {knob.name: knob.grid for knob in knobs if knob.grid}


def count_settings(ranges: Ranges, *, grid: bool = False, novel: bool = False) -> int:
    """How many times `tune` measures a setting; each curve shares a point with the one before."""
    along = sum(len(values) for values in ranges.values()) - len(ranges) + 1
    everywhere = 1
    for values in ranges.values():
        everywhere *= len(values)
    return (everywhere if grid else along) + (along if novel else 0)


@dataclass
class _Meter:
    """Results of settings on one feature set, each measured once."""

    features: FeatureSet
    method: str
    names: tuple[str, ...]
    settings: Mapping[str, Any]
    options: Mapping[str, Any]
    results: dict[Setting, EvaluationResult] = field(default_factory=dict)

    def paper(self) -> Setting:
        """The paper's values of the knobs."""
        method = self._configure()
        used = knobs_used(str(method.pipeline), method.settings)
        return tuple(used[name] for name in self.names)

    def measure(self, settings: Iterable[Setting]) -> None:
        """Measure those that were not measured; all of them or, on Ctrl-C, none."""
        missing = [setting for setting in dict.fromkeys(settings) if setting not in self.results]
        if not missing:
            return
        methods = [self._configure(setting) for setting in missing]
        results = evaluate(methods, self.features, **self.options)
        if results[0].interrupted:
            raise KeyboardInterrupt
        self.results.update(zip(missing, results, strict=True))

    def check(self, settings: Iterable[Setting]) -> None:
        """Refuse episodes and settings that do not fit the features or the method."""
        kind = ("n_way", "n_shot", "queries", "draws", "seed")
        given = {name: self.options[name] for name in kind if name in self.options}
        make_draws(self.features, **given)
        for setting in settings:
            self._configure(setting)  # refuses knobs out of range before hours are spent

    def accuracies(self, settings: Iterable[Setting] | None = None) -> dict[Setting, float]:
        """Mean accuracies of settings, of all if none are named."""
        wanted = self.results if settings is None else settings
        return {setting: self.results[setting].accuracy for setting in wanted}

    def _configure(self, setting: Setting | None = None) -> ConfiguredMethod:
        """The method at a setting, at the paper's if none is given."""
        knobs: dict[str, Any] = {**self.settings}
        if setting is not None:
            knobs |= zip(self.names, setting, strict=True)
        dataset = self.features.provenance.get("dataset")
        return configure(self.method, n_shot=self.options["n_shot"], dataset=dataset, **knobs)


def _line(through: Setting, axis: int, values: tuple[float, ...]) -> list[Setting]:
    """The settings along one knob through a setting."""
    return [(*through[:axis], value, *through[axis + 1 :]) for value in values]


def _curve(
    axis: int,
    line: list[Setting],
    chosen: Setting,
    ranges: Ranges,
    on_validation: _Meter,
    on_novel: _Meter | None,
) -> Curve:
    knob, known = tuple(ranges)[axis], {} if on_novel is None else on_novel.results
    others = {name: value for name, value in zip(ranges, line[0], strict=True) if name != knob}
    novel = line if all(setting in known for setting in line) else []
    return Curve(
        knob=knob,
        values=ranges[knob],
        others=others,
        choice=chosen[axis],
        validation=tuple(on_validation.results[setting] for setting in line),
        novel=tuple(known[setting] for setting in novel),
    )
