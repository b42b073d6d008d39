"""Frames of videos: a picture every few seconds, called VIDEO#SECONDS.

PyAV reads them (the extra "video"). Only the usual containers are opened, each by the reader of its
suffix and from an open file: a file that is something else, such as a list of other files, is
refused.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fewlabels.data.decoding import UnreadableImageError
from fewlabels.data.folders import read_images
from fewlabels.data.image_set import ImageSet, Problem
from fewlabels.data.listing import VIDEO, list_files
from fewlabels.errors import FileFormatError, InputError, MissingExtraError
from fewlabels.io.stamps import DIGEST_BYTES, Stamp, content_digest
from fewlabels.io.words import first_line

READERS = {".mp4": "mp4", ".m4v": "mp4", ".mov": "mov", ".mkv": "matroska", ".webm": "matroska"}
READERS |= {".avi": "avi"}
CHUNK = 1 << 20  # bytes read at a time
MOST_FRAMES = 100_000  # of one video: a length that is written in a file may be any number
SLACK = 1e-3  # seconds: times of frames are rounded


@dataclass(frozen=True)
class VideoFrame:
    """The first frame of a video at or after a time."""

    file: Path
    seconds: float

    @property
    def path(self) -> None:
        """None: the file shows more."""

    def read(self) -> Image.Image:
        """The pixels, RGB and upright."""
        try:
            with _open(self.file) as (container, stream):
                container.seek(int(self.seconds / stream.time_base), stream=stream)
                last = None
                for frame in container.decode(stream):
                    last = frame
                    if frame.time is None or frame.time >= self.seconds - SLACK:
                        break
                if last is None:
                    raise UnreadableImageError(str(self.file), "no frame is there")
                image: Image.Image = last.to_image()
                turned = int(getattr(last, "rotation", 0) or 0)
                return image.rotate(turned, expand=True) if turned % 360 else image
        except UnreadableImageError:
            raise
        except Exception as error:  # damaged bytes raise errors of any class
            raise UnreadableImageError(str(self.file), _reason(error)) from error

    def digest(self) -> str:
        """The digest of the file's bytes and the time."""
        try:
            content = _file_digest(self.file, Stamp.of(self.file))
        except OSError as error:
            raise UnreadableImageError(str(self.file), str(error.strerror)) from error
        return content_digest(f"{content}#{self.seconds:.3f}".encode())


class _open:  # noqa: N801 - used like a function
    """An open container and its first stream of pictures, closed at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> tuple[Any, Any]:
        av = _require_av()
        self._file = self.path.open("rb")
        try:
            reader = READERS[self.path.suffix.lower()]
            self._container = av.open(self._file, format=reader)
        except BaseException:
            self._file.close()
            raise
        if not self._container.streams.video:
            self.__exit__()
            raise UnreadableImageError(str(self.path), "it has no pictures")
        stream = self._container.streams.video[0]
        stream.thread_type = "NONE"  # extraction has threads of its own
        return self._container, stream

    def __exit__(self, *_: object) -> None:
        self._container.close()
        self._file.close()


def _require_av() -> Any:
    try:
        import av
    except ImportError:
        raise MissingExtraError("av", extra="video", purpose="Reading videos") from None
    return av


def _reason(error: Exception) -> str:
    return f"it is damaged ({first_line(error) or type(error).__name__})"


@lru_cache(maxsize=1000)
def _file_digest(path: Path, stamp: Stamp) -> str:  # noqa: ARG001 - a changed file has another
    total = hashlib.blake2b(digest_size=DIGEST_BYTES)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            total.update(chunk)
    return total.hexdigest()


def check_every(every: float | None) -> None:
    """Refuse what is not a time between two frames."""
    if every is not None and not 0.01 <= every < float("inf"):
        raise InputError(f"every must be seconds between two frames, 0.01 or more, got {every:g}.")


def read_frames(folder: Path, every: float | None) -> ImageSet:
    """The images of a folder, and frames of its videos, one every few seconds.

    Args:
        folder: Of images and videos, at any depth.
        every: Seconds between two frames; None to read no videos.
    """
    if every is None:
        return read_images(folder)
    check_every(every)
    _require_av()
    problems: list[Problem] = []
    videos = list_files(folder, VIDEO, problems=problems)
    names: list[str] = []
    frames: list[VideoFrame] = []
    for name, path in videos:
        try:
            for seconds in _times(path, every):
                names.append(f"{name}#{seconds:g}")
                frames.append(VideoFrame(path, seconds))
        except UnreadableImageError as error:
            problems.append(Problem(name, error.reason))
    try:
        images = read_images(folder)
    except FileFormatError:
        if not frames:
            raise
        images = ImageSet(folder.resolve().name, "all", (), np.empty(0, dtype=np.int64), (), ())
    return replace(
        images,
        labels=np.concatenate([images.labels, np.full(len(frames), -1)]),
        names=(*images.names, *names),
        sources=(*images.sources, *frames),
        problems=tuple(dict.fromkeys([*images.problems, *problems])),
        others=tuple(each for each in images.others if not each.lower().endswith(VIDEO)),
    )


def _times(path: Path, every: float) -> Iterator[float]:
    """Times of the frames of a video, from its beginning."""
    try:
        with _open(path) as (container, stream):
            if stream.duration is not None:
                length = float(stream.duration * stream.time_base)
            elif container.duration is not None:
                length = container.duration / 1e6
            else:
                raise UnreadableImageError(str(path), "its length is not written in it")
    except (UnreadableImageError, MissingExtraError):
        raise
    except Exception as error:  # damaged bytes raise errors of any class
        raise UnreadableImageError(str(path), _reason(error)) from error
    if length > MOST_FRAMES * every:
        raise UnreadableImageError(
            str(path),
            f"{length:.3g} seconds would give more than {MOST_FRAMES:,} frames, one every "
            f"{every:g} seconds; choose a longer time, or divide it",
        )
    n = 0
    while n == 0 or n * every < length - SLACK:
        yield round(n * every, 3)
        n += 1
