"""Bursts by the times that cameras write."""

import os

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from fewlabels.data.bursts import find_bursts, taken_at
from fewlabels.errors import InputError

EXIF = 0x8769


def take(path, taken=None, fraction=None, *, camera="X100", form=None):
    exif = Image.Exif()
    if camera:
        exif[0x0110] = camera
    inner = exif.get_ifd(EXIF)
    if taken:
        inner[0x9003] = taken
    if fraction:
        inner[0x9291] = fraction
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), "green").save(path, form, exif=exif)
    return path


def test_time_and_camera_are_read_as_the_camera_wrote_them(tmp_path):
    for name in ("a.jpg", "b.webp"):
        path = take(tmp_path / name, "2024:05:01 10:00:07", "25")
        camera, time = taken_at(path)
        assert camera == "X100"
        assert time % 60 == pytest.approx(7.25)
    assert taken_at(take(tmp_path / "e.jpg")) is None
    assert taken_at(take(tmp_path / "f.jpg", "0000:00:00 00:00:00")) is None
    (tmp_path / "g.jpg").write_bytes(b"nothing")
    assert taken_at(tmp_path / "g.jpg") is None


def test_png_and_tiff_have_times_too(tmp_path):
    times = [taken_at(take(tmp_path / "a.png", "2024:05:01 10:00:07"))]
    inner = Image.Exif()
    inner.get_ifd(EXIF)[0x9003] = "2024:05:01 10:00:07"
    profile = b"Exif\0\0" + inner.tobytes().removeprefix(b"Exif\0\0")
    text = PngInfo()  # as ImageMagick writes it
    text.add_text("Raw profile type exif", f"\nexif\n{len(profile):8d}\n{profile.hex()}\n")
    Image.new("RGB", (8, 8)).save(tmp_path / "b.png", pnginfo=text)
    tags = ImageFileDirectory_v2()
    tags[EXIF] = {0x9003: "2024:05:01 10:00:07"}
    Image.new("RGB", (8, 8)).save(tmp_path / "c.tif", tiffinfo=tags)
    times += [taken_at(tmp_path / "b.png"), taken_at(tmp_path / "c.tif")]
    assert [time % 60 for _, time in times] == [7, 7, 7]


def test_heic_has_times_too(tmp_path):
    pytest.importorskip("pillow_heif").register_heif_opener()
    path = take(tmp_path / "a.heic", "2024:05:01 10:00:07", form="HEIF")
    assert taken_at(path)[1] % 60 == 7


def test_a_burst_is_of_one_folder_and_camera_and_has_no_long_gap(tmp_path):
    second = "2024:05:01 10:00:{:02d}".format
    paths = [
        take(tmp_path / "a" / "3.jpg", second(6)),
        take(tmp_path / "a" / "1.jpg", second(0)),
        take(tmp_path / "a" / "2.jpg", second(3)),
        take(tmp_path / "a" / "4.jpg", second(10)),  # four seconds later
        take(tmp_path / "a" / "5.jpg", second(10), camera="Y"),
        take(tmp_path / "b" / "6.jpg", second(3)),  # another camera of the model
        take(tmp_path / "a" / "7.jpg"),
        None,
    ]
    groups = find_bursts(paths)
    assert groups[0] == groups[1] == groups[2]
    assert len(set(groups[2:].tolist())) == 6
    assert len(set(find_bursts(paths, seconds=4).tolist())) == 5
    assert find_bursts(paths, seconds=0).tolist() == list(range(8))
    for wrong in (-1, np.nan, np.inf):
        with pytest.raises(InputError, match="burst must be seconds"):
            find_bursts(paths, seconds=wrong)


def test_the_time_of_the_file_does_not_count(tmp_path):
    paths = [take(tmp_path / f"{i}.jpg", camera=None) for i in range(3)]
    for path in paths:
        os.utime(path, (1, 1))
    assert len(set(find_bursts(paths).tolist())) == 3
