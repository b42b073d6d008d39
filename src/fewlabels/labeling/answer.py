"""Features and a few labels in, an Answer for all items out.

`solve` is `fitting.Rows.fit`, as everywhere in the package. `solve_again` is a quick approximation
to it after a click. Everything else in this room depends on `Answer` alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fewlabels.errors import InputError
from fewlabels.fitting import FOLDER_METHOD, Fitted, Rows
from fewlabels.methods import find_method
from fewlabels.methods.assignment import one_hot, similarities, weighted_sums
from fewlabels.preprocess.duplicates import join_groups

DEFAULT_METHOD = FOLDER_METHOD
TINY = 1e-12  # smallest probability, so that logarithms stay finite


@dataclass(frozen=True, eq=False)
class Trace:
    """What `solve_again` starts from."""

    # (N, W) log probabilities before calibration; labelled items have them as if without a label.
    logits: Tensor
    scores: Tensor  # (N, W) lam times the similarities to the class means by these probabilities
    biases: Tensor  # (W,)
    lam: float
    temperature: float  # by which log probabilities are divided


@dataclass(frozen=True, eq=False)
class Answer:
    """The probability of every class for every item; items with a label have it with certainty.

    Probabilities are calibrated: from two labels per class on, confidences differ from the part
    that is right by 2 to 7 points on average (`benchmarks/folders.py`).
    """

    probabilities: NDArray[np.float32]  # (N, W), rows sum to 1
    trace: Trace | None = field(default=None, repr=False)
    fitted: Fitted | None = field(default=None, repr=False)  # of `solve`, not of `solve_again`
    # (N,) probability of belonging to no class, 0 with a label; None if not asked for.
    none_of_these: NDArray[np.float32] | None = None

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """The most probable class of each item, (N,)."""
        return np.asarray(self.probabilities.argmax(axis=1))

    @cached_property
    def confidences(self) -> NDArray[np.float32]:
        """The probability of the most probable class, (N,)."""
        return np.asarray(self.probabilities.max(axis=1))

    @cached_property
    def top_two(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The two most probable classes and their probabilities, (N, 2) each."""
        # Not sorted: with thousands of classes that takes several times the memory.
        first, rest = self.labels, self.probabilities.copy()
        rest[np.arange(len(rest)), first] = -np.inf
        order = np.stack([first, rest.argmax(axis=1)], axis=1)[:, : rest.shape[1]]
        return order, np.take_along_axis(self.probabilities, order, axis=1)

    @property
    def margins(self) -> NDArray[np.float32]:
        """Difference of the two highest probabilities, (N,)."""
        top = self.top_two[1]
        return np.asarray(top[:, 0] - top[:, 1])

    def together(self, groups: NDArray[np.int64]) -> "Answer":
        """The same with one answer per group, (N,): the mean of the probabilities of its items."""
        sizes = np.bincount(groups)
        total = np.zeros((len(sizes), self.probabilities.shape[1]), dtype=np.float64)
        np.add.at(total, groups, self.probabilities)
        mean = (total[groups] / sizes[groups, None]).astype(np.float32)
        return replace(self, probabilities=mean)

    def among(self, rows: NDArray[np.bool_]) -> "Answer":
        """The probabilities of some items only, by a mask (N,)."""
        return Answer(self.probabilities[rows])

    @property
    def uncalibrated(self) -> NDArray[np.float32]:
        """Probabilities before calibration, (N, W); of labelled items as if without a label."""
        return np.asarray(_trace_of(self).logits.exp().numpy())


def check_method(method: str, settings: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Values of knobs from their texts; what is not known, or cannot label a folder, is refused."""
    chosen = find_method(method)
    values = chosen.parse(settings or {})
    configured = chosen.configure(n_shot=1, **values)
    told = configured.prior is not None and configured.prior.needs_truth
    if told or configured.pipeline.needs_mean:
        what = "the true class sizes" if told else "the mean of images of other classes"
        raise InputError(
            f"method must not need {what}, which a folder does not tell, got {method!r}. "
            f"Use 'map-auto', or {DEFAULT_METHOD!r}, the default."
        )
    return values


def prepare(
    features: NDArray[np.floating[Any]],
    *,
    method: str = DEFAULT_METHOD,
    settings: Mapping[str, str] | None = None,
    dataset: str | None = None,
    bursts: Callable[[], NDArray[np.int64]] | None = None,
) -> Rows:
    """Preprocess features for a method, (N, D) -> Rows.

    Args:
        features: Of all items.
        method: Name of the method that `solve` uses.
        settings: Values of its knobs other than the defaults, as texts by name.
        dataset: Name as in a FeatureSet's provenance; decides the paper's alpha at one shot.
        bursts: Gives the burst of each item, (N,), where the method hides near-duplicates together:
            items of a burst are hidden together too.
    """
    values = {**check_method(method, settings), "dataset": dataset}
    x = torch.tensor(np.asarray(features, dtype=np.float32))
    rows = Rows.prepare(x, method, keep_neighbors=True, **values)
    rows.pipeline.check(x, "features")
    alike = getattr(rows.prepared, "alike", None)
    if bursts is None or alike is None:
        return rows
    joined = torch.as_tensor(join_groups(alike.cpu().numpy(), bursts()), device=alike.device)
    return replace(rows, prepared=rows.prepared._replace(alike=joined))


def solve(
    rows: Rows, labels: NDArray[np.int64], *, n_way: int, none_of_these: bool = False
) -> Answer:
    """All labels from a few, from scratch: the same labels give the same answer.

    Args:
        rows: Of all items.
        labels: Class numbers 0..n_way-1 of all items, -1 where unknown, (N,).
        n_way: Number of classes; each must have a label.
        none_of_these: Whether to compute the probability of belonging to none of the classes.
    """
    known, members = _split(rows, labels, n_way)
    with one_thread():
        fitted = rows.fit(torch.as_tensor(labels), class_names=range(n_way), calibrate=True)
        answer = _answer(rows, known, members, fitted)
    if not none_of_these:
        return answer
    return replace(answer, none_of_these=find_outliers(rows, labels, answer))


def _answer(rows: Rows, known: Tensor, members: Tensor, fitted: Fitted) -> Answer:
    """The answer with its trace."""
    assignment = fitted.assignment
    plan = members[:0] if assignment is None else assignment.plan[0].float()
    probabilities = torch.empty(len(known), members.shape[1])
    probabilities[known], probabilities[~known] = members, plan
    means = _class_means(rows.x, probabilities)
    scores = fitted.lam * similarities(rows.x[None], means[None])[0]
    logits = (scores + fitted.biases).log_softmax(dim=-1)
    logits[~known] = plan.clamp_min(TINY).log()
    if assignment is not None and assignment.held_out is not None:
        # Of labels that were hidden it is known what they would be; of the others, the scores tell.
        hidden = assignment.held_out[0].float()
        unhidden = scores[known].log_softmax(dim=-1)
        logits[known] = torch.where(hidden.isnan(), unhidden, hidden.clamp_min(TINY).log())
    found = _calibrate(logits, known, members, fitted.temperature)
    trace = Trace(logits, scores, fitted.biases, fitted.lam, fitted.temperature)
    return Answer(found, trace, fitted)


class _CancelledError(Exception):
    """Ends a search whose result is not needed any more."""


def find_outliers(
    rows: Rows,
    labels: NDArray[np.int64],
    answer: Answer,
    *,
    cancelled: Callable[[], bool] = lambda: False,
) -> NDArray[np.float32] | None:
    """The probability that an item belongs to no class, (N,): 0 with a label.

    Up to a few thousand items this costs as much as `solve`; beyond, it grows with the square of
    their number.

    Args:
        rows: Of all items.
        labels: As in `solve`.
        answer: The result of `solve`.
        cancelled: Asked many times; when it returns True, the result is None.
    """
    numbers = torch.as_tensor(labels)
    unknown = numbers < 0
    probabilities = torch.zeros(len(numbers))
    if not unknown.any():
        return probabilities.numpy()

    def check() -> None:
        if cancelled():
            raise _CancelledError

    found = torch.as_tensor(answer.labels)[unknown]
    try:
        with one_thread():
            probabilities[unknown] = rows.outlier_probabilities(numbers, found, on_step=check)
    except _CancelledError:
        return None
    return probabilities.numpy()


def solve_again(
    rows: Rows, labels: NDArray[np.int64], *, start: Answer, columns: Sequence[int]
) -> Answer:
    """The answer after a few labels changed, in one step from the last: approximates `solve`.

    The class means move with the labels; the log probabilities of each item change by as much as
    its scores do. If no label changed, the answer is the last one.

    Args:
        rows: Of all items.
        labels: As in `solve`.
        start: The last answer, perhaps with other classes.
        columns: For each class its number in `start`, -1 for a new one.
    """
    trace = _trace_of(start)
    known, members = _split(rows, labels, len(columns))
    place = torch.as_tensor(columns)
    new = place < 0
    # A new class scores by its own mean, on the scale on which the log probabilities of the other
    # classes are normalised.
    common = (trace.scores + trace.biases).logsumexp(dim=-1, keepdim=True) - trace.biases.mean()
    before = torch.where(new, common, trace.scores[:, place])
    logits = torch.where(new, TINY, trace.logits[:, place].exp()).log()
    probabilities = logits.softmax(dim=-1)
    probabilities[known] = members
    means = _class_means(rows.x, probabilities)
    scores = trace.lam * similarities(rows.x[None], means[None])[0]
    moved = torch.where(new, 0.0, logits) + scores - before
    moved = moved.log_softmax(dim=-1)
    biases = torch.where(new, trace.biases.mean(), trace.biases[place])
    found = _calibrate(moved, known, members, trace.temperature)
    return Answer(found, Trace(moved, scores, biases, trace.lam, trace.temperature))


@contextmanager
def one_thread() -> Iterator[int]:
    """Run torch on one thread meanwhile; yields the number of threads that it had.

    Beside other work, threads that wait for one another cost ten times the work itself.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield before
    finally:
        torch.set_num_threads(before)


def _trace_of(answer: Answer) -> Trace:
    if answer.trace is None:  # such as one that was made from a file
        raise InputError("start must be an answer of solve or solve_again.")
    return answer.trace


def _split(rows: Rows, labels: NDArray[np.int64], n_way: int) -> tuple[Tensor, Tensor]:
    """Which items have a label, (N,), and the one-hot classes of these, (S, W)."""
    if len(labels) != len(rows):
        raise InputError(
            f"labels must be one for each of the {len(rows)} items, got {len(labels)}."
        )
    counts = np.bincount(labels[labels >= 0], minlength=n_way)
    if n_way < 2 or (counts[:n_way] == 0).any() or len(counts) > n_way:
        raise InputError(
            f"labels must cover at least two classes, numbered 0..{n_way - 1}, "
            f"got counts {counts.tolist()}."
        )
    known = torch.as_tensor(labels >= 0)
    return known, one_hot(torch.as_tensor(labels)[known], n_way, torch.float32)


def _class_means(x: Tensor, probabilities: Tensor) -> Tensor:
    """Means weighted by probabilities, (N, D) and (N, W) -> (W, D)."""
    return weighted_sums(probabilities, x) / probabilities.sum(dim=0)[:, None]


def _calibrate(
    logits: Tensor, known: Tensor, members: Tensor, temperature: float
) -> NDArray[np.float32]:
    """Calibrated probabilities, (N, W)."""
    probabilities = (logits / temperature).softmax(dim=-1)
    probabilities[known] = members
    return probabilities.numpy()
