"""The reliability figure: of the labels given with a confidence of 0.8, are 80 % right?"""

from collections.abc import Sequence
from typing import Any

from fewlabels.evaluation import plots
from fewlabels.evaluation.plots import FAINT, INK, NOVEL, STYLE, TITLE, can_draw
from fewlabels.evaluation.reliability import Confidence, Reliability
from fewlabels.evaluation.tables import describe_queries

PANEL, HEADING = 2.9, 0.75  # inches
LEAST_FRACTION = 0.002  # of all labels: bins with fewer are noise and are not drawn
DOT = 180  # area, in square points, of a bin that holds all labels


def draw_reliability(found: Sequence[Reliability], *, about: str = "") -> dict[str, bytes]:
    """Accuracy against confidence: the bytes of a "png" and of an "svg" file.

    One panel per kind of episode, one dot per bin of confidence; the area of a dot is the fraction
    of the labels in it. On the diagonal confidence equals accuracy; below it confidence is too
    high.
    """
    can_draw()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        size = (max(PANEL * len(found), 2 * PANEL), PANEL + HEADING)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(1, len(found), squeeze=False, sharey=True)[0]
        for panel, each in zip(panels, found, strict=True):
            panel.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
            _draw_bins(panel, each.confidence)
            lowest = 1 / each.n_way
            panel.set(xlim=(lowest, 1.03), ylim=(0, 1.03), aspect="auto", xlabel="confidence")
            panel.set_title(describe_queries(each.queries), fontsize=8.5, color=INK)
            plots.style_panel(panel, axis="both")
            panel.legend(loc="lower right", frameon=False, alignment="left")
        panels[0].set_ylabel("fraction of the labels that are right")
        figure.suptitle(_heading(found[0], about), **TITLE)
        return plots.render_both(figure)


def _draw_bins(panel: Any, confidence: Confidence) -> None:
    bins = confidence.bins
    seen = bins.fraction >= LEAST_FRACTION
    x, y = bins.confidence[seen], bins.accuracy[seen]
    label = f"expected calibration error {100 * confidence.error:.1f} %"
    panel.plot(x, y, color=NOVEL, marker="o", markersize=3, linewidth=1.3, label=label)
    area = DOT * bins.fraction[seen]
    panel.scatter(x, y, s=area, color=NOVEL, alpha=0.3, linewidth=0, clip_on=False)


def _heading(found: Reliability, about: str) -> str:
    kind = f"Confidence against accuracy, {found.title}, {found.n_way}-way {found.n_shot}-shot"
    n_labels = len(found.confidence.confidence)
    how = (
        f"n = {found.n_episodes:,} episodes, {n_labels:,} labels per panel; "
        "area: fraction of the labels"
    )
    return f"{kind}{', ' + about if about else ''}\n{how}"
