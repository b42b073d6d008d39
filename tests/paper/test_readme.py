"""The README's results are those of the results folder."""

from pathlib import Path

import pytest

from fewlabels.errors import FileFormatError, InputError
from fewlabels.paper.exhibits import choose_exhibits, publish
from fewlabels.paper.readme import BEGIN, END, format_results, replace_results, update_readme

ROOT = Path(__file__).resolve().parents[2]
TEXT = f"# Title\n\nBefore.\n\n{BEGIN}\nold\n{END}\n\nAfter.\n"


@pytest.fixture
def folder(ledger):
    exhibits = choose_exhibits(["table5"])
    ledger.measure(
        experiment for exhibit in exhibits for experiment in exhibit.experiments(ledger.library)
    )
    publish(exhibits, ledger, drawing=False, command="")
    return ledger.folder


def test_the_part_between_the_markers_is_rewritten_once(folder, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(TEXT)
    assert update_readme(readme, folder)
    assert not update_readme(readme, folder)
    text = readme.read_text()
    assert text.startswith(f"# Title\n\nBefore.\n\n{BEGIN}\n|")
    assert text.endswith(f"\n{END}\n\nAfter.\n")
    rows = [line for line in text.splitlines() if line.startswith("| CIFAR-FS, WRN")]
    assert [line.split(" | ")[1] for line in rows] == ["PT+MAP"]
    assert "| 87.69 ± 0.23 | **" in rows[0]


@pytest.mark.parametrize("text", ["", BEGIN, f"{END}\n{BEGIN}", f"{BEGIN}{BEGIN}{END}"])
def test_markers_that_are_missing_or_crossed(text):
    with pytest.raises(InputError, match="README must hold the line"):
        replace_results(text, "x", name="README")


def test_no_results_and_no_readme(folder, tmp_path):
    with pytest.raises(InputError, match="Run `fewlabels reproduce all` first"):
        format_results(tmp_path / "nothing")
    with pytest.raises(FileFormatError, match="cannot be read"):
        update_readme(tmp_path / "nothing.md", folder)


def test_the_readme_of_the_project_shows_the_kept_results():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    if BEGIN not in readme:
        pytest.skip("the README has no results part")
    assert replace_results(readme, format_results(ROOT / "results"), name="README.md") == readme, (
        "run `fewlabels reproduce --readme README.md`: its table is not that of results/"
    )
