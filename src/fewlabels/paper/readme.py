"""The README's results table, written from the results folder between two markers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fewlabels.errors import FileFormatError, InputError
from fewlabels.evaluation.folder import write_file
from fewlabels.paper.published import DATASETS, Accuracy
from fewlabels.paper.report import difference, read_reports, words_of

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
TABLES = ("table5", "table6")


def format_results(folder: Path) -> str:
    """The measured rows of Tables 5 and 6 as a Markdown table, with the conditions below."""
    reports = read_reports(folder, TABLES)
    rows = [
        row
        for report in reports
        for row in report["data"]["rows"]
        if row["ours"] and all(row["ours"].values())
    ]
    unique = {(row["features"], row["recipe"]): row for row in reversed(rows)}
    kept = [row for row in rows if unique[row["features"], row["recipe"]] is row]
    if not kept:
        raise InputError(
            f"{folder} must hold measured rows of {' or '.join(TABLES)}, got none. Run `fewlabels reproduce all` first."
        )
    header = "| dataset, backbone | method | 1-shot paper | 1-shot ours | difference | 5-shot paper | 5-shot ours | difference |"
    lines = [header, "|:--|:--|--:|--:|--:|--:|--:|--:|", *map(_line, kept)]
    cell = kept[0]["ours"]["1"]
    about = (
        f"{cell['n_episodes']:,} episodes a cell, {cell['n_way']}-way, {cell['n_query']} queries a class, the {cell['draws']}' draws with "
        f"seed {cell['seed']}; accuracy in %, mean ± 95 % interval. {_describe_features(reports)}The features are not the authors', so "
        "that a difference is one of the features as well as of the code. Written by `fewlabels reproduce --readme README.md`."
    )
    return "\n".join([*lines, "", about])


def _describe_features(reports: Sequence[Mapping[str, Any]]) -> str:
    """How ours were made, as a sentence."""
    notes = dict.fromkeys(
        note for report in reports if (note := report["data"].get("features_note"))
    )
    return "".join(f"{note[0].upper()}{note[1:]}. " for note in notes)


def update_readme(path: Path, folder: Path) -> bool:
    """Rewrite what stands between the markers; whether it changed."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(
            f"{path} cannot be read ({error}). Name the README to write into."
        ) from error
    new = replace_results(text, format_results(folder), name=str(path))
    if new != text:
        write_file(path, new.encode())
    return new != text


def replace_results(text: str, results: str, *, name: str) -> str:
    """The text with other results between its markers.

    >>> replace_results("a <!-- results:begin -->old<!-- results:end --> z", "new", name="x").split()
    ['a', '<!--', 'results:begin', '-->', 'new', '<!--', 'results:end', '-->', 'z']
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise InputError(
            f"{name} must hold the line {BEGIN} and below it {END}, each once. Add them where the table shall stand."
        )
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{results}\n{END}{rest.partition(END)[2]}"


def _line(row: Mapping[str, Any]) -> str:
    cells = [
        f"{DATASETS[row['dataset']]}, {row['backbone']}",
        "MAP without PT" if row["recipe"] == "map-without-pt" else row["method"],
    ]
    for n_shot in ("1", "5"):
        published = Accuracy(*row["published"][n_shot]) if n_shot in row["published"] else None
        ours = row["ours"][n_shot]
        cells += [words_of(published), f"**{words_of(ours)}**", difference(ours, published)]
    return "| " + " | ".join(cells) + " |"
