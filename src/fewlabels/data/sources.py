"""The source of one image: a file, a tile of a mosaic, a row of an array, or encoded bytes.

Each source can `read` its pixels and name its content by a `digest` of 32 hex digits. Sources are
small and can be sent to other processes. Decoded mosaics and digests of files are kept once per
process.
"""

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fewlabels.data.decoding import UnreadableImageError, decode
from fewlabels.io.stamps import Stamp, content_digest

MOSAIC_BYTES = 256 * 2**20  # of decoded mosaics that are kept; all 100 of CIFAR-FS take 184 MB
TICK_NS = 100_000_000  # 10 times the clock step of Linux file systems, which is 10 ms or less


class ImageSource(Protocol):
    """One image, not yet read."""

    @property
    def path(self) -> Path | None:
        """The file that holds only this image; None if there is none."""

    def read(self) -> Image.Image:
        """The pixels, RGB."""

    def digest(self) -> str:
        """32 hex digits that name the content."""


@dataclass(frozen=True)
class ImageFile:
    """An image file."""

    path: Path

    def read(self) -> Image.Image:
        """The pixels, RGB and upright."""
        return decode(self.path, where=str(self.path))

    def digest(self) -> str:
        """The digest of the file's bytes."""
        return file_digest(self.path)


@dataclass(frozen=True)
class Crop:
    """A part of an image file, in pixels of the upright image."""

    file: Path
    left: int
    top: int
    right: int
    bottom: int

    @property
    def path(self) -> None:
        """None: the file shows more."""

    def read(self) -> Image.Image:
        """The pixels, RGB and upright."""
        whole = decode(self.file, where=str(self.file))
        return whole.crop((self.left, self.top, self.right, self.bottom))

    def digest(self) -> str:
        """The digest of the file's digest and the corners."""
        place = f"{file_digest(self.file)}#{self.left},{self.top},{self.right},{self.bottom}"
        return content_digest(place.encode())


@dataclass(frozen=True)
class Tile:
    """A square part of a mosaic file."""

    mosaic: Path
    left: int
    top: int
    side: int

    @property
    def path(self) -> None:
        """None: the file holds other images too."""

    def read(self) -> Image.Image:
        """The pixels, RGB."""
        sheet = decoded_mosaic(self.mosaic)  # (height, width, 3)
        tile = sheet[self.top : self.top + self.side, self.left : self.left + self.side]
        if tile.shape[:2] != (self.side, self.side):
            height, width = sheet.shape[:2]
            raise UnreadableImageError(
                str(self.mosaic), f"its {width} × {height} pixels do not hold all of its tiles"
            )
        return Image.fromarray(tile)

    def digest(self) -> str:
        """The digest of the file's digest and the tile's position."""
        place = f"{file_digest(self.mosaic)}#{self.left},{self.top},{self.side}"
        return content_digest(place.encode())


@dataclass(frozen=True)
class ArrayRow:
    """A row of an array of decoded images, (N, H, W, 3) uint8."""

    images: NDArray[np.uint8]
    row: int

    @property
    def path(self) -> None:
        """None: there is no file of this image alone."""

    def read(self) -> Image.Image:
        """The pixels, RGB."""
        return Image.fromarray(np.ascontiguousarray(self.images[self.row]))

    def digest(self) -> str:
        """The digest of shape and pixels."""
        pixels = self.images[self.row]
        return content_digest(str(pixels.shape).encode() + pixels.tobytes())


@dataclass(frozen=True)
class EncodedImage:
    """The bytes of an image file, held in memory."""

    data: Any  # bytes, or an array of them
    where: str

    @property
    def path(self) -> None:
        """None: there is no file of this image alone."""

    def read(self) -> Image.Image:
        """The pixels, RGB and upright."""
        return decode(bytes(self.data), where=self.where)

    def digest(self) -> str:
        """The digest of the bytes, the same as of a file that holds them."""
        return content_digest(bytes(self.data))


FileState = tuple[str, Stamp]  # path and stamp
_digests: dict[FileState, str] = {}


def file_digest(path: Path) -> str:
    """32 hex digits of a file's bytes, computed once per process while the file is unchanged."""
    state = _state(path)
    known = _digests.get(state)
    if known is not None:
        return known
    try:
        found = content_digest(path.read_bytes())
    except OSError as error:
        raise UnreadableImageError(str(path), str(error.strerror)) from error
    if _is_settled(state):
        _digests[state] = found
    return found


def _state(path: Path) -> FileState:
    try:
        return str(path), Stamp.of(path)
    except OSError as error:
        raise UnreadableImageError(str(path), str(error.strerror)) from error


def _is_settled(state: FileState) -> bool:
    """Whether the next write surely gives the file another stamp."""
    return state[1].is_settled(time.time_ns(), tick_ns=TICK_NS)


_mosaics: "OrderedDict[FileState, NDArray[np.uint8]]" = OrderedDict()  # least recently used first
_mosaics_lock = threading.Lock()


def decoded_mosaic(path: Path) -> NDArray[np.uint8]:
    """The pixels of a mosaic file, (height, width, 3), from memory if it was read recently."""
    state = _state(path)
    with _mosaics_lock:  # also while decoding, because other threads want the same mosaic next
        sheet = _mosaics.get(state)
        if sheet is None:
            sheet = np.asarray(decode(path, where=str(path)))
            if not _is_settled(state):
                return sheet
            _mosaics[state] = sheet
            while len(_mosaics) > 1 and sum(m.nbytes for m in _mosaics.values()) > MOSAIC_BYTES:
                _mosaics.popitem(last=False)
        _mosaics.move_to_end(state)
        return sheet
