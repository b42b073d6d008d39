"""Small pictures of the items, made when first looked at and kept on disk."""

import io
import threading
from pathlib import Path

from PIL import Image, ImageOps

from fewlabels.errors import InputError
from fewlabels.labeling.collection import Collection
from fewlabels.labeling.writing import write_file

SIDE = 224  # pixels of a square thumbnail: 112 on a screen with two pixels a point
PREVIEW_SIDE = 1280  # the longer side of the large picture
QUALITY = 74  # of WebP: beyond it, files grow faster than pictures improve
AT_ONCE = 2  # pictures in the making: clicks must not wait for them


class Thumbnails:
    """Thumbnails of a collection in a folder of its own, named by the content of the pictures."""

    def __init__(self, collection: Collection, folder: Path) -> None:
        self.collection = collection
        self.folder = folder
        self._making = threading.Semaphore(AT_ONCE)

    def get(self, index: int) -> tuple[bytes, str]:
        """A square WebP picture and its tag, which changes with the content."""
        self._require(index)
        assert self.collection.images is not None
        tag = f"{self.collection.images.digest(index)}-{SIDE}"
        path = self.folder / tag[:2] / f"{tag}.webp"
        try:
            return path.read_bytes(), tag
        except OSError:
            pass
        with self._making:
            content = make_thumbnail(self.collection.images.read(index))
        write_file(path, content)
        return content, tag

    def preview(self, index: int) -> bytes:
        """A larger picture, the whole of it, as JPEG."""
        self._require(index)
        assert self.collection.images is not None
        with self._making:
            image = self.collection.images.read(index)
            image.thumbnail((PREVIEW_SIDE, PREVIEW_SIDE), Image.Resampling.BICUBIC)
            return _encode(image, "JPEG", quality=88)

    def _require(self, index: int) -> None:
        if not 0 <= index < len(self.collection) or self.collection.path(index) is None:
            raise InputError(f"item {index} has no picture.")


def make_thumbnail(image: Image.Image, *, side: int = SIDE) -> bytes:
    """The middle square of a picture as WebP."""
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
