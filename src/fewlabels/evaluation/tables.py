"""Results as tables of texts, in Markdown and in LaTeX; the command line prints them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from fewlabels.evaluation.comparison import Comparison
from fewlabels.evaluation.curves import Tuning
from fewlabels.evaluation.queries import QuerySpec
from fewlabels.evaluation.results import EvaluationResult
from fewlabels.evaluation.settings import knobs_changed, knobs_shown
from fewlabels.methods.base import all_knobs

NONE = "–"  # in a cell without a value
TEXT_COLUMNS = (  # the others hold numbers and are aligned right
    *("method", "queries", "knob", "", "dataset", "backbone", "class", "pt", "curve", "fitted"),
    *("claim", "where", "verdict", "name", "what", "needs", "setting"),
    *("notation", "description", "paper", "argument", "used in Tables 2 to 8", "step", "symbols"),
)

_NUMBER = re.compile(r"([+-]?)([\d.,]+)(?: ± ([\d.]+))?")
_LATEX = {mark: f"\\{mark}" for mark in "&%$#_"}
_LATEX |= {"±": r"$\pm$", "–": "--", "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}"}
_LATEX |= {"^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "≤": r"$\le$", "×": r"$\times$"}
_LATEX |= {"→": r"$\to$", "←": r"$\leftarrow$", "∪": r"$\cup$", "∈": r"$\in$", "‖": r"$\|$"}
_LATEX |= {"α": r"$\alpha$", "β": r"$\beta$", "ε": r"$\epsilon$", "λ": r"$\lambda$", "μ": r"$\mu$"}
_LATEX |= {"ℝ": "$R$", "₊": "$_+$"}


@dataclass(frozen=True)
class Table:
    """Rows of texts; a line is drawn between sections."""

    title: str
    header: tuple[str, ...]
    sections: Sequence[Sequence[tuple[str, ...]]]
    caption: str


def tabulate_results(results: Sequence[EvaluationResult], *, about: str) -> Table:
    """Accuracies of methods, with the settings that vary among them."""
    knobs, shown = _varied_knobs(results), _queries_vary(results)
    header = ("method", *knobs, "shots", *shown, "accuracy", "episodes", "seconds")
    rows = []
    for result in results:
        kind = (*_knob_cells(result, knobs), str(result.n_shot))
        queries = [result.queries] if shown else []
        accuracy = interval(result.accuracy, result.ci95)
        how_long = (f"{result.n_episodes:,}", f"{result.seconds:.1f}")
        rows.append((result.title, *kind, *queries, accuracy, *how_long))
    caption = f"{_changes(results, knobs)}{_draws(results)}; accuracy in %, mean ± 95 % interval"
    return Table(_title(results, about), header, _sections(rows, results), caption)


def tabulate_comparisons(comparisons: Sequence[Comparison], *, about: str) -> Table:
    """Methods with their paired differences from the baseline."""
    results = [each.result for each in comparisons]
    knobs, shown = _varied_knobs(results), _queries_vary(results)
    rows = []
    for each in comparisons:
        result = each.result
        which = [str(result.n_shot), *([result.queries] if shown else []), result.title]
        gap = interval(each.difference, each.ci95, sign="+")
        parts = [f"{100 * part:.0f}" for part in (each.win, each.tie, each.loss)]
        paired = ["baseline", *[NONE] * 3] if each.is_baseline else [gap, *parts]
        accuracy = interval(result.accuracy, result.ci95)
        rows.append((*which, *_knob_cells(result, knobs), accuracy, *paired))
    n_episodes = min(result.n_episodes for result in results)
    caption = (
        f"{_changes(results, knobs)}{n_episodes:,} episodes, {_draws(results)}; "
        "accuracy in %, mean ± 95 % interval; "
        f"difference to {comparisons[0].baseline.title} in points, paired; "
        "won, tied and lost in % of the episodes"
    )
    header = ("shots", *shown, "method", *knobs, "accuracy", "difference", "won", "tied", "lost")
    return Table(_title(results, about), header, _sections(rows, results), caption)


def tabulate_tuning(tuning: Tuning, *, about: str) -> Table:
    """The curves of a tuning, one section per knob."""
    with_novel = any(curve.novel for curve in tuning.curves)
    sections = []
    for curve in tuning.curves:
        columns = [[interval(each.accuracy, each.ci95) for each in curve.validation]]
        if with_novel:
            novel = [interval(each.accuracy, each.ci95) for each in curve.novel]
            columns.append(novel or [NONE] * len(curve.values))
        chosen = ["chosen" if value == curve.choice else "" for value in curve.values]
        values = [f"{value:g}" for value in curve.values]
        rows = zip(values, *columns, chosen, strict=True)
        sections.append([(curve.knob, *row) for row in rows])
    results = [tuning.result]
    n_episodes = f"{tuning.result.n_episodes:,} episodes"
    caption = f"{n_episodes}, {_draws(results)}; accuracy in %, mean ± 95 % interval"
    header = ("knob", "value", "validation", *(["novel"] if with_novel else []), "")
    title = f"{tuning.result.title}, {tuning.n_shot}-shot, {_title(results, about)}"
    return Table(title, header, sections, caption)


def to_markdown(table: Table) -> str:
    """A pipe table, with the caption below."""
    rows = [row for section in table.sections for row in section]
    rule = [":--" if name in TEXT_COLUMNS else "--:" for name in table.header]
    lines = [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
        for row in (table.header, rule, *rows)
    ]
    return "\n".join([f"**{table.title}**", "", *lines, "", table.caption])


def to_latex(table: Table) -> str:
    """A booktabs tabular, with title and caption as comments above."""
    columns = "".join("l" if name in TEXT_COLUMNS else "r" for name in table.header)
    sections = [
        "\n".join(_latex_row(row, _latex_cell) for row in section) for section in table.sections
    ]
    head = [f"% {table.title}", f"% {table.caption}"]
    begin = rf"\begin{{tabular}}{{{columns}}}  % needs \usepackage{{booktabs}}"
    head += [begin, r"\toprule", _latex_row(table.header, _latex_text), r"\midrule"]
    return "\n".join([*head, "\n\\midrule\n".join(sections), r"\bottomrule", r"\end{tabular}"])


def interval(value: float, half: float, *, sign: str = "") -> str:
    """A mean and the half-width of its interval, where there is one.

    >>> interval(3.14159, 0.5, sign="+"), interval(2.0, float("nan"))
    ('+3.14 ± 0.50', '2.00')
    """
    return f"{value:{sign}.2f}" + (f" ± {half:.2f}" if half == half else "")


def describe_queries(word: str) -> str:
    """The word of a QuerySpec in a title.

    >>> describe_queries("15"), describe_queries("dirichlet:2:75")
    ('15 queries per class', 'queries dirichlet:2:75')
    """
    each = QuerySpec.parse(word).kind == "each"
    return f"{word} queries per class" if each else f"queries {word}"


def _title(results: Sequence[EvaluationResult], about: str) -> str:
    queries = [] if _queries_vary(results) else [describe_queries(results[0].queries)]
    return ", ".join([f"{results[0].n_way}-way", *queries, *([about] if about else [])])


def _draws(results: Sequence[EvaluationResult]) -> str:
    return f"{results[0].provenance['draws']} draws, seed {results[0].provenance['seed']}"


def _sections(
    rows: Sequence[tuple[str, ...]], results: Sequence[EvaluationResult]
) -> list[list[tuple[str, ...]]]:
    """Rows by kind of episode."""
    paired = zip(rows, results, strict=True)
    return [
        [row for row, _ in group]
        for _, group in groupby(paired, key=lambda pair: (pair[1].n_shot, pair[1].queries))
    ]


def _queries_vary(results: Sequence[EvaluationResult]) -> list[str]:
    return ["queries"] if len({result.queries for result in results}) > 1 else []


def _varied_knobs(results: Sequence[EvaluationResult]) -> list[str]:
    """Knobs with several values for one method and one number of shots."""
    seen: dict[tuple[str, int, str], set[str]] = {}
    for result in results:
        for knob, value in knobs_shown(result.pipeline, result.settings).items():
            seen.setdefault((result.method, result.n_shot, knob), set()).add(value)
    return [
        knob
        for knob in all_knobs()
        if any(len(values) > 1 for (_, _, name), values in seen.items() if name == knob)
    ]


def _changes(results: Sequence[EvaluationResult], columns: Sequence[str]) -> str:
    """Knobs and pipelines that are not the method's own and have no column: "PT+MAP: lam 3; "."""
    shown: dict[str, dict[int, str]] = {}
    for result in results:
        dataset = result.provenance.get("features", {}).get("dataset")
        changed = knobs_changed(
            result.method, result.pipeline, result.settings, n_shot=result.n_shot, dataset=dataset
        )
        words = ", ".join(f"{knob} {word}" for knob, word in changed.items() if knob not in columns)
        shown.setdefault(result.title, {}).setdefault(result.n_shot, words)
    lines = []
    for title, by_shots in shown.items():
        if len(set(by_shots.values())) == 1:
            lines.append((title, by_shots.popitem()[1]))
        else:
            lines += [(f"{title} {n_shot}-shot", words) for n_shot, words in by_shots.items()]
    return "".join(f"{which}: {words}; " for which, words in lines if words)


def _knob_cells(result: EvaluationResult, knobs: Sequence[str]) -> list[str]:
    used = knobs_shown(result.pipeline, result.settings)
    return [used.get(knob, NONE) for knob in knobs]


def _latex_row(cells: Sequence[str], write: Callable[[str], str]) -> str:
    return " & ".join(write(cell) for cell in cells) + r" \\"


def _latex_cell(cell: str) -> str:
    match = _NUMBER.fullmatch(cell)
    if match is None:
        return _latex_text(cell)
    sign, value, half = match.groups()
    value = value.replace(",", "{,}")
    return f"${sign}{value}$" if half is None else rf"${sign}{value} \pm {half}$"


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
