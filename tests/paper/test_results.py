"""The results in the repository: complete, of one run, small, with how they were made."""

import json
import re
from pathlib import Path

import pytest

from fewlabels.paper.exhibits import make_exhibits
from fewlabels.paper.ledger import CELLS, read_cells

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
ORDERED = {
    *(f"cifar-fs/{backbone}/novel" for backbone in ("wrn28-10", "resnet18", "resnet12")),
    *(f"cub/{backbone}/novel" for backbone in ("resnet18", "resnet12")),
}
MEASURED = {*ORDERED, "cub/resnet18-112/novel", "cub/wrn28-10-dct/novel"}
MOST_BYTES = 3_000_000


def read(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def measured(found):
    """Every cell of ours in an exhibit, wherever it stands."""
    if isinstance(found, dict):
        if "episode_hash" in found:
            yield found
        else:
            yield from (cell for value in found.values() for cell in measured(value))
    elif isinstance(found, list):
        yield from (cell for value in found for cell in measured(value))


@pytest.mark.parametrize("name", make_exhibits())
def test_every_exhibit_is_kept_and_its_cells_are_whole(name):
    known = {json.dumps(cell, sort_keys=True) for cell in read_cells(RESULTS / CELLS).values()}
    for cell in measured(read(name)["data"]):
        assert json.dumps(cell, sort_keys=True) in known
        rival = cell["method"] in ("cosine-head", "sgc", "bd-cspn")
        assert cell["n_episodes"] == (1000 if rival else 10_000)
        assert not cell["interrupted"]
    assert (RESULTS / f"{name}.md").is_file()
    assert (RESULTS / f"{name}.tex").is_file()
    drawn = name not in ("table1", "time", "orderings")
    assert [(RESULTS / f"{name}.{kind}").is_file() for kind in ("svg", "png", "pdf")] == [drawn] * 3


def test_the_papers_orderings_hold():
    claims = read("orderings")["data"]["claims"]
    assert {claim["features"] for claim in claims} == ORDERED
    assert len(claims) == 5 * 8 + 9
    assert [claim for claim in claims if claim["verdict"] != "holds"] == []


def test_peaks_of_figure_4_are_the_papers_or_explained():
    report = read("figure4")
    for curve in report["data"]["knobs"]:
        said = next(
            note
            for note in report["notes"]
            if note.startswith(f"{curve['knob']}: ours peaks at {curve['peaks']['val']:g} ")
        )
        assert f"{curve['paper_choice']:g}" in said
        if curve["peaks"]["val"] != curve["paper_choice"]:
            assert f"{curve['gains']['val'][0]:+.2f} ± {curve['gains']['val'][1]:.2f}" in said


@pytest.mark.parametrize(
    "name",
    [name for name in make_exhibits() if name not in ("table1", "table3", "table4", "table7")],
)
def test_how_the_features_were_made_is_not_hidden(name):
    report = read(name)
    for source, made in report["data"]["features"].items():
        assert made["views"] == "ten"
        assert made["training"]["device"]
        assert source.rpartition("/")[0] in {each.rpartition("/")[0] for each in MEASURED}
    words = "features averaged over ten views of each image"
    assert words in report["table"]["caption"]
    assert words in (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    assert words in (ROOT / "README.md").read_text(encoding="utf-8")
    page = (RESULTS / "index.html").read_text(encoding="utf-8")
    section = page[page.index(f'<section id="{name}"') :]
    assert words in section[: section.index("</section>")]


def test_the_folder_is_small_and_names_no_machine():
    assert sum(path.stat().st_size for path in RESULTS.iterdir()) < MOST_BYTES
    for name in make_exhibits():
        assert read(name)["command"].startswith("fewlabels reproduce ")
    for path in (*RESULTS.glob("*.json"), *RESULTS.glob("*.md"), RESULTS / "index.html"):
        assert not re.search(r"[ \"'(=]/(work|tmp|root|home)/", path.read_text(encoding="utf-8")), (
            path
        )
