"""Drawing of Figure 2: the paper's fitted curves, our histograms, skewness of all features."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fewlabels.evaluation.plots import FAINT, INK, STYLE, can_draw, style_panel
from fewlabels.paper.pictures import finish
from fewlabels.paper.published import DATASETS
from fewlabels.paper.report import Report

COLORS = ("#D55E00", "#0072B2", "#009E73", "#E69F00", "#CC79A7")  # Okabe and Ito (2008)
# Dashes tell curves apart without color.
DASHES = ("-", (0, (5, 1.2)), (0, (2, 1)), (0, (5, 1.2, 1, 1.2)), (0, (1, 0.8)))
BEFORE, AFTER = "#E69F00", "#0072B2"
PAPER_TOP = 0.5  # largest value of the paper's axis
PANELS = ("before", "after")
SHOWN_FRACTION = 0.998  # of the skewness values; a few outliers would compress the axis
LEGEND: Any = {"fontsize": 7, "frameon": False, "loc": "upper right", "handlelength": 2.6}


def draw_distributions(report: Report) -> dict[str, bytes]:
    """The bytes of a "png", an "svg" and a "pdf" file."""
    can_draw()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    data = report.data
    with rc_context(STYLE):
        figure = Figure(figsize=(7.4, 4.6), layout="constrained")
        grid = figure.add_gridspec(2, 3, width_ratios=(1, 1, 0.95))
        for column, panel in enumerate(PANELS):
            top, bottom = figure.add_subplot(grid[0, column]), figure.add_subplot(grid[1, column])
            _draw_paper(top, data["published"], panel)
            if data["dataset"]:
                _draw_ours(bottom, data["histograms"], panel)
                bottom.set_title(f"ours: {panel} PT", fontsize=8.5, loc="left")
                bottom.set_xlabel(f"value of feature {data['feature']}")
            else:
                bottom.set_axis_off()
                at: Any = {"ha": "center", "color": FAINT, "transform": bottom.transAxes}
                bottom.text(0.5, 0.5, "no features here", **at)
            if column == 0:
                top.set_ylabel("images per bin")
                bottom.set_ylabel("images per bin")
        if data["dataset"]:
            _draw_skewness(figure.add_subplot(grid[:, 2]), data)
        return finish(figure)


def describe_distribution(report: Report) -> str:
    """What the picture shows."""
    data = report.data
    paper = "Paper: miniImageNet, WRN, fitted curves only."
    if not data["dataset"]:
        return paper
    bins = len(data["histograms"][0]["counts"])
    ends = {each["panel"]: each["edges"][-1] for each in data["histograms"]}
    return (
        f"{paper} Ours: {DATASETS[data['dataset']]}, WRN, feature {data['feature']} (of typical "
        f"skewness), n = {data['n_images']} images per class; lines: fitted curves, dots: counts "
        f"of {bins} bins. The axes differ: the paper's values reach {PAPER_TOP}, ours "
        f"{ends['before']:.2g} before and {ends['after']:.2g} after PT."
    )


def _draw_paper(panel: Any, published: list[dict[str, Any]], which: str) -> None:
    style_panel(panel)
    x = np.linspace(0, PAPER_TOP, 200)
    fits = [each for each in published if each["panel"] == which]
    for color, dashes, fit in zip(COLORS, DASHES, fits, strict=True):
        panel.plot(
            x, fitted_curve(fit, x), color=color, linewidth=1.3, linestyle=dashes, label=fit["name"]
        )
    panel.set(xlim=(0, PAPER_TOP), ylim=(0, None))
    panel.set_title(f"paper: {which} PT", fontsize=8.5, loc="left")
    panel.legend(**LEGEND)


def _draw_ours(panel: Any, histograms: list[dict[str, Any]], which: str) -> None:
    style_panel(panel)
    shown = [each for each in histograms if each["panel"] == which]
    top = max(max(each["counts"][1:]) for each in shown)
    first = max(each["counts"][0] for each in shown)
    for color, dashes, each in zip(COLORS, DASHES, shown, strict=False):
        edges = np.asarray(each["edges"])
        centers = (edges[:-1] + edges[1:]) / 2
        panel.plot(centers, each["counts"], ".", color=color, markersize=2.2, alpha=0.7)
        if each["fit"]:
            x = np.linspace(edges[0], edges[-1], 200)
            look = {"color": color, "linewidth": 1.5, "linestyle": dashes, "label": each["name"]}
            panel.plot(x, fitted_curve(each["fit"], x), **look)
    high = 2.5 * top < first  # a peak at zero would flatten the rest
    highest = 1.75 * top if high or which == "after" else 1.15 * max(top, first)
    panel.set(xlim=(0, shown[0]["edges"][-1]), ylim=(0, highest))
    legend = panel.legend(**LEGEND, ncols=1 if which == "before" else 2)
    legend.set_title(f"first bin: up to {first} images" if high else None, {"size": 7})


def _draw_skewness(panel: Any, data: Mapping[str, Any]) -> None:
    style_panel(panel)
    edges = np.asarray(data["skewness_edges"])
    fractions = {
        which: np.asarray(data["skewness"][which]) / sum(data["skewness"][which])
        for which in PANELS
    }
    for which, color, dashes in zip(PANELS, (BEFORE, AFTER), ("-", (0, (4, 1.2))), strict=True):
        label = f"{which} PT, median {data['skewness_median'][which]:+.2f}"
        panel.stairs(100 * fractions[which], edges, color=color, fill=True, alpha=0.25)
        panel.stairs(
            100 * fractions[which], edges, color=color, linewidth=1.4, linestyle=dashes, label=label
        )
    reached = np.mean([np.cumsum(each) for each in fractions.values()], axis=0)
    low, high = (
        int(np.searchsorted(reached, part)) for part in (1 - SHOWN_FRACTION, SHOWN_FRACTION)
    )
    panel.set_xlim(edges[low], edges[min(high + 1, len(edges) - 1)])
    panel.axvline(0, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    panel.set_title("ours: all features, all classes", fontsize=8.5, loc="left")
    panel.set_xlabel("skewness within a class")
    panel.set_ylabel(f"% of the {data['n_features']} × {data['n_classes']}")
    panel.set_ylim(0, 1.2 * panel.get_ylim()[1])  # room for the legend
    panel.legend(fontsize=7.5, frameon=False, loc="upper right")


def fitted_curve(fit: Mapping[str, float], x: Any) -> Any:
    """The values of a fitted exponential or Gaussian at x."""
    if "mean" in fit:
        return fit["a"] * np.exp(-((x - fit["mean"]) ** 2) / (2 * fit["std"] ** 2))
    return fit["a"] * np.exp(-fit["b"] * x) + fit["c"]
