"""Every table and figure from made-up features: published numbers, ours, and nothing filled in."""

import io
import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from fewlabels.errors import InputError
from fewlabels.features import FeatureSet
from fewlabels.paper.exhibits import (
    DRAWINGS,
    all_experiments,
    choose_exhibits,
    list_exhibits,
    make_exhibits,
    publish,
)
from fewlabels.paper.figure2 import (
    class_skewness,
    describe_distributions,
    fit_exponential,
    fit_gaussian,
)
from fewlabels.paper.ledger import Ledger, make_experiment
from fewlabels.paper.library import FeatureSource, Library
from fewlabels.paper.published import read_published
from fewlabels.paper.report import label

NAMES = [f"table{i}" for i in range(1, 9)] + [f"figure{i}" for i in range(1, 5)]
NAMES += ["time", "orderings"]
PICTURES = [name for name in NAMES if name not in ("table1", "time", "orderings")]


@pytest.fixture(scope="module")
def published(artifacts, tmp_path_factory):
    """A folder with everything, from four episodes a cell."""
    ledger = Ledger(tmp_path_factory.mktemp("results"), Library(artifacts), n_episodes=4)
    exhibits = choose_exhibits(["all"])
    ledger.measure(all_experiments(exhibits, ledger.library))
    reports = publish(exhibits, ledger, drawing=True, command="fewlabels reproduce all")
    return ledger, {report.name: report for report in reports}


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The same where no features are at all."""
    ledger = Ledger(tmp_path_factory.mktemp("bare"), Library(tmp_path_factory.mktemp("nothing")))
    return {
        report.name: report
        for report in publish(
            choose_exhibits(["all"]), ledger, drawing=False, command="fewlabels reproduce all"
        )
    }


def test_all_are_there_in_the_order_of_the_paper():
    assert list(make_exhibits()) == NAMES
    assert [exhibit.name for exhibit in choose_exhibits(["figure4", "table5"])] == [
        "table5",
        "figure4",
    ]


def test_an_unknown_one_is_refused_with_the_list():
    with pytest.raises(
        InputError, match=r"table1, table2.*figure4, time, orderings, all, got 'table9'"
    ):
        choose_exhibits(["table5", "table9"])


def test_the_list_shows_what_is_here(artifacts, tmp_path):
    states = {row[0]: row[2] for row in list_exhibits(Library(artifacts)).sections[0]}
    assert states["table5"] == "1 of 9 here"
    assert states["table6"] == "1 of 9 here"  # its rows beyond the paper count
    assert states["orderings"] == "1 of 9 here"
    assert states["table3"] == "0 of 1 here"
    assert states["figure4"] == "2 of 6 here"


def test_rows_keep_what_was_published_and_ours_is_what_was_measured(published):
    ledger, reports = published
    for name, table in read_published().tables.items():
        data = reports[name].data["rows"]
        assert [row["published"] for row in data if row["published"]] == [
            {str(n): list(value) for n, value in row.published.items()} for row in table.rows
        ]
        for row in data:
            here = row["features"] == "cifar-fs/wrn28-10"
            assert bool(row["ours"] and all(row["ours"].values())) == here
    row = next(
        row
        for row in reports["table5"].data["rows"]
        if row["features"] == "cifar-fs/wrn28-10" and row["variant"] == "kmeans"
    )
    cell = ledger.find(make_experiment(FeatureSource("cifar-fs", "wrn28-10"), "kmeans"))
    assert row["ours"]["1"] == cell
    words = next(
        each
        for section in reports["table5"].table.sections
        for each in section
        if each[:4] == ("CIFAR-FS", "transductive", "PT+K-Means", "WRN")
    )
    assert words[4] == "83.69 ± 0.22"
    assert words[5].startswith(f"{cell['accuracy']:.2f}")
    assert float(words[6].split()[0]) == pytest.approx(cell["accuracy"] - 83.69, abs=0.01)
    assert float(words[6].split()[-1]) == pytest.approx(np.hypot(cell["ci95"], 0.22), abs=0.01)


def test_methods_of_other_papers_are_measured_on_one_of_ten_episodes(published):
    _, reports = published
    report = reports["table2"]
    cells = [
        row["ours"]["1"]
        for row in report.data["rows"]
        if row["rival"] and row["features"] == "cifar-fs/wrn28-10"
    ]
    assert [cell["method"] for cell in cells] == ["cosine-head", "sgc"]
    n_episodes = max(report.data["n_episodes"] // 10, 2)
    assert {cell["n_episodes"] for cell in cells} == {n_episodes}
    named = f"n = {n_episodes:,} episodes"
    assert any("Transfer+SGC = sgc" in note and named in note for note in report.notes)


def test_without_features_nothing_is_filled_in(bare):
    for name in read_published().tables:
        words = [
            cell
            for section in bare[name].table.sections
            for row in section
            for cell in (*row[-5:-3], *row[-2:])
        ]
        assert set(words) <= {"–", "no features"}
        assert any("--features" in note for note in bare[name].notes)
    assert all(row[3] == "–" for section in bare["figure3"].table.sections for row in section)
    assert all(
        row[4:6] == ("–", "–") for section in bare["figure4"].table.sections for row in section
    )
    assert bare["orderings"].table.sections == []
    assert bare["time"].data["ours"] == []


def test_table_6_goes_beyond_the_paper_where_features_are(published, bare):
    rows = [row for row in published[1]["table6"].data["rows"] if row["dataset"] == "cifar-fs"]
    assert [row["method"] for row in rows] == ["MAP", "PT+MAP"]
    assert all(row["published"] == {} for row in rows)
    assert {row["dataset"] for row in bare["table6"].data["rows"]} == {"mini-imagenet"}


def test_figure_3_gives_the_method_the_class_sizes(published):
    reports = published[1]
    known = next(
        curve
        for curve in reports["figure3"].data["curves"]
        if curve["name"] == "PT+MAP, sizes known"
    )
    assert [q1 for q1, _ in known["ours"]] == [1, 10, 20, 30, 40, 50]
    _, cell = known["ours"][1]
    assert cell["queries"] == "10,90"
    assert cell["settings"]["prior"] == "truth"
    bound = next(
        curve for curve in reports["figure3"].data["curves"] if "at least" in curve["name"]
    )
    assert all(cell["settings"]["prior"] == "at-least:30,30" for _, cell in bound["ours"])


def test_figure_4_peaks_where_validation_accuracy_does(published):
    for curve in published[1]["figure4"].data["knobs"]:
        best = max(cell["accuracy"] for _, cell in curve["ours"]["val"])
        at_peak = {x: cell["accuracy"] for x, cell in curve["ours"]["val"]}[curve["peaks"]["val"]]
        assert at_peak == best
        assert set(dict(curve["published"]["val"])) <= {x for x, _ in curve["ours"]["val"]}


def test_skewness_agrees_with_scipy(make_benchmark):
    features = make_benchmark()
    x = features.features.astype(np.float64)
    found = class_skewness(x, features)
    for number, rows in enumerate(features.class_rows):
        np.testing.assert_allclose(found[number], stats.skew(x[rows]), rtol=1e-9)
    flat = FeatureSet.from_arrays([[1.0, 2.0], [1.0, 3.0], [1.0, 7.0]], [0, 0, 0])
    assert np.isnan(class_skewness(flat.features, flat)[0, 0])


def test_fits_find_the_curves_that_made_the_counts():
    edges = np.linspace(0, 0.5, 31)
    x = (edges[:-1] + edges[1:]) / 2
    counts = np.rint(58.7 * np.exp(-10.0 * x) + 1).astype(np.int64)
    assert fit_exponential(edges, counts)["b"] == pytest.approx(10.0, rel=0.1)
    bell = np.rint(80 * np.exp(-((x - 0.2) ** 2) / (2 * 0.05**2))).astype(np.int64)
    found = fit_gaussian(edges, bell)
    assert (found["mean"], found["std"]) == (
        pytest.approx(0.2, abs=0.005),
        pytest.approx(0.05, abs=0.005),
    )


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_legible_and_well_formed(published, name):
    folder = published[0].folder
    with Image.open(io.BytesIO((folder / f"{name}.png").read_bytes())) as image:
        assert image.size[0] > 1400  # 7 inches in print quality
        assert 0.25 < image.size[1] / image.size[0] < 1.1
    svg = ElementTree.fromstring((folder / f"{name}.svg").read_bytes())
    assert svg.tag.endswith("svg")
    texts = ["".join(each.itertext()) for each in svg.iter() if each.tag.endswith("}text")]
    assert len(texts) > 10  # text, not shapes of letters
    assert not any(label(name) in text for text in texts)  # the page has the title
    assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF-")


def test_table_1_shows_the_values_that_are_used(bare):
    rows = {row[3]: row for section in bare["table1"].table.sections for row in section}
    assert rows["beta"] == (
        *("β", "coefficient to adjust distribution skew"),
        *("{-2, -1, -0.5, 0, 0.5, 1, 2}", "beta", "0.5"),
    )
    assert (rows["lam"][-1], rows["alpha"][-1]) == ("10", "0.4, 0.3, 0.2")


def test_table_2_says_which_methods_see_the_queries(bare):
    rows = [row for section in bare["table2"].table.sections for row in section]
    settings = {row[2]: row[1] for row in rows}
    assert (settings["PT+NCM"], settings["PT+MAP"]) == ("inductive", "transductive")
    for section in bare["table2"].table.sections:
        assert len({row[:2] for row in section}) == 1


@pytest.mark.parametrize("name", ["table6", "figure1", "figure2", "figure3", "figure4"])
def test_without_features_there_is_still_a_picture_of_the_paper(bare, name):
    draw, describe = DRAWINGS[name]
    pictures = draw(bare[name])
    assert describe(bare[name])
    assert pictures["png"].startswith(b"\x89PNG")
    assert ElementTree.fromstring(pictures["svg"]).tag.endswith("svg")


def test_every_exhibit_is_json_with_its_origin(published):
    for name in NAMES:
        found = json.loads((published[0].folder / f"{name}.json").read_text())
        assert {"command", "commit", "versions", "table", "data", "notes"} <= found.keys()
        markdown = (published[0].folder / f"{name}.md").read_text()
        rows = [line for line in markdown.splitlines() if line.startswith("|")]
        n_rows = sum(map(len, found["table"]["sections"]))
        assert len(rows) == 2 + n_rows
        latex = (published[0].folder / f"{name}.tex").read_text()
        assert latex.count(r" \\") == 1 + n_rows
        shown = [line for line in latex.splitlines() if not line.startswith("%")]
        assert "".join(shown).isascii()  # so that no LaTeX needs a package for it


class Page(HTMLParser):
    """Collects what a browser would load, and the tags that were left open."""

    def __init__(self):
        super().__init__()
        self.loads, self.open, self.ids, self.links = [], [], set(), set()

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.loads += [found[key] for key in ("src", "srcset", "data") if key in found]
        self.loads += [found["href"]] if tag == "link" else []
        self.ids.add(found.get("id"))
        if tag == "a":
            self.links.add(found["href"])
        if tag not in ("meta", "img", "link", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_needs_nothing_else(published):
    text = (published[0].folder / "index.html").read_text()
    page = Page()
    page.feed(text)
    assert page.open == []
    inside = {link for link in page.links if link.startswith("#")}
    assert inside == {f"#{name}" for name in NAMES}
    assert {link[1:] for link in inside} <= page.ids
    files = {link for link in page.links - inside if not link.startswith("https://arxiv.org/")}
    kinds = {"svg", "pdf", "png", "tex", "md", "json"}
    assert {f"table5.{kind}" for kind in kinds} <= files
    assert all((published[0].folder / file).is_file() for file in files)
    assert page.loads == []
    assert text.count("<svg ") == text.count('role="img"') == len(PICTURES)
    assert not re.search(r"url\((?!#)|@import|<script", text)
    used = set(re.findall(r'(?:xlink:href="|url\()#([^")]+)', text))
    assert used
    assert used <= page.ids  # every letter and clip that a picture uses is on the page


def test_the_page_says_how_many_rows_are_ours(published):
    text = (published[0].folder / "index.html").read_text()
    ours, rows = re.search(r"<b>(\d+) of (\d+) rows</b>", text).groups()
    tables = [published[1][name].data["rows"] for name in read_published().tables]
    measured = [row for each in tables for row in each if row["ours"] and row["published"]]
    measured = [row for row in measured if all(row["ours"].values())]
    assert (int(ours), int(rows)) == (len(measured), 116)
    assert text.count(" rows</b>") == 1 + len(tables)


def test_the_best_published_method_of_each_setting_is_bold(published):
    text = (published[0].folder / "index.html").read_text()
    section = text[text.index('<section id="table2"') :].split("</section>")[0]
    bold = re.findall(r'<td class="best">([\d.]+)', section)
    assert bold == [
        *("65.35", "83.87", "82.92", "88.82"),  # the paper's own, but for S2M2_R
        *("80.68", "91.15", "91.55", "93.99"),
        *("74.81", "87.64", "87.69", "90.68"),
    ]


def test_pictures_on_the_page_follow_its_colors(published):
    text = (published[0].folder / "index.html").read_text()
    drawn = "".join(re.findall(r"<svg .*?</svg>", text, re.DOTALL))
    assert not re.search(r"#[0-9a-f]{6}[;\"]", drawn)
    assert drawn.count("var(--ink)") > 500


def test_a_single_exhibit_leaves_the_others_on_the_page(published):
    ledger, _ = published
    publish(choose_exhibits(["time"]), ledger, drawing=False, command="fewlabels reproduce time")
    assert (ledger.folder / "index.html").read_text().count("<section") == len(NAMES)


def test_orderings_are_judged_by_their_intervals(published):
    for claim in published[1]["orderings"].data["claims"]:
        expected = (
            "holds"
            if claim["difference"] > claim["ci95"]
            else "FAILS"
            if claim["difference"] <= -claim["ci95"]
            else "undecided"
        )
        assert claim["verdict"] == expected
    assert len(published[1]["orderings"].data["claims"]) == 8 + 3 + 6


def test_figure_2_shows_a_typical_feature(make_benchmark):
    features = make_benchmark()
    found = describe_distributions(features)
    skews = stats.skew(
        np.stack([features.features[rows].astype(np.float64) for rows in features.class_rows]),
        axis=1,
    )
    distance = np.abs(skews - np.median(skews)).mean(axis=0)
    assert found["feature"] == distance.argmin()
    assert found["skewness_median"]["before"] == pytest.approx(np.median(skews))
