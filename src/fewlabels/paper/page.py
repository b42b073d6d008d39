"""All tables and figures on one HTML page, which loads nothing else and opens from disk."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from fewlabels.evaluation.tables import TEXT_COLUMNS
from fewlabels.paper.report import label

STYLE = """
:root {
  --ink: #1d2129; --soft: #626a76; --line: #dfe3e8; --ours: #0072B2; --paper: #8a8f98;
  --ground: #fff; --tint: #f5f7f9;
}
* { box-sizing: border-box; }
body {
  margin: 0; color: var(--ink); background: var(--ground);
  font: 15px/1.55 system-ui, "Segoe UI", Helvetica, Arial, sans-serif;
}
main, header, footer { max-width: 66rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2.5rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.2rem; margin: 0 0 .25rem; }
nav { margin: 1rem 0 0; display: flex; flex-wrap: wrap; gap: .35rem .9rem; }
a { color: var(--ours); }
section { border-top: 1px solid var(--line); margin-top: 2.2rem; padding-top: 1.6rem; }
.paper { color: var(--soft); margin: 0 0 1rem; }
svg {
  display: block; width: 100%; height: auto; background: #fff;
  border: 1px solid var(--line); border-radius: 6px;
}
.scroll { overflow-x: auto; margin-top: 1rem; }
table {
  border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .82rem; width: 100%;
}
th, td { padding: .2rem .45rem; text-align: right; white-space: nowrap; }
th { color: var(--soft); font-weight: 600; border-bottom: 1px solid var(--ink); }
.text { text-align: left; }
.ours { color: var(--ours); font-weight: 600; }
.ghost { visibility: hidden; }
.absent { color: var(--paper); font-weight: 400; font-style: italic; }
tbody + tbody tr:first-child td { border-top: 1px solid var(--line); }
tbody tr:hover td { background: var(--tint); }
.caption, ul.notes, footer { color: var(--soft); font-size: .87rem; }
ul.notes { padding-left: 1.1rem; }
footer {
  border-top: 1px solid var(--line); margin-top: 2.5rem; padding-top: 1rem; padding-bottom: 2rem;
}
code { font-size: .92em; }
"""
INTRODUCTION = (
    "Every table and figure of Hu, Gripon and Pateux, <i>Leveraging the Feature Distribution in "
    "Transfer-based Few-Shot Learning</i>, with what this package measures beside it. Where "
    "features are absent, the row shows only what was published; nothing is filled in."
)
ABSENT = ("–", "no features")
ALIGNED = '<span class="ghost"> ± 0.00</span>'  # aligns the decimal points of a column


def write_page(reports: Sequence[Mapping[str, Any]], pictures: Mapping[str, bytes]) -> str:
    """The page's HTML."""
    links = "".join(
        f'<a href="#{report["name"]}">{escape(label(report["name"]))}</a>' for report in reports
    )
    drawn: set[str] = set()
    sections = "".join(_section(report, pictures.get(report["name"]), drawn) for report in reports)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>PT-MAP, regenerated</title><style>{STYLE}</style></head>\n"
        f"<body><header><h1>PT-MAP, regenerated</h1><p>{INTRODUCTION}</p>{_summary(reports)}"
        f"<nav>{links}</nav></header>\n"
        f"<main>{sections}</main>\n<footer>{_footer(reports)}</footer></body></html>\n"
    )


def _section(report: Mapping[str, Any], picture: bytes | None, drawn: set[str]) -> str:
    name = f"{label(report['name'])}: {report['title']}"
    image = "" if picture is None else _inline(picture.decode(), name, drawn)
    notes = "".join(f"<li>{escape(note)}</li>" for note in report["notes"])
    heading = report["title"] if label(report["name"]).lower() in report["title"].lower() else name
    return (
        f'<section id="{report["name"]}"><h2>{escape(heading)}</h2>'
        f'<p class="paper">Paper: {escape(report["paper"])}</p>{image}'
        f'{_table(report["table"])}<p class="caption">{escape(report["table"]["caption"])}</p>'
        + (f'<ul class="notes">{notes}</ul>' if notes else "")
        + "</section>\n"
    )


def _inline(svg: str, name: str, drawn: set[str]) -> str:
    """A figure as part of the page; shapes of letters with equal ids are kept once."""

    def keep_first(shape: re.Match[str]) -> str:
        known = shape[1] in drawn
        drawn.add(shape[1])
        return "" if known else shape[0]

    svg = svg[svg.index("<svg") :].replace(
        "<svg", f'<svg role="img" aria-label="{escape(name)}"', 1
    )
    return re.sub(r'<path id="([^"]+)"[^>]*/>', keep_first, svg).replace("<defs></defs>", "")


def _summary(reports: Sequence[Mapping[str, Any]]) -> str:
    """How our features were made, and how many of the paper's orderings hold."""
    made = {note for report in reports if (note := report["data"].get("features_note"))}
    verdicts = [
        each["notes"][0] for each in reports if each["name"] == "orderings" and each["notes"]
    ]
    return "".join(
        f"<p>{escape(line[0].upper() + line[1:].rstrip('.'))}.</p>"
        for line in (*sorted(made), *verdicts)
    )


def _table(table: Mapping[str, Any]) -> str:
    header = table["header"]
    text = [name in TEXT_COLUMNS for name in header]
    ours = ["ours" in name for name in header]
    rows = [row for section in table["sections"] for row in section]
    with_interval = [any("±" in row[column] for row in rows) for column in range(len(header))]
    head = "".join(
        f"<th{' class=text' if left else ''}>{escape(name)}</th>"
        for name, left in zip(header, text, strict=True)
    )
    bodies = []
    for section in table["sections"]:
        lines = [
            "".join(_cell(*each) for each in zip(row, text, ours, with_interval, strict=True))
            for row in section
        ]
        bodies.append("<tbody>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</tbody>")
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>{"".join(bodies)}</table></div>'
    )


def _cell(word: str, left: bool, ours: bool, with_interval: bool) -> str:
    kinds = [
        name for name, true in (("text", left), ("ours", ours), ("absent", word in ABSENT)) if true
    ]
    number = re.fullmatch(r"[+-]?\d+\.\d\d( ± .*)?", word)
    shown = escape(f"−{word[1:]}" if number and word.startswith("-") else word)
    if number and with_interval and not number[1]:
        shown += ALIGNED
    return f'<td class="{" ".join(kinds)}">{shown}</td>' if kinds else f"<td>{shown}</td>"


def _footer(reports: Sequence[Mapping[str, Any]]) -> str:
    lines = {
        f"<code>{escape(report['command'])}</code>, commit {escape(str(report['commit']))}, "
        + ", ".join(
            f"{escape(name)} {escape(number)}" for name, number in report["versions"].items()
        )
        for report in reports
    }
    return "".join(f"<p>{line}</p>" for line in sorted(lines))
