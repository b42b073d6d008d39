"""Results on disk: a folder belongs to one set of features, and no reader ever sees half a file."""

import io
import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fewlabels.errors import InputError
from fewlabels.evaluation.results import EvaluationResult

RESULT, ACCURACIES, TUNING = "result.json", "accuracies.npz", "tuning.json"


def open_folder(path: Path, *, fingerprint: str, force: bool = False) -> Path:
    """Make a folder for results, and see to it that they can be written and belong there.

    Args:
        path: The folder; parents are made as needed.
        fingerprint: Of the features that the results will be of.
        force: Overwrite results of other features.
    """
    for name in (RESULT, TUNING):
        file = path / name
        if not force and file.is_file() and (held := _fingerprint(file)) != fingerprint:
            raise InputError(
                f"{file} holds results of other features ({held}, these are {fingerprint}): "
                "the file changed, or it is another one. Choose another --output, or overwrite with --force."
            )
    return make_folder(path)


def make_folder(path: Path) -> Path:
    """Make a folder, parents as needed, and see to it that files can be written there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".{secrets.token_hex(4)}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise _unwritable(path, error) from error
    return path


def write_file(path: Path, content: bytes) -> None:
    """Write a file through a temporary one beside it."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_results(
    folder: Path, results: Sequence[EvaluationResult], *, fingerprint: str, command: str
) -> None:
    """Write result.json, and accuracies.npz with the accuracies of result number i under the name "i"."""
    buffer = io.BytesIO()
    single: dict[str, Any] = {str(i): result.accuracies for i, result in enumerate(results)}
    np.savez(buffer, **single)
    write_file(folder / ACCURACIES, buffer.getvalue())
    found = {
        "command": command,
        "fingerprint": fingerprint,
        "results": [result.to_dict() for result in results],
    }
    write_file(folder / RESULT, to_json(found))


def to_json(found: Mapping[str, Any]) -> bytes:
    """Indented JSON with a final newline."""
    return (json.dumps(found, indent=2) + "\n").encode()


def _fingerprint(file: Path) -> str:
    """The features a file of results is of, as it says itself."""
    try:
        return str(json.loads(file.read_bytes())["fingerprint"])
    except (ValueError, KeyError, TypeError, OSError):
        return "unknown"


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"{path} cannot be written ({error.strerror or error}). Choose another --output."
    )
