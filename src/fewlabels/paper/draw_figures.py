"""Drawings of Figures 3 and 4.

The paper's curves are dashed with hollow marks, ours are solid with filled marks.
"""

from collections.abc import Sequence
from typing import Any

from fewlabels.evaluation.plots import INK, NOVEL, STYLE, VALIDATION, can_draw, style_panel
from fewlabels.evaluation.settings import axis_name
from fewlabels.paper.pictures import finish
from fewlabels.paper.published import DATASETS
from fewlabels.paper.report import Report

GREEN, PURPLE = "#009E73", "#CC79A7"
COLORS = {
    "PT+NCM": (GREEN, "s"),
    "PT+MAP, at least 30 of each": (VALIDATION, "D"),
    "PT+MAP, sizes known": (NOVEL, "o"),
}
BY_DATASET = {"mini-imagenet": ("#E69F00", "^"), "cub": (GREEN, "s"), "cifar-fs": (NOVEL, "o")}
BY_SPLIT = {"val": ("validation", VALIDATION, "D"), "novel": ("novel", NOVEL, "o")}
PAPER_LINE = (0, (3, 2))
LOOKS = "Paper: dashed line, hollow marks; ours: solid line, filled marks."
FLOOR = 80.0  # percent, least accuracy shown in Figure 3; a wrong bound gives far less


def draw_imbalance(report: Report) -> dict[str, bytes]:
    """Figure 3: the paper left, ours right, on one scale."""
    can_draw()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    data = report.data
    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.6), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for curve in data["curves"]:
            color, marker = COLORS[curve["name"]]
            _paper_curve(panels[0], curve["published"], color, marker)
            _our_curve(panels[1], curve["ours"], color, marker, label=curve["name"])
        ours = DATASETS[data["dataset"]] if data["dataset"] else "no features here"
        for panel, title in zip(panels, ("paper: miniImageNet", f"ours: {ours}"), strict=True):
            style_panel(panel)
            panel.set_title(title, fontsize=8.5, loc="left")
            panel.set_xlabel("q₁, queries of class 1 among 100")
            panel.set_xticks([1, 10, 20, 30, 40, 50])
        if data["dataset"]:
            panels[1].axvspan(-2, 30, color="#F3F3F3", zorder=0, linewidth=0)
            note = {"fontsize": 7.5, "color": "#5A5A5A", "va": "bottom", "linespacing": 1.35}
            panels[1].text(1, FLOOR + 0.5, _off_scale(data["curves"]), **note)
        panels[0].set(xlim=(-1.5, 52.5), ylim=(FLOOR, 100.4))
        panels[1].set(xlim=(-1.5, 52.5))
        panels[0].set_ylabel("accuracy (%)")
        _legend(figure, panels[1], ncols=3, fontsize=8)
        return finish(figure)


def describe_imbalance(report: Report) -> str:
    """What the picture shows."""
    return f"2-way 1-shot, WRN; {_describe(report)}"


def _describe(report: Report) -> str:
    n = f"n = {report.data['n_episodes']:,} episodes per point"
    return f"ours: {n}, bands: 95 % interval. {LOOKS}"


def draw_knobs(report: Report) -> dict[str, bytes]:
    """Figure 4: four panels; dashed vertical lines are the values chosen on validation classes."""
    can_draw()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    data = report.data
    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 5.8), layout="constrained")
        panels = figure.subplots(2, 2).flat
        first = next(panels)
        for curve in data["queries"]:
            color, marker = BY_DATASET[curve["dataset"]]
            name = DATASETS[curve["dataset"]]
            _paper_curve(first, curve["published"], color, marker, label=f"{name}, paper")
            if any(cell for _, cell in curve["ours"]):
                _our_curve(first, curve["ours"], color, marker, label=f"{name}, ours")
        style_panel(first)
        first.set_xlabel("(1) number of queries, 5q")
        first.set_ylabel("accuracy (%)")
        low, high = first.get_ylim()
        first.set_ylim(low - 0.25 * (high - low), high)  # room for the legend
        first.set_title(
            "the paper's three datasets; ours where features are here", fontsize=7.5, color=INK
        )
        first.legend(fontsize=7.5, frameon=False, loc="lower right", handlelength=2.6)
        for number, (panel, curve) in enumerate(zip(panels, data["knobs"], strict=True), start=2):
            _draw_knob(panel, curve, number, DATASETS[data["dataset"]] if data["dataset"] else None)
        _legend(figure, panel, ncols=2, fontsize=7.5, title="(2) to (4)", title_fontsize=7.5)
        return finish(figure)


def describe_knobs(report: Report) -> str:
    """What the picture shows."""
    return f"5-way 1-shot, WRN, PT+MAP; {_describe(report)}"


def _legend(figure: Any, panel: Any, **look: Any) -> None:
    """The names of a panel's curves, below all panels."""
    names = panel.get_legend_handles_labels()
    figure.legend(*names, loc="outside lower center", frameon=False, **look)


def _draw_knob(panel: Any, curve: dict[str, Any], number: int, ours: str | None) -> None:
    for split, (name, color, marker) in BY_SPLIT.items():
        said = f"{name}, paper (miniImageNet)"
        _paper_curve(panel, curve["published"][split], color, marker, label=said)
        if ours:
            _our_curve(panel, curve["ours"][split], color, marker, label=f"{name}, ours ({ours})")
    style_panel(panel)
    panel.axvline(curve["paper_choice"], color=INK, linestyle=":", linewidth=1.0, zorder=1)
    peak = curve["peaks"]["val"]
    words = f"chosen on validation: paper {curve['paper_choice']:g}"
    if peak is not None:
        panel.axvline(peak, color=INK, linestyle=PAPER_LINE, linewidth=1.0, zorder=1)
        words += f" (dotted), ours {peak:g} (dashed)"
    title = "\n".join(filter(None, [words, _worth(curve)]))
    panel.set_title(title, fontsize=7.5, color=INK, linespacing=1.3)
    panel.set_xlabel(f"({number}) {axis_name(curve['knob'])}")
    panel.set_ylabel("accuracy (%)")
    if curve["knob"] == "beta":
        panel.set_xticks([-2, -1, 0, 0.5, 1, 2], ["−2", "−1", "0", "0.5", "1", "2"])


def _paper_curve(
    panel: Any, points: Sequence[Any], color: str, marker: str, *, label: str | None = None
) -> None:
    x, y = zip(*points, strict=True)
    look = {"markersize": 3.6, "markerfacecolor": "white", "markeredgewidth": 0.9, "linewidth": 1.0}
    panel.plot(x, y, color=color, marker=marker, linestyle=PAPER_LINE, label=label, **look)


def _our_curve(
    panel: Any, points: Sequence[Sequence[Any]], color: str, marker: str, *, label: str
) -> None:
    done = [(x, cell["accuracy"], cell["ci95"] or 0.0) for x, cell in points if cell is not None]
    x, y = [x for x, _, _ in done], [y for _, y, _ in done]
    look = {"markersize": 3.8, "linewidth": 1.6, "label": label}
    panel.plot(x, y, color=color, marker=marker, **look)
    low, high = ([y + side * half for _, y, half in done] for side in (-1, 1))
    panel.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)


def _worth(curve: dict[str, Any]) -> str:
    """What our choice gains over the paper's, in points."""
    at, peak = curve["paper_choice"], curve["peaks"]["val"]
    if peak == at or None in curve["gains"].values():
        return ""
    gains = [
        f"{gain:+.2f} {BY_SPLIT[split][0]}".replace("-", "−")
        for split, (gain, _) in curve["gains"].items()
    ]
    return f"{peak:g} instead of {at:g}: {', '.join(gains)} (points)"


def _off_scale(curves: Sequence[dict[str, Any]]) -> str:
    """The note about points where the bound does not hold."""
    bound = next(curve for curve in curves if "at least" in curve["name"])
    q1, cell = bound["ours"][0]
    return "“at least 30” is\nwrong here" + (
        f": {cell['accuracy']:.1f} %\nat q₁ = {q1}" if cell else ""
    )
