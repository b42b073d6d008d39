"""Picture of Figure 2: the paper's fitted curves above, our histograms with theirs below, all skewnesses beside."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ptmap.evaluation.plots import FAINT, INK, STYLE, can_draw, render
from ptmap.paper.published import DATASETS
from ptmap.paper.report import Report

COLORS = ("#D55E00", "#0072B2", "#009E73", "#E69F00", "#CC79A7")  # Okabe and Ito (2008)
BEFORE, AFTER = "#E69F00", "#0072B2"
PAPER_TOP = 0.5  # the paper draws its curves from 0 to here
PANELS = ("before", "after")


def draw_distributions(report: Report) -> dict[str, bytes]:
    """The bytes of a "png" and an "svg" file."""
    can_draw()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    data = report.data
    with rc_context(STYLE):
        figure = Figure(figsize=(7.4, 4.4), layout="constrained")
        grid = figure.add_gridspec(2, 3, width_ratios=(1, 1, 0.95))
        for column, panel in enumerate(PANELS):
            top, bottom = figure.add_subplot(grid[0, column]), figure.add_subplot(grid[1, column])
            _draw_paper(top, data["published"], panel)
            top.set_title(f"paper: {panel} PT", fontsize=8.5, loc="left")
            if data["dataset"]:
                _draw_ours(bottom, data["histograms"], panel)
                bottom.set_title(f"ours: {panel} PT", fontsize=8.5, loc="left")
                bottom.set_xlabel(f"value of feature {data['feature']}")
            else:
                bottom.set_axis_off()
                bottom.text(0.5, 0.5, "no features here", ha="center", color=FAINT, transform=bottom.transAxes)
            if column == 0:
                top.set_ylabel("images a bin")
                bottom.set_ylabel("images a bin")
        if data["dataset"]:
            _draw_skewness(figure.add_subplot(grid[:, 2]), data)
        figure.suptitle(_heading(report), fontsize=8.5, x=0.01, ha="left", linespacing=1.35)
        return {suffix: render(figure, suffix) for suffix in ("png", "svg")}


def _draw_paper(panel: Any, published: list[dict[str, Any]], which: str) -> None:
    _dress(panel)
    x = np.linspace(0, PAPER_TOP, 200)
    for color, fit in zip(COLORS, (each for each in published if each["panel"] == which), strict=True):
        panel.plot(x, _curve(fit, x), color=color, linewidth=1.2, linestyle=(0, (3, 1.5)), label=fit["name"])
    panel.set_ylim(0, None)
    panel.set_xlim(0, PAPER_TOP)
    if which == "after":
        panel.legend(fontsize=7, frameon=False, title="fits only", title_fontsize=7)


def _draw_ours(panel: Any, histograms: list[dict[str, Any]], which: str) -> None:
    _dress(panel)
    shown = [each for each in histograms if each["panel"] == which]
    top = max(max(each["counts"][1:]) for each in shown)
    for color, each in zip(COLORS, shown, strict=False):
        edges = np.asarray(each["edges"])
        panel.stairs(each["counts"], edges, color=color, alpha=0.16, fill=True)
        panel.stairs(each["counts"], edges, color=color, alpha=0.55, linewidth=0.6)
        if each["fit"]:
            x = np.linspace(edges[0], edges[-1], 200)
            panel.plot(x, _curve(each["fit"], x), color=color, linewidth=1.5, label=each["name"])
    first = max(each["counts"][0] for each in shown)
    panel.set_xlim(0, shown[0]["edges"][-1])
    if first > 2.5 * top:
        panel.set_ylim(0, 1.6 * top)
        said = f"first bin: up to {first} images"
        panel.text(0.98, 0.96, said, transform=panel.transAxes, fontsize=7, color="#555555", ha="right", va="top")
    if which == "after":
        panel.legend(fontsize=7, frameon=False, loc="upper right", bbox_to_anchor=(1, 0.93))


def _draw_skewness(panel: Any, data: Mapping[str, Any]) -> None:
    _dress(panel)
    edges = np.asarray(data["skewness_edges"])
    for which, color in zip(PANELS, (BEFORE, AFTER), strict=True):
        counts = np.asarray(data["skewness"][which])
        label = f"{which} PT: median {data['skewness_median'][which]:+.2f}"
        panel.stairs(100 * counts / counts.sum(), edges, color=color, fill=True, alpha=0.28)
        panel.stairs(100 * counts / counts.sum(), edges, color=color, linewidth=1.3, label=label)
    panel.axvline(0, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    panel.set_title("ours: all features, all classes", fontsize=8.5, loc="left")
    panel.set_xlabel("skewness within a class")
    panel.set_ylabel(f"share of the {data['n_features']} × {data['n_classes']} (%)")
    panel.set_ylim(0, 1.18 * panel.get_ylim()[1])  # room for the legend
    panel.legend(fontsize=7.5, frameon=False, loc="upper right")


def _curve(fit: dict[str, float], x: Any) -> Any:
    if "mean" in fit:
        return fit["a"] * np.exp(-((x - fit["mean"]) ** 2) / (2 * fit["std"] ** 2))
    return fit["a"] * np.exp(-fit["b"] * x) + fit["c"]


def _dress(panel: Any) -> None:
    panel.grid(axis="y", color="#E6E6E6", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.tick_params(length=2.5, width=0.7)


def _heading(report: Report) -> str:
    data = report.data
    first = f"Figure 2: {report.title}\npaper: fitted curves, miniImageNet, WRN"
    if not data["dataset"]:
        return first
    ours = f"{DATASETS[data['dataset']]}, WRN, feature {data['feature']} (fewest zeros), n = {data['n_images']} images a class"
    return f"{first}; ours: {ours}"
