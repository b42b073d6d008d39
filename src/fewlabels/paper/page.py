"""All tables and figures on one HTML page, which loads nothing else and opens from disk."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from fewlabels.evaluation.tables import TEXT_COLUMNS
from fewlabels.paper.report import label

STYLE = resources.files("fewlabels.paper") / "page.css"
LINK = "https://arxiv.org/abs/2006.03806"
INTRODUCTION = (
    "The tables and figures of Hu, Gripon and Pateux, "
    f'<a href="{LINK}"><i>Leveraging the Feature Distribution in Transfer-based Few-Shot '
    "Learning</i></a> (PT-MAP), with what this package measures beside them. Where features are "
    "not here, a row shows only what was published; nothing is filled in."
)
ABSENT = ("–", "no features")
ALIGNED = '<span class="ghost"> ± 0.00</span>'  # aligns the decimal points of a column
FOREIGN = "<small>not the paper's features</small>"  # in the head of our columns of tables
COLORS = {  # of drawings: variables of the style sheet, which has other values in the dark
    "#222222": "ink",
    "#5a5a5a": "soft",
    "#8a8a8a": "faint",
    "#efefef": "line",
    "#e6e6e6": "line",
    "#f3f3f3": "tint",
    "#ffffff": "ground",
    "#0072b2": "blue",
    "#d55e00": "red",
    "#009e73": "green",
    "#e69f00": "yellow",
    "#cc79a7": "pink",
}
DOWNLOADS = {"svg": "SVG", "pdf": "PDF", "png": "PNG", "tex": "LaTeX", "md": "Markdown"}


def write_page(
    reports: Sequence[Mapping[str, Any]], pictures: Mapping[str, bytes], files: Sequence[str]
) -> str:
    """The page's HTML.

    Args:
        reports: What `write_report` wrote, in the order of the page.
        pictures: SVG files by the name of their exhibit.
        files: Names of the files beside the page, to link to.
    """
    links = "".join(
        f'<a href="#{report["name"]}">{escape(label(report["name"]))}</a>' for report in reports
    )
    drawn: set[str] = set()
    sections = "".join(
        _section(report, pictures.get(report["name"]), drawn, files) for report in reports
    )
    style = STYLE.read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>PT-MAP, regenerated</title><style>{style}</style></head>\n"
        f'<body><nav aria-label="Tables and figures">{links}</nav>\n<div class="page">'
        f"<header><h1>PT-MAP, regenerated</h1><p>{INTRODUCTION}</p>{_summary(reports)}</header>\n"
        f"<main>{sections}</main>\n<footer>{_footer(reports)}</footer></div></body></html>\n"
    )


def _section(
    report: Mapping[str, Any], picture: bytes | None, drawn: set[str], files: Sequence[str]
) -> str:
    name = report["name"]
    heading = f"{label(name)}: {report['title']}"
    if label(name).lower() in report["title"].lower():
        heading = report["title"]
    image = ""
    if picture is not None:
        image = (
            f'<figure><div class="scroll" tabindex="0" role="group" aria-label="{escape(heading)}">'
            f"{_inline(picture.decode(), heading, drawn)}</div>"
            f"<figcaption>{escape(report['picture'])}</figcaption></figure>"
        )
    downloads = ", ".join(
        f'<a href="{name}.{suffix}">{words}</a>'
        for suffix, words in {**DOWNLOADS, "json": "JSON"}.items()
        if f"{name}.{suffix}" in files
    )
    found = count_rows(report)
    parts = [
        f'<section id="{name}"><h2>{escape(heading)}</h2>',
        f'<p class="paper">Paper: {escape(report["paper"])}</p>',
        f'<p class="coverage">{_coverage(found)}</p>' if found["rows"] else "",
        image,
        _fold("Table", _table(report["table"]), unfolded=picture is None or found["ours"] > 0),
        _notes(report["notes"]),
        f'<p class="downloads">Download: {downloads}</p>' if downloads else "",
    ]
    return "".join(parts) + "</section>\n"


def count_rows(report: Mapping[str, Any]) -> dict[str, int]:
    """Rows of a table of accuracies: of the paper, ours among them, and ours beyond the paper."""
    rows = report["data"].get("rows", [])
    ours = [row for row in rows if row["ours"] and all(row["ours"].values())]
    return {
        "rows": sum(bool(row["published"]) for row in rows),
        "ours": sum(bool(row["published"]) for row in ours),
        "absent": sum(bool(row["features"]) for row in rows if row not in ours),
        "beyond": sum(not row["published"] for row in ours),
    }


def _coverage(found: Mapping[str, int]) -> str:
    """How many rows are ours, in words."""
    others = found["rows"] - found["ours"] - found["absent"]
    words = [f"Ours in <b>{found['ours']} of {found['rows']} rows</b>"]
    if found["absent"]:
        words.append(f"{found['absent']} need features that are not here")
    if others:
        words.append(f"{others} are methods of others, published only")
    if found["beyond"]:
        words.append(f"{found['beyond']} more rows of ours are on datasets beyond the paper's")
    return "; ".join(words) + "."


def _summary(reports: Sequence[Mapping[str, Any]]) -> str:
    """How many rows are ours, how our features were made, how many of the orderings hold."""
    counts = [found for report in reports if (found := count_rows(report))["rows"]]
    total = {key: sum(found[key] for found in counts) for key in counts[0]} if counts else None
    made = {note for report in reports if (note := report["data"].get("features_note"))}
    verdicts = [
        each["notes"][0] for each in reports if each["name"] == "orderings" and each["notes"]
    ]
    lines = [f"{line[0].upper()}{line[1:].rstrip('.')}." for line in (*sorted(made), *verdicts)]
    coverage = "" if total is None else f"<p>All tables together: {_lower(_coverage(total))}</p>"
    return coverage + "".join(f"<p>{escape(line)}</p>" for line in lines)


def _lower(words: str) -> str:
    return words[0].lower() + words[1:]


def _inline(svg: str, name: str, drawn: set[str]) -> str:
    """A figure as part of the page, in its colors; shapes with equal ids are kept once."""

    def keep_first(shape: re.Match[str]) -> str:
        known = shape[1] in drawn
        drawn.add(shape[1])
        return "" if known else shape[0]

    svg = svg[svg.index("<svg") :].replace(
        "<svg", f'<svg role="img" aria-label="{escape(name)}"', 1
    )
    svg = re.sub(r"<style.*?</style>", "", svg)
    svg = re.sub(
        r"(: )(#[0-9a-f]{6})",
        lambda found: f"{found[1]}var(--{COLORS[found[2]]})" if found[2] in COLORS else found[0],
        svg,
    )
    return re.sub(r'<path id="([^"]+)"[^>]*/>', keep_first, svg).replace("<defs></defs>", "")


def _fold(title: str, content: str, *, unfolded: bool) -> str:
    state = " open" if unfolded else ""
    return f"<details{state}><summary>{title}</summary>{content}</details>"


def _notes(notes: Sequence[str]) -> str:
    """The notes in a fold."""
    lines = [f"<li>{escape(note)}</li>" for note in notes]
    if not lines:
        return ""
    listed = f'<ul class="notes">{"".join(lines)}</ul>'
    return _fold("Notes", listed, unfolded=False)


def _table(table: Mapping[str, Any]) -> str:
    header = table["header"]
    text = [name in TEXT_COLUMNS for name in header]
    ours = ["ours" in name for name in header]
    rows = [row for section in table["sections"] for row in section]
    with_interval = [any("±" in row[column] for row in rows) for column in range(len(header))]
    head = "".join(
        f'<th scope="col"{" class=text" if left else ""}>{_head(name)}</th>'
        if name
        else "<td></td>"
        for name, left in zip(header, text, strict=True)
    )
    bodies = []
    for section in table["sections"]:
        best = _best(section, header)
        lines = [
            "".join(
                _cell(*each, column in best and row[column] == best[column])
                for column, each in enumerate(zip(row, text, ours, with_interval, strict=True))
            )
            for row in section
        ]
        bodies.append("<tbody>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</tbody>")
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="'
        f'{escape(table["title"], quote=True)}"><table><thead><tr>{head}</tr></thead>'
        f'{"".join(bodies)}</table></div><p class="caption">{escape(table["caption"])}</p>'
    )


def _head(name: str) -> str:
    """The head of a column; "ours" alone is beside a number of the paper."""
    return f"{escape(name)} {FOREIGN}" if name == "ours" else escape(name)


def _best(section: Sequence[Sequence[str]], header: Sequence[str]) -> dict[int, str]:
    """The best published accuracy by column, of the sections that compare methods."""
    if "setting" not in header or len(section) < 2:
        return {}
    columns = [column for column, name in enumerate(header) if name.endswith("-shot paper")]
    return {column: max(row[column] for row in section) for column in columns}


def _cell(word: str, left: bool, ours: bool, with_interval: bool, best: bool) -> str:
    kinds = {"text": left, "ours": ours, "absent": word in ABSENT, "best": best}
    number = re.fullmatch(r"[+-]?\d+\.\d\d( ± .*)?", word)
    shown = escape(f"−{word[1:]}" if number and word.startswith("-") else word)
    if number and with_interval and not number[1]:
        shown += ALIGNED
    names = " ".join(name for name, true in kinds.items() if true)
    return f'<td class="{names}">{shown}</td>' if names else f"<td>{shown}</td>"


def _footer(reports: Sequence[Mapping[str, Any]]) -> str:
    lines = {
        f"<code>{escape(report['command'])}</code>, commit {escape(str(report['commit']))}, "
        + ", ".join(
            f"{escape(name)} {escape(number)}" for name, number in report["versions"].items()
        )
        for report in reports
    }
    return "".join(f"<p>{line}</p>" for line in sorted(lines))
