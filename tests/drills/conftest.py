"""What the drills share: counted tries, children that are killed, small folders to work on.

A few tries of each drill run with all other tests, with fixed seeds. With FEWLABELS_DRILLS=many,
as in `make drills`, there are many; FEWLABELS_DRILLS_OUTPUT names the file of their record.
"""

import json
import os
import platform
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fewlabels.backbones import build_backbone, save_backbone
from fewlabels.features import FeatureSet
from fewlabels.io.files import TEMPORARY
from fewlabels.io.locks import lock
from fewlabels.paper.ledger import machine

HERE = Path(__file__).parent
MANY = os.environ.get("FEWLABELS_DRILLS") == "many"
OUTPUT = os.environ.get("FEWLABELS_DRILLS_OUTPUT")
FILE_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.copystat")
COLORS = {"apple": (200, 40, 40), "leek": (40, 170, 60), "plum": (90, 40, 150)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the drills, so that `-m "not drills"` leaves them out."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.drills)


@dataclass
class Drill:
    """How many tries were survived, and what went wrong in the others."""

    name: str = ""
    survived: int = 0
    lost: list[str] = field(default_factory=list)

    def tries(self, name: str, few: int, many: int) -> Iterator[random.Random]:
        """A source of randomness for each try."""
        self.name = name
        for number in range(many if MANY else few):
            yield random.Random(f"{name} {number}")

    def judge(self, good: bool, what: str) -> None:
        if good:
            self.survived += 1
        else:
            self.lost.append(what)


@pytest.fixture
def drill(request: pytest.FixtureRequest) -> Iterator[Drill]:
    made = Drill()
    begun = time.perf_counter()
    yield made
    if OUTPUT:
        result = {
            "test": f"{request.path.name}::{request.node.name}",
            "tries": made.survived + len(made.lost),
            "survived": made.survived,
            "lost": len(made.lost),
            "seconds": round(time.perf_counter() - begun, 1),
            "first": made.lost[:3],
        }
        record(Path(OUTPUT), made.name, result)
    assert made.survived > 0
    assert made.lost == []


def record(path: Path, name: str, result: dict[str, Any]) -> None:
    """Add a drill to the file that all processes of a run share."""
    with path.open("a+", encoding="utf-8") as file:
        lock(file)
        file.seek(0)
        text = file.read()
        found = json.loads(text) if text else {"about": about(), "drills": {}}
        drills = {**found["drills"], name: result}
        found["drills"] = dict(sorted(drills.items(), key=lambda each: each[1]["test"]))
        file.truncate(0)
        file.write(json.dumps(found, indent=1) + "\n")


def about() -> dict[str, str]:
    """What was tried, and where."""
    command = ["git", "rev-parse", "--short=7", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE)
    where = {"machine": machine(), "python": platform.python_version()}
    return {"commit": found.stdout.strip(), **where, "date": time.strftime("%Y-%m-%d")}


class Child:
    """A forked process that runs a command; forked, so that nothing has to be imported again."""

    def __init__(
        self, arguments: list[object], log: Path, *, below: Path, kill_at: int = -1
    ) -> None:
        """Start it.

        Args:
            arguments: Of the program.
            log: Gets its stdout and stderr.
            below: Operations on files below this folder are counted.
            kill_at: The number of the operation before which it kills itself; -1 for none.
        """
        self.log, self.counts = log, log.with_suffix(".count")
        log.write_bytes(b"")
        self.begun = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            code = 99
            try:
                code = self._run(arguments, str(below), kill_at)
            finally:
                os._exit(code)

    def _run(self, arguments: list[object], below: str, kill_at: int) -> int:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        handle = os.open(self.log, os.O_WRONLY | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        done = 0

        def count(event: str, values: tuple[Any, ...]) -> None:
            nonlocal done
            if event in FILE_EVENTS and str(values[0]).startswith(below):
                if done == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                done += 1

        sys.addaudithook(count)
        sys.argv = ["fewlabels", *map(str, arguments)]
        try:
            from fewlabels.cli import main

            main()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self.counts.write_text(str(done))
        return code

    def wait(self, seconds: float = 300) -> int:
        """Its exit code, negative for a signal; it is killed after this time."""
        timer = threading.Timer(seconds, os.kill, (self.pid, signal.SIGKILL))
        timer.start()
        _, status = os.waitpid(self.pid, 0)
        timer.cancel()
        return os.waitstatus_to_exitcode(status)

    def kill(self, after: float) -> int:
        time.sleep(max(0.0, after - (time.monotonic() - self.begun)))
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()


def warm_up(arguments: list[object]) -> None:
    """Run a command once in this process, so that its children import nothing."""
    before = sys.argv
    sys.argv = ["fewlabels", *map(str, arguments)]
    try:
        from fewlabels.cli import main

        main()
    except SystemExit as ended:
        assert not ended.code  # noqa: PT017
    finally:
        sys.argv = before


@pytest.fixture(name="warm_up")
def warm_up_fixture() -> Callable[[list[object]], None]:
    return warm_up


@pytest.fixture
def start(tmp_path) -> Callable[..., Child]:
    log = tmp_path.parent / f"{tmp_path.name}.log"

    def begin(*arguments: object, kill_at: int = -1) -> Child:
        return Child(list(arguments), log, below=tmp_path, kill_at=kill_at)

    return begin


def leftovers(folder: Path) -> list[str]:
    """Temporary files and locks that should not be there."""
    ends = (TEMPORARY, "-wal", "-shm", "-journal")
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.name.endswith(ends) and path.name.startswith((".", "project", "files"))
    ]


@pytest.fixture(name="leftovers")
def leftovers_fixture() -> Callable[[Path], list[str]]:
    return leftovers


def draw(path: Path, color: tuple[int, int, int], seed: int, side: int = 32) -> None:
    noise = np.random.default_rng(seed).normal(scale=18, size=(side, side, 3))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.clip(np.array(color) + noise, 0, 255).astype(np.uint8)).save(path)


@pytest.fixture
def photos(tmp_path) -> Path:
    """Three classes of four pictures, two of each in the folder of their class."""
    for number, (name, color) in enumerate(COLORS.items()):
        for i in range(4):
            where = tmp_path / "photos" / (name if i < 2 else "") / f"{name}-{i}.png"
            draw(where, color, seed=100 * number + i)
    return tmp_path / "photos"


@pytest.fixture
def encoder(tmp_path) -> Path:
    path = tmp_path / "conv4.safetensors"
    transform = "resize(32) | crop(32) | normalize(0.5 0.5 0.5, 0.5 0.5 0.5)"
    options = {"image_size": 32}
    backbone = build_backbone("conv4", image_size=32)
    save_backbone(path, backbone, name="conv4", options=options, transform=transform, provenance={})
    return path


@pytest.fixture
def features(tmp_path) -> Path:
    """Six classes of forty rows."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 40)
    rows = rng.gamma(1.0, size=(6, 8))[labels] + 0.5 * rng.gamma(1.0, size=(240, 8))
    made = FeatureSet.from_arrays(rows.astype(np.float32), labels, list("abcdef"))
    made.save(tmp_path / "features.safetensors")
    return tmp_path / "features.safetensors"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("FEWLABELS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
