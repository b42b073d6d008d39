import hashlib
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewlabels.io.stamps import Stamp, content_digest, short_hash


def test_a_stamp_changes_with_size_time_and_file(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"one")
    os.utime(path, ns=(1, 5_000_000_007))
    before = Stamp.of(path)
    assert before == Stamp.of(path)
    path.write_bytes(b"four")
    os.utime(path, ns=(1, 5_000_000_007))
    assert Stamp.of(path).size == 4
    (tmp_path / "b").write_bytes(b"one")
    os.utime(tmp_path / "b", ns=(1, 5_000_000_007))
    assert Stamp.of(tmp_path / "b").inode != before.inode
    assert Stamp.of(tmp_path / "b").short == before.short


def test_the_stored_texts_are_those_of_older_versions(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"one")
    state = path.stat()
    stamp = Stamp.of(path)
    assert stamp.short == f"{state.st_size} {state.st_mtime_ns}"
    assert f"{stamp}" == f"{stamp.short} {state.st_ctime_ns} {state.st_ino}"
    assert Stamp(*map(int, str(stamp).split())) == stamp


def test_a_missing_file_has_no_stamp(tmp_path):
    with pytest.raises(FileNotFoundError):
        Stamp.of(tmp_path / "nowhere")


def test_a_stamp_is_settled_after_a_tick_of_both_times():
    stamp = Stamp(1, 1000, 2000, 1)
    assert not stamp.is_settled(2100, tick_ns=100)
    assert stamp.is_settled(2101, tick_ns=100)
    assert stamp._replace(written_ns=2000, changed_ns=0).is_settled(2101, tick_ns=100)
    assert not stamp._replace(written_ns=3000).is_settled(2101, tick_ns=100)


@given(st.binary())
def test_digests_are_hex_and_of_the_known_algorithms(content):
    assert re.fullmatch("[0-9a-f]{32}", content_digest(content))
    assert content_digest(content) == hashlib.blake2b(content, digest_size=16).hexdigest()
    assert hashlib.sha256(content).hexdigest().startswith(short_hash(content, digits=32))


@given(st.lists(st.binary()))
def test_a_hash_of_parts_is_the_hash_of_the_whole(parts):
    assert short_hash(*parts) == short_hash(b"".join(parts))
