"""Every kind of image file comes out upright and RGB, or is refused by name."""

import contextlib
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from fewlabels.data import read_images
from fewlabels.data.decoding import ORIENTATION, UnreadableImageError, decode
from fewlabels.errors import FileFormatError


def decoded(path):
    image = decode(path, where=str(path))
    assert image.mode == "RGB"
    return np.asarray(image)


@pytest.mark.parametrize("suffix", ["png", "bmp", "webp", "tif", "gif"])
def test_lossless_files_come_back_pixel_for_pixel(tmp_path, noise, suffix):
    pixels = noise()
    if suffix == "gif":  # at most 256 colours
        pixels = pixels // 64 * 64
    options = {"lossless": True} if suffix == "webp" else {}
    image = Image.fromarray(pixels)
    (image.quantize(256) if suffix == "gif" else image).save(tmp_path / f"x.{suffix}", **options)
    np.testing.assert_array_equal(decoded(tmp_path / f"x.{suffix}"), pixels)


def test_a_jpeg_is_what_pillow_makes_of_it(tmp_path, noise):
    Image.fromarray(noise(40, 30)).save(tmp_path / "x.jpg")
    np.testing.assert_array_equal(
        decoded(tmp_path / "x.jpg"), np.asarray(Image.open(tmp_path / "x.jpg"))
    )


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "webp"])
def test_the_exif_orientation_is_obeyed(tmp_path, noise, orientation, suffix):
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"x.{suffix}"
    Image.fromarray(noise(9, 5)).save(path, exif=exif)
    expected = ImageOps.exif_transpose(Image.open(path))  # Pillow's own idea of it
    assert expected.size == ((5, 9) if orientation > 4 else (9, 5))
    np.testing.assert_array_equal(decoded(path), np.asarray(expected.convert("RGB")))


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_damaged_exif_data_does_not_cost_the_image(tmp_path, noise):
    Image.fromarray(noise()).save(
        tmp_path / "x.jpg", exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff" + bytes(range(40))
    )
    assert decoded(tmp_path / "x.jpg").shape == (6, 8, 3)


def test_grey_gets_three_equal_channels(tmp_path, noise):
    grey = noise(channels=1)
    Image.fromarray(grey).save(tmp_path / "x.png")
    np.testing.assert_array_equal(
        decoded(tmp_path / "x.png"), np.repeat(grey[..., None], 3, axis=2)
    )


def test_sixteen_bits_are_scaled_not_clipped(tmp_path):
    grey = np.array([[0, 128, 129, 257, 32768, 65535]], np.uint16)
    Image.fromarray(grey).save(tmp_path / "x.png")
    Image.fromarray(grey).save(tmp_path / "x.tif")
    for name in ("x.png", "x.tif"):
        assert decoded(tmp_path / name)[0, :, 0].tolist() == [
            0,
            0,
            1,
            1,
            128,
            255,
        ]  # round(v * 255 / 65535)


def test_wider_numbers_and_floats_are_refused(tmp_path):
    Image.fromarray(np.array([[0, 70_000]], np.int32)).save(tmp_path / "wide.tif")
    Image.fromarray(np.array([[0.0, 1.0]], np.float32)).save(tmp_path / "float.tif")
    with pytest.raises(FileFormatError, match="are from 0 to 70000"):
        decoded(tmp_path / "wide.tif")
    with pytest.raises(FileFormatError, match=r"float\.tif.*floats.*8 or 16 bits"):
        decoded(tmp_path / "float.tif")


def test_a_palette_is_looked_up(tmp_path, noise):
    image = Image.fromarray(noise() // 64 * 64).quantize(64)
    image.save(tmp_path / "x.png")
    np.testing.assert_array_equal(decoded(tmp_path / "x.png"), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparency_lies_on_white(tmp_path, mode):
    image = Image.new("RGBA", (3, 1))
    for x, alpha in enumerate([0, 128, 255]):
        image.putpixel((x, 0), (0, 0, 0, alpha))  # black under the transparency
    if mode == "P":
        palette = Image.fromarray(np.array([[0, 1, 1]], np.uint8))
        palette.putpalette([0, 0, 0, 0, 0, 0])
        palette.save(tmp_path / "x.png", transparency=bytes([0, 255]))
        assert decoded(tmp_path / "x.png")[0, :, 0].tolist() == [255, 0, 0]
    else:
        image.convert(mode).save(tmp_path / "x.png")
        assert decoded(tmp_path / "x.png")[0, :, 0].tolist() == [255, 127, 0]


@pytest.mark.parametrize("suffix", ["gif", "webp", "png"])
def test_the_first_frame_of_an_animation(tmp_path, suffix):
    frames = [Image.new("RGB", (6, 6), color) for color in ("red", "blue", "lime")]
    options = {"lossless": True} if suffix == "webp" else {}
    frames[0].save(tmp_path / f"x.{suffix}", save_all=True, append_images=frames[1:], **options)
    assert (decoded(tmp_path / f"x.{suffix}") == [255, 0, 0]).all()


def test_cmyk_is_converted(tmp_path):
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(tmp_path / "x.jpg", quality=100)
    assert np.abs(decoded(tmp_path / "x.jpg").astype(int) - [255, 0, 0]).max() < 6


@pytest.mark.parametrize("times", [1.5, 3])  # Pillow warns of the first and refuses the second
def test_a_decompression_bomb_is_an_error_of_this_image(tmp_path, write, monkeypatch, times):
    path = write("x.png", width=60, height=10)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", int(600 / times))
    with pytest.raises(UnreadableImageError, match=r"x\.png.*more than \d+ pixels"):
        decode(path, where=str(path))


@pytest.mark.filterwarnings("default")
def test_a_bomb_is_refused_where_warnings_are_only_shown(write, monkeypatch):
    path = write("x.png", width=60, height=10)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 599)
    with (
        pytest.warns(Image.DecompressionBombWarning),
        pytest.raises(UnreadableImageError, match="599 pixels"),
    ):
        decode(path, where=str(path))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b"hello", "not of a known image format"),
        (b"\x89PNG\r\n\x1a\n", "not of a known image format"),
    ],
)
def test_what_is_no_image_is_named(write, content, reason):
    path = write("owls/x.png", content=content)
    with pytest.raises(
        FileFormatError,
        match=rf"owls/x\.png cannot be read as an image: .*{reason}.*Replace it, or remove it",
    ):
        decode(path, where=str(path))
    with pytest.raises(UnreadableImageError) as caught:
        decode(content, where="x.pkl#3")
    assert str(caught.value).startswith("x.pkl#3 cannot")
    assert reason in caught.value.reason


def test_a_missing_or_forbidden_file_is_named(tmp_path, write):
    with pytest.raises(FileFormatError, match=r"gone\.png.*the file does not exist"):
        decode(tmp_path / "gone.png", where=str(tmp_path / "gone.png"))
    path = write("x.png")
    path.chmod(0)
    if not os.access(path, os.R_OK):  # the superuser reads all
        with pytest.raises(FileFormatError, match="Permission denied"):
            decode(path, where=str(path))


@settings(max_examples=60, deadline=None)
@given(
    suffix=st.sampled_from(["png", "jpg", "webp", "gif", "tif", "bmp"]),
    cut=st.floats(0, 0.99),
    noise_at=st.integers(0, 10**6),
)
def test_damaged_files_are_refused_or_read_but_never_crash(tmp_path_factory, suffix, cut, noise_at):
    path = tmp_path_factory.mktemp("damaged") / f"x.{suffix}"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(
        path
    )
    content = bytearray(path.read_bytes())
    content = content[: int(cut * len(content))]
    if content:
        content[noise_at % len(content)] ^= 0xFF
    path.write_bytes(bytes(content))
    with contextlib.suppress(UnreadableImageError):
        assert decode(path, where=str(path)).mode == "RGB"


def test_a_large_jpeg_is_decoded_small_where_that_is_enough(tmp_path):
    gradient = np.linspace(0, 255, 1200).astype(np.uint8)
    red, blue = np.tile(gradient, (800, 1)), np.tile(gradient[:800, None], (1, 1200))
    picture = np.stack([red, np.full_like(red, 90), blue], axis=-1)
    path = tmp_path / "large.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    Image.fromarray(picture).save(path, quality=95, exif=exif)
    whole, small = decode(path, where="x"), decode(path, where="x", side=150)
    assert whole.size == (800, 1200)
    assert small.size == (200, 300)  # a quarter, upright, and no shorter than asked
    difference = np.asarray(whole.resize(small.size), float) - np.asarray(small, float)
    assert np.abs(difference).mean() < 2
    assert decode(path, where="x", side=5000).size == (800, 1200)


@pytest.mark.parametrize("suffix", [".avif", ".heic"])
def test_photographs_of_phones(tmp_path, suffix):
    if suffix == ".heic":
        pytest.importorskip("pillow_heif").register_heif_opener()
    pixels = np.zeros((48, 64, 3), np.uint8)
    pixels[:24] = 255, 0, 0
    exif = Image.Exif()
    exif[ORIENTATION] = 3
    Image.fromarray(pixels).save(tmp_path / f"plain{suffix}")
    Image.fromarray(pixels).save(tmp_path / f"turned{suffix}", exif=exif)
    plain, turned = (
        np.asarray(decode(tmp_path / f"{name}{suffix}", where="x")) for name in ("plain", "turned")
    )
    assert plain.shape == turned.shape == (48, 64, 3)
    assert np.abs(plain.astype(int) - pixels).mean() < 8
    # AVIF keeps the turn of the EXIF tag. In HEIC the file itself says it, and the tag is ignored.
    upright = pixels[::-1, ::-1] if suffix == ".avif" else pixels
    assert np.abs(turned.astype(int) - upright).mean() < 8
    assert read_images(tmp_path).names == (f"plain{suffix}", f"turned{suffix}")
    (tmp_path / f"cut{suffix}").write_bytes((tmp_path / f"plain{suffix}").read_bytes()[:-200])
    with pytest.raises(FileFormatError, match=r"cut.*damaged"):
        decode(tmp_path / f"cut{suffix}", where="cut")


def test_without_pillow_heif_the_extra_is_named(tmp_path):
    (tmp_path / "IMG_1.HEIC").write_bytes(b"x")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "2.heic").write_bytes(b"x")
    code = (
        "import sys; sys.modules['pillow_heif'] = None; from fewlabels.data import read_images; "
        f"read_images({str(tmp_path)!r})"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "Not read: 2 .heic files; pip install 'fewlabels[heic]' reads them" in ended.stderr


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("missing", [2, 200, 20_000])
def test_a_cut_off_jpeg_is_refused_at_every_size(tmp_path, missing, progressive):
    pixels = np.random.default_rng(0).integers(0, 256, size=(300, 300, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.jpg", progressive=progressive)
    content = (tmp_path / "a.jpg").read_bytes()[:-missing]
    for side in (None, 150, 30):
        with pytest.raises(FileFormatError, match=r"a\.jpg.*cut off: its end is missing"):
            decode(content, where="a.jpg", side=side)
