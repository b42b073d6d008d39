"""What the README, SKILL.md and docs/rows.md show must run."""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from fewlabels.cli import app, main
from fewlabels.features.store import FeatureStore
from fewlabels.labeling.collection import Extraction
from fewlabels.labeling.session import open_session

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


def find_commands(path: Path) -> list[str]:
    """The commands of a document: indented lines, and between back quotes."""
    text = path.read_text(encoding="utf-8")
    lines = re.findall(r"^ {4}(fewlabels .*)$", text, flags=re.M)
    spans = re.findall(r"`(fewlabels [^`]+)`", text)
    found = [each.partition(" #")[0].split("\n    ")[0] for each in [*lines, *spans]]
    return [" ".join(each.split()) for each in found]


@pytest.mark.parametrize("name", ["README.md", "SKILL.md", "docs/rows.md"])
def test_every_command_that_is_named_has_these_options(name):
    """Also those that run until they are stopped, need the network, or are shown in part."""
    program = get_command(app)
    found = find_commands(README.parent / name)
    assert len(found) >= 10
    for line in found:
        command, words = program, shlex.split(line)[1:]
        while words and words[0] in getattr(command, "commands", ()):
            command, words = command.commands[words[0]], words[1:]
        assert command is not program, line
        context = command.context_class(command, info_name=line)
        words = [each for each in words if each not in ("-h", "--help")]
        command.make_parser(context).parse_args(words)  # raises NoSuchOption


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Photographs with a few labels, later ones, a table of texts, and projects of two people."""
    pytest.importorskip("efficientnet_lite_pytorch")
    monkeypatch.setenv("FEWLABELS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    rows = ["path,label"]
    for folder in ("photos", "new"):
        (tmp_path / folder).mkdir()
    for kind in ("Kaiser", "Leek", "Satsumas"):
        for number, path in enumerate(sorted((GROCERIES / kind).glob("*.jpg"))[:5]):
            shutil.copy(
                path, tmp_path / ("photos" if number < 4 else "new") / f"{kind}{number}.jpg"
            )
            rows += [f"{kind}{number}.jpg,{kind}"] if number < 2 else []
    (tmp_path / "few.csv").write_text("\n".join(rows))
    subjects = ("rain and storm", "goal and match")
    texts = [f"{i},{subjects[i % 2]} {i},{i % 2 if i < 4 else ''}" for i in range(12)]
    (tmp_path / "texts.csv").write_text("\n".join(["id,body,label", *texts]))
    how = Extraction(n_workers=0, store=FeatureStore())
    session = open_session(Path("photos"), labels=Path("few.csv"), extraction=how)
    session.keep_answer()
    session.close()
    for person in ("anna", "ben"):
        shutil.copytree("photos.fewlabels", f"{person}.fewlabels")
    return tmp_path


# What stands for the words in capital letters of SKILL.md; OUT is a new folder each time.
MEANT = {
    "FOLDER": "photos",
    "FORMAT": "csv",
    "IMAGES": "new",
    "PROJECT": "photos.fewlabels",
    "OTHER": "ben.fewlabels",
    "NAME": "ben",
}
RUN = ("label", "next", "predict", "export", "move", "merge", "people")  # and end by themselves
NEEDS_MORE = ("clip:", "minilm", "subjects.safetensors")  # encoders that are not always there


def test_commands_of_every_day_run_as_they_are_written(world, monkeypatch, capsys):
    """In the order of SKILL.md, README.md and docs/rows.md; each succeeds and says something."""
    lines = find_commands(README.parent / "SKILL.md")
    lines += ["fewlabels label photos --labels few.csv --model m.safetensors"]  # "saved by label"
    lines += find_commands(README) + find_commands(README.parent / "docs" / "rows.md")
    n_run = 0
    for number, line in enumerate(lines):
        words = [
            f"out{number}" if each == "OUT" else MEANT.get(each, each) for each in line.split()
        ]
        is_whole = len(words) > 2 and words[1] in RUN and words[-1] != "-h"
        if not is_whole or any(each in line for each in NEEDS_MORE):
            continue
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        assert not stop.value.code, f"{line}: {said.err}"
        assert said.out.strip(), line
        if "--json" in words:
            json.loads(said.out)
        n_run += 1
    assert n_run >= 15


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
