"""One progress bar for all commands."""

import re

import pytest

from fewlabels.cli.console import ProgressBar, progress_bar


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
