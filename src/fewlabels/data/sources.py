"""Where one image comes from: a file, a tile of a mosaic, a row of an array, or encoded bytes held in memory.

Each source can `read` its pixels and name its content by a `digest` of 32 hex digits. Sources are
small and can be sent to other processes; what they share (decoded mosaics, digests of files) is kept
once a process.
"""

import hashlib
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

MOSAIC_BYTES = 256 * 2**20  # decoded mosaics kept; all hundred of CIFAR-FS take 184 MB
TICK_NS = 100_000_000  # two writes within a tick of the file system's clock (10 ms at most) can carry the same time
DIGEST_BYTES = 16


class Source(Protocol):
    """One image, not yet read."""

    @property
    def path(self) -> Path | None:
        """The file that holds this image and nothing else, if there is one."""

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
                str(self.mosaic), f"its {width} × {height} pixels are too few for all of its tiles"
            )
        return Image.fromarray(tile)

    def digest(self) -> str:
        """A digest of the file's digest and the tile's place."""
        return _digest(f"{file_digest(self.mosaic)}#{self.left},{self.top},{self.side}".encode())


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
        return _digest(str(pixels.shape).encode() + pixels.tobytes())


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
        return _digest(bytes(self.data))


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


Stamp = tuple[str, int, int, int, int]
_digests: dict[Stamp, str] = {}


def file_digest(path: Path) -> str:
    """32 hex digits of a file's bytes; computed once a process, as long as the file is not touched."""
    stamp = _stamp(path)
    known = _digests.get(stamp)
    if known is not None:
        return known
    try:
        found = _digest(path.read_bytes())
    except OSError as error:
        raise UnreadableImageError(str(path), str(error.strerror)) from error
    if _settled(stamp):
        _digests[stamp] = found
    return found


def _stamp(path: Path) -> Stamp:
    """What changes when a file does: size, times of writing and of any change, inode."""
    try:
        about = path.stat()
    except OSError as error:
        raise UnreadableImageError(str(path), str(error.strerror)) from error
    return (str(path), about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino)


def _settled(stamp: Stamp) -> bool:
    """Whether the next write would surely give the file another stamp."""
    return time.time_ns() - max(stamp[2], stamp[3]) > TICK_NS


_mosaics: "OrderedDict[Stamp, NDArray[np.uint8]]" = OrderedDict()  # the least recently used first
_mosaics_lock = threading.Lock()


def decoded_mosaic(path: Path) -> NDArray[np.uint8]:
    """The pixels of a mosaic file, (height, width, 3), from memory if it was read lately."""
    stamp = _stamp(path)
    with (
        _mosaics_lock
    ):  # held while decoding too: neighbours in other threads wait for the same mosaic
        sheet = _mosaics.get(stamp)
        if sheet is None:
            sheet = np.asarray(decode(path, where=str(path)))
            if not _settled(stamp):
                return sheet
            _mosaics[stamp] = sheet
            while (
                sum(kept.nbytes for kept in _mosaics.values()) > MOSAIC_BYTES and len(_mosaics) > 1
            ):
                _mosaics.popitem(last=False)
        _mosaics.move_to_end(stamp)
        return sheet
