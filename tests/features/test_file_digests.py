"""A digest is taken from the table only while it surely is the file's."""

import hashlib
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import numpy as np
import pytest
from PIL import Image

from fewlabels.data import ImageSet
from fewlabels.features.file_digests import SAVED_EVERY, FileDigests

SETTLED = 0.03  # seconds: more than `trusting` asks for


@pytest.fixture
def table(tmp_path):
    return FileDigests(tmp_path / "store" / "files.sqlite")


def digests(identities):
    return [identity.digest for identity in identities]


def outside_digest(path):
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def swap(path, other):
    """Other bytes of the same length, and the time of writing set back."""
    before, content = path.stat(), other.read_bytes()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (
        before.st_size,
        before.st_mtime_ns,
        before.st_ino,
    )


@pytest.mark.parametrize("n_workers", [0, 3])
@pytest.mark.usefixtures("trusting")
def test_a_file_is_read_once(table, make_images, n_workers):
    images, notes = make_images(range(70))
    time.sleep(SETTLED)
    first = table.identify(images, n_workers=n_workers)
    assert digests(first) == [outside_digest(images.path(i)) for i in range(70)]
    assert len(notes) == 70
    assert FileDigests(table.path).identify(images) == first
    assert len(notes) == 70


@pytest.mark.usefixtures("trusting")
def test_other_bytes_of_the_same_length_and_time_are_noticed(table, make_images):
    images, notes = make_images(range(3))
    other = make_images([9], folder="elsewhere")[0].path(0)
    time.sleep(SETTLED)
    first = digests(table.identify(images))
    swap(images.path(1), other)
    notes.clear()
    second = digests(table.identify(images))
    assert second == [first[0], outside_digest(other), first[2]]
    assert notes == [("hash", "1.bmp")]


def test_a_file_that_has_just_changed_is_not_entered(table, make_images, monkeypatch):
    monkeypatch.setattr("fewlabels.features.file_digests.RACY_NS", 10**15)  # however slow the test
    images, notes = make_images(range(3))
    for _ in range(2):
        table.identify(images)
    assert len(notes) == 6
    assert not table.path.exists()


@pytest.mark.usefixtures("trusting")
def test_a_time_in_the_future_is_never_trusted(table, make_images):
    images, notes = make_images([1])
    later = time.time() + 1000
    os.utime(images.path(0), (later, later))
    time.sleep(SETTLED)
    for _ in range(2):
        table.identify(images)
    assert len(notes) == 2


@pytest.mark.usefixtures("trusting")
def test_a_file_that_changes_while_it_is_hashed_is_not_entered(table, make_images, monkeypatch):
    images, notes = make_images(range(2))
    time.sleep(SETTLED)
    watched = type(images.sources[0])
    plain = watched.digest

    def digest_and_touch(source):
        found = plain(source)
        if source.path.name == "1.bmp":
            os.utime(source.path)
        return found

    monkeypatch.setattr(watched, "digest", digest_and_touch)
    table.identify(images)
    monkeypatch.undo()
    notes.clear()
    FileDigests(table.path).identify(images)
    assert notes == [("hash", "1.bmp")]


@pytest.mark.usefixtures("trusting")
def test_a_file_that_is_gone_has_no_digest(table, make_images):
    images, _ = make_images(range(3))
    time.sleep(SETTLED)
    table.identify(images)
    images.path(1).unlink()
    found = table.identify(images)
    assert [identity.digest is None for identity in found] == [False, True, False]


def test_images_without_a_file_are_asked(table):
    pixels = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
    images = ImageSet.from_array(pixels, [-1, -1])
    assert digests(table.identify(images)) == [images.digest(0), images.digest(1)]
    assert not table.path.exists()


def test_progress_counts_what_is_hashed(table, make_images):
    images, _ = make_images(range(70))
    seen = []
    table.identify(images, on_progress=lambda done, total: seen.append((done, total)))
    assert seen == [(64, 70), (70, 70)]


@pytest.mark.usefixtures("trusting")
def test_odd_names_are_kept(table, tmp_path, make_images):
    images, notes = make_images([3])
    odd = tmp_path / os.fsdecode(b"gr\xfc\xdfe '\"; \xf0\x9f\x90\x99.bmp")  # not UTF-8
    Image.new("RGB", (4, 4)).save(odd)
    images = ImageSet("odd", "all", (), [-1], ("odd",), (type(images.sources[0])(odd, notes),))
    time.sleep(SETTLED)
    first = table.identify(images)
    notes.clear()
    assert table.identify(images) == first
    assert notes == []


@pytest.mark.parametrize(
    "content", [b"", b"not a database at all, but long enough to look at" * 40]
)
@pytest.mark.usefixtures("trusting")
def test_a_damaged_table_is_replaced(table, make_images, content):
    images, _ = make_images(range(3))
    time.sleep(SETTLED)
    expected = digests(table.identify(images))
    table.path.write_bytes(content)
    if content:
        with pytest.warns(UserWarning, match=r"files\.sqlite is damaged .*: it is removed"):
            assert digests(table.identify(images)) == expected
    else:  # an empty file is an empty database
        assert digests(table.identify(images)) == expected
    assert len(table._ask([os.fsencode(images.path(i)) for i in range(3)])) == 3


@pytest.mark.usefixtures("trusting")
def test_damage_in_the_middle_of_the_table_is_survived(table, make_images):
    images, _ = make_images(range(60))
    time.sleep(SETTLED)
    expected = digests(table.identify(images))
    held = bytearray(table.path.read_bytes())
    held[4096:] = os.urandom(len(held) - 4096)
    table.path.write_bytes(held)
    with pytest.warns(UserWarning, match="is damaged"):
        assert digests(table.identify(images)) == expected


@pytest.mark.usefixtures("trusting")
def test_a_locked_table_is_done_without(table, make_images, monkeypatch):
    images, _ = make_images(range(3))
    time.sleep(SETTLED)
    expected = digests(table.identify(images))
    plain = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path: plain(path, timeout=0.01))
    with closing(plain(table.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert digests(table.identify(images)) == expected


@pytest.mark.usefixtures("trusting")
def test_what_was_hashed_is_safe_before_the_end(table, make_images):
    images, notes = make_images(range(SAVED_EVERY + 100))
    time.sleep(SETTLED)

    def stop_late(done, total):
        if done > SAVED_EVERY:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.identify(images, on_progress=stop_late)
    notes.clear()
    table.identify(images)
    assert len(notes) == 100


WRITER = """
import sys
from pathlib import Path
from fewlabels.data import read_images
from fewlabels.features import file_digests
file_digests.RACY_NS = 0
file_digests.SAVED_EVERY = 4
for _ in range(10):
    file_digests.FileDigests(Path(sys.argv[1])).identify(read_images(sys.argv[2]))
"""


def test_several_processes_share_the_table(table, make_images):
    images, notes = make_images(range(100))
    time.sleep(SETTLED)
    writers = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", WRITER, table.path, images.path(0).parent]
        )
        for _ in range(3)
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    found = table.identify(images)
    assert notes == []
    assert digests(found) == [outside_digest(images.path(i)) for i in range(100)]
