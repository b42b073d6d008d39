"""Systems of other papers that were trained here stand in the tables with their records."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fewlabels.errors import FileFormatError
from fewlabels.paper.ledger import Ledger
from fewlabels.paper.library import Library
from fewlabels.paper.published import SHOTS, read_published
from fewlabels.paper.systems import describe_systems, find_recorded
from fewlabels.paper.tables import PaperTableExhibit

ARTIFACTS = Path(__file__).resolve().parents[2] / "artifacts"
ROWS = [row for row in read_published().tables["table2"].rows if row.system]
[PROTONET] = [row for row in ROWS if (row.dataset, row.method) == ("cifar-fs", "ProtoNet")]


def record(folder, n_shot, accuracy):
    """What `fewlabels train --evaluate novel` writes, with one number of shots."""
    place = folder / "cifar-fs" / "systems" / f"protonet-conv4-{n_shot}shot"
    place.mkdir(parents=True)
    cell = {"accuracy": accuracy, "ci95": 0.5, "n_episodes": 7, "draws": "authors", "seed": 0}
    (place / "evaluation.json").write_text(json.dumps({"novel": {str(n_shot): cell}}))
    recipe = {"steps_per_epoch": 100, "shots": [n_shot], "start": "", "image_size": 32}
    recipe["settings"] = {"temperature": 1.0}
    metrics = {"device": "cpu", "recipe": recipe, "kept_epoch": {"epoch": 3}}
    (place / "metrics.json").write_text(json.dumps(metrics))
    return place


def test_each_shot_has_its_own_record(tmp_path):
    for n_shot, accuracy in ((1, 57.25), (5, 75.5)):
        record(tmp_path, n_shot, accuracy)
    report = PaperTableExhibit("table2").report(Ledger(tmp_path, Library(tmp_path)))
    [line] = [
        row
        for section in report.table.sections
        for row in section
        if row[:3] == ("CIFAR-FS", "inductive", "ProtoNet")
    ]
    assert line[4:] == (
        *("55.50 ± 0.70", "57.25 ± 0.50", "+1.75 ± 0.86"),
        *("72.00 ± 0.60", "75.50 ± 0.50", "+3.50 ± 0.78"),
    )
    [data] = [row for row in report.data["rows"] if row["system"] == PROTONET.system]
    assert data["ours"]["5"]["record"] == "cifar-fs/systems/protonet-conv4-5shot/evaluation.json"
    [note] = [note for note in report.notes if "protonet-conv4-1shot" in note]
    assert "by this project on cpu, 300 steps, shots 1, images of 32 px; 7 episodes; " in note


def test_without_a_record_only_the_published_number_stands(tmp_path):
    record(tmp_path, 1, 57.25)
    report = PaperTableExhibit("table2").report(Ledger(tmp_path, Library(tmp_path)))
    by_system = {row["system"]: row for row in report.data["rows"] if row["system"]}
    assert all(row["ours"] is None for row in by_system.values())
    [maml] = [row for row in ROWS if (row.dataset, row.method) == ("cub", "MAML")]
    assert find_recorded(tmp_path, maml, 1) is None
    assert find_recorded(tmp_path, replace(PROTONET, system=None), 1) is None
    assert describe_systems(tmp_path, [maml]) == []


@pytest.mark.parametrize("name", ["evaluation.json", "metrics.json"])
@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_a_damaged_record_is_named(tmp_path, name, content):
    place = record(tmp_path, 1, 57.25)
    (place / name).write_text(content)
    with pytest.raises(FileFormatError, match=rf"{name} cannot be read as a record of a system"):
        describe_systems(tmp_path, [PROTONET])


def test_the_records_of_the_repository_are_of_the_authors_draws():
    found = {row.system: [find_recorded(ARTIFACTS, row, n) for n in SHOTS] for row in ROWS}
    assert all(None not in cells for cells in found.values())
    for name, cells in found.items():
        for cell in cells:
            assert (cell["draws"], cell["seed"]) == ("authors", 0)
            assert cell["n_episodes"] == (2_000 if name.startswith("maml-resnet10") else 10_000)
