"""The one place where the labelling's classifier is chosen: vectors and a few labels in, an Answer for all of them out."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fewlabels.confidence.calibration import leave_one_out_temperature
from fewlabels.confidence.outliers import outsider_shares
from fewlabels.errors import InputError
from fewlabels.methods.assignment import one_hot, similarities, weighted_sums
from fewlabels.methods.base import paper_settings
from fewlabels.methods.map import assign_map
from fewlabels.preprocess import Pipeline
from fewlabels.preprocess.smoothing import DENSE_ROWS, MOST_ROWS, Neighborhood, look_around

# Joint centering rather than the paper's separate means: a person's labels are no fair sample of the
# classes, and vectors that do not depend on the labels can be computed once for a whole session.
POSITIVE = "power(0.5) | unit | center(joint) | unit"
SIGNED = "unit | center(joint) | unit"  # a fractional power of a negative number does not exist
RULE: dict[str, Any] = {"lam": "auto", "proportions": "estimate"}
LAM_WITHOUT_QUERIES = 10.0  # the paper's, where nothing is left to read a sharpness from
TINY = 1e-12  # smaller shares count as this one, so that logarithms stay finite


@dataclass(frozen=True, eq=False)
class Vectors:
    """Preprocessed vectors, and what it takes to treat a later one alike."""

    x: Tensor  # (N, D) float32
    pipeline: Pipeline
    means: tuple[Tensor, ...]
    remark: str
    neighborhood: Neighborhood | None = field(
        default=None, repr=False
    )  # (1, N, D) each, of many vectors; few are soon looked through

    def subset(self, items: NDArray[np.int64]) -> Self:
        """Some of the vectors, each with the neighbourhood that it had among all."""
        near = self.neighborhood
        return replace(
            self,
            x=self.x[items],
            neighborhood=None
            if near is None
            else Neighborhood(near.short[:, items], near.around[:, items]),
        )

    def beside_neighbors(self, known: Tensor, n_way: int) -> tuple[Tensor, Tensor] | None:
        """Vectors with and without a label as `smoothing` shows them, (1, S, D') and (1, Q, D'); None where nothing was kept."""
        if self.neighborhood is None:
            return None
        wide = self.neighborhood.beside(weight=n_way / int(known.sum()))
        return wide[:, known], wide[:, ~known]


@dataclass(frozen=True, eq=False)
class Trace:
    """What `solve_again` starts from."""

    logits: Tensor  # (N, W) log shares before calibration, of labelled items too, as if they had no label
    scores: Tensor  # (N, W) lam times the similarities to the class means by these shares


@dataclass(frozen=True, eq=False)
class Answer:
    """For every item its share of every class; those with a label belong to it wholly.

    Shares are calibrated: of the items with a share of 0.8, 70 to 90 % belong to the class (`benchmarks/folders.py`).
    """

    shares: NDArray[np.float32]  # (N, W), rows sum to 1
    prototypes: Tensor  # (W, D)
    biases: Tensor  # (W,)
    lam: float
    temperature: float = 1.0  # what the classifier's log shares were divided by
    trace: Trace | None = field(default=None, repr=False)
    none_of_these: NDArray[np.float32] | None = (
        None  # (N,) probability of belonging to no class, 0 with a label; None if not asked for
    )

    @property
    def labels(self) -> NDArray[np.int64]:
        """The most likely class of each item, (N,)."""
        return np.asarray(self.shares.argmax(axis=1))

    @property
    def top_two(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The two most likely classes and their shares, (N, 2) each, the likeliest first."""
        order = np.argsort(-self.shares, axis=1, kind="stable")[:, :2]
        return order, np.take_along_axis(self.shares, order, axis=1)

    @property
    def margins(self) -> NDArray[np.float32]:
        """By how much the first class leads the second, (N,)."""
        shares = self.top_two[1]
        return np.asarray(shares[:, 0] - shares[:, 1])


def prepare(features: NDArray[np.floating[Any]]) -> Vectors:
    """Shape features for the classifier, (N, D) -> (N, D): the power only where no feature is negative."""
    signed = bool((features < 0).any())
    pipeline = Pipeline.parse(SIGNED if signed else POSITIVE)
    x = torch.tensor(np.asarray(features, dtype=np.float32))
    pipeline.check(x, "features")
    _, shaped, means = pipeline.apply_and_record(x[:0], x)
    remark = (
        "Features are signed: no power transform."
        if signed
        else "Features are not negative: square roots taken."
    )
    near = look_around(shaped[None]) if DENSE_ROWS < len(shaped) <= MOST_ROWS else None
    return Vectors(shaped, pipeline, means, remark, near)


def solve(
    vectors: Vectors, labels: NDArray[np.int64], *, n_way: int, none_of_these: bool = False
) -> Answer:
    """All labels from a few, from scratch: the same labels give the same answer.

    Args:
        vectors: Of all items.
        labels: Class numbers 0..n_way-1 of all items, -1 where unknown, (N,).
        n_way: Number of classes; each must have a label.
        none_of_these: Whether to find out which items belong to none of them.
    """
    with one_thread():
        answer = _solve(vectors, labels, n_way)
    return (
        replace(answer, none_of_these=find_strangers(vectors, labels, answer))
        if none_of_these
        else answer
    )


def _solve(vectors: Vectors, labels: NDArray[np.int64], n_way: int) -> Answer:
    known, members = _known(vectors, labels, n_way)
    x, n_query = vectors.x, int((~known).sum())
    if n_query == 0:
        return _answer(
            vectors,
            known,
            members,
            members[:0],
            _class_means(x, members),
            torch.zeros(n_way),
            LAM_WITHOUT_QUERIES,
        )
    # With fewer unlabelled items than classes there are no class sizes to speak of.
    rule = RULE if n_query >= n_way else {**RULE, "proportions": "free"}
    settings = paper_settings(int(members.sum(dim=0).median())) | rule
    episode = x[known][None], torch.as_tensor(labels)[known][None], x[~known][None]
    found = assign_map(
        *episode, n_way=n_way, wide=vectors.beside_neighbors(known, n_way), **settings
    )
    temperature = float(leave_one_out_temperature(*episode, found)[0])
    return _answer(
        vectors,
        known,
        members,
        found.plan[0],
        found.prototypes[0],
        found.biases[0],
        float(found.lam[0]),
        temperature,
    )


class _CancelledError(Exception):
    """The way out of a search that nobody waits for any more."""


def find_strangers(
    vectors: Vectors,
    labels: NDArray[np.int64],
    answer: Answer,
    *,
    cancelled: Callable[[], bool] = lambda: False,
) -> NDArray[np.float32] | None:
    """How probable it is that an item belongs to no class, (N,): 0 with a label.

    Among a few thousand items this costs as much as `solve`; then it grows with the square of their number.

    Args:
        vectors: Of all items.
        labels: As in `solve`.
        answer: What `solve` answered.
        cancelled: Asked many times on the way; where it says yes, the result is None.
    """
    known = torch.as_tensor(labels >= 0)
    shares = torch.zeros(len(known))
    if known.all():
        return shares.numpy()

    def go_on() -> None:
        if cancelled():
            raise _CancelledError

    x, found = vectors.x, torch.as_tensor(answer.labels)
    try:
        with one_thread():
            shares[~known] = outsider_shares(
                x[known][None],
                torch.as_tensor(labels)[known][None],
                x[~known][None],
                found[~known][None],
                on_step=go_on,
            )[0]
    except _CancelledError:
        return None
    return shares.numpy()


def solve_again(
    vectors: Vectors, labels: NDArray[np.int64], *, start: Answer, columns: Sequence[int]
) -> Answer:
    """The same after a few labels changed, in one step from the last answer: an approximation to `solve`.

    The class means move with the labels; each item's log shares move as far as its scores do. Where no
    label changed, the answer is the last one.

    Args:
        vectors: Of all items.
        labels: As in `solve`.
        start: The last answer, perhaps with other classes.
        columns: For each class its number in `start`, -1 for a new one.
    """
    trace = trace_of(start)
    known, members = _known(vectors, labels, len(columns))
    place = torch.as_tensor(columns)
    new = place < 0
    # A new class scores by its own mean, on the scale on which the others' log shares are normalised.
    common = (trace.scores + start.biases).logsumexp(dim=-1, keepdim=True) - start.biases.mean()
    before = torch.where(new, common, trace.scores[:, place])
    logits = torch.where(new, TINY, trace.logits[:, place].exp()).log()
    shares = logits.softmax(dim=-1)
    shares[known] = members
    means = _class_means(vectors.x, shares)
    scores = start.lam * similarities(vectors.x[None], means[None])[0]
    moved = torch.where(new, 0.0, logits) + scores - before
    moved = moved.log_softmax(dim=-1)
    biases = torch.where(new, start.biases.mean(), start.biases[place])
    found = _calibrated(moved, known, members, start.temperature)
    return Answer(found, means, biases, start.lam, start.temperature, Trace(moved, scores))


def trace_of(answer: Answer) -> Trace:
    """What an answer was made of; one that comes from a file has none."""
    if answer.trace is None:
        raise InputError("start must be an answer of solve or solve_again.")
    return answer.trace


@contextmanager
def one_thread() -> Iterator[int]:
    """One thread for torch meanwhile, and how many it had: where there is other work, threads that wait for each other cost tenfold."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield before
    finally:
        torch.set_num_threads(before)


def _known(vectors: Vectors, labels: NDArray[np.int64], n_way: int) -> tuple[Tensor, Tensor]:
    """Which items have a label, (N,), and their classes as zeros and ones."""
    if len(labels) != len(vectors.x):
        raise InputError(
            f"labels must be one for each of the {len(vectors.x)} items, got {len(labels)}."
        )
    counts = np.bincount(labels[labels >= 0], minlength=n_way)
    if n_way < 2 or (counts[:n_way] == 0).any() or len(counts) > n_way:
        raise InputError(
            f"labels must cover at least two classes, numbered 0..{n_way - 1}, got counts {counts.tolist()}."
        )
    known = torch.as_tensor(labels >= 0)
    return known, one_hot(torch.as_tensor(labels)[known], n_way, torch.float32)


def _class_means(x: Tensor, shares: Tensor) -> Tensor:
    """Means weighted by shares, (N, D) and (N, W) -> (W, D)."""
    return weighted_sums(shares, x) / shares.sum(dim=0)[:, None]


def _answer(
    vectors: Vectors,
    known: Tensor,
    members: Tensor,
    plan: Tensor,
    prototypes: Tensor,
    biases: Tensor,
    lam: float,
    temperature: float = 1.0,
) -> Answer:
    """The answer with its trace, from the shares of the unlabelled items."""
    shares = torch.empty(len(known), members.shape[1])
    shares[known], shares[~known] = members, plan.float()
    scores = lam * similarities(vectors.x[None], _class_means(vectors.x, shares)[None])[0]
    logits = (scores + biases).log_softmax(dim=-1)
    logits[~known] = plan.float().clamp_min(TINY).log()
    return Answer(
        _calibrated(logits, known, members, temperature),
        prototypes,
        biases,
        lam,
        temperature,
        Trace(logits, scores),
    )


def _calibrated(
    logits: Tensor, known: Tensor, members: Tensor, temperature: float
) -> NDArray[np.float32]:
    """Shares that mean what they say, (N, W)."""
    shares = (logits / temperature).softmax(dim=-1)
    shares[known] = members
    return shares.numpy()
