"""The leaderboard as one HTML page: a scatter plot per kind of episode, the tables, the papers.

The page loads nothing and opens from disk; colors follow the reader's light or dark setting. A
method on the frontier is named in the plot, if there is room: no faster method is more accurate.
The others show their names when the mouse rests on them, and in the tables. There, the largest gain
over PT+MAP of each kind of episode is bold.
"""

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10

from fewlabels.evaluation.leaderboard import (
    BASELINE,
    Leaderboard,
    Standing,
    describe_kind,
    tabulate_leaderboard,
)
from fewlabels.evaluation.tables import TEXT_COLUMNS, Table
from fewlabels.methods import find_method

WIDTH, HEIGHT = 520, 330  # of a plot, in its own units
LEFT, RIGHT, TOP, BOTTOM = 46, 16, 30, 40  # margins
LETTER, LINE = 6.9, 13.0  # width of a letter and height of a line of a name
MOST_COVERED = 20.0  # area of a name that may lie on points and other names
STYLE = """
:root {
  color-scheme: light dark;
  --ink: #1d2129; --soft: #5b6370; --line: #e1e5ea; --ground: #fff; --tint: #f5f7f9;
  --front: #0072B2; --rest: #9aa2ad; --base: #D55E00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e7eaee; --soft: #a3acb8; --line: #333a44; --ground: #14171b; --tint: #1c2127;
    --front: #6cbcf0; --rest: #6f7885; --base: #ff9a5c;
  }
}
body {
  margin: 0 auto; max-width: 84rem; padding: 2rem 1.25rem; color: var(--ink);
  background: var(--ground); font: 15px/1.55 system-ui, "Segoe UI", Helvetica, Arial, sans-serif;
}
h1 { font-size: 1.6rem; margin: 0 0 .4rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p, .caption { color: var(--soft); margin: .3rem 0 1rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(21rem, 1fr)); gap: 1rem; }
svg { width: 100%; max-width: 36rem; height: auto; }
svg text { fill: var(--soft); font-size: 11px; }
svg .head { fill: var(--ink); font-size: 13px; font-weight: 600; }
svg .name { fill: var(--ink); } svg line { stroke: var(--line); }
svg .rest { fill: var(--rest); } svg .front { fill: var(--front); } svg .base { fill: var(--base); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .82rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .4rem; text-align: right; white-space: nowrap; }
thead th { white-space: normal; vertical-align: bottom; }
th { color: var(--soft); border-bottom: 1px solid var(--ink); } .text { text-align: left; }
tbody tr:hover td { background: var(--tint); }
.best { font-weight: 700; } a { color: var(--front); } ul { padding-left: 1.2rem; }
"""


def write_leaderboard_page(board: Leaderboard, *, command: str) -> str:
    """The page's HTML."""
    tables = [(words, tabulate_leaderboard(board, paired=paired)) for words, paired in TABLES]
    plots = "".join(draw_scatter(board, kind) for kind in range(len(board.kinds)))
    best = find_best(board)
    parts = "".join(f"<h2>{words}</h2>{_table(table, words, best)}" for words, table in tables)
    papers = "".join(_paper(name, rows[0]) for name, rows in board.standings.items())
    title = escape(tables[0][1].title)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body><main><h1>{title}</h1>"
        "<p>Accuracy against time, all methods on the same episodes. Blue: methods that no faster "
        "method surpasses; orange: PT+MAP. They are named where there is room; the mouse shows "
        f'the name of each point.</p><div class="plots">{plots}</div>\n{parts}'
        f"<h2>Papers</h2><ul>{papers}</ul>"
        f'<p class="caption"><code>{escape(command)}</code></p></main></body></html>\n'
    )


TABLES = (("Accuracy", False), ("Paired with PT+MAP", True))


def draw_scatter(board: Leaderboard, kind: int) -> str:
    """Accuracy against milliseconds per episode of one kind of episode, as SVG."""
    points = [standings[kind] for standings in board.standings.values()]
    times = [log10(max(each.milliseconds, 1e-3)) for each in points]
    heights = [each.result.accuracy for each in points]
    first, last = floor(min(times)), max(ceil(max(times)), floor(min(times)) + 1)
    low, high = _span(heights)
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    x = [LEFT + (right - LEFT) * (each - first) / (last - first) for each in times]
    y = [bottom - (bottom - TOP) * (each - low) / (high - low) for each in heights]
    shots, word = board.kinds[kind]
    head = f"{shots}-shot, {describe_kind(word)}"
    parts = [f'<text class="head" x="{LEFT}" y="16">{escape(head)}</text>']
    step = _step(high - low)
    for mark in range(ceil(low / step), floor(high / step) + 1):
        at = bottom - (bottom - TOP) * (mark * step - low) / (high - low)
        parts.append(f'<line x1="{LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(
            f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{mark * step:g}</text>'
        )
    for power in range(first, last + 1):
        at = LEFT + (right - LEFT) * (power - first) / (last - first)
        parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(
            f'<text x="{at:.1f}" y="{bottom + 15}" text-anchor="middle">{10.0**power:g}</text>'
        )
    middle = (LEFT + right) / 2
    axis = f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">ms per episode</text>'
    parts.append(axis)
    front = find_frontier(points)
    for i, each in enumerate(points):
        name = each.result.method
        style = "base" if name == BASELINE else "front" if i in front else "rest"
        words = f"{each.result.title}: {each.result.accuracy:.2f} %, {each.milliseconds:.2f} ms"
        parts.append(
            f'<circle class="{style}" cx="{x[i]:.1f}" cy="{y[i]:.1f}" r="5">'
            f"<title>{escape(words)}</title></circle>"
        )
    named = [i for i, each in enumerate(points) if i in front or each.result.method == BASELINE]
    named.sort(key=lambda i: (points[i].result.method != BASELINE, -heights[i]))
    places = [(x[i], y[i], points[i].result.title) for i in named]
    for left, base, title in place_names(places, list(zip(x, y, strict=True))):
        parts.append(f'<text class="name" x="{left:.1f}" y="{base:.1f}">{escape(title)}</text>')
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg role="img" aria-label="{escape(head)}" {size}>{"".join(parts)}</svg>'


def find_frontier(points: Sequence[Standing]) -> set[int]:
    """The numbers of the standings that no faster and at least as accurate one surpasses.

    A method that is told the true class sizes does not count.
    """
    rivals = [i for i, each in enumerate(points) if not is_told(each)]
    order = sorted(rivals, key=lambda i: (points[i].milliseconds, -_height(points[i])))
    found: set[int] = set()
    best = float("-inf")
    for i in order:
        if _height(points[i]) > best:
            best = _height(points[i])
            found.add(i)
    return found


def find_best(board: Leaderboard) -> set[tuple[int, int]]:
    """Row and column, in the tables, of the largest gain over the baseline of each kind.

    Gains are compared, not accuracies: a slow method labels a part of the episodes. A method that
    is told the true class sizes does not count.
    """
    rows = list(board.standings.values())
    rivals = [i for i, row in enumerate(rows) if not is_told(row[0])]
    return {
        (max(rivals, key=lambda i: rows[i][kind].comparison.difference), kind + 1)
        for kind in range(len(board.kinds))
    }


def is_told(standing: Standing) -> bool:
    """Whether the method knows the true class sizes."""
    return str(standing.result.settings.get("prior")) == "truth"


def _paper(name: str, standing: Standing) -> str:
    """Where a method was published, as an item of a list."""
    found = find_method(name).reference
    where = f'<a href="{escape(found.link)}">{escape(found.title)}</a>'
    title = escape(standing.result.title)
    return f"<li>{title} (<code>{name}</code>): {escape(found.authors)}, {found.year}. {where}</li>"


def _height(point: Standing) -> float:
    return point.result.accuracy


def _span(heights: Sequence[float]) -> tuple[float, float]:
    """The range of the axis: the values, with a margin."""
    margin = max(0.06 * (max(heights) - min(heights)), 0.5)
    return min(heights) - margin, max(heights) + margin


def _step(span: float) -> float:
    """A round distance of grid lines: 3 to 8 of them."""
    power = 10.0 ** floor(log10(span / 3))
    return max(power * factor for factor in (1, 2, 5) if power * factor <= span / 3)


def place_names(
    named: Sequence[tuple[float, float, str]], points: Sequence[tuple[float, float]]
) -> list[tuple[float, float, str]]:
    """Left end and base line of each name, where it covers the fewest points and other names.

    Names are placed in the given order. One that has no room is left out.
    """
    taken: list[tuple[float, float, float, float]] = [
        (px - 5, py - 5, px + 5, py + 5) for px, py in points
    ]
    placed = []
    for px, py, title in named:
        width = LETTER * len(title)
        places = [
            (left, base)
            for base in (py + 4, py - 9, py + 17)
            for left in (px + 9, px - 9 - width, px - width / 2)
            if left >= LEFT - 20 and left + width <= WIDTH and base - LINE + 3 >= TOP - 12
        ]
        free = []
        for left, base in places:
            box = (left, base - LINE + 3, left + width, base + 3)
            covered = sum(_overlap(box, other) for other in taken)
            if covered <= MOST_COVERED:
                free.append((covered + abs(base - py - 4), left, base, box))
        if free:
            _, left, base, box = min(free, key=lambda each: each[0])
            taken.append(box)
            placed.append((left, base, title))
    return placed


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """Area that two boxes (left, top, right, bottom) share."""
    wide = min(a[2], b[2]) - max(a[0], b[0])
    tall = min(a[3], b[3]) - max(a[1], b[1])
    return max(wide, 0.0) * max(tall, 0.0)


def _table(table: Table, words: str, best: set[tuple[int, int]]) -> str:
    def row(cells: Sequence[str], tag: str, number: int = -1) -> str:
        shown = []
        for column, (cell, name) in enumerate(zip(cells, table.header, strict=True)):
            bold = (number, column) in best
            look = " class=text" if name in TEXT_COLUMNS else " class=best" if bold else ""
            shown.append(f"<{tag}{look}>{escape(cell)}</{tag}>")
        return f"<tr>{''.join(shown)}</tr>"

    rows = [cells for section in table.sections for cells in section]
    body = "".join(row(cells, "td", number) for number, cells in enumerate(rows))
    caption = f"{table.caption}; bold: the largest gain of those that are not told the class sizes"
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{words}">'
        f"<table><thead>{row(table.header, 'th')}</thead><tbody>{body}</tbody>"
        f'</table></div><p class="caption">{escape(caption)}</p>'
    )
