"""What the README shows must run."""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from fewlabels.cli import main

README = Path(__file__).parents[1] / "README.md"
BLOCKS = dict(re.findall(r"```([\w ]+)\n(.*?)```", README.read_text(), flags=re.S))
GROCERIES = README.parent / "examples" / "grocery"


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


@pytest.mark.parametrize("line", BLOCKS["sh label"].strip().splitlines())
def test_labelling_commands_run(line, monkeypatch, tmp_path, capsys):
    """As shown, on a few of the demo's photographs."""
    pytest.importorskip("efficientnet_lite_pytorch")
    monkeypatch.setenv("FEWLABELS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    rows = ["path,label"]
    for name in ("Kaiser", "Leek", "Satsumas"):
        photographs = sorted((GROCERIES / name).glob("*.jpg"))[:4]
        (tmp_path / "photos" / name).mkdir(parents=True)
        for path in photographs:
            shutil.copy(path, tmp_path / "photos" / name / path.name)
        rows.append(f"{name}/{photographs[0].name},{name}")
    (tmp_path / "few.csv").write_text("\n".join(rows))
    monkeypatch.setattr(sys, "argv", shlex.split(line))
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code, capsys.readouterr().err
    found = [row.split(",")[:2] for row in (tmp_path / "labels.csv").read_text().splitlines()[1:]]
    assert len(found) == 12
    assert sum(path.startswith(label) for path, label in found) >= 10


def test_accuracies_are_those_that_were_measured():
    path = README.parent / "benchmarks" / "results" / "folders.json"
    cells = json.loads(path.read_text())["cells"]
    pattern = r"^\| ([a-z ]+) \| (\d+) \| ([a-z ]+) \| \*\*([\d.]+)\*\* \| ([\d.]+) \| ([\d.]+) \|$"
    rows = re.findall(pattern, README.read_text(), flags=re.M)
    assert len(rows) == 7
    for folder, k, sizes, *shown in rows:
        found = [
            cell["accuracy"]
            for cell in cells
            if (cell["k"], cell["uneven"]) == (int(k), sizes == "uneven")
            and folder in ("nine folders", cell["folder"])
        ]
        assert len(found) == (9 if folder == "nine folders" else 1)
        for name, text in zip(
            ("folder", "logistic regression", "nearest class mean"), shown, strict=True
        ):
            assert text == f"{sum(each[name] for each in found) / len(found):.1f}", (
                folder,
                k,
                name,
            )
