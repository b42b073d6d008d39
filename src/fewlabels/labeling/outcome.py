"""Label a whole collection in one go, and say what came of it."""

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fewlabels.labeling import model
from fewlabels.labeling.accuracy import Estimate, estimate_accuracy, wilson
from fewlabels.labeling.given import check_enough
from fewlabels.labeling.sources import Source
from fewlabels.labeling.suggestions import DOUBTFUL, advise, list_strangers, suggest
from fewlabels.labeling.table import MODEL, LabelRow, number_classes, tabulate
from fewlabels.methods.nearest import assign_nearest

SHOWN = 8  # classes that a line names
WORTH_SAYING = 0.03  # difference between the estimate and the plain share of hidden labels that came back right


@dataclass(frozen=True, eq=False)
class Score:
    """How many of the model's labels are true, and how many nearest class mean would have got right on the same items."""

    n_right: int
    n_right_nearest: int
    n: int
    confusion: NDArray[
        np.int64
    ]  # (W, W): rows the truth, columns the model's label; items of the model only

    @property
    def accuracy(self) -> float:
        """Share of the model's labels that are true."""
        return self.n_right / self.n


class Unscored(NamedTuple):
    """What the truth knows and `Score` does not count."""

    n_left_out: int  # the model's label was too doubtful to be kept
    other_classes: dict[str, int]  # images of true classes that no label names, by class

    def describe(self) -> str:
        """A line for each; empty where there is nothing to say.

        >>> print(Unscored(2, {"cabbage": 1, "kale": 3}).describe())
        2 images not scored: their labels were left out as too doubtful.
        4 images not scored, of classes that no label names: 'cabbage' (1), 'kale' (3). Is a class called otherwise in the labels?
        """
        lines = []
        if self.n_left_out:
            words = (
                "image not scored: its label was"
                if self.n_left_out == 1
                else "images not scored: their labels were"
            )
            lines.append(f"{self.n_left_out:,} {words} left out as too doubtful.")
        if self.other_classes:
            n = sum(self.other_classes.values())
            shown = ", ".join(
                f"'{name}' ({count:,})" for name, count in list(self.other_classes.items())[:SHOWN]
            )
            more = (
                f" and {len(self.other_classes) - SHOWN:,} more"
                if len(self.other_classes) > SHOWN
                else ""
            )
            words = f"{n:,} image{'' if n == 1 else 's'} not scored, of classes that no label names"
            lines.append(f"{words}: {shown}{more}. Is a class called otherwise in the labels?")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Outcome:
    """All labels of a source and the evidence for them."""

    source: Source
    class_names: tuple[str, ...]
    numbers: NDArray[np.int64]  # (N,) given class numbers, -1 where none
    vectors: model.Vectors
    answer: model.Answer
    rows: list[LabelRow]  # of the listed items
    estimate: Estimate | None
    remarks: tuple[str, ...]

    @property
    def advice(self) -> str:
        """Go on labelling, or stop?"""
        return advise(self.answer, self.numbers, self.estimate)

    @property
    def none_of_these(self) -> list[float] | None:
        """How probable it is that a listed item belongs to none of the classes; None where it was not asked for."""
        shares = self.answer.none_of_these
        return (
            None
            if shares is None
            else [round(float(share), 3) for share in shares[: self.source.n_listed]]
        )

    @property
    def strangers(self) -> list[int]:
        """Listed items that look like none of the classes, the most probable first; none where it was not asked for."""
        shares = self.answer.none_of_these
        return (
            []
            if shares is None
            else sorted(
                list_strangers(self.none_of_these or []), key=lambda item: -float(shares[item])
            )
        )

    def suggest(self, n: int) -> list[int]:
        """The items to label next."""
        found = suggest(
            self.vectors, self.numbers, self.answer, n=n + len(self.numbers) - self.source.n_listed
        )
        return [item for item in found if item < self.source.n_listed][:n]

    def score(self, truth: Mapping[int, str]) -> Score | None:
        """Compare the model's labels that were kept with true ones; None where none of them can be. See `unscored`."""
        place = {name: number for number, name in enumerate(self.class_names)}
        items = np.array(
            [item for item in self._asked(truth) if truth[item] in place and self.rows[item].label],
            dtype=np.int64,
        )
        if not len(items):
            return None
        true = np.array([place[truth[int(item)]] for item in items])
        found, nearest = self.answer.labels[items], self.nearest()[items]
        confusion = np.zeros((len(place), len(place)), dtype=np.int64)
        np.add.at(confusion, (true, found), 1)
        return Score(
            int((found == true).sum()), int((nearest == true).sum()), len(items), confusion
        )

    def unscored(self, truth: Mapping[int, str]) -> Unscored:
        """What `score` sets apart: labels that were left out, and images of classes that no label names."""
        asked, named = self._asked(truth), set(self.class_names)
        others = Counter(truth[item] for item in asked if truth[item] not in named)
        return Unscored(
            sum(truth[item] in named and not self.rows[item].label for item in asked),
            dict(sorted(others.items())),
        )

    def _asked(self, truth: Mapping[int, str]) -> list[int]:
        """The items with a true label that the model was asked about."""
        return [item for item in sorted(truth) if self.numbers[item] < 0]

    def nearest(self) -> NDArray[np.int64]:
        """What nearest class mean says of all items, for comparison, (N,)."""
        known = self.numbers >= 0
        x, numbers = self.vectors.x, np.asarray(self.numbers)
        found = assign_nearest(
            x[known][None],
            torch.as_tensor(numbers[known])[None],
            x[None],
            n_way=len(self.class_names),
        )
        return np.asarray(found.labels[0].numpy())

    def describe(self) -> str:
        """What came of it, in a few lines."""
        found = self.summary()
        lines = [
            f"{found['images']:,} images, {len(self.class_names)} classes: {found['given']:,} labels given, {found['labelled']:,} found"
            + (f", {found['left_out']:,} left out as too doubtful." if found["left_out"] else ".")
        ]
        if "none_of_these" in found:
            lines.append(describe_strangers(found["none_of_these"]))
        if self.estimate is not None:
            lines.append(describe_estimate(self.estimate, among_strangers=bool(self.strangers)))
        return "\n".join([*lines, self.advice])

    def summary(self) -> dict[str, Any]:
        """Counts and settings, for JSON."""
        by_model = [row for row in self.rows if row.origin == MODEL or not row.origin]
        return {
            "images": len(self.rows),
            "given": len(self.rows) - len(by_model),
            "labelled": sum(row.origin == MODEL for row in self.rows),
            "left_out": sum(not row.label for row in self.rows),
            "doubtful": sum(row.confidence < DOUBTFUL for row in by_model),
            **({} if self.none_of_these is None else {"none_of_these": len(self.strangers)}),
            "classes": dict(sorted(Counter(row.label for row in self.rows if row.label).items())),
            "estimated_accuracy": None if self.estimate is None else self.estimate._asdict(),
            "advice": self.advice,
            "pipeline": str(self.vectors.pipeline),
            "lam": self.answer.lam,
            "features": {
                **self.source.collection.provenance,
                "fingerprint": self.source.collection.fingerprint,
            },
            "remarks": list(self.remarks),
        }


def label_source(source: Source, *, abstain: float = 0.0, none_of_these: bool = False) -> Outcome:
    """Labels for all items of a source.

    Args:
        source: Items with features and a few labels.
        abstain: Confidence below which the model's label is left out of the rows.
        none_of_these: Whether to find out which items belong to none of the classes.
    """
    thin = check_enough(source.labels, len(source.collection))
    numbers, class_names = number_classes(source.labels, len(source.collection))
    vectors = model.prepare(source.collection.features)
    with model.one_thread() as n_cores, ThreadPoolExecutor(n_cores) as pool:  # one solution a core
        solving = pool.submit(
            model.solve, vectors, numbers, n_way=len(class_names), none_of_these=none_of_these
        )
        estimate = estimate_accuracy(vectors, numbers, n_way=len(class_names), pool=pool)
        answer = solving.result()
    rows = tabulate(source.collection.names, class_names, answer, source.origins, abstain=abstain)[
        : source.n_listed
    ]
    return Outcome(
        source,
        class_names,
        numbers,
        vectors,
        answer,
        rows,
        estimate,
        (*source.remarks, *thin, vectors.remark),
    )


def suggest_next(source: Source, *, n: int) -> tuple[list[str], str]:
    """The names of the n items to label next, and whether it is worth it; works without any label too."""
    if len(source.labels) == len(source.collection):
        return [], "Every image has a label: there is none to label next."
    if len(set(source.labels.values())) >= 2:
        outcome = label_source(source)
        return [source.collection.names[item] for item in outcome.suggest(n)], outcome.advice
    numbers, _ = number_classes(source.labels, len(source.collection))
    found = suggest(model.prepare(source.collection.features), numbers, None, n=n)
    return [source.collection.names[item] for item in found], advise(None, numbers, None)


def describe_strangers(n: int) -> str:
    """One line: how many images look like something that nobody named.

    >>> describe_strangers(41)
    '41 images look like none of these classes: they come first when you sort by none_of_these.'
    """
    if n == 0:
        return "No image looks like none of these classes."
    words = ("image looks", "it comes") if n == 1 else ("images look", "they come")
    return f"{n:,} {words[0]} like none of these classes: {words[1]} first when you sort by none_of_these."


def describe_estimate(estimate: Estimate, *, among_strangers: bool = False) -> str:
    """One line: how many labels found are right, and how that is known.

    Args:
        estimate: Of the labels found.
        among_strangers: Whether there are images of no class, of which hidden labels can tell nothing.

    >>> describe_estimate(Estimate(9, 10, 0.9, 0.6, 0.98), among_strangers=True)
    'Estimated accuracy among the named classes 90% (95 % interval 60% to 98%): 9 of your 10 labels came back right when hidden.'
    """
    about = (
        "Estimated accuracy among the named classes" if among_strangers else "Estimated accuracy"
    )
    words = f"{estimate.n_right} of your {estimate.n_hidden} labels came back right when hidden"
    difference = estimate.accuracy - estimate.n_right / estimate.n_hidden
    if abs(difference) >= WORTH_SAYING:
        words += f"; they are {'harder' if difference > 0 else 'easier'} than the rest, which is reckoned with"
    return f"{about} {estimate.accuracy:.0%} (95 % interval {estimate.low:.0%} to {estimate.high:.0%}): {words}."


def describe_score(score: Score) -> str:
    """One line: right, of how many, beside nearest class mean."""
    low, high = wilson(score.n_right, score.n)
    return (
        f"{score.n_right} of {score.n} right: {score.accuracy:.1%} (95 % interval {low:.1%} to {high:.1%}); "
        f"nearest class mean: {score.n_right_nearest} right, {score.n_right_nearest / score.n:.1%}."
    )
