"""Results on disk: a folder holds the results of one feature set, in files written atomically."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fewlabels.errors import InputError
from fewlabels.evaluation.results import EvaluationResult
from fewlabels.io.files import make_folder, write_file

RESULT, ACCURACIES, TUNING = "result.json", "accuracies.npz", "tuning.json"
LEADERBOARD = "leaderboard.json"


def open_folder(path: Path, *, fingerprint: str, force: bool = False) -> Path:
    """Make a folder for results; refuse one that cannot be written or has other results."""
    for name in (RESULT, TUNING, LEADERBOARD):
        file = path / name
        if not force and file.is_file() and (held := _fingerprint(file)) != fingerprint:
            raise InputError(
                f"{file} holds results of other features ({held}, these are {fingerprint}): "
                "the file of features changed, or it is another one. "
                "Choose another folder, or overwrite with force=True."
            )
    return make_folder(path)


def write_results(
    folder: Path, results: Sequence[EvaluationResult], *, fingerprint: str, command: str
) -> None:
    """Write result.json, and accuracies.npz with the accuracies of result i under the name "i"."""
    buffer = io.BytesIO()
    single: dict[str, Any] = {str(i): result.accuracies for i, result in enumerate(results)}
    np.savez(buffer, **single)
    write_file(folder / ACCURACIES, buffer.getvalue())
    about = {"command": command, "fingerprint": fingerprint}
    found = {**about, "results": [result.to_dict() for result in results]}
    write_file(folder / RESULT, to_json(found))


def to_json(found: Mapping[str, Any]) -> bytes:
    """Indented JSON with a final newline."""
    return (json.dumps(found, indent=2) + "\n").encode()


def _fingerprint(file: Path) -> str:
    """The fingerprint of the features that a file of results names."""
    try:
        return str(json.loads(file.read_bytes())["fingerprint"])
    except (ValueError, KeyError, TypeError, OSError):
        return "unknown"
