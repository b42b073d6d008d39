"""All exhibits on one page of HTML that needs nothing else: opens from disk, without a network."""

import base64
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ptmap.evaluation.tables import TEXT_COLUMNS
from ptmap.paper.report import label

STYLE = """
:root { --ink: #1d2129; --soft: #626a76; --line: #dfe3e8; --ours: #0072B2; --paper: #8a8f98; --ground: #fff; --tint: #f5f7f9; }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: var(--ground); font: 15px/1.55 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
main, header, footer { max-width: 62rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2.5rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.2rem; margin: 0 0 .25rem; }
nav { margin: 1rem 0 0; display: flex; flex-wrap: wrap; gap: .35rem .9rem; }
a { color: var(--ours); }
section { border-top: 1px solid var(--line); margin-top: 2.2rem; padding-top: 1.6rem; }
.paper { color: var(--soft); margin: 0 0 1rem; }
img { width: 100%; height: auto; border: 1px solid var(--line); border-radius: 6px; background: #fff; }
.scroll { overflow-x: auto; margin-top: 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .87rem; width: 100%; }
th, td { padding: .22rem .6rem; text-align: right; white-space: nowrap; }
th { color: var(--soft); font-weight: 600; border-bottom: 1px solid var(--ink); }
.text { text-align: left; }
.ours { color: var(--ours); font-weight: 600; }
.absent { color: var(--paper); font-weight: 400; font-style: italic; }
tbody + tbody tr:first-child td { border-top: 1px solid var(--line); }
tbody tr:hover td { background: var(--tint); }
.caption, ul.notes, footer { color: var(--soft); font-size: .87rem; }
ul.notes { padding-left: 1.1rem; }
footer { border-top: 1px solid var(--line); margin-top: 2.5rem; padding-top: 1rem; padding-bottom: 2rem; }
code { font-size: .92em; }
"""
INTRODUCTION = (
    "Every table and figure of Hu, Gripon and Pateux, <i>Leveraging the Feature Distribution in Transfer-based Few-Shot Learning</i>, "
    "with what this package measures beside it. Where features are absent, the row shows only what was published; nothing is filled in."
)
ABSENT = ("–", "no features")


def write_page(reports: Sequence[Mapping[str, Any]], pictures: Mapping[str, bytes]) -> str:
    """The page's HTML.

    Args:
        reports: As `read_reports` gives them.
        pictures: SVG files by the name of the report.
    """
    links = "".join(f'<a href="#{report["name"]}">{escape(label(report["name"]))}</a>' for report in reports)
    sections = "".join(_section(report, pictures.get(report["name"])) for report in reports)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>PT-MAP, regenerated</title><style>{STYLE}</style></head>\n"
        f"<body><header><h1>PT-MAP, regenerated</h1><p>{INTRODUCTION}</p><nav>{links}</nav></header>\n"
        f"<main>{sections}</main>\n<footer>{_footer(reports)}</footer></body></html>\n"
    )


def _section(report: Mapping[str, Any], picture: bytes | None) -> str:
    image = ""
    if picture is not None:
        content = base64.b64encode(picture).decode()
        image = f'<img alt="{escape(label(report["name"]))}: {escape(report["title"])}" src="data:image/svg+xml;base64,{content}">'
    notes = "".join(f"<li>{escape(note)}</li>" for note in report["notes"])
    heading = report["title"] if label(report["name"]).lower() in report["title"].lower() else f"{label(report['name'])}: {report['title']}"
    return (
        f'<section id="{report["name"]}"><h2>{escape(heading)}</h2><p class="paper">Paper: {escape(report["paper"])}</p>{image}'
        f'{_table(report["table"])}<p class="caption">{escape(report["table"]["caption"])}</p>'
        + (f'<ul class="notes">{notes}</ul>' if notes else "")
        + "</section>\n"
    )


def _table(table: Mapping[str, Any]) -> str:
    header = table["header"]
    text = [name in TEXT_COLUMNS for name in header]
    ours = ["ours" in name for name in header]
    head = "".join(f"<th{' class=text' if left else ''}>{escape(name)}</th>" for name, left in zip(header, text, strict=True))
    bodies = []
    for section in table["sections"]:
        rows = ["".join(_cell(*each) for each in zip(row, text, ours, strict=True)) for row in section]
        bodies.append("<tbody>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</tbody>")
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead>{"".join(bodies)}</table></div>'


def _cell(word: str, left: bool, ours: bool) -> str:
    kinds = [name for name, true in (("text", left), ("ours", ours), ("absent", word in ABSENT)) if true]
    return f'<td class="{" ".join(kinds)}">{escape(word)}</td>' if kinds else f"<td>{escape(word)}</td>"


def _footer(reports: Sequence[Mapping[str, Any]]) -> str:
    lines = {
        f"<code>{escape(report['command'])}</code>, commit {escape(str(report['commit']))}, "
        + ", ".join(f"{escape(name)} {escape(number)}" for name, number in report["versions"].items())
        for report in reports
    }
    return "".join(f"<p>{line}</p>" for line in sorted(lines))
