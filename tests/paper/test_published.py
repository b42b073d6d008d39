"""The published numbers, recounted in the paper's LaTeX source where it is at hand."""

import re
from pathlib import Path

import pytest

from fewlabels.paper.ledger import VARIANTS
from fewlabels.paper.published import DATASETS, SHOTS, read_published

TEX = Path(__file__).resolve().parents[3] / "shared" / "paper" / "pt-map-paper.tex"
LABELS = {  # of the tables in the source
    "table2": "results",
    "table3": "tiered_results",
    "table4": "results_cross",
    "table5": "results_sup",
    "table6": "results_compare",
    "table7": "results_sup1",
    "table8": "results_sup2",
}
FIGURES = {"figure2": "analyse", "figure3": "imbalanced", "figure4": "functionofpara"}
needs_tex = pytest.mark.skipif(not TEX.is_file(), reason="the paper's source is not here")


def environment(kind, label):
    """The text of a table or figure of the source."""
    pieces = re.split(rf"\\begin\{{{kind}\*?\}}", TEX.read_text(encoding="utf-8"))[1:]
    found = [piece.split(rf"\end{{{kind}")[0] for piece in pieces]
    return next(
        piece
        for piece in found
        if rf"\label{{{'tab' if kind == 'table' else 'fig'}:{label}}}" in piece
    )


def numbers_in(text):
    """Every accuracy of a table with its interval, in order: [("87.69", "0.23"), ("55.31", "")]."""
    plain = re.sub(r"\\scalebox\{[^}]*\}|\\mathbf|[{}$%()\\]", " ", text.replace(r"\pm", "±"))
    return re.findall(r"(?<![\d.])(\d\d\.\d\d)(?: *± *(\d\.\d\d))?", plain)


@needs_tex
@pytest.mark.parametrize("name", LABELS)
def test_every_accuracy_of_a_table_is_there_once(name):
    printed = sorted(
        (float(mean), float(half) if half else None)
        for mean, half in numbers_in(environment("table", LABELS[name]))
    )
    held = sorted(
        (
            (value.accuracy, value.ci95)
            for row in read_published().tables[name].rows
            for value in row.published.values()
        ),
        key=lambda pair: (pair[0], pair[1] or 0),
    )
    assert held == sorted(printed, key=lambda pair: (pair[0], pair[1] or 0))


@needs_tex
@pytest.mark.parametrize("name", ["table2", "table3", "table4"])
def test_rows_of_methods_are_in_the_order_of_the_source(name):
    lines = [
        line
        for line in environment("table", LABELS[name]).splitlines()
        if re.search(r"\d\d\.\d\d", line)
    ]
    rows = read_published().tables[name].rows
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        text = line.replace(r"\_", "_")
        assert row.method in text
        assert name == "table4" or f"& {row.backbone} &" in text
        assert [float(mean) for mean, _ in numbers_in(line)] == [
            row.published[n].accuracy for n in SHOTS
        ]
        assert ("(ours)" in line) == (row.variant is not None)


@needs_tex
def test_backbones_of_table_5_have_their_own_numbers():
    table = environment("table", "results_sup")
    for dataset in ("mini-imagenet", "cub", "cifar-fs"):
        block = table.split(rf"\multirow{{3}}{{*}}{{{DATASETS[dataset]}}}")[1].split(r"\midrule")[0]
        for backbone in ("ResNet12", "ResNet18", "WRN"):
            line = next(line for line in block.splitlines() if f"& {backbone} &" in line)
            rows = {
                row.method: row
                for row in read_published().tables["table5"].rows
                if (row.dataset, row.backbone) == (dataset, backbone)
            }
            order = [
                ("NCM", 1),
                ("PT+NCM", 1),
                ("NCM", 5),
                ("PT+NCM", 5),
                ("PT+K-Means", 1),
                ("PT+K-Means", 5),
                ("PT+MAP", 1),
                ("PT+MAP", 5),
            ]
            assert [float(mean) for mean, _ in numbers_in(line)] == [
                rows[method].published[n].accuracy for method, n in order
            ]


@needs_tex
@pytest.mark.parametrize("name", ["figure3", "figure4"])
def test_every_point_of_a_figure_is_there_in_order(name):
    text = environment("figure", FIGURES[name])
    plots = re.findall(r"coordinates\s*\{([^}]*)\}", text)
    printed = [
        [tuple(map(float, pair.split(","))) for pair in re.findall(r"\(([^()]+)\)", plot)]
        for plot in plots
    ]
    assert [list(series.points) for series in read_published().figures[name].series] == printed


@needs_tex
def test_every_fitted_curve_of_figure_2_is_there_in_order():
    formulas = re.findall(r"\{([^{}]*exp[^{}]*)\}", environment("figure", "analyse"))
    series = read_published().figures["figure2"].series
    assert len(formulas) == len(series) == 10
    for formula, curve in zip(formulas, series, strict=True):
        numbers = [float(word) for word in re.findall(r"\d+\.\d+(?:e[+-]\d+)?", formula)]
        assert [abs(number) for number in curve.numbers.values()] == numbers
        assert (curve.numbers.get("c", 0) < 0) == bool(re.search(r"\) - \d", formula))


@needs_tex
def test_every_row_of_table_1_is_the_papers():
    text = environment("table", "hyperparams")
    rows = read_published().parameters["rows"]
    printed = [line.rpartition("&")[2].strip(" \\\n") for line in text.splitlines() if "&" in line]
    assert [row["description"] for row in rows] == [each for each in printed if each[:1].islower()]
    assert {row["part"] for row in rows} == set(re.findall(r"textbf\{([^}]*)\}", text))


@needs_tex
def test_the_time_of_a_run():
    assert re.search(r"average of \$([\d.]+)s\$ per run", TEX.read_text(encoding="utf-8"))[
        1
    ] == str(read_published().seconds)


def test_every_row_can_be_shown_and_ours_can_be_run():
    rows = [(name, row) for name, table in read_published().tables.items() for row in table.rows]
    assert len(rows) == 28 + 7 + 6 + 36 + 6 + 12 + 21
    for _, row in rows:
        assert row.dataset in DATASETS
        assert row.setting in ("inductive", "transductive")
        assert set(row.published) == set(SHOTS)
        assert all(20 < value.accuracy < 100 for value in row.published.values())
        assert row.variant is None or row.rival is None
        assert ((row.variant or row.rival) is None) == (row.features is None)
        if row.rival:
            assert row.rival in VARIANTS
        if row.variant:
            assert row.variant in VARIANTS
            assert row.features.startswith(f"{row.dataset}/")


def test_equal_rows_of_different_tables_agree():
    seen = {}
    for table in read_published().tables.values():
        for row in table.rows:
            if row.variant:
                for n_shot, value in row.published.items():
                    known = seen.setdefault((row.variant, row.features, n_shot), value.accuracy)
                    assert known == value.accuracy, row
