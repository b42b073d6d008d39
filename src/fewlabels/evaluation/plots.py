"""Figures of results; matplotlib is imported where they are drawn."""

import io
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from fewlabels.errors import MissingExtraError
from fewlabels.evaluation.curves import Curve, Tuning
from fewlabels.evaluation.results import EvaluationResult
from fewlabels.evaluation.settings import axis_name
from fewlabels.evaluation.tables import describe_queries

VALIDATION, NOVEL = "#D55E00", "#0072B2"  # Okabe and Ito (2008): safe for color-blind readers
INK, FAINT = "#222222", "#8A8A8A"
PANEL, NARROWEST = 2.35, 4.4  # inches: three columns fill the width of a page
HEIGHT, HEADING = 1.6, 0.95  # inches: two rows and the heading fill less than half of its height
LINEAR_FACTOR = 5  # a range of lam that spans more is drawn on a logarithmic scale
LAM_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 40, 80, 160)
TITLE: Any = {"fontsize": 8.5, "x": 0.015, "ha": "left", "linespacing": 1.35}  # of a figure
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.labelsize": 8.5,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "axes.labelcolor": INK,
    "svg.hashsalt": "fewlabels",  # equal figures make equal files
}


def can_draw(wanted: bool | None = True) -> bool:
    """Whether to draw: as wanted, which needs matplotlib; or, if None, where matplotlib is."""
    if wanted is False:
        return False
    installed = find_spec("matplotlib") is not None
    if wanted and not installed:
        raise MissingExtraError("matplotlib", extra="plot", purpose="drawing curves")
    return installed


def draw_curves(tuning: Tuning, *, about: str = "") -> dict[str, bytes]:
    """The curves of a tuning after Figure 4: the bytes of a "png" and of an "svg" file.

    One column per knob; validation classes above, novel classes below on their own scale, so that
    a gap between the two does not flatten the curves. The dashed line is the choice.
    """
    can_draw()
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    n_columns, with_novel = len(tuning.curves), any(curve.novel for curve in tuning.curves)
    rows = [("validation", VALIDATION, "o"), ("novel", NOVEL, "s")][: 1 + with_novel]
    with rc_context(STYLE):
        size = (max(PANEL * n_columns, NARROWEST), HEIGHT * len(rows) + HEADING)
        layout = ConstrainedLayoutEngine(w_pad=0.07, wspace=0.03, hspace=0.03)
        figure = Figure(figsize=size, layout=layout)
        panels = figure.subplots(len(rows), n_columns, squeeze=False, sharex="col")
        for (name, color, marker), across in zip(rows, panels, strict=True):
            across[0].set_ylabel(f"{name} accuracy (%)", color=color)
            for panel, curve in zip(across, tuning.curves, strict=True):
                _draw_line(panel, curve.values, getattr(curve, name), color, marker)
                dashed = {"color": INK, "linestyle": (0, (4, 3)), "linewidth": 0.9, "zorder": 1}
                panel.axvline(curve.choice, **dashed)
        for top, bottom, curve in zip(panels[0], panels[-1], tuning.curves, strict=True):
            _label_column(top, bottom, curve)
        figure.suptitle(_heading(tuning, about), **TITLE)
        return render_both(figure)


def _label_column(top: Any, bottom: Any, curve: Curve) -> None:
    others = ", ".join(f"{_letter(name)} = {value:g}" for name, value in curve.others.items())
    chosen = f"chosen: {_letter(curve.knob)} = {curve.choice:g}"
    top.set_title(chosen + (f"\nwith {others}" if others else ""), fontsize=8, linespacing=1.3)
    bottom.set_xlabel(axis_name(curve.knob))
    if curve.knob == "lam" and curve.values[-1] / curve.values[0] > LINEAR_FACTOR:
        bottom.set_xscale("log")
        ticks = [tick for tick in LAM_TICKS if curve.values[0] <= tick <= curve.values[-1]]
        bottom.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        bottom.minorticks_off()


def _letter(knob: str) -> str:
    """The letter of a knob in the paper: the last word of its axis name."""
    return axis_name(knob).split()[-1]


def _draw_line(
    panel: Any, values: Sequence[float], results: Sequence[EvaluationResult], color: str, mark: str
) -> None:
    style_panel(panel)
    panel.locator_params(axis="y", nbins=5, steps=[1, 2, 5, 10])
    if results:
        means = draw_band(panel, values, results, color)
        panel.plot(values, means, color=color, marker=mark, markersize=3.4, linewidth=1.4)


def style_panel(panel: Any, *, axis: str = "y") -> None:
    """A faint grid behind the marks, short ticks."""
    panel.grid(axis=axis, color="#E6E6E6", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.tick_params(length=2.5, width=0.7)


def draw_band(
    panel: Any, places: Sequence[float], results: Sequence[EvaluationResult], color: str
) -> list[float]:
    """Draw the 95 % intervals of accuracies as a band, and return the accuracies."""
    means = [result.accuracy for result in results]
    halves = [result.ci95 if result.ci95 == result.ci95 else 0.0 for result in results]
    low, high = (
        [mean + side * half for mean, half in zip(means, halves, strict=True)] for side in (-1, 1)
    )
    panel.fill_between(places, low, high, color=color, alpha=0.18, linewidth=0)
    return means


def _heading(tuning: Tuning, about: str) -> str:
    result = tuning.result
    shape = f"{result.n_way}-way {tuning.n_shot}-shot, {describe_queries(result.queries)}"
    how = (
        f"n = {result.n_episodes:,} episodes, the same for every point; bands: 95 % interval; "
        "dashed: chosen on validation"
    )
    return f"{result.title}, {shape}{', ' + about if about else ''}\n{how}"


def render(figure: Any, suffix: str) -> bytes:
    """The bytes of a figure as a "png", "svg" or "pdf" file; equal figures make equal bytes."""
    buffer = io.BytesIO()
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix, {})
    figure.savefig(buffer, format=suffix, dpi=220, metadata=metadata)
    return buffer.getvalue()


def render_both(figure: Any) -> dict[str, bytes]:
    """The bytes of a "png" and of an "svg" file."""
    return {suffix: render(figure, suffix) for suffix in ("png", "svg")}
