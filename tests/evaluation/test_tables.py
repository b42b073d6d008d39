"""Tables in Markdown and LaTeX, read back; curves as pictures; results in folders."""

import io
import json
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from PIL import Image

from fewlabels.errors import InputError, MissingExtraError
from fewlabels.evaluation import evaluate
from fewlabels.evaluation.comparison import compare_results
from fewlabels.evaluation.folder import open_folder, write_results
from fewlabels.evaluation.plots import can_draw, draw_curves
from fewlabels.evaluation.sweep import evaluate_cells, plan_cells
from fewlabels.evaluation.tables import (
    Table,
    tabulate_comparisons,
    tabulate_results,
    to_latex,
    to_markdown,
)
from fewlabels.evaluation.tuning import tune
from fewlabels.io.files import write_file
from fewlabels.methods import configure


@pytest.fixture(scope="module")
def results(make_features):
    cells = plan_cells(
        ["ncm", "map"], shots=[1, 2], queries=["3", "dirichlet:2:9"], knobs={"lam": [5, 10]}
    )
    return evaluate_cells(make_features([20] * 5), cells, n_way=3, n_episodes=12)[0]


def cells_of(line, separator):
    return [cell.strip() for cell in line.strip().strip("|").split(separator)]


@pytest.mark.parametrize(
    ("names", "planned", "titles", "said"),
    [
        (
            ["ncm", "map"],
            {"pipeline": "unit"},
            ["NCM", "MAP"],
            "NCM: pipeline unit; MAP: pipeline unit; own draws",
        ),
        (
            ["ncm", "map"],
            {"knobs": {"lam": [3], "beta": [1]}},
            ["PT+NCM", "PT+MAP"],
            "PT+NCM: beta 1; PT+MAP: beta 1, lam 3; own draws",
        ),
        (
            ["map"],
            {"knobs": {"lam": [3, 10], "alpha": [0.5]}},
            ["PT+MAP", "PT+MAP"],
            "PT+MAP: alpha 0.5; own draws",
        ),
        (
            ["map"],
            {"knobs": {"prior": ["estimate"]}},
            ["PT+MAP"],
            "PT+MAP: prior estimate; own draws",
        ),
        (["map"], {"tuned": {"map": {1: {"lam": 7.0}}}}, ["PT+MAP"], "PT+MAP: lam 7; own draws"),
        (
            ["ncm-raw", "map-auto", "map-truth"],
            {},
            ["NCM", "PT+MAP, estimated", "PT+MAP, told the truth"],
            "own draws",
        ),
        (
            ["map"],
            {"shots": [1, 2], "knobs": {"n_steps": [20]}},
            ["PT+MAP", "PT+MAP"],
            "PT+MAP 1-shot: n_steps 20; own draws",
        ),
        (
            ["map-auto"],
            {"pipeline": "power(2) | unit"},
            ["PT+MAP, estimated"],
            "PT+MAP, estimated: pipeline power(2) | unit; own",
        ),
    ],
)
def test_names_and_caption_tell_what_is_not_the_papers(make_features, names, planned, titles, said):
    found, _ = evaluate_cells(
        make_features([20] * 5), plan_cells(names, queries=["3"], **planned), n_way=3, n_episodes=2
    )
    assert [result.title for result in found] == titles
    assert tabulate_results(found, about="").caption.startswith(said)
    if len(found) > 1 and "shots" not in planned:
        assert tabulate_comparisons(compare_results(found), about="").caption.startswith(
            said.removesuffix("own draws")
        )


def test_columns_are_the_settings_that_vary(results):
    table = tabulate_results(results, about="")
    assert table.header == ("method", "lam", "shots", "queries", "accuracy", "episodes", "seconds")
    assert [len(section) for section in table.sections] == [3, 3, 3, 3]
    assert [row[1] for row in table.sections[0]] == ["–", "5", "10"]
    one_kind = [
        result
        for result in results
        if result.n_shot == 1 and result.queries == "3" and result.settings.get("lam") != 5
    ]
    plain = tabulate_results(one_kind, about="birds")
    assert plain.header == ("method", "shots", "accuracy", "episodes", "seconds")
    assert plain.title == "3-way, 3 queries per class, birds"
    assert plain.caption.startswith("own draws")


def test_alpha_that_the_paper_varies_with_the_shots_is_no_column(make_features):
    found = [
        evaluate(
            [configure("map", n_shot=n)],
            make_features([9] * 3),
            n_way=2,
            n_shot=n,
            queries=2,
            n_episodes=3,
        )[0]
        for n in (1, 5)
    ]
    assert found[0].settings["alpha"] != found[1].settings["alpha"]
    assert "alpha" not in tabulate_results(found, about="").header


def test_markdown_reads_back_as_the_table(results):
    table = tabulate_comparisons(compare_results(results), about="")
    lines = [line for line in to_markdown(table).splitlines() if line.startswith("|")]
    rows = [cells_of(line, "|") for line in lines]
    assert {len(row) for row in rows} == {len(table.header)}
    assert rows[0] == list(table.header)
    assert all(re.fullmatch(r":--|--:", cell) for cell in rows[1])
    assert rows[2:] == [list(row) for section in table.sections for row in section]


def test_latex_reads_back_as_the_table(results):
    table = tabulate_comparisons(compare_results(results), about="50 % of _all_ & more")
    lines = to_latex(table).splitlines()
    assert all(line.startswith("%") for line in lines[:2])
    columns = re.fullmatch(r"\\begin\{tabular\}\{([lr]+)\}.*", lines[2])[1]
    rows = [cells_of(line.removesuffix(r"\\"), " & ") for line in lines if line.endswith(r"\\")]
    assert {len(row) for row in rows} == {len(columns)} == {len(table.header)}
    assert lines[-1] == r"\end{tabular}"
    assert [line for line in lines if line.endswith("rule")] == [r"\toprule"] + [
        r"\midrule"
    ] * 4 + [r"\bottomrule"]
    for line in lines[2:]:
        body = line.split("%")[0]
        assert body.count("$") % 2 == 0
        assert "±" not in body
    first = table.sections[0][1]
    assert rows[2] == [
        f"${cell.replace('±', chr(92) + 'pm')}$" if cell[-1].isdigit() else cell for cell in first
    ]


def test_latex_escapes_what_latex_would_read():
    row = to_latex(Table("", ("method",), [[("a_b & 5 % #1 $x \\y",)]], "")).splitlines()[6]
    assert row == r"a\_b \& 5 \% \#1 \$x \textbackslash{}y \\"


def test_curves_are_a_legible_png_and_a_well_formed_repeatable_svg(make_features):
    options = {
        "n_way": 3,
        "queries": 3,
        "n_episodes": 5,
        "ranges": {"beta": [0.5, 1], "lam": [1, 10], "alpha": [0.2]},
    }
    tuning = tune(make_features([10] * 4), novel=make_features([10] * 4, seed=1), **options)
    figure = draw_curves(tuning, about="birds <3")
    with Image.open(io.BytesIO(figure["png"])) as image:
        assert image.size[0] > 1400  # 7 inches in print quality
        assert 0.4 < image.size[1] / image.size[0] < 0.8
    assert ElementTree.fromstring(figure["svg"]).tag.endswith("svg")
    assert draw_curves(tuning, about="birds <3")["svg"] == figure["svg"]
    alone = tune(
        make_features([10] * 4),
        method="ncm",
        n_way=3,
        queries=3,
        n_episodes=1,
        ranges={"beta": [0.5]},
    )
    assert draw_curves(alone)["png"].startswith(b"\x89PNG")


def test_without_matplotlib_curves_are_left_out_or_asked_for_by_name(monkeypatch):
    monkeypatch.setattr("fewlabels.evaluation.plots.find_spec", lambda _: None)
    assert can_draw(None) is False
    assert can_draw(False) is False
    with pytest.raises(MissingExtraError, match=r"pip install 'fewlabels\[plot\]'"):
        can_draw(True)


def test_a_folder_holds_results_and_single_accuracies(tmp_path, results):
    folder = open_folder(tmp_path / "deep" / "down", fingerprint="f1")
    write_results(folder, results, fingerprint="f1", command="fewlabels evaluate")
    stored = json.loads((folder / "result.json").read_text())
    with np.load(folder / "accuracies.npz") as single:
        assert len(single) == len(stored["results"]) == len(results)
        for number, entry in enumerate(stored["results"]):
            assert 100 * single[str(number)].mean() == pytest.approx(entry["accuracy"], abs=1e-3)
    assert sorted(path.name for path in folder.iterdir()) == ["accuracies.npz", "result.json"]


def test_a_folder_of_other_features_is_not_overwritten_unless_forced(tmp_path, results):
    write_results(open_folder(tmp_path, fingerprint="f1"), results, fingerprint="f1", command="")
    open_folder(tmp_path, fingerprint="f1")
    with pytest.raises(
        InputError,
        match=r"result.json holds results of other features \(f1, these are f2\).*force=True",
    ):
        open_folder(tmp_path, fingerprint="f2")
    open_folder(tmp_path, fingerprint="f2", force=True)
    (tmp_path / "result.json").write_text("[]")
    with pytest.raises(InputError, match="unknown"):
        open_folder(tmp_path, fingerprint="f1")


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match=r"cannot be written .* Choose another path"):
            open_folder(path, fingerprint="f1")


def test_a_write_that_fails_leaves_the_old_file_and_no_rest(tmp_path):
    target = tmp_path / "result.json"
    target.mkdir()  # cannot be replaced by a file
    with pytest.raises(InputError, match="cannot be written"):
        write_file(target, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
