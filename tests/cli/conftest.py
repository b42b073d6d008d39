"""Ways to run the program, and small feature files."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from fewlabels.cli import main


class Done(NamedTuple):
    code: int
    stdout: str
    stderr: str


@pytest.fixture(scope="session")
def program() -> Callable[..., Done]:
    """The program as installed, in a process of its own."""

    def run(*arguments: object) -> Done:
        command = [str(Path(sys.executable).with_name("fewlabels")), *map(str, arguments)]
        done = subprocess.run(
            command, capture_output=True, text=True, encoding="utf-8", timeout=600, check=False
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def here(monkeypatch, capsys) -> Callable[..., Done]:
    """The same in this process, to save the imports."""

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["fewlabels", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return Done(ended.value.code, *capsys.readouterr())

    return run


@pytest.fixture
def make_file(tmp_path) -> Callable[..., Path]:
    """Writes classes of made-up non-negative vectors, twenty of each."""

    def make(name: str = "features.npz", *, n_classes: int = 6, seed: int = 0) -> Path:
        rng = np.random.default_rng(seed)
        labels = np.repeat(np.arange(n_classes), 20)
        vectors = np.abs(
            rng.gamma(1.0, size=(n_classes, 6))[labels] + 0.4 * rng.normal(size=(len(labels), 6))
        )
        np.savez(tmp_path / name, features=vectors.astype(np.float32), labels=labels)
        return tmp_path / name

    return make
