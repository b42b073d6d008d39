"""What to label next, and whether it is worth it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fewlabels.labeling.accuracy import Estimate
from fewlabels.labeling.model import Answer, Vectors

LEAST_DOUBT = (
    0.02  # even a sure image counts a little, so that regions without any label are visited
)
GOOD_ENOUGH = 0.95  # of the hidden labels right, by the lower end of the interval
TELLING = 50  # hidden labels from which on the interval is narrow enough to go by
DOUBTFUL = 0.8  # confidence below which a label counts as doubtful: one in three of them is wrong, of the others one in fifteen
STRANGE = 0.5  # probability of belonging to no class from which on it is said of an image


def suggest(
    vectors: Vectors, labels: NDArray[np.int64], answer: Answer | None, *, n: int
) -> list[int]:
    """The n items whose labels would help most, best first.

    Greedily by doubt × gap: doubt is one minus the margin, gap is how far an item is from everything
    labelled or suggested so far (one minus the cosine). So doubtful images come first, uncovered
    regions before crowded ones, and near duplicates only once. Without an answer, the gap alone
    decides: each suggestion is the image least like all before it.

    Args:
        vectors: Of all items.
        labels: Class numbers of all items, -1 where unknown, (N,).
        answer: The last answer; None while fewer than two classes have labels.
        n: How many at most.
    """
    x = vectors.x.numpy()
    known = labels >= 0
    doubt = np.ones(len(x)) if answer is None else LEAST_DOUBT + 1 - answer.margins
    nearest = (x @ x[known].T).max(axis=1) if known.any() else np.full(len(x), -1.0)
    if not known.any():
        nearest -= 1e-3 * (
            x @ x.sum(axis=0)
        )  # begin with a typical image rather than with an oddity
    chosen: list[int] = []
    value = np.empty(len(x))
    for _ in range(min(n, int((~known).sum()))):
        np.multiply(doubt, 1 - np.minimum(nearest, 1), out=value)
        value[known] = -np.inf
        value[chosen] = -np.inf
        best = int(value.argmax())
        chosen.append(best)
        nearest = np.maximum(nearest, x @ x[best])
    return chosen


def list_strangers(none_of_these: Sequence[float] | NDArray[np.floating]) -> list[int]:
    """The items that look like none of the classes, the most probable first.

    >>> list_strangers([0.0, 0.5, 0.2, 0.9, 0.5])
    [3, 1, 4]
    """
    shares = np.asarray(none_of_these)
    order = np.argsort(-shares, kind="stable")
    return [int(item) for item in order[shares[order] >= STRANGE]]


def advise(answer: Answer | None, labels: NDArray[np.int64], estimate: Estimate | None) -> str:
    """One sentence: go on labelling, or stop."""
    if answer is None:
        return "Label at least one image of two classes to begin."
    unknown = labels < 0
    n_doubtful = int((answer.shares[unknown].max(axis=1) < DOUBTFUL).sum()) if unknown.any() else 0
    if not unknown.any():
        return "Every image has your label."
    if estimate is None:
        if np.bincount(labels[~unknown]).max() > 1:
            return "Accuracy is being estimated."
        return "Label a second image of a class, so that accuracy can be estimated."
    doubtful = (
        "no image is doubtful"
        if n_doubtful == 0
        else "1 image is doubtful"
        if n_doubtful == 1
        else f"{n_doubtful:,} images are doubtful"
    )
    if estimate.low >= GOOD_ENOUGH:
        right = f"{estimate.n_right:,} of {estimate.n_hidden:,} hidden labels came back right"
        return f"{right}: more labels will hardly help. {'Look over the doubtful ones' if n_doubtful else 'You may stop'}: {doubtful}."
    if n_doubtful == 0:
        few = estimate.n_hidden < TELLING
        why = (
            f"but {estimate.n_hidden} hidden labels prove little"
            if few
            else f"but hidden labels say {estimate.accuracy:.0%}"
        )
        return f"{doubtful.capitalize()}, {why}: look through the classes for mistakes."
    return f"{doubtful.capitalize()}: label the suggested ones first."
