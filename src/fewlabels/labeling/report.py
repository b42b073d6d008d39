"""report.html: the labels, how sure they are and how they were found, in one file."""

import base64
import colorsys
import html
import io
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from fewlabels import __version__
from fewlabels.io.files import write_file
from fewlabels.io.words import count, listing, percent
from fewlabels.labeling.collection import Collection
from fewlabels.labeling.journal import MODEL
from fewlabels.labeling.outcome import Outcome, Score, describe_outliers
from fewlabels.labeling.places import place
from fewlabels.labeling.suggestions import doubtful_below
from fewlabels.labeling.thumbnails import make_square

TEMPLATE = resources.files("fewlabels.labeling") / "report.html"
PART = re.compile(r"\{\{(\w+)\}\}")  # replaced in one pass: a class may be called {{map}}
SIDE = 96  # pixels of a picture: 48 on a screen of two pixels per point, about 2 kB
SHOWN = 6  # least and most certain images of each class
MOST_CLASSES = 200  # with pictures
MOST_OUTLIERS = 36  # pictures of images of no class
N_SUGGESTED = 24  # images to label first
N_GROUPS, N_NAMED = 40, 8  # groups of near-duplicates, and names of each
MOST_PAIRS = 3  # of classes that are confused most
BINS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)  # of confidence
MOST_CONFUSED = 40  # classes up to which the confusion matrix is drawn
MOST_POINTS = 1200  # of the map: more would cover one another, and make the file large
MAP_SIDE, MAP_COLUMNS, MAP_QUALITY = 72, 30, 40  # of its pictures: pixels, per row, of WebP
CURVE_SIDE, CURVE_EDGE = 220, 44  # of the reliability curve, in units of the SVG
LEAST_HIDDEN = 30  # labels that a reliability curve needs
GOLDEN = 0.61803398875  # golden ratio: steps of it around the color circle never come close


def write_report(
    path: Path,
    outcome: Outcome,
    truth: Mapping[str, str] | None = None,
    *,
    command: str = "",
    table: Path | None = None,
) -> None:
    """Write a self-contained page.

    Args:
        path: The .html file.
        outcome: The result of a labelling.
        truth: True labels by item name, where known.
        command: The command line that made it.
        table: File of all labels, to link to.
    """
    link = ""
    if table is not None:
        link = quote(Path(os.path.relpath(table.resolve(), path.resolve().parent)).as_posix())
    write_file(path, build_report(outcome, truth, command=command, link=link).encode())


def build_report(
    outcome: Outcome,
    truth: Mapping[str, str] | None = None,
    *,
    command: str = "",
    link: str = "",
) -> str:
    """The page as text; `link` is the address of the file of all labels."""
    score = None if truth is None else outcome.score(truth)
    unscored = [] if truth is None else _unscored(outcome, truth)
    parts = {
        "title": _text(outcome.inputs.collection.title),
        "facts": _facts(outcome, score),
        "advice": _text(" ".join([outcome.advice, *unscored, *outcome.similar])),
        "map": _map(outcome),
        "proportions": _proportions(outcome, score),
        "suggested": _suggested(outcome),
        "wrong": _wrong(outcome),
        "people": _people(outcome),
        "similar": _similar(outcome),
        "confusion": _pairs(outcome, truth or {})
        + ("" if score is None else _confusion(outcome, score)),
        "reliability": _reliability(outcome, truth or {}),
        "outliers": _outliers(outcome),
        "classes": _classes(outcome, truth or {}),
        "settings": _settings(outcome),
        "made": _made(command, link),
        "written": f"fewlabels {__version__}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    }
    return PART.sub(lambda found: parts[found[1]], TEMPLATE.read_text(encoding="utf-8"))


def _text(words: object) -> str:
    return html.escape(str(words))


def _made(command: str, link: str) -> str:
    """Where all labels are, and the command that made the report."""
    parts = [f'All labels: <a href="{_text(link)}">{_text(unquote(link))}</a>.'] if link else []
    parts += [f"Made by <code>{_text(command)}</code>"] if command else []
    return f'<p class="note">{" ".join(parts)}</p>' if parts else ""


def _unscored(outcome: Outcome, truth: Mapping[str, str]) -> list[str]:
    return outcome.unscored(truth).describe(outcome.inputs.collection.noun).splitlines()


def _number(text: str) -> str:
    return f'<td class="number">{text}</td>'


def _facts(outcome: Outcome, score: Score | None) -> str:
    found = outcome.summary()
    facts = [
        (f"{found['images']:,}", f"{outcome.inputs.collection.noun}s"),
        (str(len(outcome.class_names)), "classes"),
        (f"{found['given']:,}", "labels given"),
        (f"{found['labelled']:,}", "labels found"),
    ]
    if found["of_no_class"]:
        facts.append((f"{found['of_no_class']:,}", "of no class, as you said"))
    if found["left_out"]:
        facts.append((f"{found['left_out']:,}", "left out as too doubtful"))
    facts.append((f"{found['doubtful']:,}", "doubtful"))
    if outcome.outliers:
        facts.append((f"{len(outcome.outliers):,}", "perhaps none of these"))
    if outcome.estimate is not None:
        estimate = outcome.estimate
        about = "among the named classes" if outcome.outliers else "from your own labels"
        words = f"estimated accuracy, {percent(estimate.low)} to {percent(estimate.high)}, {about}"
        facts.append((f"{percent(estimate.accuracy)}", words))
    if score is not None:
        rivals = ", ".join(
            f"{name} {percent(n / score.n, 1)}" for name, n in score.n_right_rivals.items()
        )
        facts.append((f"{percent(score.accuracy, 1)}", f"right of {score.n:,} known; {rivals}"))
    return "".join(
        f"<li><b>{_text(number)}</b><span>{_text(words)}</span></li>" for number, words in facts
    )


def _proportions(outcome: Outcome, score: Score | None) -> str:
    """One row per class: images, labels given, doubtful ones; with true labels, those found right.

    The bar is the part found right, or without true labels the part that is not doubtful; the
    worst class comes first.
    """
    n_way = len(outcome.class_names)
    listed = ~outcome.of_no_class
    listed[outcome.inputs.n_listed :] = False
    labels, known = outcome.answer.labels[listed], outcome.numbers[listed] >= 0
    sizes = np.bincount(labels, minlength=n_way)
    given = np.bincount(outcome.numbers[outcome.numbers >= 0], minlength=n_way)
    limit = doubtful_below(outcome.estimate)
    unsure = (outcome.answer.confidences < limit)[listed] & ~known
    doubtful = np.bincount(labels[unsure], minlength=n_way)
    found = sizes - np.bincount(labels[known], minlength=n_way)
    if score is None:
        n, of = found - doubtful, found
    else:
        n, of = score.confusion.diagonal(), score.confusion.sum(axis=1)
    part = np.where(of > 0, n / np.maximum(of, 1), 1.0)
    rows = []
    for number in np.argsort(part, kind="stable").tolist():
        share = f"{percent(part[number])}" if of[number] else "–"
        meter = f'<meter min="0" max="1" value="{part[number]:.3f}">{share}</meter>'
        rows.append(
            f'<tr><th scope="row"><i style="background:{color(number)}"></i>'
            f"{_text(outcome.class_names[number])}</th>"
            f"{_number(f'{sizes[number]:,}')}"
            f"{_number(f'{outcome.sizes[number].low:,} – {outcome.sizes[number].high:,}')}"
            f"{_number(f'{given[number]:,}')}"
            f"{_number(f'{doubtful[number]:,}')}{_number(share)}"
            f'<td class="bar">{meter}</td></tr>'
        )
    what = "not doubtful" if score is None else "found right"
    noun = outcome.inputs.collection.noun
    columns = "".join(
        f'<th scope="col" class="number">{head}</th>'
        for head in (f"{noun}s", "probably", "given", "doubtful", what)
    )
    return (
        f'<table class="sizes"><thead><tr><th scope="col">class</th>{columns}'
        f'<td class="bar"></td></tr></thead><tbody>{"".join(rows)}</tbody></table>'
    )


def _suggested(outcome: Outcome) -> str:
    """The images to label first, with their names."""
    place = outcome.inputs.collection.rows
    labels, sure = outcome.answer.labels, outcome.answer.confidences
    rows = [place[name] for name in outcome.suggest(N_SUGGESTED)]
    note = (
        "Uncertain, typical of many, and different from each other: their labels help most. "
        "<code>fewlabels serve</code> shows them on a page."
    )
    found = [(row, float(sure[row]), outcome.class_names[labels[row]]) for row in rows]
    return _pictures("Label these first", note, outcome, found)


def _wrong(outcome: Outcome) -> str:
    """Given labels that the model contradicts, with the class that it sees there."""
    note = (
        "With its own label hidden, each of these looks like another class, named below it. "
        "Look at them again; the model may be wrong too."
    )
    found = []
    for row, number, confidence in outcome.contradictions[:N_SUGGESTED]:
        given = outcome.class_names[outcome.numbers[row]]
        found.append((row, confidence, f"{outcome.class_names[number]}, not {given}"))
    return _pictures("Labels that may be wrong", note, outcome, found)


def _people(outcome: Outcome) -> str:
    """Who decided, how well each pair agrees, and images that they decided differently."""
    found = outcome.inputs.agreement
    if found is None or not found.pairs:
        return ""
    people = ", ".join(f"{_text(name)} {n:,}" for name, n in found.n_decided.items())
    rows = "".join(
        f'<tr><th scope="row">{_text(pair.first)} and {_text(pair.second)}</th>'
        f"{_number(f'{pair.n:,}')}{_number(percent(pair.n_same / pair.n))}"
        f"{_number('–' if pair.kappa is None else f'{pair.kappa:.2f}')}</tr>"
        for pair in found.pairs
    )
    heads = "".join(
        f'<th scope="col" class="number">{head}</th>'
        for head in ("decided by both", "equal", "Cohen's kappa")
    )
    place = outcome.inputs.collection.rows
    shown = [each for each in found.disagreements if each.path in place]
    figures = []
    for each in shown[:N_SUGGESTED]:
        said = "<br>".join(
            f"{_text(person)}: {_text(label)}" for person, label in each.opinions.items()
        )
        now = "open" if each.is_open else _text(each.label or "no label")
        picture = _shown(outcome.inputs.collection, place[each.path])
        caption = f"<figcaption><b>{now}</b>{said}<br>{_text(each.path)}</figcaption>"
        figures.append(f'<figure title="{_text(each.path)}">{picture}{caption}</figure>')
    of = f" {N_SUGGESTED} of {len(shown):,} are shown." if len(shown) > N_SUGGESTED else ""
    words = (
        f"{count(len(shown), 'item')} decided differently; the label that counts is in bold.{of}"
    )
    return (
        f'<section><h2>People</h2><p class="note">Decided: {people}. Kappa is agreement '
        "beyond chance: 1 is perfect, 0 is chance. It is a fair measure only if nobody saw the "
        "labels of the other.</p>"
        f'<table><thead><tr><th scope="col">people</th>{heads}</tr></thead><tbody>{rows}</tbody>'
        f'</table><p class="note">{words}</p><div class="outliers">{"".join(figures)}</div>'
        "</section>"
    )


def _similar(outcome: Outcome) -> str:
    """The names of near-duplicates and bursts, a line per group."""
    groups, names = outcome.similar_groups, outcome.inputs.collection.names
    if not groups:
        return ""
    lines = [
        f"<li>{_text(listing([names[row] for row in rows], most=N_NAMED))}</li>"
        for rows in groups[:N_GROUPS]
    ]
    of = f" The largest {N_GROUPS} are shown." if len(groups) > N_GROUPS else ""
    return (
        f'<section><h2>Near-duplicates and bursts</h2><p class="note">'
        f"{count(len(groups), 'group')}.{of}</p><ul>{''.join(lines)}</ul></section>"
    )


def _pictures(
    title: str, note: str, outcome: Outcome, found: Sequence[tuple[int, float, str]]
) -> str:
    """A section of pictures with a confidence, words and the name below each; empty without any."""
    if not found:
        return ""
    figures = []
    for row, confidence, words in found:
        name, sure = outcome.inputs.collection.names[row], f"{percent(confidence)}"
        caption = f"<figcaption><b>{sure}</b> {_text(words)}<br>{_text(name)}</figcaption>"
        shown = _shown(outcome.inputs.collection, row)
        tip = _text(f"{_called(outcome.inputs.collection, row)} · {words} · {sure}")
        figures.append(f'<figure title="{tip}">{shown}{caption}</figure>')
    return (
        f'<section><h2>{title}</h2><p class="note">{note}</p>'
        f'<div class="outliers">{"".join(figures)}</div></section>'
    )


def _pairs(outcome: Outcome, truth: Mapping[str, str]) -> str:
    """The pairs of classes that are confused most, in words and pictures.

    With true labels by errors, without by doubtful images that are between the two.
    """
    names, labels = outcome.class_names, outcome.answer.top_two[0]
    doubtful = outcome.answer.confidences < doubtful_below(outcome.estimate)
    found: dict[tuple[str, str], list[int]] = {}
    for row, item in enumerate(outcome.rows):
        if item.origin != MODEL:
            continue
        second = truth.get(item.path, item.label) if truth else names[labels[row, 1]]
        wrong = second != item.label and second in names if truth else bool(doubtful[row])
        if wrong:
            first, last = sorted((item.label, second))
            found.setdefault((first, last), []).append(row)
    total, kind = sum(map(len, found.values())), "error" if truth else "doubtful label"
    parts = []
    for pair in sorted(found, key=lambda each: -len(found[each]))[:MOST_PAIRS]:
        rows = found[pair]
        words = f"{count(len(rows), kind)} of {total:,}: {_text(pair[0])} or {_text(pair[1])}"
        parts.append(_strip(words, np.array(rows[:SHOWN]), outcome, truth))
    if not parts:
        return ""
    return (
        '<section><h2>Confused most</h2><p class="note">Label more of these classes, or '
        f'merge them if they are the same to you.</p><div class="pairs">{"".join(parts)}</div>'
        "</section>"
    )


def _reliability(outcome: Outcome, truth: Mapping[str, str]) -> str:
    """Whether labels are right as often as their confidence says.

    By true labels; without them by the given ones, each hidden once, if there are enough.
    """
    scored = [row for row in outcome.rows if row.origin == MODEL and row.path in truth]
    sure = np.array([row.confidence for row in scored])
    right = np.array([truth[row.path] == row.label for row in scored])
    whose = "of the labels found"
    if not scored:
        sure, right = _hidden(outcome)
        whose = "of your own labels, each hidden once"
        if len(sure) < LEAST_HIDDEN:
            return ""
    bins = np.searchsorted(BINS[1:-1], sure, side="right")
    rows, points = [], []
    for number, (low, high) in enumerate(pairwise(BINS)):
        n = int((bins == number).sum())
        if n:
            mean, part = float(sure[bins == number].mean()), float(right[bins == number].mean())
            points.append((mean, part, n))
            rows.append(
                f'<tr><th scope="row">{percent(low)} to {percent(high)}</th>{_number(f"{n:,}")}'
                f"{_number(f'{percent(mean)}')}{_number(f'{percent(part)}')}</tr>"
            )
    columns = "".join(
        f'<th scope="col" class="number">{head}</th>' for head in ("labels", "mean", "right")
    )
    return (
        '<section><h2>Confidence and truth</h2><p class="note">Labels should be right as often as '
        f"their confidence says: points on the dashed line. Confidences {whose}.</p>"
        f'<div class="sides">{_curve(points)}<table><thead><tr><th scope="col">confidence</th>'
        f"{columns}</tr></thead><tbody>{''.join(rows)}</tbody></table></div></section>"
    )


def _hidden(outcome: Outcome) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Confidences of given labels as predicted while they were hidden, and which are right."""
    fitted = outcome.answer.fitted
    if fitted is None or fitted.assignment is None or fitted.assignment.held_out is None:
        return np.empty(0), np.empty(0, dtype=bool)
    held_out = fitted.assignment.held_out[0].double().numpy()
    given = outcome.numbers[outcome.numbers >= 0]
    known = ~np.isnan(held_out).any(axis=1)
    return held_out[known].max(axis=1), held_out[known].argmax(axis=1) == given[known]


def _curve(points: Sequence[tuple[float, float, int]]) -> str:
    """A reliability curve: confidence across, part that is right upwards."""
    side, edge = CURVE_SIDE, CURVE_EDGE

    def at(x: float, y: float) -> tuple[float, float]:
        return edge + x * side, 8 + (1 - y) * side

    ends = (at(0, 0), at(1, 1))
    dashed = f'<path class="ideal" d="M{ends[0][0]} {ends[0][1]}L{ends[1][0]} {ends[1][1]}"/>'
    places = [at(mean, part) for mean, part, _ in points]
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    most = max(n for _, _, n in points)
    marks = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{3 + 4 * (n / most) ** 0.5:.1f}"/>'
        for (x, y), (_, _, n) in zip(places, points, strict=True)
    )
    ticks = "".join(
        f'<text x="{at(part, 0)[0]}" y="{side + 24}" text-anchor="middle">{percent(part)}</text>'
        f'<text x="{edge - 6}" y="{at(0, part)[1] + 4}" text-anchor="end">{percent(part)}</text>'
        for part in (0, 0.5, 1)
    )
    frame = f'<rect x="{edge}" y="8" width="{side}" height="{side}"/>'
    return (
        f'<svg class="curve" viewBox="0 0 {side + edge + 20} {side + 46}" role="img" '
        f'aria-label="Reliability curve">{frame}{dashed}<path d="M{line}"/>{marks}{ticks}'
        f'<text x="{edge + side / 2}" y="{side + 42}" text-anchor="middle">confidence</text></svg>'
    )


def _confusion(outcome: Outcome, score: Score) -> str:
    if len(outcome.class_names) > MOST_CONFUSED:
        return f"<p>The matrix is drawn for up to {MOST_CONFUSED} classes.</p>"
    names = [_text(name) for name in outcome.class_names]
    rates = score.confusion / np.maximum(score.confusion.sum(axis=1, keepdims=True), 1)
    columns = "".join(f'<th scope="col" title="{name}"><span>{name}</span></th>' for name in names)
    rows = []
    for row, name in enumerate(names):
        cells = "".join(
            _cell(int(n), float(rate), right=column == row)
            for column, (n, rate) in enumerate(zip(score.confusion[row], rates[row], strict=True))
        )
        rows.append(f'<tr><th scope="row" title="{name}">{name}</th>{cells}</tr>')
    note = "Rows are true classes, columns predicted ones; labels that were given are left out."
    return (
        f'<section><h2>Confusions</h2><p class="note">{note}</p>'
        '<div class="scroll" tabindex="0" role="group" aria-label="Confusions">'
        f'<table class="confusion"><thead><tr><td></td>{columns}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></section>"
    )


def _cell(n: int, rate: float, *, right: bool) -> str:
    if not n:
        return "<td></td>"
    return f'<td class="{"right" if right else "wrong"}" style="--rate:{rate:.2f}">{n}</td>'


def _outliers(outcome: Outcome) -> str:
    """The images that look like no class, where they were asked for."""
    probabilities = outcome.none_of_these
    if probabilities is None:
        return ""
    found, heading = outcome.outliers, "<h2>Perhaps none of these</h2>"
    noun = outcome.inputs.collection.noun
    if not found:
        return f'<section>{heading}<p class="note">{describe_outliers(0, noun)}</p></section>'
    note = (
        f"These {noun}s probably belong to none of the classes, the most probable first. "
        "Below each: this probability, and the label that it got."
    )
    if len(found) > MOST_OUTLIERS:
        note += f" {MOST_OUTLIERS} of {len(found):,} are shown."
    figures = "".join(_outlier(row, outcome, probabilities[row]) for row in found[:MOST_OUTLIERS])
    return (
        f'<section>{heading}<p class="note">{note}</p>'
        f'<div class="outliers">{figures}</div></section>'
    )


def _outlier(row: int, outcome: Outcome, probability: float) -> str:
    collection = outcome.inputs.collection
    label = outcome.rows[row].label or "left out"
    title = f"{collection.names[row]} · {label} · none of these: {percent(probability, 1)}"
    caption = f"<figcaption><b>{percent(probability)}</b> {_text(label)}</figcaption>"
    return f'<figure title="{_text(title)}">{_shown(collection, row)}{caption}</figure>'


def _classes(outcome: Outcome, truth: Mapping[str, str]) -> str:
    labels, sure = outcome.answer.labels, outcome.answer.confidences
    by_model = np.array([row.origin == MODEL or not row.origin for row in outcome.rows])
    sections = []
    for number, name in enumerate(outcome.class_names[:MOST_CLASSES]):
        mine = np.flatnonzero((labels[: len(by_model)] == number) & by_model)
        order = mine[np.argsort(sure[mine], kind="stable")]
        least, most = order[:SHOWN], order[max(SHOWN, len(order) - SHOWN) :][::-1]
        swatch = f'<i style="background:{color(number)}"></i>'
        sections.append(
            f"<article><h3>{swatch}{_text(name)} <small>{len(mine):,} found</small></h3>"
            f"{_strip('least certain', least, outcome, truth)}"
            f"{_strip('most certain', most, outcome, truth)}</article>"
        )
    return "".join(sections)


def _strip(title: str, rows: NDArray[np.int64], outcome: Outcome, truth: Mapping[str, str]) -> str:
    if not len(rows):
        return ""
    figures = "".join(_figure(int(row), outcome, truth) for row in rows)
    return f'<p class="note">{title}</p><div class="strip">{figures}</div>'


def _figure(row: int, outcome: Outcome, truth: Mapping[str, str]) -> str:
    collection, sure = outcome.inputs.collection, float(outcome.answer.confidences[row])
    name = collection.names[row]
    label = outcome.class_names[outcome.answer.labels[row]]
    wrong = truth.get(name, label) != label
    title = f"{_called(collection, row)} · {percent(sure, 1)}" + (
        f" · truth: {truth[name]}" if wrong else ""
    )
    return (
        f'<figure{" class=wrong" if wrong else ""} title="{_text(title)}">'
        f"{_shown(collection, row)}<figcaption>{percent(sure)}</figcaption></figure>"
    )


def _called(collection: Collection, row: int) -> str:
    """The name of an item, and its text where it has one."""
    name = collection.names[row]
    return name if collection.texts is None else f"{name}: {collection.describe(row)}"


def _shown(collection: Collection, row: int) -> str:
    """The picture, or the text or the name where there is none."""
    name, picture = _text(collection.describe(row)), _picture(collection, row)
    return f'<img alt="{name}" src="{picture}">' if picture else f"<span>{name}</span>"


def _picture(collection: Collection, row: int) -> str:
    picture = collection.picture(row)
    if picture is None:
        return ""
    content = make_square(picture, side=SIDE)
    return "data:image/webp;base64," + base64.b64encode(content).decode()


def _settings(outcome: Outcome) -> str:
    found = outcome.summary()
    settings = {
        "method": found["method"],
        "pipeline": found["pipeline"],
        **({} if found["lam"] is None else {"sharpness (lam)": f"{found['lam']:g}"}),
        **found["features"],
    }
    return "".join(
        f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in settings.items()
    )


def _map(outcome: Outcome) -> str:
    """A point per image; its picture appears when the pointer is on it. Needs no script."""
    collection, n = outcome.inputs.collection, len(outcome.answer.labels)
    chosen = np.arange(n)
    if n > MOST_POINTS:  # all given labels that fit, and a sample of the others
        order = np.random.default_rng(0).permutation(n)
        order = order[np.argsort(outcome.numbers[order] < 0, kind="stable")]
        chosen = np.sort(order[:MOST_POINTS])
    points = place(outcome.vectors)
    marks = []
    for number, row in enumerate(chosen.tolist()):
        label = outcome.answer.labels[row]
        words = "none of these" if outcome.of_no_class[row] else outcome.class_names[label]
        down, across = divmod(number, MAP_COLUMNS)
        given = ' class="given"' if outcome.numbers[row] >= 0 else ""
        title = _text(f"{_called(collection, row)} · {words}")
        marks.append(
            f'<b{given} style="left:{100 * points[row, 0]:.1f}%;'
            f"bottom:{100 * points[row, 1]:.1f}%;background-color:{color(label)};"
            f'--x:{across};--y:{down}" title="{title}"></b>'
        )
    pictures = _mosaic(collection, chosen.tolist())
    style = f"<style>.map b::after{{background-image:url({pictures})}}</style>" if pictures else ""
    noun = collection.noun
    words = f"{len(chosen):,} of {n:,}" if len(chosen) < n else "All"
    words += f" {noun}s as points"
    return f'{style}<div class="map" role="img" aria-label="{words}">{"".join(marks)}</div>'


def _mosaic(collection: Collection, rows: Sequence[int]) -> str:
    """The pictures of rows side by side in one image; "" if there are none."""
    if collection.images is None:
        return ""
    height = -(-len(rows) // MAP_COLUMNS) * MAP_SIDE
    whole = Image.new("RGB", (MAP_COLUMNS * MAP_SIDE, height), "#888888")
    for number, row in enumerate(rows):
        if (picture := collection.picture(row)) is not None:  # what is not there stays grey
            square = ImageOps.fit(picture, (MAP_SIDE, MAP_SIDE))
            corner = (number % MAP_COLUMNS * MAP_SIDE, number // MAP_COLUMNS * MAP_SIDE)
            whole.paste(square.convert("RGB"), corner)
    buffer = io.BytesIO()
    whole.save(buffer, "WEBP", quality=MAP_QUALITY)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()


def color(number: int) -> str:
    """The color of a class, the same in the page, the report and the map.

    >>> color(0), color(1)
    ('#4f86e0', '#9fc94a')
    """
    hue = (0.604 + number * GOLDEN) % 1
    lightness, saturation = ((0.595, 0.70), (0.54, 0.54), (0.66, 0.62))[number % 3]
    red, green, blue = colorsys.hls_to_rgb(hue, lightness, saturation)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"
