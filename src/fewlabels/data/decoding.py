"""Image files to upright RGB pixels, and one error class for files that cannot be read.

orientation    the EXIF tag is applied
transparency   blended with white: the color of transparent pixels is arbitrary, often black
16-bit grey    scaled to 8 bits; whole numbers outside 0 to 65535, and floats, are refused,
               because they have no agreed range
animation      the first frame
truncation     a file that is cut off is refused at every size: nobody knows what the rest shows
size           more pixels than Pillow's MAX_IMAGE_PIXELS are an error, not a warning
formats        only those of photographs: Pillow's other readers start programs, or are little used.
               AVIF where Pillow has it, HEIC where pillow-heif is installed (the extra "heic")
"""

from functools import cache
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from fewlabels.errors import FileFormatError
from fewlabels.io.words import first_line

HAS_AVIF = find_spec("PIL._avif") is not None
HAS_HEIC = find_spec("pillow_heif") is not None
FORMATS = ("JPEG", "PNG", "BMP", "DIB", "WEBP", "GIF", "TIFF", *(("AVIF",) if HAS_AVIF else ()))
ORIENTATION = 0x0112  # the EXIF tag
UPRIGHT = {  # the operation that undoes each orientation; 1 is upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
WIDE_MODES = ("I;16", "I;16L", "I;16B", "I;16N", "I")  # grey in more than 8 bits
WIDE_TOP = 65535  # the largest 16-bit number


class _RefusedError(Exception):
    """The image is valid, but of a kind that is not supported; the text says why."""


class UnreadableImageError(FileFormatError):
    """One image cannot be decoded; `reason` says why."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where} cannot be read as an image: {reason}. Replace it, or remove it.")
        self.reason = reason


@cache
def known_formats() -> tuple[str, ...]:
    """Pillow's names of the formats that are read."""
    if not HAS_HEIC:
        return FORMATS
    from pillow_heif import register_heif_opener

    register_heif_opener()  # it turns images upright itself
    return (*FORMATS, "HEIF")


def decode(file: Path | bytes, *, where: str, side: int | None = None) -> Image.Image:
    """Decode one image, upright and RGB.

    Args:
        where: The name of the image in an error message.
        side: Pixels of the shorter side that are enough: a larger JPEG is decoded at a half, a
            quarter or an eighth of its size, in less time.
    """
    try:
        content = BytesIO(file) if isinstance(file, bytes) else file
        with Image.open(content, formats=known_formats()) as image:
            _refuse_bomb(image)
            if side is not None:
                image.draft(None, (side, side))
            image.load()
            return _to_rgb(_upright(image))
    except Exception as error:  # damaged bytes raise errors of any class
        raise UnreadableImageError(where, _reason(error, file)) from error


def upright_size(path: Path) -> tuple[int, int]:
    """Width and height of an image in pixels by its header, upright by its EXIF tag.

    Damaged files raise errors of any class.
    """
    with Image.open(path, formats=known_formats()) as image:
        turned = image.getexif().get(ORIENTATION, 1) >= 5
        return (image.height, image.width) if turned else image.size


def _refuse_bomb(image: Image.Image) -> None:
    # Pillow itself only warns for up to twice this size.
    most = Image.MAX_IMAGE_PIXELS
    if most is not None and image.width * image.height > most:
        raise Image.DecompressionBombError


def _upright(image: Image.Image) -> Image.Image:
    try:
        orientation = image.getexif().get(ORIENTATION, 1)
    except Exception:  # the pixels can be used without EXIF data
        return image
    return image.transpose(UPRIGHT[orientation]) if orientation in UPRIGHT else image


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode in WIDE_MODES:
        return _narrow(image).convert("RGB")
    if image.mode == "F":
        raise _RefusedError(
            "its pixels are floats, which have no agreed range; save it with 8 or 16 bits"
        )
    if image.has_transparency_data:
        opaque = image.convert("RGBA")
        page = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(page, opaque).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _narrow(image: Image.Image) -> Image.Image:
    values = np.asarray(image)
    if values.min() < 0 or values.max() > WIDE_TOP:
        raise _RefusedError(
            f"its pixels are from {values.min()} to {values.max()}, not within 0 to {WIDE_TOP}; "
            "save it with 8 or 16 bits"
        )
    narrow = np.empty(values.shape, np.uint8)
    for row, wide in enumerate(values):  # row by row: an image may have 89 million pixels
        narrow[row] = (wide.astype(np.int64) * 255 + WIDE_TOP // 2) // WIDE_TOP
    return Image.fromarray(narrow)


def _reason(error: Exception, file: Path | bytes) -> str:
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        limit = Image.MAX_IMAGE_PIXELS
        return f"it has more than {limit:,} pixels, Pillow's limit against decompression bombs"
    if isinstance(error, FileNotFoundError):
        return "the file does not exist"
    size = file.stat().st_size if isinstance(file, Path) else len(file)
    if size == 0:
        return "the file is empty"
    if isinstance(error, UnidentifiedImageError):
        return "it is damaged, or not of a known image format"
    if isinstance(error, _RefusedError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:  # such as "Permission denied"
        return error.strerror
    if "truncated" in str(error):
        return "it is cut off: its end is missing; copy it again from where it came"
    return f"it is damaged ({first_line(error) or type(error).__name__})"
