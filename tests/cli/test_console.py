"""One progress bar for all commands."""

import io
import re

import pytest

from fewlabels.cli.console import ProgressBar, fit, print_table, progress_bar
from fewlabels.evaluation.tables import Table


@pytest.fixture
def terminal(monkeypatch):
    """Makes rich draw as on a terminal of 100 columns."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")


def drawn(capsys):
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)


@pytest.mark.usefixtures("terminal")
def test_a_bar_counts_in_its_unit(capsys):
    with progress_bar("tune", 40) as advance:
        advance(10)
        advance(20)
    assert re.search(r"tune ━+.* 30/40 episodes [\d,]+/s", drawn(capsys))
    with progress_bar("check", 3, unit="images") as advance:
        advance(2)
    assert "2/3 images" in drawn(capsys)


@pytest.mark.usefixtures("terminal")
def test_a_finished_stage_disappears_and_the_next_is_shown(capsys):
    with ProgressBar("images") as bar:
        bar.show("hash", 1, 2)
        bar.show("hash", 2, 2)
        bar.show("extract", 5, 7)
    last = [line for line in drawn(capsys).splitlines() if line.strip()][-1]
    assert "5/7 images" in last
    assert "hash" not in last


def test_nothing_is_drawn_without_a_terminal(capsys):
    with ProgressBar("images") as bar:
        bar.show("hash", 1, 2)
        assert bar.speed > 0
    with progress_bar("evaluate", 2) as advance:
        advance(1)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("terminal")
def test_a_bar_that_is_never_used_draws_nothing(capsys):
    with ProgressBar("images"):
        pass
    assert drawn(capsys).strip() == ""


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def test_lines_are_broken_between_words_in_a_terminal_only(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    text = "one long line of some words\n/a/path/that/is/longer/than/twenty"
    assert fit(text, io.StringIO()) == text
    assert fit(text, Terminal()).split("\n") == [
        "one long line of",
        "some words",
        "/a/path/that/is/longer/than/twenty",
    ]


@pytest.mark.usefixtures("terminal")
def test_a_narrow_terminal_still_shows_how_much_is_done(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    with ProgressBar("images") as bar:
        bar.show("Computing features", 12345, 30000)
    assert re.search(r"Computing features 12345/30000", drawn(capsys))


@pytest.mark.usefixtures("terminal")
def test_words_of_a_table_are_not_cut_to_letters(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    row = ("PT+MAP", "1", "80.67 ± 6.37", "20", "0.0")
    header = ("method", "shots", "accuracy", "episodes", "seconds")
    print_table(Table("title", header, [[row]], "caption"))
    assert "PT+MAP" in capsys.readouterr().out
