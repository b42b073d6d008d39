"""Drawings of tables: one line per row; hollow marks are the paper's, filled marks ours."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from fewlabels.evaluation.plots import FAINT, INK, STYLE, can_draw, style_panel
from fewlabels.paper.pictures import finish
from fewlabels.paper.published import DATASETS, SHOTS
from fewlabels.paper.report import Report

BLUE = "#0072B2"
MARKS = {  # by method: color of Okabe and Ito (2008), and a shape that tells without color
    "NCM": ("#E69F00", "^"),
    "PT+NCM": ("#009E73", "s"),
    "PT+K-Means": ("#CC79A7", "D"),
    "MAP": ("#D55E00", "v"),
    "PT+MAP": (BLUE, "o"),
}
LINE, HEADING, MARGIN, WIDTH = 0.165, 0.24, 1.3, 7.4  # inches
WIDER = 0.23  # inches of a line with several methods
APART = 0.2  # of a line: paper above, ours below
TOUCHING = 0.016  # of the width of a panel: marks that are closer would overlap
# label, whether it is a method of the paper, its rows
Line = tuple[str, bool, list[Mapping[str, Any]]]


class Mark(NamedTuple):
    """A number to draw."""

    x: float
    ci95: float | None
    color: str
    marker: str


def draw_table(report: Report) -> dict[str, bytes]:
    """The bytes of a "png", an "svg" and a "pdf" file: 1-shot left, 5-shot right."""
    can_draw()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    groups = _group(report.data["rows"])
    by_color = any(len(rows) > 1 for lines in groups.values() for _, _, rows in lines)
    n_lines = sum(map(len, groups.values()))
    with rc_context(STYLE):
        height = (WIDER if by_color else LINE) * n_lines + HEADING * len(groups) + MARGIN
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        panels = figure.subplots(1, len(SHOTS), sharey=True)
        for panel, n_shot in zip(panels, SHOTS, strict=True):
            _draw_panel(panel, groups, n_shot, by_color=by_color)
            panel.set_xlabel(f"{n_shot}-shot accuracy (%)")
        _label_lines(panels[0], groups)
        present = {row["method"] for row in report.data["rows"]}
        rivals = any(not row["variant"] for row in report.data["rows"])
        methods = [name for name in MARKS if name in present] if by_color else []
        handles = _handles(methods, measured=_measured(report), rivals=rivals)
        look = {"fontsize": 7.5, "handletextpad": 0.3, "columnspacing": 1.2}
        figure.legend(handles=handles, loc="outside lower center", ncols=7, frameon=False, **look)
        return finish(figure)


def describe_table(report: Report) -> str:
    """What the picture shows."""
    ours = "no features here, paper only"
    if _measured(report):
        ours = f"ours: n = {report.data['n_episodes']:,} episodes"
    return f"5-way, 15 queries per class; {ours}; bars: 95 % interval, where wider than the mark."


def _measured(report: Report) -> bool:
    return any(row["ours"] and any(row["ours"].values()) for row in report.data["rows"])


def _group(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Line]]:
    """Lines by dataset: one per backbone with several methods, or one per method and backbone."""
    groups: dict[str, list[Line]] = {}
    for row in rows:
        lines = groups.setdefault(DATASETS[row["dataset"]], [])
        several = sum(
            (each["dataset"], each["backbone"]) == (row["dataset"], row["backbone"])
            for each in rows
            if each["variant"]
        )
        all_ours = all(each["variant"] for each in rows)
        if all_ours and several > 1 and lines and lines[-1][0] == row["backbone"]:
            lines[-1][2].append(row)
        else:
            label = row["backbone"] if all_ours else f"{row['method']} ({row['backbone']})"
            lines.append((label, bool(row["variant"]), [row]))
    return groups


def _draw_panel(
    panel: Any, groups: Mapping[str, list[Line]], n_shot: int, *, by_color: bool
) -> None:
    style_panel(panel, axis="x")
    panel.tick_params(axis="y", length=0)
    panel.spines["left"].set_visible(False)
    lines = [
        (y, *_marks(rows, n_shot, by_color=by_color)) for y, (_, _, rows) in _positions(groups)
    ]
    values = [mark.x for _, published, ours in lines for mark in (*published, *ours)]
    near = TOUCHING * (max(values) - min(values))
    for y, published, ours in lines:
        panel.axhline(y, color="#EFEFEF", linewidth=0.6, zorder=0)
        apart = APART if ours and published else 0.0
        room = 0.8 * APART if by_color else 0.0
        for marks, height, filled in ((published, y - apart, False), (ours, y + apart, True)):
            for mark, lift in zip(
                marks, vertical_shifts([mark.x for mark in marks], near), strict=True
            ):
                _draw_mark(panel, mark, height + room * lift, filled=filled)


def _marks(
    rows: Sequence[Mapping[str, Any]], n_shot: int, *, by_color: bool
) -> tuple[list[Mark], list[Mark]]:
    """The marks of a line, the paper's and ours."""
    published, ours = [], []
    for row in rows:
        look = MARKS[row["method"]] if by_color else (BLUE if row["variant"] else FAINT, "o")
        if said := row["published"].get(str(n_shot)):
            published.append(Mark(said[0], said[1], *look))
        if cell := (row["ours"] or {}).get(str(n_shot)):
            ours.append(Mark(cell["accuracy"], cell["ci95"], *look))
    return published, ours


def vertical_shifts(values: Sequence[float], near: float) -> list[int]:
    """Vertical shifts of marks on one line: up and down in turn where they would overlap.

    >>> vertical_shifts([50, 70, 70.1], 0.5)
    [0, -1, 1]
    """
    lifts = [0] * len(values)
    order = sorted(range(len(values)), key=lambda i: values[i])
    for left, right in pairwise(order):
        if values[right] - values[left] < near:
            lifts[left] = lifts[left] or -1
            lifts[right] = -lifts[left]
    return lifts


def _draw_mark(panel: Any, mark: Mark, y: float, *, filled: bool) -> None:
    face, zorder = (mark.color, 4) if filled else ("white", 3)
    look = {"markersize": 4.2, "markeredgewidth": 1.0, "elinewidth": 0.9, "zorder": zorder}
    colors = {"color": mark.color, "markerfacecolor": face}
    panel.errorbar(mark.x, y, xerr=mark.ci95 or None, fmt=mark.marker, **look, **colors)


def _positions(groups: Mapping[str, list[Line]]) -> list[tuple[float, Line]]:
    """Heights of the lines, with room for a heading above each group."""
    found, y = [], 0.0
    for lines in groups.values():
        y += HEADING / LINE
        for line in lines:
            found.append((y, line))
            y += 1
    return found


def _label_lines(panel: Any, groups: Mapping[str, list[Line]]) -> None:
    positions = _positions(groups)
    panel.set_yticks(
        [y for y, _ in positions], [label for _, (label, _, _) in positions], fontsize=7.5
    )
    several = any(not ours for _, (_, ours, _) in positions)
    for tick, (_, (_, ours, _)) in zip(panel.get_yticklabels(), positions, strict=True):
        tick.set_color(BLUE if ours and several else INK)
    first = 0
    for name, lines in groups.items():
        y = positions[first][0] - 0.95
        look = {"ha": "right", "va": "center", "fontweight": "bold", "fontsize": 8}
        panel.text(-0.02, y, name, transform=panel.get_yaxis_transform(), **look)
        first += len(lines)
    panel.set_ylim(positions[-1][0] + 0.7, positions[0][0] - 1.5)


def _handles(methods: Sequence[str], *, measured: bool, rivals: bool) -> list[Any]:
    from matplotlib.lines import Line2D

    def mark(label: str, color: str, marker: str, *, filled: bool = True) -> Any:
        face = color if filled else "white"
        look: Any = {"color": color, "markerfacecolor": face, "markersize": 5, "label": label}
        return Line2D([], [], linestyle="none", marker=marker, **look)

    found = [mark(name, *MARKS[name]) for name in methods]
    shades = INK if methods else BLUE
    found.append(mark("paper (hollow)", shades, "o", filled=False))
    if measured:
        found.append(mark("ours (filled)", shades, "o"))
    return [mark("paper, methods of others", FAINT, "o", filled=False), *found] if rivals else found
