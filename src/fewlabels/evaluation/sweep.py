"""Several methods, shots, queries and knobs in one go: planned and checked as a whole, then run cell by cell."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import torch

from fewlabels.errors import InputError
from fewlabels.evaluation.queries import QuerySpec
from fewlabels.evaluation.results import EvaluationResult
from fewlabels.evaluation.run import evaluate
from fewlabels.evaluation.sampling import make_draws
from fewlabels.evaluation.settings import ALL_KNOBS, Tuned, Value, knobs_taken, parse_knob
from fewlabels.features import FeatureSet
from fewlabels.methods.base import METHODS, Method, configure, find_method
from fewlabels.preprocess.pipeline import AUTO
from fewlabels.transport.prior import class_mass


class Cell(NamedTuple):
    """Methods that meet the same episodes."""

    n_shot: int
    queries: str
    methods: tuple[Method, ...]


def plan_cells(
    names: Sequence[str],
    *,
    shots: Sequence[int] = (1,),
    queries: Sequence[str] = ("15",),
    dataset: str | None = None,
    knobs: Mapping[str, Sequence[Value]] | None = None,
    pipeline: str | None = None,
    tuned: Tuned | None = None,
) -> list[Cell]:
    """Every combination of what is given, each once; a method meets only the knobs that it takes.

    A knob comes from `knobs`, else from `tuned`, else from the paper.

    Args:
        names: Of methods.
        shots: Support rows per class.
        queries: Words of `QuerySpec`.
        dataset: Name as in a FeatureSet's provenance; decides the paper's alpha at one shot.
        knobs: Values to try of beta, lam, alpha, n_steps and proportions; words are read by `parse_knob`.
        pipeline: Another preprocessing for all methods.
        tuned: Settings by method and shots, from `read_settings`; other methods keep the paper's.

    >>> [len(cell.methods) for cell in plan_cells(["ncm", "map"], shots=[1, 5], knobs={"lam": [5, 10]})]
    [3, 3]
    """
    given = {
        knob: [parse_knob(knob, value) for value in values]
        for knob, values in (knobs or {}).items()
        if values
    }
    _check_combination(names, shots, given, pipeline, tuned)
    cells = []
    for n_shot in dict.fromkeys(shots):
        methods: list[Method] = []
        for name in names:
            fallback = (tuned or {}).get(name, {}).get(n_shot, {})
            taken = knobs_taken(name, pipeline)
            # beta=None keeps the power of the pipeline's own line
            values = [
                given.get(knob, [None if pipeline and knob == "beta" else fallback.get(knob)])
                for knob in taken
            ]
            for chosen in product(*values):
                settings: dict[str, Any] = dict(zip(taken, chosen, strict=True))
                method = _with_true_title(
                    configure(name, n_shot=n_shot, dataset=dataset, pipeline=pipeline, **settings)
                )
                if method not in methods:
                    methods.append(method)
        cells += [
            Cell(n_shot, spec, tuple(methods))
            for spec in dict.fromkeys(str(QuerySpec.parse(word)) for word in queries)
        ]
    return cells


def _with_true_title(method: Method) -> Method:
    """The method, called PT+ only where a power step is in its pipeline."""
    has_power = any("power" in step for step in method.pipeline.steps)
    return method if has_power else replace(method, title=method.title.removeprefix("PT+"))


def remark_idle_knobs(names: Sequence[str], knobs: Mapping[str, Sequence[Value]]) -> list[str]:
    """What should be said of knobs that were given, but not for the variants that have their own.

    >>> remark_idle_knobs(["map", "map-auto"], {"beta": ["1"], "alpha": []})
    ['--beta has no effect on map-auto, which has its own.']
    """
    remarks = []
    for name in names:
        _, line, _, preset = find_method(name)
        own = [*(["beta"] if AUTO in line else []), *preset]
        remarks += [
            f"--{knob} has no effect on {name}, which has its own."
            for knob in own
            if knobs.get(knob)
        ]
    return remarks


def evaluate_cells(
    features: FeatureSet,
    cells: Sequence[Cell],
    *,
    n_way: int = 5,
    draws: str = "own",
    seed: int = 0,
    on_progress: Callable[[int], object] | None = None,
    **options: Any,
) -> tuple[list[EvaluationResult], bool]:
    """Results of all cells, and whether Ctrl-C ended the run early; they then cover what was done.

    Args:
        features: What the episodes are drawn from.
        cells: From `plan_cells`.
        n_way: Classes per episode.
        draws: "own" or "authors".
        seed: Of the draws.
        on_progress: As in `evaluate`.
        **options: n_episodes, engine, device, dtype, mean_features, as in `evaluate`.
    """
    for cell in cells:  # what does not fit the last cell is said before the first is run
        make_draws(
            features, draws=draws, n_way=n_way, n_shot=cell.n_shot, queries=cell.queries, seed=seed
        )
        n_query = QuerySpec.parse(cell.queries).total(n_way)
        for method in cell.methods:
            if isinstance(sizes := method.settings.get("proportions"), tuple):
                class_mass(sizes, torch.empty(1, n_query, 1), n_way=n_way)
    results: list[EvaluationResult] = []
    try:
        for n_shot, queries, methods in cells:
            results += evaluate(
                features,
                methods,
                n_way=n_way,
                n_shot=n_shot,
                queries=queries,
                draws=draws,
                seed=seed,
                on_progress=on_progress,
                **options,
            )
            if results[-1].interrupted:
                return results, True
    except KeyboardInterrupt:
        if not results:
            raise
        return results, True
    return results, False


def _check_combination(
    names: Sequence[str],
    shots: Sequence[int],
    given: Mapping[str, Sequence[Value]],
    pipeline: str | None,
    tuned: Tuned | None,
) -> None:
    """Refuse options that contradict one another or would have no effect."""
    if pipeline is not None and "beta" in given:
        raise InputError(
            "give --beta or --pipeline, not both: the pipeline's line has its own power."
        )
    taken = {knob for name in names for knob in knobs_taken(name, pipeline)}
    for knob in given:
        if knob not in ALL_KNOBS:
            raise InputError(f"knobs must be some of {', '.join(ALL_KNOBS)}, got {knob!r}.")
        if knob not in taken:
            takers = ", ".join(name for name in METHODS if knob in knobs_taken(name))
            option = "--" + knob.replace("_", "-")
            raise InputError(
                f"{option} has no effect on {', '.join(names)}. Leave it out, or add a method that takes it: {takers}."
            )
    if tuned is None:
        return
    if not any(name in tuned for name in names):
        raise InputError(
            f"--settings holds {', '.join(tuned)}, none of the methods {', '.join(names)}. Name one of them, or leave it out."
        )
    for name in names:
        for n_shot in shots:
            if name in tuned and n_shot not in tuned[name]:
                known = ", ".join(str(number) for number in tuned[name])
                raise InputError(
                    f"--settings holds {name} for --shots {known}, got {n_shot}. Tune it with --shots {n_shot}, or leave --settings out."
                )
