"""Power loss: what was not flushed to the disk may be gone; the state is the one before or after.

strace records every write, flush and rename of a process. Then disks are made as a loss of power
could leave them: up to some moment; of the writes to a file since its last flush, any may be
missing or cut short; names since the last flush of their folder may be missing. As in the crash
tests of SQLite ("How SQLite Is Tested", section 3.3).
"""

import os
import random
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np
import pytest

from fewlabels.features.recipe import FeatureRecipe
from fewlabels.features.store import FeatureStore
from fewlabels.io.files import remove_temporaries
from fewlabels.io.moves import finish_moves, undo_moves
from fewlabels.labeling.check import check_project
from fewlabels.labeling.journal import Journal
from fewlabels.labeling.project import FEATURES, Project

STRACE = shutil.which("strace")
pytestmark = pytest.mark.skipif(STRACE is None, reason="needs strace")
CALLS = "openat,write,pwrite64,sendfile,fsync,fdatasync,rename,link,unlink,rmdir,ftruncate,mkdir"
LINE = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\d+)")
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
AT_THE_END = -1  # where appended bytes go
Changes = list[tuple[int, bytes | None]]


@dataclass
class File:
    """What is surely there, and writes that may be missing."""

    content: bytearray = field(default_factory=bytearray)
    waiting: Changes = field(default_factory=list)

    def flush(self) -> None:
        for change in self.waiting:
            apply(self.content, change)
        self.waiting = []

    @property
    def now(self) -> bytes:
        """As the running system sees it."""
        seen = bytearray(self.content)
        for change in self.waiting:
            apply(seen, change)
        return bytes(seen)


@dataclass
class Folder:
    """Names as the running system sees them, and as the disk has them."""

    names: dict[str, "File | Folder"] = field(default_factory=dict)
    kept: dict[str, "File | Folder"] = field(default_factory=dict)


def apply(content: bytearray, change: tuple[int, bytes | None]) -> None:
    place, data = change
    if data is None:
        del content[place:]
        content.extend(bytes(max(0, place - len(content))))
        return
    content.extend(bytes(max(0, place - len(content))))
    content[place : place + len(data)] = data


def texts(arguments: str) -> list[bytes]:
    return [bytes.fromhex(each.replace("\\x", "")) for each in TEXT.findall(arguments)]


class Disk:
    """All files and folders below one folder."""

    def __init__(self, root: str) -> None:
        self.root, self.top = root, Folder()

    def parts(self, path: str) -> tuple[str, ...] | None:
        """Names from the root on; None for what lies outside."""
        inside = path == self.root or path.startswith(f"{self.root}/")
        return PurePosixPath(path[len(self.root) :].strip("/")).parts if inside else None

    def folder(self, parts: tuple[str, ...]) -> Folder:
        found = self.top
        for name in parts:
            found = found.names[name]
            assert isinstance(found, Folder)
        return found

    def find(self, parts: tuple[str, ...]) -> File | Folder:
        return self.folder(parts[:-1]).names[parts[-1]] if parts else self.top

    def keep(self, node: File | Folder) -> None:
        """Flush a file or the names of a folder.

        As on ext4, XFS and APFS, that also keeps its own name, and those of the folders around it.
        """
        if isinstance(node, File):
            node.flush()
        else:
            node.kept = dict(node.names)

        def keep_names(around: Folder) -> bool:
            for name, each in around.names.items():
                if each is node or (isinstance(each, Folder) and keep_names(each)):
                    around.kept.setdefault(name, each)
                    return True
            return False

        keep_names(self.top)

    def crash(self, rng: random.Random, place: Path) -> None:
        """Write the files as a loss of power could leave them.

        The folders of the root may be on different file systems: each keeps an order of its own.
        """
        shutil.rmtree(place, ignore_errors=True)
        lucky = rng.random() < 0.5
        names = self.top.names if lucky else self.top.kept
        place.mkdir()
        for name, node in names.items():
            if isinstance(node, Folder):
                self._write(node, place / name, rng, lucky=rng.random() < 0.5)
            else:
                self._write_file(node, place / name, rng)

    def _write(self, folder: Folder, place: Path, rng: random.Random, *, lucky: bool) -> None:
        place.mkdir()
        for name, node in (folder.names if lucky else folder.kept).items():
            if isinstance(node, Folder):
                self._write(node, place / name, rng, lucky=lucky)
            else:
                self._write_file(node, place / name, rng)

    def _write_file(self, file: File, place: Path, rng: random.Random) -> None:
        if place.name.endswith("-shm"):
            return  # shared memory, which is made again
        content = bytearray(file.content)
        for start, data in file.waiting:
            luck = rng.random()
            if luck < 0.4:
                continue
            kept = data[: rng.randrange(len(data))] if data and luck < 0.6 else data
            apply(content, (start, kept))
        place.write_bytes(content)


def replay(log: list[str], root: str) -> Iterator[tuple[Disk, list[str]]]:
    """The disk after each call, and what the process had told by then."""
    disk, told = Disk(root), list[str]()
    handles: dict[str, File | Folder] = {}
    places: dict[str, int] = {}  # where the next write to a handle goes
    for line in log:
        found = LINE.match(line)
        if not found or int(found[3]) < 0:
            continue
        call, arguments, result = found[1], found[2], int(found[3])
        handle = arguments.partition(",")[0]
        node = handles.get(handle)
        if call == "openat":
            handles.pop(str(result), None)
            parts = disk.parts(os.fsdecode(texts(arguments)[0]))
            if parts is None:
                continue
            if not parts or "O_DIRECTORY" in arguments:
                opened = disk.find(parts)
            else:
                around = disk.folder(parts[:-1])
                opened = around.names.setdefault(parts[-1], File())
            handles[str(result)] = opened
            if isinstance(opened, File):
                places[str(result)] = AT_THE_END if "O_APPEND" in arguments else 0
                if "O_TRUNC" in arguments:
                    opened.waiting.append((0, None))
        elif call == "write" and handle == "1":
            told += texts(arguments)[0].decode().splitlines()
        elif call in ("write", "pwrite64") and isinstance(node, File):
            data = texts(arguments)[0][:result]
            place = places[handle] if call == "write" else int(arguments.rpartition(",")[2])
            if place == AT_THE_END:
                place = len(node.now)
            elif call == "write":
                places[handle] = place + len(data)
            node.waiting.append((place, data))
        elif call == "sendfile" and isinstance(node, File):
            source = arguments.split(",")[1].strip()
            original = handles[source]
            assert isinstance(original, File)
            start = places[source]
            node.waiting.append((places[handle], original.now[start : start + result]))
            places[handle], places[source] = places[handle] + result, start + result
        elif call == "ftruncate" and isinstance(node, File):
            node.waiting.append((int(arguments.rpartition(",")[2]), None))
        elif call in ("fsync", "fdatasync") and node is not None:
            disk.keep(node)
        elif call in ("rename", "link", "unlink", "rmdir", "mkdir"):
            paths = [disk.parts(os.fsdecode(each)) for each in texts(arguments)]
            if None in paths:
                continue
            first, *others = paths
            around = disk.folder(first[:-1])
            if call == "mkdir":
                around.names[first[-1]] = Folder()
                continue
            moved = around.names[first[-1]] if call == "link" else around.names.pop(first[-1])
            for other in others:
                disk.folder(other[:-1]).names[other[-1]] = moved
        else:
            continue
        yield disk, list(told)


def rehearse(
    drill,
    tmp_path: Path,
    name: str,
    n: tuple[int, int],
    writer: str,
    judge: Callable[[Path, list[str]], tuple[bool, str]],
) -> None:
    """Record a process that writes below a folder; then lose power at many moments."""
    folder, log = tmp_path / "work", tmp_path / "log"
    folder.mkdir()
    command = [STRACE, "-f", "-xx", "-s", "1000000", "-e", f"trace={CALLS}", "-o", str(log)]
    command += [sys.executable, "-c", writer, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and "ptrace" in done.stderr:
        pytest.skip("needs strace, which may not trace here")
    assert done.returncode == 0, done.stderr
    lines = log.read_text().splitlines()
    *before, (disk, _) = replay(lines, str(folder))
    total = len(before) + 1
    assert total > 50
    compare(disk.top, folder)  # the record has everything that was written
    moments: dict[int, list[random.Random]] = {}
    for rng in drill.tries(f"power loss: {name}", *n):
        moments.setdefault(rng.randrange(total), []).append(rng)
    for number, (disk, told) in enumerate(replay(lines, str(folder))):
        for rng in moments.get(number, []):
            disk.crash(rng, folder)
            drill.judge(*judge(folder, told))


def compare(recorded: Folder, folder: Path) -> None:
    assert set(recorded.names) == {path.name for path in folder.iterdir()}
    for name, node in recorded.names.items():
        if isinstance(node, Folder):
            compare(node, folder / name)
        else:
            assert node.now == (folder / name).read_bytes(), name


JOURNAL = """
import sys
from pathlib import Path
from fewlabels.labeling.journal import Journal
from fewlabels.io.files import write_file
folder = Path(sys.argv[1])
journal = Journal(folder / "project.sqlite")
journal.describe({"title": "t", "root": "/here"})
journal.add_items({str(i): "" for i in range(8)})
for i in range(8):
    journal.decide({str(i): f"class {i}"}, origin="person")
    print(f"decided {i}", flush=True)
    if i == 3:
        journal.describe({"root": "/elsewhere"})
        print("described", flush=True)
    if i == 5:
        journal.undo()
        print("undone", flush=True)
        journal.redo()
    write_file(folder / "labels.csv", f"version {i} ".encode() * 500)
    print(f"written {i}", flush=True)
journal.close()
"""


def test_power_loss(drill, tmp_path):
    rehearse(drill, tmp_path, "journal and files", (60, 1500), JOURNAL, judge_journal)


def judge_journal(folder: Path, told: list[str]) -> tuple[bool, str]:
    decided = sum(line.startswith("decided") for line in told)
    written = [int(line.split()[1]) for line in told if line.startswith("written")]
    journal = Journal(folder / "project.sqlite")
    n = len(journal.current)
    right = all(journal.current[str(i)].label == f"class {i}" for i in range(n) if i != 5)
    right &= "described" not in told or journal.about["root"] == "/elsewhere"
    journal.close()
    undone = {6: (5, 6, 7)}.get(decided, (decided, decided + 1))  # an undo is on its way, or done
    remove_temporaries(folder)
    csv = folder / "labels.csv"
    content = csv.read_bytes() if csv.exists() else b""
    last = written[-1] if written else -1
    states = {b""} if last < 0 else {f"version {last} ".encode() * 500}
    states.add(f"version {last + 1} ".encode() * 500)
    return n in undone and right and content in states, f"{told[-2:]}: {n}, {content[:12]!r}"


ROWS = np.random.default_rng(0).gamma(1.0, size=(30, 4)).astype(np.float32)
RECIPE = FeatureRecipe("conv4", "0" * 32, "crop(32)", "center", "float32", 4)
DIGESTS = [f"{i:032x}" for i in range(30)]
PROJECT = """
import sys
from pathlib import Path
import numpy as np
from fewlabels.features import FeatureSet
from fewlabels.features.recipe import FeatureRecipe
from fewlabels.features.store import FeatureStore
from fewlabels.labeling.project import Project
folder = Path(sys.argv[1])
rows = np.random.default_rng(0).gamma(1.0, size=(30, 4)).astype(np.float32)
store = FeatureStore(folder / "store")
recipe = FeatureRecipe("conv4", "0" * 32, "crop(32)", "center", "float32", 4)
for start in (0, 10, 20):
    part = slice(start, start + 10)
    store.put(recipe, [f"{i:032x}" for i in range(30)][part], rows[part])
names = [f"{i}.jpg" for i in range(30)]
features = FeatureSet.from_arrays(rows, [-1] * 30, [], {}, names)
with Project.create(folder / "p", features, title="t", labels={"0.jpg": "a", "1.jpg": "b"}) as made:
    print("created", flush=True)
    made.journal.decide({"2.jpg": "c"}, origin="person")
    print("decided", flush=True)
    made.journal.rename_items({name: f"new {name}" for name in names})
    print("renamed", flush=True)
    names = [f"new {name}" for name in names]
    made.keep_features(FeatureSet.from_arrays(rows, [-1] * 30, [], {}, names), {})
"""


def test_power_loss_of_projects_and_the_store(drill, tmp_path):
    """A project is there completely or not at all; rows of the store are right, or made again."""
    rehearse(drill, tmp_path, "projects and the store", (60, 1500), PROJECT, judge_project)


def judge_project(folder: Path, told: list[str]) -> tuple[bool, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a damaged shard is removed, and its rows made again
        found = FeatureStore(folder / "store").get(RECIPE, DIGESTS)
    good = bool((found.rows[found.known] == ROWS[found.known]).all())
    if "created" in told:
        good &= bool(found.known.all())
    if not (folder / "p").exists():
        return good and "created" not in told, f"{told}: no project"
    with Project.open(folder / "p", write=True) as project:
        labels = {name: each.label for name, each in project.journal.current.items()}
        rows = project.load()
    plain = {name.removeprefix("new "): label for name, label in labels.items()}
    good &= plain in ({"0.jpg": "a", "1.jpg": "b"}, {"0.jpg": "a", "1.jpg": "b", "2.jpg": "c"})
    good &= len(plain) == 3 or "decided" not in told
    good &= len({name.startswith("new ") for name in labels}) == 1
    # Features under other names than the items are computed again, see `Project.follow`.
    checked = [each for each in check_project(folder / "p") if each.what != FEATURES]
    good &= len(rows) == 30 and all(each.right for each in checked)
    return good, f"{told}: {labels}, {len(rows)}"


# Links fail, as they do between two file systems: the files are copied.
MOVES = """
import errno, sys
from pathlib import Path
from fewlabels.io.moves import Move, begin_moves, finish_moves
def refuse(event, _):
    if event == "os.link":
        raise OSError(errno.EXDEV, "another file system")
folder = Path(sys.argv[1])
moves = []
for i in range(6):
    path = folder / "photos" / f"day {i % 2}" / f"{i}.jpg"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes([i]) * (1000 + i))
    with path.open("rb+") as file:
        __import__("os").fsync(file.fileno())
    moves.append(Move(path, folder / "sorted" / f"class {i % 3}" / f"{i}.jpg"))
(folder / "sorted").mkdir()
print("ready", flush=True)
sys.addaudithook(refuse)
begin_moves(folder / "sorted" / "moves-1.jsonl", moves)
finish_moves(folder / "sorted" / "moves-1.jsonl")
print("moved", flush=True)
"""


def test_power_loss_while_photographs_move(drill, tmp_path):
    """Between two file systems: no photograph is lost; the moves can be finished and undone."""
    rehearse(drill, tmp_path, "moves between two disks", (60, 1500), MOVES, judge_moves)


def judge_moves(folder: Path, told: list[str]) -> tuple[bool, str]:
    if "ready" not in told:
        return True, ""
    journal, good = folder / "sorted" / "moves-1.jsonl", "moved" not in told
    if journal.exists():
        finish_moves(journal)
        good = pictures(folder / "sorted") == PHOTOS and not pictures(folder / "photos")
        undo_moves(journal)
    return good and pictures(folder / "photos") == PHOTOS, f"{told}: {pictures(folder)}"


PHOTOS = {f"{i}.jpg": bytes([i]) * (1000 + i) for i in range(6)}


def pictures(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*.jpg")}
