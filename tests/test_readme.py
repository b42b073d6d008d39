"""What the README shows must run."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from ptmap.cli import main

README = Path(__file__).parents[1] / "README.md"
BLOCKS = dict(re.findall(r"```(\w+)\n(.*?)```", README.read_text(), flags=re.S))


def test_python_example_labels_everything():
    names: dict[str, object] = {}
    exec(BLOCKS["python"], names)
    model = names["model"]
    assert (model.transduction_[:30] == "cat").mean() > 0.9
    assert (model.transduction_[30:] == "dog").mean() > 0.9


@pytest.mark.parametrize("line", BLOCKS["sh"].strip().splitlines())
def test_commands_run(line, monkeypatch, tmp_path, capsys):
    words = shlex.split(re.sub(r"--episodes \d+", "--episodes 10", line))
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main()
    output = capsys.readouterr()
    assert not stop.value.code, output.err
    assert output.out.strip()
