"""A method as one declaration: name, reference, pipeline, knobs, `assign` and its fused kernel.

A method's file declares it and registers it. Everything else is derived from the declaration: the
registry, help texts, the check of options and settings files, tuning ranges, axis names, lists in
messages. `CONTRIBUTING.md` shows how to add one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from fewlabels.errors import InputError, unknown_choice
from fewlabels.methods.assignment import Assignment
from fewlabels.preprocess.pipeline import Pipeline
from fewlabels.preprocess.steps import AUTO, LARGEST_POWER
from fewlabels.transport.prior import Prior, as_prior


@dataclass(frozen=True)
class Reference:
    """Where a method was published.

    >>> print(find_method("ncm").reference.authors)
    Mensink, Verbeek, Perronnin, Csurka
    """

    authors: str
    year: int
    title: str
    link: str

    def __str__(self) -> str:
        return f"{self.authors} ({self.year}). {self.title}. {self.link}"


@dataclass(frozen=True)
class Knob:
    """A setting of a method that a person may change.

    Args:
        name: As in Python, in settings files and in `--set name=value`.
        words: What it is, for help texts; no capital letter, no full stop.
        default: Its value, or a function of (n_shot, dataset) that gives it.
        low: Least value.
        high: Largest value.
        above_low: Whether `low` itself is refused.
        whole: Whether it must be a whole number.
        also: Words that are allowed beside numbers.
        note: Said when a value is out of range.
        grid: Values that `tune` tries; none if it does not try this knob.
        symbol: In figures.

    >>> sharpness = Knob("lam", "how sharply distance decides", default=10.0, low=0, above_low=True)
    >>> sharpness.parse("5"), sharpness.rule
    (5.0, 'a number above 0')
    """

    name: str
    words: str
    default: Any = None
    low: float = -inf
    high: float = inf
    above_low: bool = False
    whole: bool = False
    also: tuple[str, ...] = ()
    note: str = ""
    grid: tuple[float, ...] = ()
    symbol: str = ""

    def default_for(self, n_shot: int, dataset: str | None) -> Any:
        """The value that holds where none is given."""
        return self.default(n_shot, dataset) if callable(self.default) else self.default

    def check(self, value: Any) -> Any:
        """The value, or an error that names the knob, the rule and the value."""
        if isinstance(value, str) and value in self.also:
            return value
        if not isinstance(value, Integral if self.whole else Real) or isinstance(value, bool):
            kind = " or ".join(
                ["a whole number" if self.whole else "a number", *map(repr, self.also)]
            )
            raise InputError(f"{self.name} must be {kind}, got {value!r}.")
        number = float(value)
        above = self.low < number if self.above_low else self.low <= number
        if not (above and number <= self.high and abs(number) < inf):
            raise InputError(f"{self.name} must be {self.rule}, got {value}. {self.note}".rstrip())
        return value

    def parse(self, text: Any) -> Any:
        """The value from its text; what is no text is taken as it is."""
        if not isinstance(text, str) or text in self.also:
            return self.check(text)
        try:
            number = float(text)
        except ValueError:
            return self.check(text)  # refuses it
        return self.check(int(number) if self.whole and number.is_integer() else number)

    def show(self, value: Any) -> str:
        """The value as text."""
        return f"{value:g}" if isinstance(value, Real) else str(value)

    @property
    def rule(self) -> str:
        """The range in words."""
        kind = "a whole number" if self.whole else "a number"
        sides = []
        if self.low > -inf:
            sides.append(f"above {self.low:g}" if self.above_low else f"of at least {self.low:g}")
        if self.high < inf:
            sides.append(f"up to {self.high:g}")
        return " ".join([kind, " and ".join(sides) or "that is finite"])


@dataclass(frozen=True)
class PriorKnob(Knob):
    """The knob for class sizes: its values are `Prior`s."""

    def check(self, value: Any) -> Prior:
        """See `Knob`."""
        return as_prior(value)

    def parse(self, text: Any) -> Prior:
        """See `Knob`."""
        return as_prior(text)


BETA = Knob(
    "beta",
    "power of the transform; auto chooses one that suits the features",
    low=-LARGEST_POWER,
    high=LARGEST_POWER,
    also=(AUTO,),
    note="The paper uses 0.5.",
    grid=(-2, -1, -0.5, 0, 0.25, 0.5, 0.75, 1, 2),  # Figure 4 (2)
    symbol="power β",
)


@dataclass(frozen=True)
class Method:
    """A method: what a row of a results table stands for.

    Args:
        name: In Python and on the command line.
        title: In tables; a leading "PT+" is dropped where the pipeline has no power.
        reference: Where it was published.
        pipeline: Its preprocessing.
        assign: (support, support_labels, query, *, n_way, **settings) -> Assignment, batched.
        knobs: What a person may change; `beta` is added where the pipeline has a power.
        fixed: Settings of `assign` that make this method what it is.
        kernel: Name of the fused kernel that gives the same answers, if there is one.
        adapt: The pipeline for these settings, where it depends on them.
        prepare_rows: What can be computed of all rows, (N, D), before any label, for many fits;
            `assign` takes it, arranged as support and queries, as `neighborhood`.
        calibrated: Whether `plan` and the rule for later rows are calibrated already.
        hides_labels: Whether `Assignment.held_out` has predictions of hidden labels.
        learn: (support, support_labels, n_way) -> prototypes (W, D) and biases (W,) for later rows,
            where there are no queries: (S, D) and (S,). The class means if left out.

    >>> method = find_method("ncm")
    >>> method.title, str(method.pipeline), list(method.knobs_for())
    ('PT+NCM', 'power(0.5) | unit', ['beta'])
    """

    name: str
    title: str
    reference: Reference
    pipeline: Pipeline
    assign: Callable[..., Assignment]
    knobs: tuple[Knob, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    kernel: str | None = None
    adapt: Callable[[Pipeline, Mapping[str, Any]], Pipeline] | None = None
    prepare_rows: Callable[[Tensor], Any] | None = None
    calibrated: bool = False
    hides_labels: bool = False
    learn: Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]] | None = None

    def knobs_for(self, pipeline: Pipeline | str | None = None) -> dict[str, Knob]:
        """The knobs by name, for the method's own or another pipeline.

        beta is one of them where the pipeline has a power that is a number.
        """
        chosen = self.pipeline if pipeline is None else Pipeline.parse(pipeline)
        has_power = isinstance(chosen.power, float | int)
        return {knob.name: knob for knob in ((BETA,) if has_power else ()) + self.knobs}

    def parse(self, texts: Mapping[str, Any]) -> dict[str, Any]:
        """Values of knobs from their texts, by name."""
        knobs = self.knobs_for()
        return {name: self._known(knobs, name).parse(text) for name, text in texts.items()}

    def _known(self, knobs: Mapping[str, Knob], name: str) -> Knob:
        if name not in knobs:
            if not knobs:
                raise InputError(
                    f"method '{self.name}' has no knobs, got {name!r}. "
                    "Leave it out, or choose another method."
                )
            raise unknown_choice(f"a knob of method '{self.name}'", name, knobs)
        return knobs[name]

    def configure(
        self,
        *,
        n_shot: int,
        dataset: str | None = None,
        pipeline: Pipeline | str | None = None,
        **settings: Any,
    ) -> "ConfiguredMethod":
        """The method with a value for each knob; None stands for the default.

        Args:
            n_shot: Labelled rows per class; decides defaults of the paper.
            dataset: Name as in a FeatureSet's provenance; decides the paper's alpha at one shot.
            pipeline: Another preprocessing.
            **settings: Values of knobs, as numbers, words or Priors.
        """
        given = {name: value for name, value in settings.items() if value is not None}
        if pipeline is not None and "beta" in given:
            raise InputError(
                "give beta or pipeline, not both: the pipeline's line has its own power."
            )
        knobs = self.knobs_for(pipeline)
        for name in given:
            self._known(knobs, name)
        values = {
            name: knob.check(given[name] if name in given else knob.default_for(n_shot, dataset))
            for name, knob in knobs.items()
            if name != BETA.name
        }
        chosen = self.pipeline if pipeline is None else Pipeline.parse(pipeline)
        if "beta" in given:
            chosen = chosen.with_power(BETA.check(given["beta"]))
        if self.adapt is not None and pipeline is None:
            chosen = self.adapt(chosen, values)
        return ConfiguredMethod(self, chosen, {**values, **self.fixed})


@dataclass(frozen=True)
class ConfiguredMethod:
    """A method with its pipeline and all settings chosen."""

    method: Method
    pipeline: Pipeline
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The method's name."""
        return self.method.name

    @property
    def title(self) -> str:
        """In tables: "PT+" only where the pipeline has a power."""
        title = self.method.title
        return title if self.pipeline.power is not None else title.removeprefix("PT+")

    @property
    def prior(self) -> Prior | None:
        """What the method assumes about class sizes, None where it has no such setting."""
        return self.settings.get("prior")

    def with_prior(self, prior: Prior) -> "ConfiguredMethod":
        """The same with another prior."""
        return replace(self, settings={**self.settings, "prior": prior})

    def decide(self, features: Tensor) -> "ConfiguredMethod":
        """The same with all of its preprocessing decided for these features, (N, D)."""
        if not self.pipeline.undecided:
            return self
        return replace(self, pipeline=self.pipeline.decide(features))

    def assign(
        self,
        support: Tensor,
        support_labels: Tensor,
        query: Tensor,
        *,
        n_way: int,
        neighborhood: Any = None,
    ) -> Assignment:
        """Label preprocessed vectors: (E, S, D), (E, S), (E, Q, D) -> Assignment.

        Args:
            support: Preprocessed labelled vectors.
            support_labels: Class numbers.
            query: Preprocessed unlabelled vectors.
            n_way: Number of classes.
            neighborhood: Of the same rows, where it was computed before.
        """
        kept = {"neighborhood": neighborhood} if neighborhood is not None else {}
        settings = {**self.settings, **kept}
        return self.method.assign(support, support_labels, query, n_way=n_way, **settings)


_METHODS: dict[str, Method] = {}


def register(*methods: Method) -> None:
    """Make methods known by name; a name that is taken is refused.

    >>> try:
    ...     register(find_method("ncm"))
    ... except InputError as error:
    ...     print(error)
    method 'ncm' is registered already, for PT+NCM. Choose another name.
    """
    for method in methods:
        if method.name in _METHODS:
            raise InputError(
                f"method '{method.name}' is registered already, for {_METHODS[method.name].title}. "
                "Choose another name."
            )
        _METHODS[method.name] = method


def unregister(name: str) -> None:
    """Forget a method; tests that register one need it."""
    del _METHODS[name]


def method_names() -> tuple[str, ...]:
    """The names of all methods, in the order of registration.

    >>> method_names()[:3]
    ('ncm-raw', 'ncm', 'kmeans')
    """
    return tuple(_METHODS)


def methods_with_mean() -> tuple[str, ...]:
    """The names of the methods that need a mean from outside.

    >>> methods_with_mean()
    ('map-auto-mean', 'simpleshot-cl2n')
    """
    return tuple(name for name, each in _METHODS.items() if each.pipeline.needs_mean)


def all_knobs() -> dict[str, Knob]:
    """The knobs of all methods by name, beta first."""
    found = {BETA.name: BETA}
    for method in _METHODS.values():
        found |= {name: knob for name, knob in method.knobs_for().items() if name not in found}
    return found


def find_method(name: "str | Method") -> Method:
    """The method of a name; a Method is taken as it is."""
    if isinstance(name, Method):
        return name
    if name not in _METHODS:
        raise unknown_choice("method", name, _METHODS)
    return _METHODS[name]


def configure(
    name: "str | Method",
    *,
    n_shot: int,
    dataset: str | None = None,
    pipeline: Pipeline | str | None = None,
    **settings: Any,
) -> ConfiguredMethod:
    """A method by name with a value for each knob; see `Method.configure`.

    >>> str(configure("map", n_shot=5, beta=0.3).pipeline)
    'power(0.3) | unit | center | unit'
    """
    return find_method(name).configure(
        n_shot=n_shot, dataset=dataset, pipeline=pipeline, **settings
    )


def typical_shots(labels: Tensor) -> int:
    """The median number of labels per class, (S,) class numbers: what defaults are chosen by."""
    return int(torch.bincount(labels.long()).median())
