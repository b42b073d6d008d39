"""Recorded accuracies of systems that were trained here on episodes.

artifacts/<dataset>/systems/<system>/evaluation.json and metrics.json, as `fewlabels train
--evaluate novel` writes them. They are read, not measured again: most of the networks are too large
to keep.
"""

import json
from pathlib import Path
from typing import Any

from fewlabels.errors import FileFormatError
from fewlabels.paper.ledger import Measurement
from fewlabels.paper.published import DATASETS, SHOTS, Row

EVALUATION, METRICS = "evaluation.json", "metrics.json"
KEPT = ("accuracy", "ci95", "n_episodes", "draws", "seed")


def find_recorded(artifacts: Path, row: Row, n_shot: int) -> Measurement | None:
    """The recorded accuracy of a row's system on novel classes; None where there is no record."""
    if row.system is None:
        return None
    path = _folder(artifacts, row, n_shot) / EVALUATION
    found = _read(path)
    if found is None:
        return None
    try:
        cell = found["novel"][str(n_shot)]
        return {
            **{key: cell[key] for key in KEPT},
            "record": path.relative_to(artifacts).as_posix(),
        }
    except (KeyError, TypeError) as error:
        raise _damaged(path, error) from error


def describe_systems(artifacts: Path, rows: list[Row]) -> list[str]:
    """How the systems of rows were trained and tested, one sentence for each."""
    notes: dict[str, None] = {}
    for row in rows:
        for n_shot in SHOTS:
            cell = find_recorded(artifacts, row, n_shot)
            if cell is None:
                continue
            path = _folder(artifacts, row, n_shot) / METRICS
            metrics = _read(path) or {}
            try:
                recipe, kept = metrics["recipe"], metrics["kept_epoch"]
                steps = kept["epoch"] * recipe["steps_per_epoch"]
                shots = " and ".join(map(str, recipe["shots"]))
                begun = (
                    ", starting from a classifier of the base classes" if recipe["start"] else ""
                )
                what = f"{DATASETS[row.dataset]} {row.method} ({row.backbone})"
                how = f"on {metrics['device']}, {steps:,} steps{begun}, shots {shots}"
                knobs = ", ".join(f"{name} {value}" for name, value in recipe["settings"].items())
                tested = (
                    f"images of {recipe['image_size']} px; {cell['n_episodes']:,} episodes; {knobs}"
                )
                note = f"Ours, {what}: trained by this project {how}, {tested}; {cell['record']}."
                notes[note] = None
            except (KeyError, TypeError) as error:
                raise _damaged(path, error) from error
    return list(notes)


def _folder(artifacts: Path, row: Row, n_shot: int) -> Path:
    return artifacts / row.dataset / "systems" / str(row.system).format(shots=n_shot)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error
    return found


def _damaged(path: Path, error: Exception) -> FileFormatError:
    return FileFormatError(
        f"{path} cannot be read as a record of a system ({error!r}). Restore it, or remove its "
        "folder."
    )
