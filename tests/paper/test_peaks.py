"""The notes about the peaks of Figure 4 follow from its numbers."""

import numpy as np
import pytest

from fewlabels.features import FeatureSet
from fewlabels.paper.figure2 import median_skewness
from fewlabels.paper.peaks import describe_peak, describe_plateau, explain_beta, gain_of


def curve(val, novel, *, at=0.5, half=0.2):
    """A knob's curve from accuracies by value."""
    ours = {
        split: [
            [x, {"accuracy": y, "ci95": half} if y is not None else None] for x, y in points.items()
        ]
        for split, points in (("val", val), ("novel", novel))
    }
    peaks = {
        split: max((cell["accuracy"], x) for x, cell in points if cell)[1]
        for split, points in ours.items()
    }
    gains = {split: gain_of(points, peaks["val"], at) for split, points in ours.items()}
    return {"knob": "beta", "ours": ours, "paper_choice": at, "peaks": peaks, "gains": gains}


@pytest.mark.parametrize(
    ("val", "novel", "expected"),
    [
        ({0: 70, 0.5: 71}, {0: 80, 0.5: 79}, "0.5 is what the paper chose"),
        (
            {0: 71.1, 0.5: 71},
            {0: 80, 0.5: 79},
            "gains +0.10 ± 0.28 points on validation and +1.00 ± 0.28 on novel classes: less than",
        ),
        ({0: 72, 0.5: 71}, {0: 80, 0.5: 79}, "more than the interval on both"),
        ({0: 72, 0.5: 71}, {0: 79, 0.5: 79.1}, "does not carry over to novel classes"),
        (
            {0: 72, 0.5: None},
            {0: 79, 0.5: 79.1},
            "the paper chose 0.5 on miniImageNet, which was not measured",
        ),
    ],
)
def test_a_peak_is_weighed_by_its_interval(val, novel, expected):
    assert expected in describe_peak(curve(val, novel))


def test_a_plateau_ends_where_the_interval_does():
    levels = {0: 70, 1: 71.8, 2: 71.9, 3: 72, 4: 71.5, 5: 71.9}
    assert (
        "the values from 1 to 3 on validation classes and 0 alone on novel classes"
        in describe_plateau(curve(levels, {0: 9, 5: 1}, at=3))
    )


@pytest.mark.parametrize(
    ("peak", "expected"),
    [(0.1, "farther from zero: skewness does not explain"), (0.35, "closer to zero")],
)
def test_skewness_is_an_explanation_only_where_it_is_one(peak, expected):
    rng = np.random.default_rng(0)
    features = FeatureSet.from_arrays(
        rng.gamma(1.0, size=(4000, 30)).astype(np.float32), np.arange(4000) % 4
    )
    (line,) = explain_beta(features, 0.5, peak)
    assert expected in line
    assert f"beta {peak:g} {median_skewness(features, beta=peak):+.2f}" in line


def test_the_papers_own_choice_needs_no_explanation():
    assert explain_beta(FeatureSet.from_arrays([[1.0], [2.0]], [0, 0]), 0.5, 0.5) == []
