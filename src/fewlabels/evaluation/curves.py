"""What a tuning found: curves of accuracy along knobs, and the choice."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fewlabels.evaluation.comparison import Comparison, compare_pair
from fewlabels.evaluation.results import EvaluationResult
from fewlabels.evaluation.settings import knobs_shown, knobs_used
from fewlabels.methods.base import BETA


@dataclass(frozen=True)
class Curve:
    """Accuracy along one knob, with the others fixed."""

    knob: str
    values: tuple[float, ...]
    others: Mapping[str, float]
    choice: float
    validation: tuple[EvaluationResult, ...]
    novel: tuple[EvaluationResult, ...] = ()


@dataclass(frozen=True)
class Tuning:
    """What was tried, and what was chosen."""

    method: str
    n_shot: int
    chosen: Mapping[str, float | str]  # the numeric knobs of the method, and words that were given
    result: EvaluationResult  # of the chosen setting, on validation classes
    start: EvaluationResult  # of the paper's setting, or the nearest within the ranges
    curves: tuple[Curve, ...]
    tried: tuple[EvaluationResult, ...]  # all, on validation classes
    interrupted: bool = False

    @property
    def gain(self) -> Comparison:
        """The chosen setting against the start, paired."""
        return compare_pair(self.result, self.start)

    def describe(self) -> str:
        """The choice and its evidence, in one line."""
        result, gain = self.result, self.gain
        knobs = ", ".join(f"{knob} {BETA.show(value)}" for knob, value in self.chosen.items())
        begun = knobs_shown(self.start.pipeline, self.start.settings)
        start = ", ".join(f"{knob} {begun[knob]}" for knob in self.chosen)
        points = f"{gain.difference:+.2f} ± {gain.ci95:.2f} points"
        gained = "" if gain.is_baseline else f"; {points} over {start}, paired"
        return (
            f"{self.n_shot}-shot: {knobs} gives {result.accuracy:.2f} ± {result.ci95:.2f} % over "
            f"{result.n_episodes:,} episodes of {result.n_way} ways, queries {result.queries} "
            f"({result.provenance['draws']} draws, seed {result.provenance['seed']}), "
            f"the best of {len(self.tried):,} settings{gained}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything but the single accuracies, ready for JSON."""
        curves = [
            {
                **{"knob": curve.knob, "choice": curve.choice, "others": dict(curve.others)},
                "values": list(curve.values),
                "validation": [_brief(result) for result in curve.validation],
                "novel": [_brief(result) for result in curve.novel],
            }
            for curve in self.curves
        ]
        knobs = [knobs_used(result.pipeline, result.settings) for result in self.tried]
        tried = [{**used, **_brief(each)} for used, each in zip(knobs, self.tried, strict=True)]
        gain = {"difference": round(self.gain.difference, 4), "ci95": _rounded(self.gain.ci95)}
        found = {"chosen": dict(self.chosen), "result": self.result.to_dict(), "gain": gain}
        return {**found, "curves": curves, "tried": tried, "interrupted": self.interrupted}


def _brief(result: EvaluationResult) -> dict[str, float | None]:
    return {"accuracy": round(result.accuracy, 4), "ci95": _rounded(result.ci95)}


def _rounded(half: float) -> float | None:
    return round(half, 4) if half == half else None  # JSON has no NaN
