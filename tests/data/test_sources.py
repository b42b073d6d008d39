"""Digests that follow the content, and mosaics that are decoded once."""

import hashlib
import os
import threading
import time
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from fewlabels.data import sources
from fewlabels.data.decoding import UnreadableImageError
from fewlabels.data.sources import (
    ArrayRow,
    EncodedImage,
    ImageFile,
    Tile,
    decoded_mosaic,
    file_digest,
)

LONG_AGO = 1_000_000_000_000_000_000  # nanoseconds: in 2001


def encoded(pixels):
    file = BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


@pytest.fixture
def calls(monkeypatch):
    """The decoded files, in order; every file counts as settled at once."""
    monkeypatch.setattr(sources, "TICK_NS", -(10**18))
    decoded = []
    decode = sources.decode

    def counting(file, *, where):
        decoded.append(where)
        return decode(file, where=where)

    monkeypatch.setattr(sources, "decode", counting)
    return decoded


def test_a_digest_is_blake2b_of_the_bytes_wherever_they_lie(write):
    path = write("a/x.png")
    copy = write("b/y.jpg", content=path.read_bytes())
    expected = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    assert (
        ImageFile(path).digest()
        == ImageFile(copy).digest()
        == EncodedImage(path.read_bytes(), "x").digest()
        == expected
    )
    assert EncodedImage(np.frombuffer(path.read_bytes(), np.uint8), "x").digest() == expected


def test_a_digest_follows_every_rewrite(write):
    path = write("x.png", seed=0)
    for seed in range(1, 20):  # of the same length, within one tick of any clock
        before = file_digest(path)
        path.write_bytes(bytes([seed]) * 100)
        assert file_digest(path) != before


def test_a_digest_follows_a_rewrite_that_hides_its_time(write):
    path = write("x.png", content=b"one")
    os.utime(path, ns=(LONG_AGO, LONG_AGO))
    time.sleep(0.15)  # so that the first digest is kept
    before = file_digest(path)
    path.write_bytes(b"two")
    os.utime(path, ns=(LONG_AGO, LONG_AGO))
    assert file_digest(path) != before


def test_a_settled_file_is_hashed_once(write, monkeypatch):
    path = write("x.png")
    monkeypatch.setattr(sources, "TICK_NS", -(10**18))
    digest = file_digest(path)
    monkeypatch.setattr(sources, "content_digest", lambda _: pytest.fail("hashed again"))
    assert file_digest(path) == digest


def test_array_rows_differ_by_pixels_and_by_shape():
    rows = np.arange(2 * 4 * 6 * 3, dtype=np.uint8).reshape(2, 4, 6, 3)
    assert (
        ArrayRow(rows, 0).digest()
        == ArrayRow(rows.copy(), 0).digest()
        != ArrayRow(rows, 1).digest()
    )
    assert ArrayRow(rows.reshape(2, 6, 4, 3), 0).digest() != ArrayRow(rows, 0).digest()


def test_a_row_of_a_transposed_array_is_read_rightly(noise):
    planes = np.stack(
        [noise(seed=seed).transpose(2, 0, 1) for seed in range(2)]
    )  # as CIFAR lays its pixels
    np.testing.assert_array_equal(ArrayRow(planes.transpose(0, 2, 3, 1), 1).read(), noise(seed=1))


def test_encoded_bytes_are_decoded_and_named_when_broken(noise):
    np.testing.assert_array_equal(
        EncodedImage(np.frombuffer(encoded(noise()), np.uint8), "x").read(), noise()
    )
    with pytest.raises(UnreadableImageError, match=r"train\.pkl#7"):
        EncodedImage(encoded(noise())[:50], "train.pkl#7").read()


def test_tiles_are_parts_of_the_mosaic(write, noise):
    path = write("m.png", width=12, height=8)
    sheet = noise(12, 8)
    for top, left in [(0, 0), (4, 8)]:
        tile = Tile(path, left, top, 4)
        np.testing.assert_array_equal(tile.read(), sheet[top : top + 4, left : left + 4])
        assert tile.path is None
    digests = {
        Tile(path, left, top, side).digest()
        for left, top, side in [(0, 0, 4), (4, 0, 4), (0, 4, 4), (0, 0, 2)]
    }
    assert len(digests) == 4


def test_a_tile_beyond_the_mosaic_is_refused(write):
    with pytest.raises(UnreadableImageError, match=r"m\.png.*12 × 8 pixels do not hold all"):
        Tile(write("m.png", width=12, height=8), 8, 8, 4).read()


def test_a_mosaic_is_decoded_once_and_anew_when_it_changes(write, calls):
    path = write("m.png", seed=0)
    for left in (0, 4, 0):
        Tile(path, left, 0, 4).read()
    assert len(calls) == 1
    write("m.png", seed=1, width=20, height=20)
    Tile(path, 16, 0, 4).read()
    assert len(calls) == 2


def test_a_mosaic_just_written_is_never_taken_from_memory(write, noise):
    for seed in range(10):
        path = write("m.bmp", seed=seed)
        np.testing.assert_array_equal(Tile(path, 0, 0, 4).read(), noise(seed=seed)[:4, :4])


def test_memory_for_mosaics_is_bounded_and_the_last_used_stay(write, calls, monkeypatch):
    paths = [write(f"{number}.png", width=16, height=16) for number in range(4)]
    sources._mosaics.clear()
    monkeypatch.setattr(sources, "MOSAIC_BYTES", 2 * 16 * 16 * 3)
    for number in (0, 1, 0, 2, 0, 1):  # 1 made room for 2
        decoded_mosaic(paths[number])
    assert [name.rpartition("/")[2][0] for name in calls] == ["0", "1", "2", "1"]
    assert sum(sheet.nbytes for sheet in sources._mosaics.values()) <= sources.MOSAIC_BYTES
    monkeypatch.setattr(sources, "MOSAIC_BYTES", 1)
    decoded_mosaic(paths[3])
    assert len(sources._mosaics) == 1  # one larger than all the room is still kept


def test_threads_share_one_decoding(write, calls):
    path = write("m.png", width=64, height=64)
    barrier = threading.Barrier(8)

    def read(number):
        barrier.wait()
        Tile(path, 8 * number, 0, 8).read()

    threads = [threading.Thread(target=read, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


def test_a_vanished_file_is_named(write):
    path = write("m.png")
    path.unlink()
    for call in (
        ImageFile(path).read,
        ImageFile(path).digest,
        Tile(path, 0, 0, 4).read,
        Tile(path, 0, 0, 4).digest,
    ):
        with pytest.raises(UnreadableImageError, match=r"m\.png"):
            call()
