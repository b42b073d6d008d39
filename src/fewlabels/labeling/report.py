"""report.html: what was labelled, how sure, and by what, in one file without any other."""

import base64
import html
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fewlabels import __version__
from fewlabels.errors import FewLabelsError
from fewlabels.labeling.collection import Collection
from fewlabels.labeling.outcome import Outcome, Score, describe_strangers
from fewlabels.labeling.scatter import color, draw_map, project_plane
from fewlabels.labeling.table import MODEL
from fewlabels.labeling.thumbnails import make_thumbnail
from fewlabels.labeling.writing import write_file

TEMPLATE = resources.files("fewlabels.labeling") / "report.html"
PART = re.compile(r"\{\{(\w+)\}\}")  # all in one go: a class may be called {{map}}
SIDE = 96  # pixels of a picture: 48 on a fine screen, about 2 kB
SHOWN = 6  # least certain and most certain images of each class
MOST_CLASSES = 200  # of which pictures are shown
MOST_STRANGERS = 36  # images shown that look like no class
MOST_CONFUSED = 40  # classes up to which the matrix is drawn


def write_report(path: Path, outcome: Outcome, truth: Mapping[int, str] | None = None) -> None:
    """Write a self-contained page.

    Args:
        path: The .html file.
        outcome: What came of a labelling.
        truth: True labels by item, where known.
    """
    write_file(path, build_report(outcome, truth).encode())


def build_report(outcome: Outcome, truth: Mapping[int, str] | None = None) -> str:
    """The page as text."""
    score = None if truth is None else outcome.score(truth)
    parts = {
        "title": _text(outcome.source.collection.title),
        "facts": _facts(outcome, score),
        "advice": _text(
            " ".join(
                [
                    outcome.advice,
                    *([] if truth is None else outcome.unscored(truth).describe().splitlines()),
                ]
            )
        ),
        "map": _map(outcome),
        "proportions": _proportions(outcome, score),
        "confusion": "" if score is None else _confusion(outcome, score),
        "strangers": _strangers(outcome),
        "classes": _classes(outcome, truth or {}),
        "settings": _settings(outcome),
        "written": f"fewlabels {__version__}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    }
    return PART.sub(lambda found: parts[found[1]], TEMPLATE.read_text(encoding="utf-8"))


def _text(words: object) -> str:
    return html.escape(str(words))


def _facts(outcome: Outcome, score: Score | None) -> str:
    found = outcome.summary()
    facts = [
        (f"{found['images']:,}", "images"),
        (str(len(outcome.class_names)), "classes"),
        (f"{found['given']:,}", "labels given"),
    ]
    facts.append((f"{found['labelled']:,}", "labels found"))
    if found["left_out"]:
        facts.append((f"{found['left_out']:,}", "left out as too doubtful"))
    facts.append((f"{found['doubtful']:,}", "doubtful"))
    if outcome.strangers:
        facts.append((f"{len(outcome.strangers):,}", "perhaps none of these"))
    if outcome.estimate is not None:
        estimate = outcome.estimate
        about = "among the named classes" if outcome.strangers else "from your own labels"
        facts.append(
            (
                f"{estimate.accuracy:.0%}",
                f"estimated accuracy, {estimate.low:.0%} to {estimate.high:.0%}, {about}",
            )
        )
    if score is not None:
        facts.append(
            (
                f"{score.accuracy:.1%}",
                f"right of {score.n:,} known; nearest class mean {score.n_right_nearest / score.n:.1%}",
            )
        )
    return "".join(
        f"<li><b>{_text(number)}</b><span>{_text(words)}</span></li>" for number, words in facts
    )


def _map(outcome: Outcome) -> str:
    labels = outcome.answer.labels.tolist()
    titles = [
        _text(f"{name} · {outcome.class_names[label]}")
        for name, label in zip(outcome.source.collection.names, labels, strict=True)
    ]
    return draw_map(project_plane(outcome.vectors), labels, outcome.numbers >= 0, titles)


def _proportions(outcome: Outcome, score: Score | None) -> str:
    """A bar a class: how large it turned out, and, where truth is known, how much of it was found."""
    sizes = np.bincount(
        outcome.answer.labels[: outcome.source.n_listed], minlength=len(outcome.class_names)
    )
    given = np.bincount(outcome.numbers[outcome.numbers >= 0], minlength=len(outcome.class_names))
    rows = []
    for number, name in enumerate(outcome.class_names):
        recall = ""
        if score is not None:
            true = score.confusion[number].sum()
            recall = (
                f'<td class="number">{score.confusion[number, number] / true:.0%}</td>'
                if true
                else '<td class="number">–</td>'
            )
        rows.append(
            f'<tr><th scope="row"><i style="background:{color(number)}"></i>{_text(name)}</th>'
            f'<td class="number">{sizes[number]:,}</td><td class="number">{sizes[number] / sizes.sum():.1%}</td>'
            f'<td class="bar"><meter min="0" max="{sizes.max()}" value="{sizes[number]}">{sizes[number]}</meter></td>'
            f'<td class="number">{given[number]:,}</td>{recall}</tr>'
        )
    last = "" if score is None else '<th class="number">found right</th>'
    first = '<th>class</th><th class="number">images</th><th class="number">share</th><th class="bar"></th><th class="number">given</th>'
    return f"<table><thead><tr>{first}{last}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _confusion(outcome: Outcome, score: Score) -> str:
    if len(outcome.class_names) > MOST_CONFUSED:
        return f"<p>The matrix is drawn for up to {MOST_CONFUSED} classes.</p>"
    totals = score.confusion.sum(axis=1, keepdims=True)
    shares = score.confusion / np.maximum(totals, 1)
    columns = "".join(
        f'<th scope="col" title="{_text(name)}"><span>{_text(name)}</span></th>'
        for name in outcome.class_names
    )
    rows = []
    for number, name in enumerate(outcome.class_names):
        cells = "".join(
            _cell(int(n), float(share), column == number)
            for column, (n, share) in enumerate(
                zip(score.confusion[number], shares[number], strict=True)
            )
        )
        rows.append(f'<tr><th scope="row" title="{_text(name)}">{_text(name)}</th>{cells}</tr>')
    table = f'<table class="confusion"><thead><tr><td></td>{columns}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    note = "Rows are the truth, columns the labels found; labels that were given are left out."
    return f'<section><h2>Confusions</h2><p class="note">{note}</p><div class="scroll">{table}</div></section>'


def _cell(n: int, share: float, right: bool) -> str:
    if not n:
        return "<td></td>"
    return f'<td class="{"right" if right else "wrong"}" style="--share:{share:.2f}">{n}</td>'


def _strangers(outcome: Outcome) -> str:
    """The images that look like no class, where they were asked for."""
    shares = outcome.none_of_these
    if shares is None:
        return ""
    strangers, heading = outcome.strangers, "<h2>Perhaps none of these</h2>"
    if not strangers:
        return f'<section>{heading}<p class="note">{describe_strangers(0)}</p></section>'
    note = "Probably of none of the named classes, the most probable first: how probable it is, and the label that each got all the same."
    if len(strangers) > MOST_STRANGERS:
        note += f" {MOST_STRANGERS} of {len(strangers):,} are shown."
    figures = "".join(_stranger(item, outcome, shares[item]) for item in strangers[:MOST_STRANGERS])
    return f'<section>{heading}<p class="note">{note}</p><div class="strangers">{figures}</div></section>'


def _stranger(item: int, outcome: Outcome, share: float) -> str:
    name, label = outcome.source.collection.names[item], outcome.rows[item].label or "left out"
    title = f"{name} · {label} · none of these: {share:.1%}"
    caption = f"<figcaption><b>{share:.0%}</b> {_text(label)}</figcaption>"
    return f'<figure title="{_text(title)}">{_shown(outcome.source.collection, item)}{caption}</figure>'


def _classes(outcome: Outcome, truth: Mapping[int, str]) -> str:
    labels, shares = outcome.answer.labels, outcome.answer.shares.max(axis=1)
    by_model = np.array([row.origin == MODEL or not row.origin for row in outcome.rows])
    sections = []
    for number, name in enumerate(outcome.class_names[:MOST_CLASSES]):
        items = np.flatnonzero((labels[: len(by_model)] == number) & by_model)
        order = items[np.argsort(shares[items], kind="stable")]
        least, most = order[:SHOWN], order[max(SHOWN, len(order) - SHOWN) :][::-1]
        rows = [
            _strip("least certain", least, outcome, shares, truth),
            _strip("most certain", most, outcome, shares, truth),
        ]
        heading = f'<h3><i style="background:{color(number)}"></i>{_text(name)} <small>{len(items):,} found</small></h3>'
        sections.append(f"<article>{heading}{''.join(rows)}</article>")
    return "".join(sections)


def _strip(
    title: str,
    items: NDArray[np.int64],
    outcome: Outcome,
    shares: NDArray[np.float32],
    truth: Mapping[int, str],
) -> str:
    if not len(items):
        return ""
    figures = "".join(
        _figure(int(item), outcome, float(shares[item]), truth.get(int(item))) for item in items
    )
    return f'<p class="note">{title}</p><div class="strip">{figures}</div>'


def _figure(item: int, outcome: Outcome, share: float, true: str | None) -> str:
    collection = outcome.source.collection
    name = collection.names[item]
    wrong = true is not None and true != outcome.class_names[outcome.answer.labels[item]]
    title = f"{name} · {share:.1%}" + (f" · truth: {true}" if wrong else "")
    shown = _shown(collection, item)
    return f'<figure{" class=wrong" if wrong else ""} title="{_text(title)}">{shown}<figcaption>{share:.0%}</figcaption></figure>'


def _shown(collection: Collection, item: int) -> str:
    """The picture, or its name where there is none."""
    name, picture = _text(collection.names[item]), _picture(collection, item)
    return f'<img alt="{name}" src="{picture}">' if picture else f"<span>{name}</span>"


def _picture(collection: Collection, item: int) -> str:
    if collection.images is None:
        return ""
    try:
        content = make_thumbnail(collection.images.read(item), side=SIDE)
    except FewLabelsError:
        return ""
    return "data:image/webp;base64," + base64.b64encode(content).decode()


def _settings(outcome: Outcome) -> str:
    found = outcome.summary()
    settings = {
        "pipeline": found["pipeline"],
        "sharpness (lam)": f"{found['lam']:g}",
        **found["features"],
    }
    return "".join(
        f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in settings.items()
    )
