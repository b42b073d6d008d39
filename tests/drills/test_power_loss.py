"""Power loss: what was not flushed to the disk may be gone; the state is the one before or after.

strace records every write, flush and rename of a process. Then disks are made as a loss of power
could leave them: up to some moment; of the writes to a file since its last flush, any may be
missing or cut short; renames since the last flush of their folder may be missing. As in the crash
tests of SQLite ("How SQLite Is Tested", section 3.3).
"""

import os
import random
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fewlabels.io.files import remove_temporaries
from fewlabels.labeling.journal import Journal

STRACE = shutil.which("strace")
pytestmark = pytest.mark.skipif(STRACE is None, reason="needs strace")
CALLS = "openat,write,pwrite64,fsync,fdatasync,rename,unlink,ftruncate,close,mkdir"
LINE = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\d+)")
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
WRITER = """
import sys
from pathlib import Path
from fewlabels.labeling.journal import Journal
from fewlabels.io.files import write_file
folder = Path(sys.argv[1])
journal = Journal(folder / "project.sqlite")
journal.add_items({str(i): "" for i in range(8)})
for i in range(8):
    journal.decide({str(i): f"class {i}"}, origin="person")
    print(f"decided {i}", flush=True)
    if i == 5:
        journal.undo()
        print("undone", flush=True)
        journal.redo()
    write_file(folder / "labels.csv", f"version {i} ".encode() * 500)
    print(f"written {i}", flush=True)
journal.close()
"""


@dataclass
class Disk:
    """Files by number: what is surely there, and writes that may be missing."""

    files: dict[int, bytearray] = field(default_factory=dict)
    waiting: dict[int, list[tuple[int, bytes | None]]] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)  # as the running system sees them
    kept_names: dict[str, int] = field(default_factory=dict)  # as the disk has them

    def flush(self, number: int) -> None:
        for change in self.waiting.pop(number, []):
            apply(self.files[number], change)


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


def replay(log: list[str], folder: str):
    """The disk after each call, and what the process had told by then."""
    disk, handles, ends, told = Disk(), {}, {}, []
    for line in log:
        found = LINE.match(line)
        if not found or int(found[3]) < 0:
            continue
        call, arguments, result = found[1], found[2], int(found[3])
        number = handles.get(arguments.partition(",")[0])
        if call == "openat":
            path = os.fsdecode(texts(arguments)[0])
            handles.pop(str(result), None)
            if not path.startswith(folder):
                continue
            if path == folder:
                handles[str(result)] = -1
                continue
            if path not in disk.names:
                disk.names[path] = len(disk.files)
                disk.files[disk.names[path]] = bytearray()
            handles[str(result)] = disk.names[path]
            size = len(disk.files[disk.names[path]])
            for place, data in disk.waiting.get(disk.names[path], []):
                size = place if data is None else max(size, place + len(data))
            ends[str(result)] = size if "O_APPEND" in arguments else 0
            if "O_TRUNC" in arguments:
                disk.waiting.setdefault(disk.names[path], []).append((0, None))
        elif call == "write" and arguments.startswith("1,"):
            told += texts(arguments)[0].decode().splitlines()
        elif number is not None and call in ("write", "pwrite64"):
            handle, data = arguments.partition(",")[0], texts(arguments)[0][:result]
            place = ends[handle] if call == "write" else int(arguments.rpartition(",")[2])
            disk.waiting.setdefault(number, []).append((place, data))
            ends[handle] = place + len(data)
        elif number is not None and call == "ftruncate":
            size = int(arguments.rpartition(",")[2])
            disk.waiting.setdefault(number, []).append((size, None))
        elif call in ("fsync", "fdatasync") and number is not None:
            if number == -1:
                disk.kept_names = dict(disk.names)
            else:
                disk.flush(number)
                # As on ext4, XFS and APFS: to flush a file also keeps its name, once it has one.
                for path, each in disk.names.items():
                    if each == number and path not in disk.kept_names:
                        disk.kept_names[path] = each
        elif call == "rename":
            old, new = (os.fsdecode(each) for each in texts(arguments))
            if old in disk.names:
                disk.names[new] = disk.names.pop(old)
        elif call == "unlink":
            disk.names.pop(os.fsdecode(texts(arguments)[0]), None)
        else:
            continue
        yield disk, list(told)


def crash(disk: Disk, rng, folder: Path, origin: str) -> None:
    """Write the files as a loss of power could leave them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    names = disk.names if rng.random() < 0.5 else disk.kept_names
    for path, number in names.items():
        if path.endswith("-shm"):
            continue  # shared memory, which is made again
        content = bytearray(disk.files[number])
        for place, data in disk.waiting.get(number, []):
            luck = rng.random()
            if luck < 0.4:
                continue
            if data and luck < 0.6:
                data = data[: rng.randrange(len(data))]
            apply(content, (place, data))
        (folder / Path(path).relative_to(origin)).write_bytes(content)


def test_power_loss(drill, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    log = tmp_path / "log"
    command = [STRACE, "-f", "-xx", "-s", "100000", "-e", f"trace={CALLS}", "-o", str(log)]
    command += [sys.executable, "-c", WRITER, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and "ptrace" in done.stderr:
        pytest.skip("needs strace, which may not trace here")
    assert done.returncode == 0, done.stderr
    lines = log.read_text().splitlines()
    total = sum(1 for _ in replay(lines, str(folder)))
    assert total > 100
    moments: dict[int, list[random.Random]] = {}
    for rng in drill.tries("power loss: journal and files", 60, 1500):
        moments.setdefault(rng.randrange(total), []).append(rng)
    for number, (disk, told) in enumerate(replay(lines, str(folder))):
        for rng in moments.get(number, []):
            crash(disk, rng, tmp_path / "after", str(folder))
            drill.judge(*judge(tmp_path / "after", told))


def judge(folder: Path, told: list[str]) -> tuple[bool, str]:
    decided = sum(line.startswith("decided") for line in told)
    written = [int(line.split()[1]) for line in told if line.startswith("written")]
    journal = Journal(folder / "project.sqlite")
    n = len(journal.current)
    right = all(journal.current[str(i)].label == f"class {i}" for i in range(n) if i != 5)
    journal.close()
    undone = {6: (5, 6, 7)}.get(decided, (decided, decided + 1))  # an undo is on its way, or done
    remove_temporaries(folder)
    csv = folder / "labels.csv"
    content = csv.read_bytes() if csv.exists() else b""
    last = written[-1] if written else -1
    states = {b""} if last < 0 else {f"version {last} ".encode() * 500}
    states.add(f"version {last + 1} ".encode() * 500)
    return n in undone and right and content in states, f"{told[-2:]}: {n}, {content[:12]!r}"
