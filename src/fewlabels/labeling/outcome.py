"""Outcome: all labels of some inputs, and the evidence for them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fewlabels.confidence.calibration import coverage_at_accuracy
from fewlabels.data.bursts import check_seconds, find_bursts
from fewlabels.errors import InputError
from fewlabels.fitting import Rows
from fewlabels.io.words import count, listing, percent
from fewlabels.labeling.accuracy import (
    ClassSize,
    Contradiction,
    Estimate,
    compare_hidden,
    estimate_accuracy,
    estimate_sizes,
    find_contradictions,
    wilson,
)
from fewlabels.labeling.answer import (
    DEFAULT_METHOD,
    Answer,
    one_thread,
    prepare,
    solve,
)
from fewlabels.labeling.inputs import Inputs
from fewlabels.labeling.journal import MODEL, NONE
from fewlabels.labeling.labels_file import check_enough
from fewlabels.labeling.names import all_classes, is_complete, solve_named
from fewlabels.labeling.outputs import LabelRow, check_abstain, make_rows
from fewlabels.labeling.subclasses import check_separator
from fewlabels.labeling.suggestions import (
    LIMITS,
    advise,
    doubtful_below,
    list_outliers,
    suggest,
)
from fewlabels.methods import find_method

MOST_SHOWN = 8  # classes or labels that a line names
RIVALS = {"logistic": "logistic regression", "ncm": "nearest class mean"}  # compared with
OUTLIERS_WORTH_SAYING = 0.02  # of all images; fewer are only marked in the table
WORTH_SAYING = 0.03  # difference between the weighted and the plain accuracy of hidden labels


@dataclass(frozen=True, eq=False)
class Score:
    """How many predicted labels are right, by the method and by simpler ones."""

    n_right: int
    n_right_rivals: dict[str, int]  # by name, in words
    n: int
    confusion: NDArray[np.int64]  # (W, W): rows are true classes, columns predicted ones

    @property
    def accuracy(self) -> float:
        """Fraction of the predicted labels that are right."""
        return self.n_right / self.n

    def describe(self) -> str:
        """One line: right, of how many, beside simpler methods.

        >>> print(Score(9, {"nearest class mean": 7}, 10, np.zeros((2, 2), dtype=int)).describe())
        9 of 10 right: 90.0 % (95 % interval 59.6 % to 98.2 %); nearest class mean 70.0 %.
        """
        low, high = wilson(self.n_right, self.n)
        rivals = ", ".join(
            f"{name} {percent(n / self.n, 1)}" for name, n in self.n_right_rivals.items()
        )
        return (
            f"{self.n_right} of {self.n} right: {percent(self.accuracy, 1)} "
            f"(95 % interval {percent(low, 1)} to {percent(high, 1)})"
            + (f"; {rivals}." if rivals else ".")
        )


class Unscored(NamedTuple):
    """Items with a true label that `Score` does not count."""

    n_left_out: int  # the predicted label was too doubtful to be kept
    other_classes: dict[str, int]  # items of true classes that no label names, by class

    def describe(self, noun: str = "image") -> str:
        """One line for each kind; empty where there is none.

        >>> print(Unscored(2, {"cabbage": 1, "kale": 3}).describe())
        2 images not scored: their labels were left out as too doubtful.
        4 images not scored, of classes without a label: 'cabbage' (1), 'kale' (3). Check for typos.
        """
        lines = []
        if self.n_left_out:
            was = "its label was" if self.n_left_out == 1 else "their labels were"
            items = count(self.n_left_out, noun)
            lines.append(f"{items} not scored: {was} left out as too doubtful.")
        if self.other_classes:
            items = count(sum(self.other_classes.values()), noun)
            classes = (f"'{name}' ({n:,})" for name, n in self.other_classes.items())
            shown = listing(classes, most=MOST_SHOWN)
            lines.append(
                f"{items} not scored, of classes without a label: {shown}. Check for typos."
            )
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Outcome:
    """All labels of some inputs and the evidence for them."""

    inputs: Inputs
    class_names: tuple[str, ...]
    numbers: NDArray[np.int64]  # (N,) given class numbers, -1 where none
    vectors: Rows
    answer: Answer
    rows: list[LabelRow]  # of the listed items
    estimate: Estimate | None
    contradictions: list[Contradiction]  # labels that look wrong
    hidden_right: dict[str, int]  # hidden labels that simpler methods predict, by name in words
    remarks: tuple[str, ...]
    sub_classes: str = ""  # what stands between class and sub-class

    @cached_property
    def sizes(self) -> list[ClassSize]:
        """How many items each class has, as far as is known."""
        return estimate_sizes(self.answer, self.numbers, counted=~self.of_no_class)

    @cached_property
    def of_no_class(self) -> NDArray[np.bool_]:
        """Whether a person said of an item that it belongs to no class, (N,)."""
        marks = self.inputs.marks
        return np.array([marks.get(name) == NONE for name in self.inputs.collection.names])

    @property
    def advice(self) -> str:
        """Whether to continue labelling."""
        of_class = ~self.of_no_class
        noun = self.inputs.collection.noun
        answer, numbers = self.answer.among(of_class), self.numbers[of_class]
        return advise(answer, numbers, self.estimate, noun=noun)

    @property
    def none_of_these(self) -> list[float] | None:
        """The probability that a listed item belongs to none of the classes; None if not asked.

        Where a person said so, it is 1.
        """
        found = self.answer.none_of_these
        if found is None:
            return None
        found = np.where(self.of_no_class, 1, found)
        return [round(float(each), 3) for each in found[: self.inputs.n_listed]]

    @property
    def outliers(self) -> list[int]:
        """Rows of listed items that probably belong to no class, the most probable first.

        Without those of which a person said so.
        """
        exact = self.answer.none_of_these
        if exact is None:
            return []
        found = [
            row for row in list_outliers(self.none_of_these or []) if not self.of_no_class[row]
        ]
        return sorted(found, key=lambda row: -float(exact[row]))

    @cached_property
    def similar_groups(self) -> list[list[int]]:
        """Rows of near-duplicates and bursts, the largest group first, if the method finds them."""
        alike = getattr(self.vectors.prepared, "alike", None)
        groups: dict[int, list[int]] = {}
        for row, group in enumerate([] if alike is None else alike.tolist()):
            groups.setdefault(group, []).append(row)
        return sorted(
            (rows for rows in groups.values() if len(rows) > 1), key=lambda rows: -len(rows)
        )

    @property
    def similar(self) -> list[str]:
        """A remark about near-duplicates and bursts, if there are any."""
        collection = self.inputs.collection
        return remark_similar(self.similar_groups, collection.names, noun=collection.noun)

    def suggest(self, n: int) -> list[str]:
        """The names of the n items to label next; marked ones are decided already."""
        listed, marks = self.inputs.n_listed, self.inputs.marks
        n_more = len(self.numbers) - listed + len(marks)
        found = suggest(self.vectors, self.numbers, self.answer, n=n + n_more)
        names = [self.inputs.collection.names[row] for row in found if row < listed]
        return [name for name in names if name not in marks][:n]

    def score(self, truth: Mapping[str, str]) -> Score | None:
        """Compare predicted labels with true ones, by name; None where there is nothing to compare.

        Labels that were left out and classes without a label are not counted, see `unscored`.
        """
        place = {name: number for number, name in enumerate(self.class_names)}
        rows = [
            row
            for row, true in self._predicted(truth).items()
            if true in place and self.rows[row].label == self.class_names[self.answer.labels[row]]
        ]
        if not rows:
            return None
        true = np.array([place[truth[self.rows[row].path]] for row in rows])
        found = self.answer.labels[rows]
        confusion = np.zeros((len(place), len(place)), dtype=np.int64)
        np.add.at(confusion, (true, found), 1)
        complete = is_complete(self.numbers, len(place))
        rivals = {
            words: int((self.labels_by(name)[rows] == true).sum())
            for name, words in (RIVALS.items() if complete else ())
        }
        return Score(int((found == true).sum()), rivals, len(rows), confusion)

    def unscored(self, truth: Mapping[str, str]) -> Unscored:
        """What `score` does not count."""
        predicted, named = self._predicted(truth), set(self.class_names)
        others = Counter(true for true in predicted.values() if true not in named)
        n_left_out = sum(
            true in named and self.rows[row].label != self.class_names[self.answer.labels[row]]
            for row, true in predicted.items()
        )
        return Unscored(n_left_out, dict(sorted(others.items())))

    def _predicted(self, truth: Mapping[str, str]) -> dict[int, str]:
        """True labels by row, of the listed items whose label was predicted."""
        return {
            row: truth[item.path]
            for row, item in enumerate(self.rows)
            if item.path in truth and item.origin in (MODEL, "")
        }

    def labels_by(self, method: str) -> NDArray[np.int64]:
        """Class numbers of all items by another method on the same vectors, (N,)."""
        known = self.numbers >= 0
        found = find_method(method).assign(
            self.vectors.x[known][None],
            torch.as_tensor(self.numbers[known])[None],
            self.vectors.x[None],
            n_way=len(self.class_names),
        )
        return np.asarray(found.labels[0].numpy())

    def describe(self) -> str:
        """The result in a few lines."""
        found = self.summary()
        left_out, of_no_class = found["left_out"], found["of_no_class"]
        noun = self.inputs.collection.noun
        lines = [
            f"{count(found['images'], noun)}, {len(self.class_names)} classes: "
            f"{found['given']:,} labels given, {found['labelled']:,} found"
            + (f", {of_no_class:,} of no class as you said" if of_no_class else "")
            + (f", {left_out:,} left out as too doubtful." if left_out else ".")
        ]
        n_outliers = found.get("none_of_these", 0)
        if n_outliers >= OUTLIERS_WORTH_SAYING * found["images"]:
            lines.append(describe_outliers(n_outliers, noun))
        if self.estimate is not None:
            lines.append(describe_estimate(self.estimate, among_outliers=bool(self.outliers)))
            if self.hidden_right:
                lines.append(describe_rivals(self.estimate, self.hidden_right))
        named = zip(self.class_names, self.sizes, strict=True)
        sizes = (f"{name} {size.describe()}" for name, size in named)
        lines.append(f"{noun.capitalize()}s per class: {listing(sizes, most=MOST_SHOWN)}.")
        if self.contradictions:
            names, classes = self.inputs.collection.names, self.class_names
            wrong = (f"{names[row]} (like {classes[way]})" for row, way, _ in self.contradictions)
            shown = listing(wrong, most=MOST_SHOWN)
            lines.append(
                f"{count(len(self.contradictions), 'label')} of yours may be wrong: {shown}."
            )
        return "\n".join([*lines, self.advice])

    def summary(self) -> dict[str, Any]:
        """Counts and settings, for JSON."""
        collection = self.inputs.collection
        predicted = [row.origin in (MODEL, "") for row in self.rows]
        sure = self.answer.confidences[: len(self.rows)][predicted]
        return {
            "images": len(self.rows),
            "given": sum(bool(row.label) and row.origin != MODEL for row in self.rows),
            "labelled": sum(row.origin == MODEL for row in self.rows),
            "left_out": sum(not row.origin for row in self.rows),
            "of_no_class": sum(not row.label and bool(row.origin) for row in self.rows),
            "doubtful": int((sure < doubtful_below(self.estimate)).sum()),
            **({} if self.none_of_these is None else {"none_of_these": len(self.outliers)}),
            "classes": dict(sorted(Counter(row.label for row in self.rows if row.label).items())),
            "class_sizes": {
                name: size._asdict()
                for name, size in zip(self.class_names, self.sizes, strict=True)
            },
            "may_be_wrong": [
                {
                    "path": self.inputs.collection.names[row],
                    "looks_like": self.class_names[number],
                    "confidence": round(confidence, 4),
                }
                for row, number, confidence in self.contradictions
            ],
            "similar": [[collection.names[row] for row in rows] for rows in self.similar_groups],
            "hidden_right": self.hidden_right,
            "estimated_accuracy": None if self.estimate is None else self.estimate._asdict(),
            "advice": self.advice,
            "method": self.vectors.method.name,
            "pipeline": str(self.vectors.pipeline),
            "lam": None if self.answer.fitted is None else self.answer.fitted.lam,
            "features": {**collection.provenance, "fingerprint": collection.fingerprint},
            "remarks": list(self.remarks),
        }


def label_inputs(
    inputs: Inputs,
    *,
    method: str = DEFAULT_METHOD,
    settings: Mapping[str, str] | None = None,
    abstain: float = 0.0,
    accuracy: float | None = None,
    none_of_these: bool = True,
    burst: float = 0.0,
    sub_classes: str = "",
) -> Outcome:
    """Labels for all items.

    Args:
        inputs: Items with features and a few labels.
        method: Name of the method.
        settings: Values of its knobs other than the defaults, by name.
        abstain: Confidence below which a predicted label is left out of the rows.
        accuracy: Instead of `abstain`: the smallest confidence is chosen with which this fraction
            of the labels that are kept is expected to be right.
        none_of_these: Whether to compute the probability of belonging to none of the classes.
        burst: Photographs that a camera took at most so many seconds after one another get one
            label, by the mean of their probabilities; 0 for none.
        sub_classes: What stands between class and sub-class, as in `make_rows`.
    """
    collection, labels = inputs.collection, inputs.labels
    check_abstain(abstain, accuracy)
    check_seconds(burst)
    check_separator(sub_classes)
    if burst and collection.images is None:
        raise InputError(
            f"burst={burst:g} needs photographs, whose times tell bursts, got {collection.noun}s "
            "without any. Leave it out."
        )
    prior = inputs.prior
    remarks: tuple[str, ...] = ()
    if prior is None:
        remarks = check_enough(labels, len(collection), noun=collection.noun)
    if accuracy is not None and max(Counter(labels.values()).values(), default=0) < 2:
        raise InputError(
            f"accuracy={accuracy:g} needs two labels of a class, so that one can be hidden, got "
            f"one label per class. Label a second {collection.noun} of a class, or give "
            "abstain=CONFIDENCE."
        )
    class_names = all_classes(prior, labels)
    numbers = collection.number(labels, class_names)
    dataset = collection.provenance.get("dataset")
    vectors = prepare(
        collection.features,
        method=method,
        settings=settings,
        dataset=dataset,
        bursts=lambda: collection.bursts,
    )
    n_way = len(class_names)
    with one_thread() as n_cores, ThreadPoolExecutor(n_cores) as pool:  # one solution per core
        how: Callable[..., Answer] = partial(solve, vectors, numbers, n_way=n_way)
        if prior is not None:
            told = prior.log_probabilities(collection.features, class_names)
            how = partial(solve_named, vectors, numbers, told)
        solving = pool.submit(how, none_of_these=none_of_these)
        given = solving.result() if vectors.method.hides_labels else None
        evidence = collection.independent(inputs.given)
        estimate = None
        if is_complete(numbers, n_way):
            estimate = estimate_accuracy(
                vectors, numbers, n_way=n_way, answer=given, evidence=evidence, pool=pool
            )
        else:
            remarks = (*remarks, remark_unlabelled(class_names, labels))
        answer = solving.result()
        wrong = find_contradictions(answer, numbers, least=LIMITS.contradicted)
        right = compare_hidden(vectors, numbers, tuple(RIVALS)) if estimate else {}
    if burst:
        groups = find_bursts(collection.paths, seconds=burst)
        answer = answer.together(groups)
        remarks = (*remarks, describe_bursts(groups, burst))
    listed = collection.names[: inputs.n_listed]
    if accuracy is not None:
        unknown = numbers[: inputs.n_listed] < 0
        found = torch.as_tensor(answer.probabilities[: inputs.n_listed][unknown])
        threshold, kept = coverage_at_accuracy(found, wanted=accuracy) if len(found) else (0.0, 1.0)
        abstain = min(threshold, 1.0)
        remarks = (*remarks, describe_threshold(accuracy, threshold, kept))
    looks_like = {collection.names[each.row]: class_names[each.number] for each in wrong}
    hidden_right = {RIVALS[name]: n for name, n in right.items()}
    return Outcome(
        inputs,
        class_names,
        numbers,
        vectors,
        answer,
        make_rows(
            listed,
            class_names,
            answer,
            inputs.given,
            abstain=abstain,
            looks_like=looks_like,
            marks=inputs.marks,
            people=inputs.people,
            sub_classes=sub_classes,
        ),
        estimate,
        wrong,
        hidden_right,
        (*inputs.remarks, *remarks),
        sub_classes,
    )


def suggest_next(
    inputs: Inputs,
    *,
    n: int,
    method: str = DEFAULT_METHOD,
    settings: Mapping[str, str] | None = None,
) -> tuple[list[str], str]:
    """The names of the n items to label next, and advice; works without any label too."""
    collection, labels = inputs.collection, inputs.labels
    marks = inputs.marks
    if len(labels) + len(marks) == len(collection):
        decided = "a label or a mark" if marks else "a label"
        return [], f"Every {collection.noun} has {decided}: there is none to label next."
    class_names = all_classes(inputs.prior, labels)
    if len(class_names) >= 2:
        outcome = label_inputs(inputs, method=method, settings=settings)
        return outcome.suggest(n), outcome.advice
    numbers = collection.number(labels, class_names)
    vectors = prepare(collection.features, method=method, settings=settings)
    found = suggest(vectors, numbers, None, n=n + len(marks))
    names = [name for name in (collection.names[row] for row in found) if name not in marks]
    return names[:n], advise(None, numbers, None, noun=collection.noun)


def remark_unlabelled(class_names: Sequence[str], labels: Mapping[str, str]) -> str:
    """A remark about classes that are known by their names alone.

    >>> remark_unlabelled(["owl", "wren"], {"a.jpg": "owl"})
    'No label yet for wren: known by name alone. Accuracy cannot be estimated before.'
    """
    used = set(labels.values())
    lacking = [name for name in class_names if name not in used]
    return (
        f"No label yet for {listing(lacking)}: known by name alone. "
        "Accuracy cannot be estimated before."
    )


def remark_similar(
    groups: Sequence[Sequence[int]], names: Sequence[str], *, noun: str = "image"
) -> list[str]:
    """A remark about groups of near-duplicates and bursts, if there are any.

    >>> remark_similar([[1, 2]], ["a.jpg", "b.jpg", "c.jpg"])[0].split(". ")[0]
    '2 images are near-duplicates or a burst with others, such as b.jpg and c.jpg'
    """
    if not groups:
        return []
    n, (one, other, *_) = sum(map(len, groups)), groups[0]
    return [
        f"{count(n, noun)} are near-duplicates or a burst with others, such as {names[one]} and "
        f"{names[other]}. Where labels come in such groups, they are hidden together, so that the "
        "estimate of accuracy is not too high."
    ]


def describe_bursts(groups: NDArray[np.int64], seconds: float) -> str:
    """One line: how many photographs were labelled together, from the burst of each, (N,).

    >>> describe_bursts(np.array([0, 0, 0, 3, 4, 4]), 3)
    '5 photographs of 2 bursts (at most 3 seconds apart) were labelled together.'
    """
    sizes = np.bincount(groups)
    n, n_bursts = int(sizes[sizes > 1].sum()), int((sizes > 1).sum())
    if not n:
        return f"No two photographs of a camera were taken at most {seconds:g} seconds apart."
    return (
        f"{count(n, 'photograph')} of {count(n_bursts, 'burst')} (at most {seconds:g} seconds "
        "apart) were labelled together."
    )


def describe_threshold(accuracy: float, threshold: float, kept: float) -> str:
    """One line: which predicted labels are kept for an accuracy.

    >>> describe_threshold(0.95, 0.8312, 0.714)
    'For an expected accuracy of 95%, labels from confidence 0.83 on are kept: 71% of them.'
    """
    if not kept:
        return f"No predicted label is sure enough for an expected accuracy of {accuracy:.0%}."
    return (
        f"For an expected accuracy of {accuracy:.0%}, labels from confidence {threshold:.2f} on "
        f"are kept: {kept:.0%} of them."
    )


def describe_rivals(estimate: Estimate, hidden_right: Mapping[str, int]) -> str:
    """One line: which method predicts most of the person's own labels.

    >>> describe_rivals(Estimate(9, 10, 0.9, 0.6, 0.98), {"nearest class mean": 7})
    'Of the hidden labels, this method predicted 9 right, nearest class mean 7.'
    """
    others = ", ".join(f"{name} {n:,}" for name, n in hidden_right.items())
    words = f"Of the hidden labels, this method predicted {estimate.n_right:,} right, {others}."
    best = max(hidden_right, key=lambda name: hidden_right[name])
    if hidden_right[best] > estimate.n_right + sqrt(estimate.n_hidden):
        method = next(method for method, name in RIVALS.items() if name == best)
        words += f" The method {method!r} may suit them better."
    return words


def describe_outliers(n: int, noun: str = "image") -> str:
    """One line: how many items probably belong to no class.

    >>> describe_outliers(41)
    '41 images look like none of these classes: sort by none_of_these to see them first.'
    """
    if n == 0:
        return f"No {noun} looks like none of these classes."
    look, them = ("looks", "it") if n == 1 else ("look", "them")
    return (
        f"{count(n, noun)} {look} like none of these classes: "
        f"sort by none_of_these to see {them} first."
    )


def describe_estimate(estimate: Estimate, *, among_outliers: bool = False) -> str:
    """One line: the estimated accuracy and where it comes from.

    Args:
        estimate: Of the predicted labels.
        among_outliers: Whether there are images of no class, of which hidden labels tell nothing.

    >>> about, evidence = describe_estimate(Estimate(9, 10, 0.9, 0.6, 0.98)).split(": ")
    >>> about
    'Estimated accuracy 90 % (95 % interval 60 % to 98 %)'
    >>> evidence
    'each of your labels was hidden once, 9 of 10 were predicted right.'
    """
    about = " among the named classes" if among_outliers else ""
    words = (
        "each of your labels was hidden once, "
        f"{estimate.n_right} of {estimate.n_hidden} were predicted right"
    )
    difference = estimate.accuracy - estimate.n_right / estimate.n_hidden
    if abs(difference) >= WORTH_SAYING:
        harder = "harder" if difference > 0 else "easier"
        words += f"; they are {harder} than the rest, and the estimate allows for that"
    return (
        f"Estimated accuracy{about} {percent(estimate.accuracy)} "
        f"(95 % interval {percent(estimate.low)} to {percent(estimate.high)}): {words}."
    )
