"""Small pictures of the items, made when first shown and stored on disk."""

import io
import threading
from contextlib import suppress
from pathlib import Path

from PIL import Image, ImageOps

from fewlabels.data.decoding import decode
from fewlabels.errors import InputError
from fewlabels.io.files import read_checked, write_checked
from fewlabels.io.stamps import Stamp, short_hash
from fewlabels.labeling.collection import Collection

SIDE = 224  # pixels of the shorter side: 112 on a screen with two pixels per point
LONGEST = 3 * SIDE  # of the longer side: what is longer is cut off on both ends
PREVIEW_SIDE = 1280  # the longer side of the large picture
QUALITY = 74  # of WebP, 0 to 100: above it, files grow faster than pictures improve
PREVIEW_QUALITY = 88  # of JPEG, 0 to 100
AT_ONCE = 2  # pictures made at the same time: clicks must not wait for them


class Thumbnails:
    """Thumbnails of a collection in a folder, named by the content of the pictures."""

    def __init__(self, collection: Collection, folder: Path) -> None:
        self.collection = collection
        self.folder = folder
        self._making = threading.Semaphore(AT_ONCE)

    def tag(self, row: int) -> str:
        """What changes with the file, without reading it."""
        try:
            stamp = Stamp.of(self._require(row))
            part = self.collection.names[row].partition("#")[2]  # of a crop or frame
            return short_hash(str(stamp).encode(), str(SIDE).encode(), part.encode())
        except OSError as error:
            raise InputError(f"item {row} has no picture ({error.strerror}).") from error

    def get(self, row: int) -> bytes:
        """The whole picture, small, as WebP."""
        self._require(row)
        assert self.collection.images is not None
        name = f"{self.collection.images.digest(row)}-{SIDE}-whole"
        path = self.folder / name[:2] / name  # the digest comes first in the file: no picture file
        if (known := read_checked(path)) is not None:
            return known
        with self._making:
            content = make_thumbnail(self._read(row, SIDE))
        with suppress(InputError):  # on a full disk it is made again next time
            write_checked(path, content)
        return content

    def preview(self, row: int, *, full: bool = False) -> bytes:
        """The whole picture as JPEG, at its full size or larger than the thumbnail."""
        with self._making:
            image = self._read(row, None if full else PREVIEW_SIDE)
            if not full:
                image.thumbnail((PREVIEW_SIDE, PREVIEW_SIDE), Image.Resampling.BICUBIC)
            return _encode(image, "JPEG", quality=PREVIEW_QUALITY)

    def _require(self, row: int) -> Path:
        path = self.collection.file(row) if 0 <= row < len(self.collection) else None
        if path is None:
            raise InputError(f"item {row} has no picture.")
        return path

    def _read(self, row: int, side: int | None) -> Image.Image:
        file, images = self._require(row), self.collection.images
        if images is not None and images.path(row) is None:  # a part of the file
            return images.read(row)
        return decode(file, where=self.collection.names[row], side=side)


def make_thumbnail(image: Image.Image, *, side: int = SIDE) -> bytes:
    """The picture with this shorter side as WebP; of long pictures the middle."""
    scale = side / min(image.size)
    size = tuple(max(side, min(LONGEST, round(scale * each))) for each in image.size)
    small = ImageOps.fit(image, (size[0], size[1]), Image.Resampling.BICUBIC)
    return _encode(small, "WEBP", quality=QUALITY, method=2)


def make_square(image: Image.Image, *, side: int) -> bytes:
    """The central square of a picture as WebP."""
    square = ImageOps.fit(image, (side, side), Image.Resampling.BICUBIC)
    return _encode(square, "WEBP", quality=QUALITY, method=2)


def _encode(image: Image.Image, form: str, **options: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()
