"""A preprocessing pipeline that parses from, and prints as, one line: "power(0.5) | unit | center | unit".

The line is the pipeline's identity: it stands in results, cache keys and commands.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from fewlabels.errors import InputError, name_rows
from fewlabels.preprocess import steps
from fewlabels.preprocess.power_rule import suggest_power

PAPER = "power(0.5) | unit | center | unit"  # the preprocessing of PT+MAP and PT+K-Means
PAPER_INDUCTIVE = "power(0.5) | unit"  # the preprocessing of PT+NCM: Eq. (1) alone
CENTERINGS = ("center", "center(joint)", "center(support)", "center(mean)")
AUTO = "power(auto)"  # the power is read from the features
POWERS = {"power": steps.power, "signed_power": steps.signed_power}
EPISODIC = ("center", "center(joint)", "center(support)")  # by means of the episode itself


@dataclass(frozen=True)
class Pipeline:
    """Steps applied in order to a support and a query set.

    The steps before the first centering by the episode's own means act on single vectors
    (`rowwise`): they give the same answer on a whole data set at once as on each episode. The rest
    (`episodic`) needs the episode.

    >>> str(Pipeline.parse("power(.5)|unit |center| unit"))
    'power(0.5) | unit | center | unit'
    """

    steps: tuple[str, ...]

    @classmethod
    def parse(cls, text: "str | Pipeline") -> Self:
        """Read a pipeline from its line; "none" or "" is the empty one."""
        if isinstance(text, Pipeline):
            return cls(text.steps)
        words = [word.strip() for word in text.split("|")]
        if words in ([""], ["none"]):
            return cls(())
        return cls(tuple(_parse_step(word, text) for word in words))

    def __str__(self) -> str:
        return " | ".join(self.steps) or "none"

    @property
    def rowwise(self) -> "Pipeline":
        """The leading steps that treat each vector alone; a mean from outside does."""
        return Pipeline(self.steps[: self._first_episodic])

    @property
    def episodic(self) -> "Pipeline":
        """The steps from the first centering by the episode's own means on."""
        return Pipeline(self.steps[self._first_episodic :])

    @property
    def needs_mean(self) -> bool:
        """Whether a mean from outside must be given."""
        return "center(mean)" in self.steps

    @property
    def positive_only(self) -> bool:
        """Whether negative features are refused."""
        return any(
            step.startswith("power") and step not in ("power(1)", AUTO) for step in self.steps
        )

    @property
    def undecided(self) -> bool:
        """Whether the power is still to be read from the features, by `decide`."""
        return AUTO in self.steps

    def decide(self, features: Tensor) -> "Pipeline":
        """This pipeline with the power that suits the features, (N, D), in the place of power(auto); see `power_rule`."""
        if not self.undecided:
            return self
        return Pipeline(
            tuple(suggest_power(features) if step == AUTO else step for step in self.steps)
        )

    @property
    def _first_episodic(self) -> int:
        return next((i for i, step in enumerate(self.steps) if step in EPISODIC), len(self.steps))

    def __call__(
        self, support: Tensor, query: Tensor, *, mean: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Apply all steps, (..., S, D) and (..., Q, D) -> the same.

        Args:
            support: Labelled vectors.
            query: Unlabelled vectors.
            mean: What `center(mean)` subtracts, (D,), as `mean_of` computes it.
        """
        self.check(support, "support")
        self.check(query, "query")
        return self.apply(support, query, mean=mean)

    def check(self, x: Tensor, name: str) -> None:
        """Refuse vectors that the steps cannot make sense of."""
        if "unit" in self.steps and x.numel():
            zero = ~x.any(dim=-1).reshape(-1)
            if zero.any():
                raise InputError(
                    f"{name}: every vector must have a direction, got only zeros in {name_rows(zero.nonzero()[:, 0].tolist())}. "
                    "Drop these rows or look for images that failed to load."
                )

    def apply(
        self, support: Tensor, query: Tensor, *, mean: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Apply all steps to vectors that were checked before."""
        support, query, _ = self.apply_and_record(support, query, mean=mean)
        return support, query

    def apply_and_record(
        self, support: Tensor, query: Tensor, *, mean: Tensor | None = None
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """As `apply`, and the means that were subtracted from the queries, for `replay`."""
        mean = self._required(mean)
        recorded: list[Tensor] = []
        for step in self.steps:
            if step in CENTERINGS:
                if step == "center":
                    support_mean, query_mean = steps.separate_means(support, query)
                elif step == "center(joint)":
                    support_mean = query_mean = steps.joint_mean(support, query)
                elif step == "center(support)":
                    support_mean = query_mean = steps.support_mean(support, query)
                else:
                    support_mean = query_mean = mean
                support, query = support - support_mean, query - query_mean
                recorded.append(query_mean)
            else:
                act = _rowwise_function(step)
                support, query = act(support), act(query)
        return support, query, tuple(recorded)

    def replay(self, x: Tensor, means: tuple[Tensor, ...]) -> Tensor:
        """Treat later vectors as the queries were treated, (..., N, D) -> (..., N, D); they were checked before."""
        recorded = iter(means)
        for step in self.steps:
            x = x - next(recorded) if step in CENTERINGS else _rowwise_function(step)(x)
        return x

    def transform(self, x: Tensor, *, mean: Tensor | None = None) -> Tensor:
        """Apply the row-wise steps to one set of vectors, (..., D) -> (..., D)."""
        self.check(x, "features")
        rowwise = self.rowwise
        return rowwise.replay(x, (rowwise._required(mean),) * rowwise.steps.count("center(mean)"))

    def mean_of(self, features: Tensor) -> Tensor:
        """The mean that `center(mean)` expects, measured on another set, (N, D) -> (D,).

        SimpleShot and the paper's "NCM with base mean" take it over the base classes.
        """
        before = Pipeline(
            self.steps[: self.steps.index("center(mean)")]
            if self.needs_mean
            else self.rowwise.steps
        )
        return before.transform(features).reshape(-1, features.shape[-1]).mean(dim=0)

    def _required(self, mean: Tensor | None) -> Tensor:
        if mean is not None:
            return mean
        if self.needs_mean:
            raise InputError(
                f"pipeline '{self}': center(mean) needs a mean, got none. Give --mean-of FILE, or mean=pipeline.mean_of(features)."
            )
        return torch.zeros(())


def _parse_step(word: str, line: str) -> str:
    if word == "unit" or word in CENTERINGS or word == AUTO:
        return word
    if match := re.fullmatch(r"(power|signed_power)\(([^()]+)\)", word):
        name = match[1]
        try:
            beta = float(match[2])
        except ValueError:
            raise InputError(
                f"pipeline '{line}': {name} must hold a number, got '{match[2]}'."
            ) from None
        POWERS[name](torch.zeros(0), beta=beta)  # lets it speak for its own range
        return f"{name}({beta:.12g})"
    known = ("power(BETA)", "unit", *CENTERINGS, "signed_power(BETA)", AUTO)
    raise InputError(f"pipeline '{line}': a step must be one of {', '.join(known)}, got '{word}'.")


def _rowwise_function(step: str) -> Callable[[Tensor], Tensor]:
    if step == "unit":
        return steps.unit
    if step == AUTO:
        raise InputError(
            "the pipeline's power(auto) must be decided first: use pipeline.decide(features), or name a power."
        )
    name, _, number = step.removesuffix(")").partition("(")
    return lambda x: POWERS[name](x, beta=float(number))
