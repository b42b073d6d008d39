"""Notes about the peaks of Figure 4: where they are, what they gain, what explains them.

Intervals are those of two means over different episodes. All points share their episodes, so that
the true intervals are narrower.
"""

from collections.abc import Sequence
from math import hypot
from typing import Any

from fewlabels.evaluation.tables import interval
from fewlabels.features import FeatureSet
from fewlabels.paper.figure2 import median_skewness

SPLITS = ("val", "novel")


def describe_peak(curve: dict[str, Any]) -> str:
    """Where our curve peaks, and its gain over the paper's choice."""
    at, peak = curve["paper_choice"], curve["peaks"]["val"]
    where = (
        f"{curve['knob']}: ours peaks at {peak:g} on validation and at "
        f"{curve['peaks']['novel']:g} on novel classes"
    )
    if peak == at:
        return f"{where}; {at:g} is what the paper chose on miniImageNet."
    val, novel = (curve["gains"][split] for split in SPLITS)
    if val is None or novel is None:
        return f"{where}; the paper chose {at:g} on miniImageNet, which was not measured."
    words = (
        f"{interval(*val, sign='+')} points on validation and "
        f"{interval(*novel, sign='+')} on novel classes"
    )
    if val[0] <= val[1]:
        verdict = "less than the interval"
    elif novel[0] > novel[1]:
        verdict = "more than the interval on both"
    else:
        verdict = (
            "more than the interval on validation, but it does not carry over to novel classes"
        )
    return (
        f"{where}; the paper chose {at:g} on miniImageNet. "
        f"{peak:g} instead of {at:g} gains {words}: {verdict}."
    )


def describe_plateau(curve: dict[str, Any]) -> str:
    """How far around its peak a curve of ours stays within the interval."""
    said = []
    for split, word in zip(SPLITS, ("validation", "novel"), strict=True):
        points = [(x, cell) for x, cell in curve["ours"][split] if cell is not None]
        best = max(range(len(points)), key=lambda i: points[i][1]["accuracy"])
        flat = [gain_of(points, points[best][0], x) for x, _ in points]
        level = [gain is not None and gain[0] <= gain[1] for gain in flat]
        low = next((i + 1 for i in range(best, -1, -1) if not level[i]), 0)
        high = next((i - 1 for i in range(best, len(points)) if not level[i]), len(points) - 1)
        ends = f"from {points[low][0]:g} to {points[high][0]:g}"
        values = ends if low < high else f"{points[best][0]:g} alone"
        said.append(f"{values} on {word} classes")
    return f"{curve['knob']}: within the interval of our peak are the values {' and '.join(said)}."


def gain_of(
    points: Sequence[Sequence[Any]], to: float, instead_of: float
) -> tuple[float, float] | None:
    """Accuracy at one value less that at another, with the interval of the difference.

    None where one of them was not measured.
    """
    cells = {x: cell for x, cell in points if cell is not None}
    if not {to, instead_of} <= cells.keys():
        return None
    new, old = cells[to], cells[instead_of]
    return new["accuracy"] - old["accuracy"], hypot(new["ci95"] or 0.0, old["ci95"] or 0.0)


def explain_beta(features: FeatureSet, chosen: float, peak: float | None) -> list[str]:
    """Whether the skewness after the power can explain another beta than the paper's."""
    if peak is None or peak == chosen:
        return []
    raw, at_chosen, at_peak = (median_skewness(features, beta=beta) for beta in (1.0, chosen, peak))
    zeros = (features.features == 0).mean()
    facts = (
        f"These features are of another training than the paper's, {zeros:.0%} of them exact "
        f"zeros, with a median skewness within a class of {raw:+.2f}; "
        f"beta {chosen:g} leaves {at_chosen:+.2f}, beta {peak:g} {at_peak:+.2f}"
    )
    if abs(at_peak) < abs(at_chosen):
        return [
            f"A likely reason for beta {peak:g}, which was not tested: "
            f"{facts[0].lower()}{facts[1:]}, closer to zero."
        ]
    return [
        f"{facts}, farther from zero: skewness does not explain why beta {peak:g} is best on "
        "these validation classes."
    ]
