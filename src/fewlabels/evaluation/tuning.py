"""Tuning as in the paper (Section 4.3, Figure 4): curves of accuracy over validation classes, and their peaks.

Every setting meets the same episodes. The settings are chosen on the validation classes alone; the
novel classes are measured afterwards, for the record.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

from fewlabels.errors import InputError
from fewlabels.evaluation.curves import Curve, Tuning
from fewlabels.evaluation.results import EvaluationResult
from fewlabels.evaluation.run import evaluate
from fewlabels.evaluation.sampling import make_draws
from fewlabels.evaluation.settings import knobs_taken, knobs_used
from fewlabels.features import FeatureSet
from fewlabels.methods.base import Method, configure

RANGES: dict[str, tuple[float, ...]] = {  # Figure 4 (2) to (4), finer about its peaks
    "beta": (-2, -1, -0.5, 0, 0.25, 0.5, 0.75, 1, 2),
    "lam": (1, 2, 3, 5, 7.5, 10, 12.5, 15, 20, 30, 40),
    "alpha": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1),
}
TIE = 1e-9  # percent; means of the same episodes that are nearer are equal

Setting = tuple[float, ...]  # one value a knob, in the order of the ranges
Ranges = Mapping[str, tuple[float, ...]]


def tune(
    features: FeatureSet,
    *,
    method: str = "map",
    n_shot: int = 1,
    ranges: Mapping[str, Iterable[float]] | None = None,
    grid: bool = False,
    novel: FeatureSet | None = None,
    n_steps: int | None = None,
    on_progress: Callable[[int], object] | None = None,
    **options: Any,
) -> Tuning:
    """Choose the knobs of a method by its mean accuracy on validation classes.

    One knob after the other: its curve is measured with the knobs before it at their choice and
    those after it at the paper's values, and its peak is chosen. With `grid`, every combination is
    measured and the best chosen; the curves are then the lines through it. Of equal means the
    setting nearer to the paper's wins. Ctrl-C ends early with the curves that were finished.

    Args:
        features: Of the validation classes.
        method: One of `fewlabels.methods.base.METHODS` with a knob.
        n_shot: Support rows per class.
        ranges: Values to try of beta, lam and alpha; `RANGES` for those left out.
        grid: Measure every combination.
        novel: Features of the novel classes, to measure the same curves on. They have no say in the choice.
        n_steps: Steps of MAP; the paper's if left out.
        on_progress: As in `evaluate`; `count_settings` times n_episodes is the total.
        **options: n_way, queries, n_episodes, draws, seed, engine, device, dtype, as in `evaluate`.
    """
    wanted = check_ranges(method, ranges)
    names = tuple(wanted)

    def meter(of: FeatureSet) -> _Meter:
        return _Meter(
            of, method, names, n_steps, {"n_shot": n_shot, "on_progress": on_progress, **options}
        )

    on_validation, on_novel = meter(features), None if novel is None else meter(novel)
    paper = on_validation.paper()
    start: Setting = tuple(
        min(values, key=lambda value: abs(value - at))
        for values, at in zip(wanted.values(), paper, strict=True)
    )
    for of in (on_validation, on_novel):  # what does not fit is said before anything is run
        if of is not None:
            of.check(
                setting
                for axis, values in enumerate(wanted.values())
                for setting in _line(start, axis, values)
            )
    on_validation.measure([start])
    chosen, lines, interrupted = start, list[list[Setting]](), False
    try:
        if grid:
            for first in wanted[names[0]]:  # value by value, so that Ctrl-C finds something done
                on_validation.measure(product((first,), *list(wanted.values())[1:]))
            chosen = choose(on_validation.accuracies(), paper=paper, ranges=wanted)
            lines = [_line(chosen, axis, values) for axis, values in enumerate(wanted.values())]
        else:
            for axis, values in enumerate(wanted.values()):
                line = _line(chosen, axis, values)
                on_validation.measure(line)
                chosen = choose(on_validation.accuracies(line), paper=paper, ranges=wanted)
                lines.append(line)
        if on_novel is not None:  # the choice stands by now
            on_novel.measure(setting for line in lines for setting in line)
    except KeyboardInterrupt:
        chosen, interrupted = choose(on_validation.accuracies(), paper=paper, ranges=wanted), True
    result = on_validation.results[chosen]
    return Tuning(
        method=method,
        n_shot=n_shot,
        chosen={
            knob: value
            for knob, value in knobs_used(result.pipeline, result.settings).items()
            if knob in knobs_taken(method)
        },
        result=result,
        start=on_validation.results[start],
        curves=tuple(
            _curve(axis, line, chosen, wanted, on_validation, on_novel)
            for axis, line in enumerate(lines)
        ),
        tried=tuple(on_validation.results.values()),
        interrupted=interrupted,
    )


def choose(accuracies: Mapping[Setting, float], *, paper: Setting, ranges: Ranges) -> Setting:
    """The setting of the best mean; of equal ones that nearest to the paper's, measured in widths of the ranges."""
    widths = [max(values) - min(values) or 1.0 for values in ranges.values()]

    def distance(setting: Setting) -> float:
        return sum(
            abs(value - at) / width for value, at, width in zip(setting, paper, widths, strict=True)
        )

    best = max(accuracies.values())
    return min(
        (setting for setting, accuracy in accuracies.items() if accuracy >= best - TIE),
        key=lambda s: (distance(s), s),
    )


def check_ranges(
    method: str, ranges: Mapping[str, Iterable[float]] | None
) -> dict[str, tuple[float, ...]]:
    """The values to try of each knob, sorted; refused where the method does not take the knob."""
    taken = [knob for knob in knobs_taken(method) if knob in RANGES]
    if not taken:
        raise InputError(
            f"method '{method}' has no knob to tune. Tune map, map-auto, map-truth, soft-kmeans, kmeans or ncm."
        )
    given = {
        knob: tuple(sorted({float(value) for value in values}))
        for knob, values in (ranges or {}).items()
    }
    for knob, values in given.items():
        if values and knob not in taken:
            raise InputError(
                f"--{knob} has no effect on {method}, which takes {', '.join(taken)}. Leave it out."
            )
    return {
        knob: given.get(knob) or tuple(float(value) for value in RANGES[knob]) for knob in taken
    }


def count_settings(ranges: Ranges, *, grid: bool = False, novel: bool = False) -> int:
    """How many times `tune` measures a setting; each curve shares a point with the one before."""
    along = sum(len(values) for values in ranges.values()) - len(ranges) + 1
    everywhere = 1
    for values in ranges.values():
        everywhere *= len(values)
    return (everywhere if grid else along) + (along if novel else 0)


class _Meter:
    """Results of settings on one feature set, each measured once."""

    def __init__(
        self,
        features: FeatureSet,
        method: str,
        names: tuple[str, ...],
        n_steps: int | None,
        options: Mapping[str, Any],
    ) -> None:
        self.results: dict[Setting, EvaluationResult] = {}
        self._features, self._method, self._names, self._n_steps, self._options = (
            features,
            method,
            names,
            n_steps,
            options,
        )

    def paper(self) -> Setting:
        """The paper's values of the knobs."""
        method = self._configure()
        used = knobs_used(str(method.pipeline), method.settings)
        return tuple(used[name] for name in self._names)

    def measure(self, settings: Iterable[Setting]) -> None:
        """Measure those that are not yet; all of them or, on Ctrl-C, none."""
        missing = [setting for setting in dict.fromkeys(settings) if setting not in self.results]
        if not missing:
            return
        results = evaluate(
            self._features, [self._configure(setting) for setting in missing], **self._options
        )
        if results[0].interrupted:
            raise KeyboardInterrupt
        self.results.update(zip(missing, results, strict=True))

    def check(self, settings: Iterable[Setting]) -> None:
        """Refuse episodes that the features cannot give, and settings that the method cannot take."""
        given = {
            name: self._options[name]
            for name in ("n_way", "n_shot", "queries", "draws", "seed")
            if name in self._options
        }
        make_draws(self._features, **given)
        for setting in settings:
            self._configure(setting)  # refuses knobs out of range before hours are spent

    def accuracies(self, settings: Iterable[Setting] | None = None) -> dict[Setting, float]:
        """Mean accuracies of settings, of all if none are named."""
        return {
            setting: self.results[setting].accuracy
            for setting in (self.results if settings is None else settings)
        }

    def _configure(self, setting: Setting | None = None) -> Method:
        """The method at a setting, at the paper's if none is given."""
        knobs = {} if setting is None else dict(zip(self._names, setting, strict=True))
        dataset = self._features.provenance.get("dataset")
        return configure(
            self._method,
            n_shot=self._options["n_shot"],
            dataset=dataset,
            n_steps=self._n_steps,
            **knobs,  # type: ignore[arg-type]
        )


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
    names = tuple(ranges)
    known = {} if on_novel is None else on_novel.results
    return Curve(
        knob=names[axis],
        values=ranges[names[axis]],
        others={
            name: value for name, value in zip(names, line[0], strict=True) if name != names[axis]
        },
        choice=chosen[axis],
        validation=tuple(on_validation.results[setting] for setting in line),
        novel=tuple(known[setting] for setting in line)
        if all(setting in known for setting in line)
        else (),
    )
