"""Several methods, shots, queries and knobs at once: checked first, then run cell by cell."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from fewlabels.errors import InputError, unknown_choice
from fewlabels.evaluation.queries import QuerySpec
from fewlabels.evaluation.results import EvaluationResult
from fewlabels.evaluation.run import evaluate
from fewlabels.evaluation.sampling import make_draws
from fewlabels.evaluation.settings import Tuned, knobs_taken
from fewlabels.features import FeatureSet
from fewlabels.methods import ConfiguredMethod, find_method, method_names
from fewlabels.methods.base import all_knobs


class Cell(NamedTuple):
    """Methods that label the same episodes."""

    n_shot: int
    queries: str
    methods: tuple[ConfiguredMethod, ...]


def plan_cells(
    names: Sequence[str],
    *,
    shots: Sequence[int] = (1,),
    queries: Sequence[str] = ("15",),
    dataset: str | None = None,
    knobs: Mapping[str, Sequence[Any]] | None = None,
    pipeline: str | None = None,
    tuned: Tuned | None = None,
) -> list[Cell]:
    """Every combination of what is given, each once; a method gets only the knobs that it takes.

    A knob comes from `knobs`, else from `tuned`, else from the method's defaults.

    Args:
        dataset: Name as in a FeatureSet's provenance; decides the paper's alpha at one shot.
        knobs: Values to try, by name of the knob; texts are parsed.
        tuned: Settings by method and shots, from `read_settings`; other methods keep their own.

    >>> cells = plan_cells(["ncm", "map"], shots=[1, 5], knobs={"lam": [5, 10]})
    >>> [len(cell.methods) for cell in cells]
    [3, 3]
    """
    given = {knob: values for knob, values in (knobs or {}).items() if values}
    _check_combination(names, shots, given, pipeline, tuned)
    cells = []
    for n_shot in dict.fromkeys(shots):
        methods: list[ConfiguredMethod] = []
        for name in names:
            taken = find_method(name).knobs_for(pipeline)
            known = {**(tuned or {}).get(name, {}).get(n_shot, {})}
            if pipeline is not None:
                known.pop("beta", None)  # the pipeline's line has its own power
            values = [
                [knob.parse(value) for value in given[each]] if each in given else [known.get(each)]
                for each, knob in taken.items()
            ]
            for chosen in product(*values):
                settings = dict(zip(taken, chosen, strict=True))
                method = find_method(name).configure(
                    n_shot=n_shot, dataset=dataset, pipeline=pipeline, **settings
                )
                if method not in methods:
                    methods.append(method)
        words = dict.fromkeys(str(QuerySpec.parse(word)) for word in queries)
        cells += [Cell(n_shot, word, tuple(methods)) for word in words]
    return cells


def idle_knobs(names: Sequence[str], knobs: Mapping[str, Sequence[Any]]) -> list[tuple[str, str]]:
    """Knobs that were given, and methods among the named ones that have their own: (knob, method).

    >>> idle_knobs(["map", "map-auto"], {"beta": ["1"], "alpha": []})
    [('beta', 'map-auto')]
    """
    found = []
    for name in names:
        method = find_method(name)
        own = [*(["beta"] if method.pipeline.undecided else []), *method.fixed]
        found += [(knob, name) for knob in own if knobs.get(knob)]
    return found


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
        **options: n_episodes, engine, device, dtype, mean_features, as in `evaluate`.
    """
    check_cells(features, cells, n_way=n_way, draws=draws, seed=seed)
    results: list[EvaluationResult] = []
    try:
        for n_shot, queries, methods in cells:
            kind: Any = {"n_way": n_way, "n_shot": n_shot, "queries": queries, "seed": seed}
            how = {"draws": draws, "on_progress": on_progress, **options}
            results += evaluate(methods, features, **kind, **how)
            if results[-1].interrupted:
                return results, True
    except KeyboardInterrupt:
        if not results:
            raise
        return results, True
    return results, False


def check_cells(
    features: FeatureSet, cells: Sequence[Cell], *, n_way: int, draws: str = "own", seed: int = 0
) -> None:
    """Refuse what does not fit the features in any cell, before the first is run."""
    for cell in cells:
        kind: Any = {"n_way": n_way, "n_shot": cell.n_shot, "queries": cell.queries, "seed": seed}
        make_draws(features, draws=draws, **kind)
        n_query = QuerySpec.parse(cell.queries).total(n_way)
        for method in cell.methods:
            if method.prior is not None and not method.prior.needs_truth:
                method.prior.masses(n_query, n_way)  # refuses sizes that do not fit


def _check_combination(
    names: Sequence[str],
    shots: Sequence[int],
    given: Mapping[str, Sequence[Any]],
    pipeline: str | None,
    tuned: Tuned | None,
) -> None:
    """Refuse arguments that contradict one another or would have no effect."""
    if pipeline is not None and "beta" in given:
        raise InputError("give beta or pipeline, not both: the pipeline's line has its own power.")
    taken = {knob for name in names for knob in knobs_taken(name, pipeline)}
    for knob in given:
        if knob not in all_knobs():
            raise unknown_choice("a knob", knob, all_knobs())
        if knob not in taken:
            takers = ", ".join(name for name in method_names() if knob in knobs_taken(name))
            raise InputError(
                f"{knob} has no effect on {', '.join(names)}. "
                f"Leave it out, or add a method that takes it: {takers}."
            )
    if tuned is None:
        return
    if not any(name in tuned for name in names):
        raise InputError(
            f"settings holds {', '.join(tuned)}, none of the methods {', '.join(names)}. "
            "Name one of them, or leave it out."
        )
    for name in names:
        for n_shot in shots:
            if name in tuned and n_shot not in tuned[name]:
                known = ", ".join(str(number) for number in tuned[name])
                raise InputError(
                    f"settings holds {name} for {known} shots, got {n_shot}. "
                    f"Tune it for {n_shot} shots, or leave the settings out."
                )
