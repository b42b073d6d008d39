"""Moves: killed at any step, files go back byte for byte, or all arrive; nothing is overwritten."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fewlabels.errors import FileFormatError, InputError
from fewlabels.io.moves import (
    Move,
    MovesEndedError,
    begin_moves,
    check_journal,
    finish_moves,
    undo_moves,
)

N = 6
# Runs what is asked for in a process that kills itself at a system call. With "far", links fail as
# they do between two file systems; with "full", files larger than 3,000 bytes cannot be written.
CHILD = """
import errno, os, resource, signal, sys
from pathlib import Path
from fewlabels.io import moves

journal, what, far, step, full = Path(sys.argv[1]), *map(int, sys.argv[2:])
seen, begun = 0, False

def watch(event, _):
    global seen
    if not begun or event not in ("os.link", "os.remove", "os.mkdir", "os.rename", "open",
                                  "os.rmdir", "shutil.copyfile", "shutil.copystat"):
        return
    seen += 1
    if seen == step:
        os.kill(os.getpid(), signal.SIGKILL)
    if far and event == "os.link":
        raise OSError(errno.EXDEV, "another file system")

sys.addaudithook(watch)
if full:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
begun = True
try:
    [moves.finish_moves, moves.undo_moves][what](journal)
except moves.MovesEndedError as error:
    sys.exit(str(error))
"""


@pytest.fixture
def moves(tmp_path) -> list[Move]:
    made = []
    for i in range(N):
        path = tmp_path / "photos" / f"day {i % 2}" / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([i]) * (1000 + i))
        made.append(Move(path, tmp_path / "sorted" / f"class {i % 3}" / f"{i}.jpg"))
    return made


@pytest.fixture
def journal(tmp_path, moves) -> Path:
    begin_moves(tmp_path / "sorted" / "moves-1.jsonl", moves)
    return tmp_path / "sorted" / "moves-1.jsonl"


def tree(folder: Path) -> dict[str, bytes | None]:
    """All files and folders below a folder, files with their content."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def run(journal: Path, what: int, *, far: bool, step: int = 0, full: bool = False):
    words = [
        sys.executable,
        "-c",
        CHILD,
        str(journal),
        *map(str, map(int, (what, far, step, full))),
    ]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("far", [False, True])
def test_moves_and_back(tmp_path, moves, far):
    before = tree(tmp_path)
    begin_moves(tmp_path / "sorted" / "moves-1.jsonl", moves)
    assert tree(tmp_path / "photos") == {k[7:]: v for k, v in before.items() if k != "photos"}
    assert run(tmp_path / "sorted" / "moves-1.jsonl", 0, far=far).returncode == 0
    assert all(move.target.is_file() and not move.source.exists() for move in moves)
    assert run(tmp_path / "sorted" / "moves-1.jsonl", 1, far=far).returncode == 0
    assert tree(tmp_path) == before  # the folders that were made and the journal are gone too


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("step", [2, 5, 9, 13, 17, 22])
def test_killed_at_a_step(tmp_path, moves, far, step):
    before = tree(tmp_path)
    journal = tmp_path / "sorted" / "moves-1.jsonl"
    begin_moves(journal, moves)
    killed = run(journal, 0, far=far, step=step)
    assert killed.returncode in (-9, 0)
    assert far is False or killed.returncode == -9  # a copy takes more steps than these
    run(journal, 1, far=far, step=step)  # undoing is killed too
    if journal.exists():
        undo_moves(journal)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("far", [False, True])
def test_what_was_killed_can_be_finished(tmp_path, moves, journal, far):
    assert run(journal, 0, far=far, step=8).returncode == -9
    with pytest.raises(InputError, match=r"interrupted moves, got moves-1\.jsonl"):
        check_journal(journal.parent, "moves-*.jsonl")
    assert finish_moves(journal) == N
    found = {path.name: path.read_bytes() for path in journal.parent.glob("*/*")}
    assert found == {f"{i}.jpg": bytes([i]) * (1000 + i) for i in range(N)}
    assert not any(path.is_file() for path in (tmp_path / "photos").rglob("*"))
    check_journal(journal.parent, "moves-*.jsonl")


def test_a_file_that_came_later_is_no_interrupted_move(moves, journal):
    finish_moves(journal)
    moves[0].source.parent.mkdir(exist_ok=True)
    moves[0].source.write_bytes(b"another photograph of this name")
    check_journal(journal.parent, "moves-*.jsonl")
    moves[0].source.write_bytes(moves[0].target.read_bytes())  # killed between copy and removal
    with pytest.raises(InputError, match="interrupted moves"):
        check_journal(journal.parent, "moves-*.jsonl")


def test_a_full_disk(tmp_path, moves):
    moves[3].source.write_bytes(bytes(5000))
    before = tree(tmp_path)
    journal = tmp_path / "sorted" / "moves-1.jsonl"
    begin_moves(journal, moves)
    ended = run(journal, 0, far=True, full=True)
    assert "3 of 6 files are at their new place" in ended.stderr
    assert f"{moves[3].target}: File too large. Free some space; then" in ended.stderr
    assert not list(journal.parent.glob("*/.*"))  # no part of a copy is left
    undo_moves(journal)
    assert tree(tmp_path) == before


def test_nothing_is_overwritten(moves, journal):
    moves[0].target.parent.mkdir(exist_ok=True)
    moves[0].target.write_text("mine")
    with pytest.raises(MovesEndedError, match=r"5 of 6 files.*another file is there"):
        finish_moves(journal)
    assert moves[0].target.read_text() == "mine"
    assert moves[0].source.read_bytes() == bytes(1000)
    moves[1].source.write_text("new")
    with pytest.raises(MovesEndedError, match="another file is there"):
        undo_moves(journal)
    assert moves[1].source.read_text() == "new"
    assert moves[1].target.read_bytes() == bytes([1]) * 1001
    assert moves[2].source.is_file()
    assert journal.is_file()


def test_a_file_that_is_gone_is_told(moves, journal):
    moves[4].source.unlink()
    with pytest.raises(MovesEndedError, match=r"4\.jpg: the file is gone"):
        finish_moves(journal)
    assert moves[5].target.is_file()


def test_names_that_are_not_utf8(tmp_path):
    name = b"\xff.jpg".decode(errors="surrogateescape")
    (tmp_path / name).write_bytes(b"x")
    begin_moves(tmp_path / "j.jsonl", [Move(tmp_path / name, tmp_path / "new" / name)])
    finish_moves(tmp_path / "j.jsonl")
    assert (tmp_path / "new" / name).read_bytes() == b"x"
    undo_moves(tmp_path / "j.jsonl")
    assert (tmp_path / name).read_bytes() == b"x"


@pytest.mark.parametrize("content", ["", "[]", json.dumps({"fewlabels": "moves", "version": 9})])
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "j.jsonl").write_text(content)
    with pytest.raises(FileFormatError, match=r"j\.jsonl"):
        undo_moves(tmp_path / "j.jsonl")


@pytest.mark.parametrize("place", [3, 60, -20])
def test_a_damaged_journal_moves_nothing(tmp_path, journal, place):
    """One changed bit in a path, and undoing would move a photograph to another name."""
    finish_moves(journal)
    before = tree(tmp_path)
    data = bytearray(journal.read_bytes())
    data[place] ^= 1
    journal.write_bytes(data)
    before["sorted/moves-1.jsonl"] = bytes(data)
    with pytest.raises(FileFormatError):
        undo_moves(journal)
    assert tree(tmp_path) == before


def test_a_journal_moves_only_images_of_its_own_folder(tmp_path, moves):
    """One that somebody else wrote must not move files anywhere."""
    journal = tmp_path / "sorted" / "moves-1.jsonl"
    for target in (tmp_path / "x.jpg", tmp_path / "sorted" / ".." / "x.jpg"):
        begin_moves(journal, [Move(moves[0].source, target)])
        with pytest.raises(FileFormatError, match="files in its own folder"):
            finish_moves(journal)
    (tmp_path / "photos" / "keys").write_bytes(b"secret")
    begin_moves(journal, [Move(tmp_path / "photos" / "keys", tmp_path / "sorted" / "keys")])
    with pytest.raises(FileFormatError, match="must be of images"):
        finish_moves(journal, suffixes=(".jpg",))
    assert (tmp_path / "photos" / "keys").exists()


def test_a_journal_of_the_former_version_is_read(tmp_path, journal, moves):
    """It has no digest."""
    first, *lines = journal.read_text().splitlines()
    about = {**json.loads(first), "version": 1}
    del about["digest"]
    journal.write_text("\n".join([json.dumps(about), *lines]) + "\n")
    before = tree(tmp_path / "photos")
    assert finish_moves(journal) == N
    assert undo_moves(journal) == N
    assert tree(tmp_path / "photos") == before
