"""Drawing of Figure 1: the steps of the method, with one real feature before and after PT."""

from typing import Any

import numpy as np

from fewlabels.evaluation.plots import FAINT, INK, STYLE, can_draw
from fewlabels.paper.draw_distributions import COLORS, fitted_curve
from fewlabels.paper.pictures import finish
from fewlabels.paper.published import DATASETS, read_published
from fewlabels.paper.report import Report

WIDTH, HEIGHT = 74.0, 30.0  # tenths of an inch, the units below
N_CLASSES = 3  # drawn; more would hide each other
BOXES = {  # left, bottom, width, height
    "backbone": (8.5, 21.5, 9.5, 4.5),
    "PT": (22.0, 21.5, 8.0, 4.5),
    "Sinkhorn mapping": (44.0, 21.5, 14.0, 4.5),
    "center update": (44.0, 12.0, 14.0, 4.5),
    "prediction": (44.0, 2.5, 14.0, 4.5),
}
GROUPS = {"preprocessing": (20.0, 0.8, 15.5, 28.0), "MAP": (41.5, 0.8, 24.0, 28.0)}
ARROWS = (  # from, to, words, place of the words
    ((4.8, 23.75), (8.5, 23.75), "", (0, 0)),
    ((18.0, 23.75), (22.0, 23.75), "", (0, 0)),
    ((30.0, 23.75), (44.0, 23.75), r"$\mathbf{f}_S \cup \mathbf{f}_Q$", (38.5, 24.9)),
    ((51.0, 21.5), (51.0, 16.5), r"$\mathbf{M}^*$", (49.0, 19.0)),
    ((51.0, 12.0), (51.0, 7.0), r"$\mathbf{c}_j$", (49.2, 9.5)),
    ((58.0, 4.75), (68.0, 4.75), "", (0, 0)),
    ((68.0, 25.0), (58.0, 25.0), "", (0, 0)),
)


def draw_method(report: Report) -> dict[str, bytes]:
    """The bytes of a "png", an "svg" and a "pdf" file."""
    can_draw()
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH / 10, HEIGHT / 10))
        panel = figure.add_axes((0, 0, 1, 1))
        panel.set(xlim=(0, WIDTH), ylim=(0, HEIGHT))
        panel.set_axis_off()
        look: Any = {"boxstyle": "round,pad=0,rounding_size=0.8", "linewidth": 0.8}
        middle: Any = {"ha": "center", "va": "center"}
        for name, (left, bottom, width, height) in GROUPS.items():
            at = (left, bottom)
            panel.add_patch(FancyBboxPatch(at, width, height, fc="#F3F3F3", ec=FAINT, **look))
            panel.text(left + width / 2, 27.4, name, weight="bold", **middle)
        for name, (left, bottom, width, height) in BOXES.items():
            at = (left, bottom)
            panel.add_patch(FancyBboxPatch(at, width, height, fc="white", ec=INK, **look))
            panel.text(left + width / 2, bottom + height / 2, name, **middle)
        line: Any = {"arrowstyle": "-|>", "mutation_scale": 9, "color": INK, "linewidth": 0.9}
        line |= {"shrinkA": 0, "shrinkB": 0}
        for start, end, words, (x, y) in ARROWS:
            panel.add_patch(FancyArrowPatch(start, end, **line))
            panel.text(x, y, words, **middle)
        bend = "arc3,rad=0.4"
        panel.add_patch(FancyArrowPatch((58.0, 14.25), (58.0, 22.5), connectionstyle=bend, **line))
        panel.text(60.3, 18.4, "n_steps\ntimes", ha="left", va="center", linespacing=1.3)
        panel.text(2.4, 23.75, r"$S \cup Q$", **middle)
        for y, words in ((25.0, "means\nof $S$"), (4.75, "labels\nof $Q$")):
            panel.text(68.4, y, words, ha="left", va="center", linespacing=1.3)
        for bottom, which, words in ((11.4, "before", "before PT"), (1.6, "after", "after PT")):
            place = (23.0 / WIDTH, (bottom + 0.6) / HEIGHT, 11.0 / WIDTH, 6.4 / HEIGHT)
            _draw_feature(figure.add_axes(place), report, which)
            panel.text(28.5, bottom + 7.8, words, fontsize=7.5, **middle)
        panel.add_patch(FancyArrowPatch((21.6, 16.4), (21.6, 4.5), **line))
        return finish(figure)


def describe_method(report: Report) -> str:
    """What the picture shows."""
    dataset = report.data["dataset"]
    which = "the paper's fitted curves, Figure 2"
    if dataset is not None:
        which = f"feature {report.data['feature']} of {DATASETS[dataset]}, ours, WRN"
    return f"The curves are of one feature in {N_CLASSES} classes: {which}."


def _draw_feature(panel: Any, report: Report, which: str) -> None:
    """One feature in three classes: ours, or the paper's curves where no features are here."""
    found = [each for each in report.data["histograms"] if each["panel"] == which and each["fit"]]
    top = 0.5
    fits = [each["fit"] for each in found][:N_CLASSES]
    if found:
        top = found[0]["edges"][-1]
    else:
        series = read_published().figures["figure2"].series
        fits = [dict(each.numbers or {}) for each in series if each.panel == which][:N_CLASSES]
    x = np.linspace(0, top, 120)
    for color, fit in zip(COLORS, fits, strict=False):
        panel.plot(x, fitted_curve(fit, x), color=color, linewidth=1.2)
    panel.set(xlim=(0, top), ylim=(0, None), xticks=[], yticks=[])
    panel.set_facecolor("white")
