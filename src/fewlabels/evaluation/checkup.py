"""Check-up of a feature set: what it holds, which settings suit it, what transduction gains."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from fewlabels.errors import InputError
from fewlabels.evaluation.reliability import Reliability, measure_reliability
from fewlabels.evaluation.run import evaluate
from fewlabels.evaluation.sampling import sample_episodes
from fewlabels.features import FeatureSet
from fewlabels.fitting import answer
from fewlabels.methods import configure
from fewlabels.preprocess import Pipeline, Step, suggest_power
from fewlabels.preprocess.power_rule import skewness
from fewlabels.preprocess.steps import UNIT

EPISODES = 200  # enough to tell a gain of 2 points from none
WAYS, SHOTS, QUERIES = 5, 1, 15  # of the trial episodes, or fewer where classes are small
TRIED = ("ncm", "map-auto")  # in the trial episodes: without the other queries, and with them
RELIABILITY_SHOTS = 5  # calibration leaves labels out: one per class is too few
WORTH_HAVING = 2.0  # points of accuracy, which `EPISODES` can tell from none
BARS = "▁▂▃▄▅▆▇█"
BINS = 40  # of the histogram, one character each


@dataclass(frozen=True)
class Checkup:
    """What was found; what trial episodes tell is None without enough labels."""

    rows: int
    dim: int
    classes: int
    unlabelled: int
    zeros: float  # fraction of all values
    negatives: float  # likewise
    zero_rows: int
    duplicates: int  # rows that equal an earlier row
    norms: tuple[float, float, float]  # smallest, median, largest
    power: str  # the suggested step
    skewness: tuple[float, float]  # before and after it
    lam: float | None  # suggested, median of the trial episodes
    guessing: float | None  # accuracy of random labels in the trial episodes, %
    inductive: float | None  # likewise of nearest class mean
    transductive: float | None  # likewise of map-auto
    trial: str  # what the trial episodes were
    histogram: tuple[str, str]  # values before and after the power, largest bin full height

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, for JSON."""
        return {**asdict(self), "diagnosis": self.diagnose()}

    def diagnose(self) -> list[str]:
        """What to do about it, one sentence or two for each finding; problems first."""
        problems = []
        if self.zero_rows:
            rows, have = ("row", "has") if self.zero_rows == 1 else ("rows", "have")
            problems.append(
                f"{self.zero_rows:,} {rows} {have} only zeros and cannot be classified: "
                "remove them, or compute their features again."
            )
        if self.duplicates:
            problems.append(
                f"{self.duplicates / self.rows:.1%} of the rows equal an earlier one: remove them. "
                "The same image as support and as query makes accuracies look better."
            )
        best = max(self.inductive or 0.0, self.transductive or 0.0)
        alike = self.guessing is not None and best < self.guessing + WORTH_HAVING
        if alike:
            problems.append(
                f"The features do not tell the classes apart: {best:.1f} % of the labels are "
                f"right, and {self.guessing:.1f} % by guessing. Check that every label belongs to "
                "its row, and that the backbone was trained."
            )
        advice = [] if problems else ["Healthy: no row is empty or occurs twice."]
        before, after = self.skewness
        if abs(after) < abs(before):
            advice.append(
                f"Use {self.power}: the values are skewed ({before:.1f}), and less so after it "
                f"({after:.1f})."
            )
        if self.inductive is None or self.transductive is None:
            advice.append("Label three rows of two classes, to learn what transduction gains.")
        elif alike:
            pass  # no method can tell them apart
        elif (gain := self.transductive - self.inductive) >= WORTH_HAVING:
            advice.append(f"Use a transductive method such as map-auto: {gain:+.1f} points.")
        else:
            advice.append(
                f"Transduction gains little here ({gain:+.1f} points): "
                "the nearest class mean (ncm) may be enough."
            )
        return problems + advice


def check_up(
    features: FeatureSet,
    *,
    n_episodes: int = EPISODES,
    seed: int = 0,
    on_progress: Callable[[int], object] | None = None,
) -> Checkup:
    """Examine a feature set; trial episodes give lam and the gain of transduction.

    Args:
        features: Of any kind; without labels there are no trial episodes.
        n_episodes: Trial episodes.
        seed: Of the draws.
        on_progress: Called with the number of newly finished episodes, each once per method of
            `TRIED`.
    """
    x = torch.as_tensor(features.features)
    step = suggest_power(x)
    shaped = Pipeline((step,)).transform(x)
    norms = x.double().norm(dim=1)
    trial, *told = _try_out(features, step, n_episodes, seed, on_progress)
    lam, guessing, inductive, transductive = told
    before, after = (draw_histogram(each.reshape(-1).tolist()) for each in (x, shaped))
    return Checkup(
        rows=len(features),
        dim=features.dim,
        classes=features.n_classes,
        unlabelled=int((features.labels < 0).sum()),
        zeros=float((x == 0).double().mean()),
        negatives=float((x < 0).double().mean()),
        zero_rows=int((norms == 0).sum()),
        duplicates=len(features) - len(np.unique(features.features, axis=0)),
        norms=(float(norms.min()), float(norms.median()), float(norms.max())),
        power=str(step),
        skewness=(skewness(x), skewness(shaped)),
        lam=lam,
        guessing=guessing,
        inductive=inductive,
        transductive=transductive,
        trial=trial,
        histogram=(before, after),
    )


def draw_histogram(values: Sequence[float], *, bins: int = BINS) -> str:
    """Values as one line of bars, heights by square root so that a tail is visible.

    >>> draw_histogram([0.0, 0.0, 0.0, 0.0, 1.0], bins=2)
    '█▄'
    """
    counts, _ = np.histogram(np.asarray(values, dtype=np.float64), bins=bins)
    heights = np.sqrt(counts / counts.max())
    return "".join(
        BARS[int(np.ceil(height * len(BARS))) - 1] if height > 0 else " " for height in heights
    )


def check_reliability(
    features: FeatureSet, *, n_episodes: int = EPISODES, seed: int = 0
) -> list[Reliability]:
    """Confidence against accuracy on these features: equal classes and Dirichlet(2) ones.

    Args:
        features: With at least two classes of `RELIABILITY_SHOTS` + 2 labelled rows.
    """
    found = _trial(features, RELIABILITY_SHOTS)
    if found is None:
        raise InputError(
            "features must have two classes of at least "
            f"{RELIABILITY_SHOTS + 2} labelled rows that are not zero, for a reliability figure."
        )
    large, n_way, n_query = found
    shape: dict[str, Any] = {"n_way": n_way, "n_shot": RELIABILITY_SHOTS, "seed": seed}
    return [
        measure_reliability(large, queries=word, n_episodes=n_episodes, **shape)
        for word in (f"{n_query}", f"dirichlet:2:{n_query * n_way}")
    ]


def _trial(features: FeatureSet, n_shot: int) -> tuple[FeatureSet, int, int] | None:
    """Classes large enough for trial episodes, their ways and queries per class; None if few."""
    usable = features.features.any(axis=1)  # a vector of zeros has no direction
    labelled = features.labels[usable & (features.labels >= 0)]
    counts = np.bincount(labelled, minlength=features.n_classes)
    sizes = np.sort(counts)[::-1]
    n_way = min(WAYS, int((sizes >= n_shot + 2).sum()))
    if n_way < 2:
        return None
    n_query = min(QUERIES, int(sizes[n_way - 1]) - n_shot)
    keep = usable & np.isin(features.labels, np.flatnonzero(counts >= n_shot + n_query))
    names = [features.class_names[label] for label in features.labels[keep]]
    large = FeatureSet.from_arrays(features.features[keep], names, provenance=features.provenance)
    return large, n_way, n_query


def _try_out(
    features: FeatureSet,
    step: Step,
    n_episodes: int,
    seed: int,
    on_progress: Callable[[int], object] | None,
) -> tuple[str, float | None, float | None, float | None, float | None]:
    """What the trial episodes were, then lam and three accuracies, as `Checkup` has them."""
    if (trial := _trial(features, SHOTS)) is None:
        return "none: fewer than two classes have three labelled rows", None, None, None, None
    large, n_way, n_query = trial
    shape: dict[str, Any] = {
        **{"n_way": n_way, "n_shot": SHOTS, "queries": n_query},
        **{"n_episodes": n_episodes, "seed": seed},
    }
    pipelines = (Pipeline((step, UNIT)), Pipeline((step, UNIT, Step("center", "support"), UNIT)))
    named = zip(TRIED, pipelines, strict=True)
    methods = [configure(name, n_shot=SHOTS, pipeline=pipeline) for name, pipeline in named]
    results = evaluate(methods, large, on_progress=on_progress, **shape)
    inductive, transductive = (result.accuracy for result in results)
    episodes = sample_episodes(large, **{**shape, "n_episodes": min(n_episodes, 50)})
    x = torch.as_tensor(large.features)
    drawn = (episodes.support, episodes.support_labels, episodes.query)
    support, labels, query = map(torch.as_tensor, drawn)
    found = answer(methods[1], x[support], labels, x[query], n_way=n_way).assignment
    shown = f"{n_episodes} episodes, {n_way}-way {SHOTS}-shot, {n_query} queries per class"
    return shown, float(found.lam.median()), 100 / n_way, inductive, transductive
