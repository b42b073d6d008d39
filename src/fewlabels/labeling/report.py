"""report.html: the labels, how sure they are and how they were found, in one file."""

import base64
import colorsys
import html
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fewlabels import __version__
from fewlabels.errors import FewLabelsError
from fewlabels.fitting import Rows
from fewlabels.io.files import write_file
from fewlabels.io.words import count
from fewlabels.labeling.collection import Collection
from fewlabels.labeling.journal import MODEL
from fewlabels.labeling.outcome import Outcome, Score, describe_outliers
from fewlabels.labeling.suggestions import doubtful_below
from fewlabels.labeling.thumbnails import make_square

TEMPLATE = resources.files("fewlabels.labeling") / "report.html"
PART = re.compile(r"\{\{(\w+)\}\}")  # replaced in one pass: a class may be called {{map}}
SIDE = 96  # pixels of a picture: 48 on a screen of two pixels per point, about 2 kB
SHOWN = 6  # least and most certain images of each class
MOST_CLASSES = 200  # with pictures
MOST_OUTLIERS = 36  # pictures of images of no class
N_SUGGESTED = 24  # images to label first
MOST_PAIRS = 3  # of classes that are confused most
BINS = (0.0, 0.5, 0.8, 0.95, 1.0)  # of confidence
MOST_CONFUSED = 40  # classes up to which the confusion matrix is drawn
MOST_POINTS = 4000  # of the map: more would cover one another, and make the file large
WIDTH, HEIGHT, MARGIN = 720, 460, 14  # of the map, in units of the SVG
GOLDEN = 0.61803398875  # golden ratio: steps of it around the color circle never come close


def write_report(path: Path, outcome: Outcome, truth: Mapping[str, str] | None = None) -> None:
    """Write a self-contained page.

    Args:
        path: The .html file.
        outcome: The result of a labelling.
        truth: True labels by item name, where known.
    """
    write_file(path, build_report(outcome, truth).encode())


def build_report(outcome: Outcome, truth: Mapping[str, str] | None = None) -> str:
    """The page as text."""
    score = None if truth is None else outcome.score(truth)
    unscored = [] if truth is None else outcome.unscored(truth).describe().splitlines()
    parts = {
        "title": _text(outcome.inputs.collection.title),
        "facts": _facts(outcome, score),
        "advice": _text(" ".join([outcome.advice, *unscored])),
        "map": _map(outcome),
        "proportions": _proportions(outcome, score),
        "suggested": _suggested(outcome),
        "wrong": _wrong(outcome),
        "confusion": ""
        if score is None
        else _pairs(outcome, truth or {}) + _confusion(outcome, score),
        "reliability": _reliability(outcome, truth or {}),
        "outliers": _outliers(outcome),
        "classes": _classes(outcome, truth or {}),
        "settings": _settings(outcome),
        "written": f"fewlabels {__version__}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    }
    return PART.sub(lambda found: parts[found[1]], TEMPLATE.read_text(encoding="utf-8"))


def _text(words: object) -> str:
    return html.escape(str(words))


def _number(text: str) -> str:
    return f'<td class="number">{text}</td>'


def _facts(outcome: Outcome, score: Score | None) -> str:
    found = outcome.summary()
    facts = [
        (f"{found['images']:,}", "images"),
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
        words = f"estimated accuracy, {estimate.low:.0%} to {estimate.high:.0%}, {about}"
        facts.append((f"{estimate.accuracy:.0%}", words))
    if score is not None:
        rivals = ", ".join(f"{name} {n / score.n:.1%}" for name, n in score.n_right_rivals.items())
        facts.append((f"{score.accuracy:.1%}", f"right of {score.n:,} known; {rivals}"))
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
        share = f"{part[number]:.0%}" if of[number] else "–"
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
    columns = "".join(
        f'<th scope="col" class="number">{head}</th>'
        for head in ("images", "probably", "given", "doubtful", what)
    )
    return (
        f'<table><thead><tr><th scope="col">class</th>{columns}<td class="bar"></td></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
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


def _pictures(
    title: str, note: str, outcome: Outcome, found: Sequence[tuple[int, float, str]]
) -> str:
    """A section of pictures with a confidence, words and the name below each; empty without any."""
    if not found:
        return ""
    figures = []
    for row, confidence, words in found:
        name, sure = outcome.inputs.collection.names[row], f"{confidence:.0%}"
        caption = f"<figcaption><b>{sure}</b> {_text(words)}<br>{_text(name)}</figcaption>"
        shown = _shown(outcome.inputs.collection, row)
        tip = _text(f"{name} · {words} · {sure}")
        figures.append(f'<figure title="{tip}">{shown}{caption}</figure>')
    return (
        f'<section><h2>{title}</h2><p class="note">{note}</p>'
        f'<div class="outliers">{"".join(figures)}</div></section>'
    )


def _pairs(outcome: Outcome, truth: Mapping[str, str]) -> str:
    """The pairs of classes that are confused most, in words and pictures."""
    wrong: dict[tuple[str, str], list[int]] = {}
    for row, item in enumerate(outcome.rows):
        true = truth.get(item.path, item.label)
        if item.origin == MODEL and true != item.label and true in outcome.class_names:
            first, second = sorted((true, item.label))
            wrong.setdefault((first, second), []).append(row)
    n_wrong = sum(map(len, wrong.values()))
    parts = []
    for pair in sorted(wrong, key=lambda each: -len(wrong[each]))[:MOST_PAIRS]:
        first, second = map(_text, pair)
        words = f"{count(len(wrong[pair]), 'error')} of {n_wrong:,}: {first} and {second}"
        parts.append(_strip(words, np.array(wrong[pair][:SHOWN]), outcome, truth))
    if not parts:
        return ""
    return (
        '<section><h2>Confused most</h2><p class="note">Label more images of these classes, or '
        f'merge them if they are the same to you.</p><div class="pairs">{"".join(parts)}</div>'
        "</section>"
    )


def _reliability(outcome: Outcome, truth: Mapping[str, str]) -> str:
    """Whether labels are right as often as their confidence says, with true labels."""
    scored = [row for row in outcome.rows if row.origin == MODEL and row.path in truth]
    if not scored:
        return ""
    sure = np.array([row.confidence for row in scored])
    right = np.array([truth[row.path] == row.label for row in scored])
    bins = np.searchsorted(BINS[1:-1], sure, side="right")
    rows = []
    for number, (low, high) in enumerate(pairwise(BINS)):
        n = int((bins == number).sum())
        if n:
            mean, part = sure[bins == number].mean(), right[bins == number].mean()
            rows.append(
                f'<tr><th scope="row">{low:.0%} to {high:.0%}</th>{_number(f"{n:,}")}'
                f"{_number(f'{mean:.0%}')}{_number(f'{part:.0%}')}"
                f'<td class="bar"><meter min="0" max="1" value="{part:.3f}">{part:.0%}</meter></td>'
                "</tr>"
            )
    columns = "".join(
        f'<th scope="col" class="number">{head}</th>' for head in ("images", "mean", "right")
    )
    return (
        '<section><h2>Confidence and truth</h2><p class="note">Labels should be right as often as '
        "their mean confidence says.</p>"
        f'<table><thead><tr><th scope="col">confidence</th>{columns}<td class="bar"></td></tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table></section>"
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
        f'<section><h2>Confusions</h2><p class="note">{note}</p><div class="scroll">'
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
    if not found:
        return f'<section>{heading}<p class="note">{describe_outliers(0)}</p></section>'
    note = (
        "These images probably belong to none of the classes, the most probable first. "
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
    title = f"{collection.names[row]} · {label} · none of these: {probability:.1%}"
    caption = f"<figcaption><b>{probability:.0%}</b> {_text(label)}</figcaption>"
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
    title = f"{name} · {sure:.1%}" + (f" · truth: {truth[name]}" if wrong else "")
    return (
        f'<figure{" class=wrong" if wrong else ""} title="{_text(title)}">'
        f"{_shown(collection, row)}<figcaption>{sure:.0%}</figcaption></figure>"
    )


def _shown(collection: Collection, row: int) -> str:
    """The picture, or its name where there is none."""
    name, picture = _text(collection.names[row]), _picture(collection, row)
    return f'<img alt="{name}" src="{picture}">' if picture else f"<span>{name}</span>"


def _picture(collection: Collection, row: int) -> str:
    if collection.images is None:
        return ""
    try:
        content = make_square(collection.images.read(row), side=SIDE)
    except FewLabelsError:
        return ""
    return "data:image/webp;base64," + base64.b64encode(content).decode()


def _settings(outcome: Outcome) -> str:
    found = outcome.summary()
    settings = {
        "method": found["method"],
        "pipeline": found["pipeline"],
        "sharpness (lam)": f"{found['lam']:g}",
        **found["features"],
    }
    return "".join(
        f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in settings.items()
    )


def _map(outcome: Outcome) -> str:
    labels = outcome.answer.labels.tolist()
    titles = [
        _text(f"{name} · {'none of these' if none else outcome.class_names[label]}")
        for name, label, none in zip(
            outcome.inputs.collection.names, labels, outcome.of_no_class, strict=True
        )
    ]
    return draw_map(project_plane(outcome.vectors), labels, outcome.numbers >= 0, titles)


def project_plane(vectors: Rows) -> NDArray[np.float64]:
    """Coordinates on the first two principal axes, (N, D) -> (N, 2)."""
    x = vectors.x.numpy().astype(np.float64)
    x = x - x.mean(axis=0)
    if x.shape[1] <= len(x):
        _, axes = np.linalg.eigh(x.T @ x)
        return np.asarray(x @ axes[:, [-1, -2]])
    values, axes = np.linalg.eigh(x @ x.T)
    return np.asarray(axes[:, [-1, -2]] * np.sqrt(np.maximum(values[[-1, -2]], 0)))


def color(number: int) -> str:
    """The color of a class, the same in the page, the report and the map.

    >>> color(0), color(1)
    ('#4f86e0', '#9fc94a')
    """
    hue = (0.604 + number * GOLDEN) % 1
    lightness, saturation = ((0.595, 0.70), (0.54, 0.54), (0.66, 0.62))[number % 3]
    red, green, blue = colorsys.hls_to_rgb(hue, lightness, saturation)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def draw_map(
    points: NDArray[np.float64],
    labels: Sequence[int],
    given: NDArray[np.bool_],
    titles: Sequence[str],
) -> str:
    """An SVG picture: small points for predicted labels, ringed ones for given labels."""
    chosen = np.arange(len(points))
    if len(points) > MOST_POINTS:
        chosen = np.sort(np.random.default_rng(0).choice(len(points), MOST_POINTS, replace=False))
    low, high = points.min(axis=0), points.max(axis=0)
    scaled = (points - low) / np.where(high > low, high - low, 1)
    marks = []
    for row in sorted(chosen.tolist(), key=lambda row: bool(given[row])):
        x = MARGIN + scaled[row, 0] * (WIDTH - 2 * MARGIN)
        y = HEIGHT - MARGIN - scaled[row, 1] * (HEIGHT - 2 * MARGIN)
        ring = ' class="given" r="6"' if given[row] else ' r="3.5"'
        marks.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}"{ring} fill="{color(labels[row])}">'
            f"<title>{titles[row]}</title></circle>"
        )
    return (
        f'<svg class="map" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="Map of the features">{"".join(marks)}</svg>'
    )
