"""The results table of the README, written between two markers from the results folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fewlabels.errors import FileFormatError, InputError
from fewlabels.io.files import write_file
from fewlabels.paper.published import DATASETS, SHOTS, Accuracy
from fewlabels.paper.report import difference, read_reports, words_of

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
TABLES = ("table5",)
VARIANT = "map"  # the paper's method; results/ has the others


def format_results(folder: Path) -> str:
    """The measured rows of PT+MAP in Table 5 as a Markdown table, with the conditions below."""
    reports = read_reports(folder, TABLES)
    kept = [
        row
        for report in reports
        for row in report["data"]["rows"]
        if row["variant"] == VARIANT and row["ours"] and all(row["ours"].values())
    ]
    if not kept:
        raise InputError(
            f"{folder} must hold measured rows of {' or '.join(TABLES)}, got none. "
            "Run `fewlabels reproduce all` first."
        )
    shots = (f"{n}-shot paper | {n}-shot ours | difference" for n in SHOTS)
    header = f"| dataset, backbone | method | {' | '.join(shots)} |"
    lines = [header, "|:--|:--|--:|--:|--:|--:|--:|--:|", *map(_line, kept)]
    cell = kept[0]["ours"]["1"]
    about = (
        f"{cell['n_episodes']:,} episodes per cell, {cell['n_way']}-way, {cell['n_query']} queries "
        f"per class, the {cell['draws']}' draws with seed {cell['seed']}; accuracy in %, "
        f"mean ± 95 % interval. {_describe_features(reports)}The features are not the authors', "
        "so that differences come from the features as well as from the code. "
        "Written by `fewlabels reproduce --readme README.md`."
    )
    return "\n".join([*lines, "", about])


def _describe_features(reports: Sequence[Mapping[str, Any]]) -> str:
    """How our features were made, as a sentence."""
    notes = dict.fromkeys(
        note for report in reports if (note := report["data"].get("features_note"))
    )
    return "".join(f"{note[0].upper()}{note[1:]}. " for note in notes)


def update_readme(path: Path, folder: Path) -> bool:
    """Rewrite the text between the markers; whether it changed."""
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

    >>> print(replace_results(f"a {BEGIN}old{END} z", "new", name="README.md"))
    a <!-- results:begin -->
    new
    <!-- results:end --> z
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise InputError(
            f"{name} must hold the line {BEGIN} and below it {END}, each once. "
            "Add them where the table shall be."
        )
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{results}\n{END}{rest.partition(END)[2]}"


def _line(row: Mapping[str, Any]) -> str:
    cells = [f"{DATASETS[row['dataset']]}, {row['backbone']}", row["method"]]
    for n_shot in ("1", "5"):
        published = Accuracy(*row["published"][n_shot]) if n_shot in row["published"] else None
        ours = row["ours"][n_shot]
        cells += [words_of(published), f"**{words_of(ours)}**", difference(ours, published)]
    return "| " + " | ".join(cells) + " |"
