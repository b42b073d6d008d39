"""Which items to label next, and whether more labels are worth it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fewlabels.fitting import Rows
from fewlabels.io.words import count, percent
from fewlabels.labeling.accuracy import Estimate
from fewlabels.labeling.answer import Answer
from fewlabels.methods.folder import FolderRows, prepare_rows


@dataclass(frozen=True)
class Limits:
    """Limits from which items and labels are mentioned or suggested."""

    # Confidence below which a label is called doubtful. Confidences are calibrated, so this is a
    # choice of the person's time against errors, not a measured number.
    doubtful: float = 0.8
    # Confidence against a given label from which it is called wrong: with one label in twenty
    # exchanged, 131 of 176 such labels were wrong in six validation folders, and 131 of 395 found
    # (benchmarks/folders.py --slips).
    contradicted: float = 0.9
    # Hidden labels below which nothing is called sure: if all four were predicted right, more than
    # half of all labels are, with 95 % confidence (Wilson); with three, nobody can say so.
    hidden: int = 4
    outlier: float = 0.5  # probability of belonging to no class from which an item is listed
    good_enough: float = 0.95  # lower end of the accuracy's interval at which labelling may stop
    telling: int = 50  # hidden labels from which the interval is narrow enough to rely on
    least_doubt: float = 0.02  # so that sure items far from every label are suggested too
    least_typical: float = 0.01  # mean cosine to the nearest rows; so that all rows have an order


LIMITS = Limits()


def doubtful_below(estimate: Estimate | None) -> float:
    """Confidence below which a label is called doubtful; above 1 while nothing can be estimated.

    From fewer hidden labels nobody knows how far confidences can be trusted: none is called sure.
    """
    if estimate is None or estimate.n_hidden < LIMITS.hidden:
        return 2.0
    return LIMITS.doubtful


def suggest(
    vectors: Rows, labels: NDArray[np.int64], answer: Answer | None, *, n: int
) -> list[int]:
    """The n rows whose labels would help most, best first.

    Greedily by doubt x typicality x distance:

    - doubt is one minus the margin (Scheffer et al. 2001), the same for all without an answer;
    - typicality is the mean cosine to the nearest rows (as in TypiClust, Hacohen et al. 2022): the
      label of an unusual image tells little about others, and may mislead;
    - distance is one minus the largest cosine to all items labelled or suggested so far: regions
      without a label come first, and near duplicates only once.

    Args:
        vectors: Of all items.
        labels: Class numbers of all items, -1 where unknown, (N,).
        answer: The last answer; None while fewer than two classes have labels.
        n: How many at most.
    """
    kept = vectors.prepared
    rows = kept if isinstance(kept, FolderRows) else prepare_rows(vectors.x)
    x = rows.joined.numpy()
    known = labels >= 0
    worth = rows.typicality.clamp_min(LIMITS.least_typical).numpy()
    if answer is not None:
        worth = worth * (LIMITS.least_doubt + 1 - answer.margins)
    nearest = (x @ x[known].T).max(axis=1) if known.any() else np.full(len(x), -1.0)
    chosen: list[int] = []
    value = np.empty(len(x))
    for _ in range(min(n, int((~known).sum()))):
        np.multiply(worth, 1 - np.minimum(nearest, 1), out=value)
        value[known] = -np.inf
        value[chosen] = -np.inf
        best = int(value.argmax())
        chosen.append(best)
        nearest = np.maximum(nearest, x @ x[best])
    return chosen


def list_outliers(none_of_these: Sequence[float] | NDArray[np.floating]) -> list[int]:
    """The rows that probably belong to none of the classes, the most probable first.

    >>> list_outliers([0.0, 0.5, 0.2, 0.9, 0.5])
    [3, 1, 4]
    """
    probabilities = np.asarray(none_of_these)
    order = np.argsort(-probabilities, kind="stable")
    return [int(row) for row in order[probabilities[order] >= LIMITS.outlier]]


def advise(
    answer: Answer | None,
    labels: NDArray[np.int64],
    estimate: Estimate | None,
    *,
    noun: str = "image",
) -> str:
    """One sentence: continue labelling, or stop; `noun` is what an item is called."""
    if answer is None:
        return f"Label at least one {noun} of two classes to begin."
    unknown = labels < 0
    if not unknown.any():
        return f"Every {noun} has a label."
    if estimate is None:
        if np.bincount(labels[~unknown], minlength=1).max() > 1:
            return "Accuracy is being estimated."
        return (
            f"Confidences are rough, and none is called sure. Label a second {noun} of a class, so "
            "that accuracy can be estimated."
        )
    n_doubtful = int((answer.confidences[unknown] < doubtful_below(estimate)).sum())
    doubtful = f"{count(n_doubtful, f'{noun} is', f'{noun}s are')} doubtful"
    if n_doubtful == 0:
        doubtful = f"no {noun} is doubtful"
    if estimate.low >= LIMITS.good_enough:
        right = f"{estimate.n_right:,} of {estimate.n_hidden:,} hidden labels were predicted right"
        then = "Check the doubtful ones" if n_doubtful else "You may stop"
        return f"{right}: more labels will hardly help. {then}: {doubtful}."
    if n_doubtful == 0:
        why = f"but hidden labels say {percent(estimate.accuracy)}"
        if estimate.n_hidden < LIMITS.telling:
            why = f"but {estimate.n_hidden} hidden labels are too few to rely on"
        return f"{doubtful.capitalize()}, {why}: look through the classes for mistakes."
    return f"{doubtful.capitalize()}: label the suggested ones first."
