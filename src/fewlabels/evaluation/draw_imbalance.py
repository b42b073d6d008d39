"""A figure of the accuracy of each method against the imbalance of the classes."""

from collections.abc import Sequence
from math import exp, lgamma, log
from typing import Any

from fewlabels.evaluation import plots
from fewlabels.evaluation.plots import INK, STYLE, TITLE, can_draw
from fewlabels.evaluation.queries import QuerySpec
from fewlabels.evaluation.results import EvaluationResult
from fewlabels.evaluation.settings import knobs_shown

# Okabe and Ito (2008): safe for color-blind readers; markers and dashes do without color. Their
# yellow is left out, because it is too pale for a line.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", INK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 1.5, 1, 1.5)))
WIDTH, HEIGHT = 4.0, 3.0  # inches of a panel
LEGEND, HEADING = 1.9, 0.7  # inches for the names of the lines and for the heading


def expected_imbalance(queries: str, n_way: int) -> float:
    """Expected imbalance of episodes of this kind.

    The imbalance of an episode is the part of the queries that would have to change class to make
    all classes equally large: half of sum_j |p_j - 1/W|. For Dirichlet(A), p_j is distributed as
    Beta(A, (W - 1) A), whose mean absolute deviation is known in closed form.

    >>> words = ("15", "dirichlet:2:75", "present:2:75", "75,0,0,0,0")
    >>> [round(expected_imbalance(word, 5), 3) for word in words]
    [0.0, 0.242, 0.6, 0.8]
    """
    spec = QuerySpec.parse(queries)
    if spec.kind == "each" or n_way == 1:
        return 0.0
    if spec.kind == "present":
        return 1 - (spec.numbers[0] + spec.most_present) / 2 / n_way
    if spec.kind == "counts":
        return sum(abs(number / sum(spec.numbers) - 1 / n_way) for number in spec.numbers) / 2
    a, b = spec.numbers[0], spec.numbers[0] * (n_way - 1)
    log_beta = lgamma(a) + lgamma(b) - lgamma(a + b)
    deviation = log(2) + a * log(a) + b * log(b) - (a + b + 1) * log(a + b) - log_beta
    return n_way * exp(deviation) / 2


def draw_imbalance(results: Sequence[EvaluationResult], *, about: str = "") -> dict[str, bytes]:
    """Accuracy against imbalance: the bytes of a "png" and of an "svg" file.

    One panel per number of shots, one line per method; the kinds of queries from equal to unequal
    classes.
    """
    can_draw()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    shots = list(dict.fromkeys(result.n_shot for result in results))
    n_way = results[0].n_way
    words = sorted(
        dict.fromkeys(result.queries for result in results),
        key=lambda word: expected_imbalance(word, n_way),
    )
    names = list(dict.fromkeys(_name(result, results) for result in results))
    with rc_context(STYLE):
        size = (WIDTH * len(shots) + LEGEND, HEIGHT + HEADING)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(1, len(shots), squeeze=False, sharey=True)[0]
        for panel, n_shot in zip(panels, shots, strict=True):
            for number, name in enumerate(names):
                line = {
                    result.queries: result
                    for result in results
                    if result.n_shot == n_shot and _name(result, results) == name
                }
                _draw_line(panel, [line.get(word) for word in words], name, number)
            panel.set_title(f"{n_shot}-shot", fontsize=8.5)
            ticks = [_tick(word, n_way) for word in words]
            panel.set_xticks(range(len(words)), ticks, linespacing=1.3)
            panel.set_xlim(-0.25, len(words) - 0.75)
            panel.set_xlabel("queries and their imbalance")
            plots.style_panel(panel)
        panels[0].set_ylabel("accuracy (%)")
        names_of_lines = panels[0].get_legend_handles_labels()
        look = {"frameon": False, "handlelength": 3.2}
        figure.legend(*names_of_lines, loc="outside right center", **look)
        figure.suptitle(_heading(results, about), **TITLE)
        return plots.render_both(figure)


def _draw_line(
    panel: Any, results: Sequence[EvaluationResult | None], name: str, number: int
) -> None:
    # Ctrl-C may have left some out
    done = [(place, result) for place, result in enumerate(results) if result is not None]
    places = [place for place, _ in done]
    color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
    means = plots.draw_band(panel, places, [result for _, result in done], color)
    look = {"markersize": 4.5, "linewidth": 1.5, "linestyle": DASHES[number % len(DASHES)]}
    panel.plot(places, means, color=color, marker=marker, label=name, **look)


def _name(result: EvaluationResult, results: Sequence[EvaluationResult]) -> str:
    """The method's title, with the knobs in which it differs from others of its name."""
    alike = (result.method, result.n_shot)
    same = [each for each in results if (each.method, each.n_shot) == alike]
    own, *others = (knobs_shown(each.pipeline, each.settings) for each in (result, *same))
    varied = [knob for knob in own if len({each.get(knob) for each in others}) > 1]
    return "\n".join([result.title, *(f"{knob} {own[knob]}" for knob in varied)])


def _tick(word: str, n_way: int) -> str:
    spec = QuerySpec.parse(word)
    first = str(spec).split(":")[1] if ":" in word else ""
    kind = {
        "each": "equal",
        "counts": str(spec),
        "dirichlet": f"Dirichlet({first})",
        "present": f"{first} of {n_way} present",
    }[spec.kind]
    return f"{kind}\n{spec.total(n_way)} queries\n{100 * expected_imbalance(word, n_way):.0f} %"


def _heading(results: Sequence[EvaluationResult], about: str) -> str:
    fewest, most = (pick(result.n_episodes for result in results) for pick in (min, max))
    n = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"
    title = f"Accuracy against imbalance, {results[0].n_way}-way{', ' + about if about else ''}"
    how = f"n = {n} episodes per point, the same for every method; bands: 95 % interval of the mean"
    what = "imbalance: expected part of the queries that would change class if classes were equal"
    return f"{title}\n{how}\n{what}"
