"""A preprocessing pipeline, read from and printed as one line: "power(0.5) | unit | center | unit".

The line is the pipeline's identity in results, cache keys and commands. It is parsed once into
`Step`s; no other module edits its text.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from fewlabels.errors import InputError
from fewlabels.io.words import name_rows
from fewlabels.preprocess.bpa import pairwise_affinities
from fewlabels.preprocess.power_rule import are_measurements, suggest_power
from fewlabels.preprocess.steps import (
    AUTO,
    BPA,
    LIFT,
    MOST_MEASUREMENTS,
    ROW,
    SCALE,
    UNIT,
    Step,
    joint_sizes,
)


@dataclass(frozen=True)
class Pipeline:
    """Steps applied in order to a support and a query set.

    The steps before the first centering by the episode's own means act on single vectors
    (`rowwise`): they give the same answer on a whole data set at once as on each episode. The rest
    (`episodic`) needs the episode.

    >>> str(Pipeline.parse("power(.5)|unit |center| unit"))
    'power(0.5) | unit | center | unit'
    >>> str(Pipeline.parse("power(.5) | unit").with_power(0.3))
    'power(0.3) | unit'
    """

    steps: tuple[Step, ...]

    @classmethod
    def parse(cls, text: "str | Pipeline") -> Self:
        """Read a pipeline from its line; "none" or "" is the empty one."""
        if isinstance(text, Pipeline):
            return cls(text.steps)
        words = [word.strip() for word in text.split("|")]
        if words in ([""], ["none"]):
            return cls(())
        try:
            return cls(tuple(Step.parse(word) for word in words))
        except InputError as error:
            raise InputError(f"pipeline '{text}': {error}") from None

    def __str__(self) -> str:
        return " | ".join(str(step) for step in self.steps) or "none"

    @property
    def rowwise(self) -> "Pipeline":
        """The leading steps that treat each vector alone; a mean from outside is one of them."""
        return Pipeline(self.steps[: self._first_episodic])

    @property
    def episodic(self) -> "Pipeline":
        """The steps from the first centering by the episode's own means on."""
        return Pipeline(self.steps[self._first_episodic :])

    @property
    def power(self) -> float | str | None:
        """The value of the first power step, "auto" where it is not decided, None without one."""
        return next((step.value for step in self.steps if step.is_power), None)

    @property
    def needs_mean(self) -> bool:
        """Whether a mean from outside must be given."""
        return any(step.needs_mean for step in self.steps)

    @property
    def needs_labels(self) -> bool:
        """Whether the vectors depend on which rows have labels."""
        return any(step.is_episodic and step.value != "joint" for step in self.steps)

    @property
    def positive_only(self) -> bool:
        """Whether negative features are refused."""
        return any(step.name == "power" and step.value not in (1, AUTO) for step in self.steps)

    @property
    def n_added(self) -> int:
        """Columns that the steps add."""
        return self.steps.count(LIFT)

    @property
    def undecided(self) -> bool:
        """Whether the power is still to be read from the features, by `decide`."""
        return self.power == AUTO

    def with_power(self, beta: float | str) -> "Pipeline":
        """The same pipeline with another value of its power steps."""
        steps = (Step("power", beta) if step.is_power else step for step in self.steps)
        return Pipeline(tuple(steps))

    def with_centering(self, kind: str | None) -> "Pipeline":
        """The same pipeline with another kind of centering by the episode's own means."""
        own = (step.is_episodic and step.is_centering for step in self.steps)
        pairs = zip(self.steps, own, strict=True)
        steps = (Step("center", kind) if chosen else step for step, chosen in pairs)
        return Pipeline(tuple(steps))

    def decide(self, features: Tensor) -> "Pipeline":
        """The pipeline with the power that suits the features, (N, D), where it has power(auto).

        With a joint centering, and features that are measurements, it is `MEASUREMENTS`.
        """
        if not self.undecided:
            return self
        if Step("center", "joint") in self.steps and are_measurements(features):
            return MEASUREMENTS
        return Pipeline(
            tuple(suggest_power(features) if step.value == AUTO else step for step in self.steps)
        )

    @property
    def _first_episodic(self) -> int:
        return next((i for i, step in enumerate(self.steps) if step.is_episodic), len(self.steps))

    def __call__(
        self, support: Tensor, query: Tensor, *, mean: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Apply all steps, (..., S, D) and (..., Q, D) -> the same.

        Args:
            mean: From outside, for `center(mean)` and `center(support+mean)`, (D,), as `mean_of`
                computes it.
        """
        self.check(support, "support")
        self.check(query, "query")
        return self.apply(support, query, mean=mean)

    def check(self, x: Tensor, name: str) -> None:
        """Refuse vectors that have no direction where the steps need one."""
        if UNIT in self.steps and LIFT not in self.steps and x.numel():
            flat, found = ~x.any(dim=-1), "zeros"
            if ROW in self.steps and x.shape[-1] > MOST_MEASUREMENTS:
                flat, found = (x == x[..., :1]).all(dim=-1), "equal values"
            if flat.any():
                rows = flat.reshape(-1).nonzero()[:, 0].tolist()
                raise InputError(
                    f"{name}: every vector must have a direction, got only {found} in "
                    f"{name_rows(rows)}. Drop these rows or look for images that failed to load."
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
        """As `apply`, and what the queries were centered and scaled by, for `replay`."""
        mean = self.require_mean(mean)
        recorded: list[Tensor] = []
        for step in self.steps:
            if step.is_centering:
                from_support, from_query = step.means(support, query, mean)
                support, query = support - from_support, query - from_query
                recorded.append(from_query)
            elif step == SCALE:
                sizes = joint_sizes(support, query)
                support, query = support / sizes, query / sizes
                recorded.append(sizes)
            elif step == BPA:
                support, query = pairwise_affinities(support, query)
            else:
                support, query = step.apply(support), step.apply(query)
        return support, query, tuple(recorded)

    def replay(self, x: Tensor, means: tuple[Tensor, ...]) -> Tensor:
        """Treat later vectors as the queries were treated, (..., N, D); they are not checked."""
        self.check_later_rows()
        recorded = iter(means)
        for step in self.steps:
            if step.is_centering:
                x = x - next(recorded)
            else:
                x = x / next(recorded) if step == SCALE else step.apply(x)
        return x

    def check_later_rows(self) -> None:
        """Refuse rows that come later, where the steps describe a row by the others."""
        if BPA in self.steps:
            raise InputError(
                f"pipeline '{self}': a later row has no affinities to the rows of the episode. "
                "Label it together with the others, or leave out the step 'bpa'."
            )

    def transform(self, x: Tensor, *, mean: Tensor | None = None) -> Tensor:
        """Apply the row-wise steps to one set of vectors, (..., D) -> (..., D)."""
        self.check(x, "features")
        rowwise = self.rowwise
        n_means = sum(step.is_centering for step in rowwise.steps)
        return rowwise.replay(x, (rowwise.require_mean(mean),) * n_means)

    def mean_of(self, features: Tensor) -> Tensor:
        """The mean from outside that the steps expect, of another set, (N, D) -> (D,).

        SimpleShot and the paper's "NCM with base mean" take it over the base classes.
        """
        rowwise = self.rowwise.steps
        wanting = (i for i, step in enumerate(self.steps) if step.needs_mean)
        before = Pipeline(self.steps[: next(wanting, len(rowwise))])
        return before.transform(features).reshape(-1, features.shape[-1]).mean(dim=0)

    def require_mean(self, mean: Tensor | None) -> Tensor:
        """The mean from outside, refused if a step needs one and there is none; else a zero."""
        if mean is not None:
            return mean
        if self.needs_mean:
            raise InputError(
                f"pipeline '{self}': {next(step for step in self.steps if step.needs_mean)} needs "
                "a mean, got none. Give mean=pipeline.mean_of(features) of the base classes, or "
                "use center(joint) or center(support), which need none."
            )
        return torch.zeros(())


PAPER = Pipeline.parse("power(0.5) | unit | center | unit")  # of PT+MAP and PT+K-Means
PAPER_INDUCTIVE = Pipeline.parse("power(0.5) | unit")  # of PT+NCM: Eq. (1) alone
MEASUREMENTS = Pipeline.parse("center(joint) | scale(joint) | lift | unit")
