"""Small pictures of the items, made when first shown and stored on disk."""

import io
import threading
from pathlib import Path

from PIL import Image, ImageOps

from fewlabels.errors import InputError
from fewlabels.io.files import write_file
from fewlabels.labeling.collection import Collection

SIDE = 224  # pixels of a square thumbnail: 112 on a screen with two pixels per point
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

    def get(self, row: int) -> tuple[bytes, str]:
        """A square WebP picture and its tag, which changes with the content."""
        self._require(row)
        assert self.collection.images is not None
        tag = f"{self.collection.images.digest(row)}-{SIDE}"
        path = self.folder / tag[:2] / f"{tag}.webp"
        try:
            return path.read_bytes(), tag
        except OSError:
            pass
        with self._making:
            content = make_thumbnail(self.collection.images.read(row))
        write_file(path, content)
        return content, tag

    def preview(self, row: int, *, full: bool = False) -> bytes:
        """The whole picture as JPEG, at its full size or larger than the thumbnail."""
        self._require(row)
        assert self.collection.images is not None
        with self._making:
            image = self.collection.images.read(row)
            if full:
                return _encode(image, "JPEG", quality=PREVIEW_QUALITY)
            image.thumbnail((PREVIEW_SIDE, PREVIEW_SIDE), Image.Resampling.BICUBIC)
            return _encode(image, "JPEG", quality=PREVIEW_QUALITY)

    def _require(self, row: int) -> None:
        if not 0 <= row < len(self.collection) or self.collection.path(row) is None:
            raise InputError(f"item {row} has no picture.")


def make_thumbnail(image: Image.Image, *, side: int = SIDE) -> bytes:
    """The central square of a picture as WebP."""
    return _encode(
        ImageOps.fit(image, (side, side), Image.Resampling.BICUBIC),
        "WEBP",
        quality=QUALITY,
        method=2,
    )


def _encode(image: Image.Image, form: str, **options: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()
