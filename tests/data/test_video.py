"""Frames of videos, made here by PyAV itself."""

import numpy as np
import pytest

from fewlabels.data.decoding import UnreadableImageError
from fewlabels.data.listing import VIDEO
from fewlabels.data.video import READERS, VideoFrame, check_every, read_frames
from fewlabels.errors import FileFormatError, InputError

av = pytest.importorskip("av")

COLORS = [(220, 30, 30), (30, 220, 30), (30, 30, 220), (220, 220, 30)]


def film(path, *, n_seconds=4, rate=5, codec="mpeg4", form=None):
    """A film whose color changes every second."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", format=form) as container:
        stream = container.add_stream(codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(n_seconds * rate):
            pixels = np.full((48, 64, 3), COLORS[number // rate % 4], dtype=np.uint8)
            for packet in stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return path


def color(image) -> list[int]:
    return (np.asarray(image).mean(axis=(0, 1)) > 120).astype(int).tolist()


EXPECTED = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]]


@pytest.mark.parametrize("suffix", [".mp4", ".avi", ".mkv", ".mov"])
def test_a_frame_every_second_with_its_own_pixels(tmp_path, suffix):
    film(
        tmp_path / "day" / f"clip{suffix.upper()}",
        form={".mkv": "matroska"}.get(suffix, suffix[1:]),
    )
    found = read_frames(tmp_path, 1.0)
    assert found.names == tuple(f"day/clip{suffix.upper()}#{second}" for second in range(4))
    assert [color(found.read(i)) for i in range(4)] == EXPECTED
    assert color(found.read(2)) == EXPECTED[2]  # in any order
    assert len({found.digest(i) for i in range(4)}) == 4
    assert found.path(0) is None
    assert found.file(0).name == f"clip{suffix.upper()}"
    assert len(read_frames(tmp_path, 0.5)) == 8
    assert len(read_frames(tmp_path, 100)) == 1


def test_images_beside_videos_and_what_is_wrong(tmp_path):
    from PIL import Image

    film(tmp_path / "a.mp4")
    (tmp_path / "b.mp4").write_bytes((tmp_path / "a.mp4").read_bytes()[:300])
    (tmp_path / "c.mp4").write_text("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\na.mp4\n")
    (tmp_path / "d.mov").touch()
    Image.new("RGB", (9, 9), "red").save(tmp_path / "e.png")
    found = read_frames(tmp_path, 2)
    assert found.names == ("e.png", "a.mp4#0", "a.mp4#2")
    assert found.others == ()
    assert {each.name for each in found.problems} == {"b.mp4", "c.mp4", "d.mov"}
    assert read_frames(tmp_path, None).names == ("e.png",)
    assert len(read_frames(tmp_path, None).others) == 4
    with pytest.raises(UnreadableImageError, match=r"b\.mp4 cannot be read"):
        VideoFrame(tmp_path / "b.mp4", 0).read()
    (tmp_path / "none").mkdir()
    with pytest.raises(FileFormatError, match="must hold images"):
        read_frames(tmp_path / "none", 1)
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InputError, match="every must be seconds"):
            check_every(wrong)
    assert set(READERS) == set(VIDEO)
