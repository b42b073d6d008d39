"""Bursts: photographs that a camera took shortly after one another, by their EXIF times.

Photographs of one folder and one camera model belong to one burst if each was taken at most a few
seconds after the one before. Only DateTimeOriginal counts, with its fractions of a second where
they are written: the times of files change with copies. JPEG, HEIC, AVIF, WebP, PNG and TIFF can
have it. A photograph without it is a burst by itself.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fewlabels.data.decoding import known_formats
from fewlabels.errors import InputError

SECONDS = 3.0  # camera traps take a picture per second, phones several
EXIF, TAKEN, FRACTION, CAMERA = 0x8769, 0x9003, 0x9291, 0x0110  # tags
N_THREADS = 4  # reading headers waits for the disk


def taken_at(path: Path) -> tuple[str, float] | None:
    """Camera model and time of a photograph in seconds by its clock; None if none is written."""
    try:
        with Image.open(path, formats=known_formats()) as image:
            tags = image.getexif()
            inner = tags.get_ifd(EXIF)
            written = str(inner.get(TAKEN, "")).strip("\0 ")
            fraction = str(inner.get(FRACTION, "")).strip("\0 ")
            # The clock of a camera has no zone: only differences count.
            time = datetime.strptime(written, "%Y:%m:%d %H:%M:%S").replace(tzinfo=UTC)
            more = float(f"0.{fraction}") if fraction.isdecimal() else 0.0
            return str(tags.get(CAMERA, "")).strip("\0 "), time.timestamp() + more
    except Exception:  # damaged bytes raise errors of any class
        return None


def check_seconds(seconds: float) -> None:
    """Refuse what is not a time between two photographs."""
    if not 0 <= seconds < float("inf"):
        raise InputError(
            f"burst must be seconds between two photographs, 0 for no bursts, got {seconds}."
        )


def find_bursts(paths: Sequence[Path | None], *, seconds: float = SECONDS) -> NDArray[np.int64]:
    """The number of the burst of each photograph, (N,); a photograph alone is one by itself.

    Args:
        paths: Of the photographs; None where there is no file.
        seconds: Between two photographs of one burst; 0 for no bursts.
    """
    check_seconds(seconds)
    groups = np.arange(len(paths))
    if not seconds:
        return groups
    with ThreadPoolExecutor(N_THREADS) as pool:
        found = list(pool.map(lambda path: None if path is None else taken_at(path), paths))
    known = []
    for row, (path, taken) in enumerate(zip(paths, found, strict=True)):
        if path is not None and taken is not None:
            known.append((str(path.parent), *taken, row))
    known.sort()
    for (*before, last, one), (*now, time, other) in pairwise(known):
        if before == now and time - last <= seconds:
            groups[other] = groups[one]
    return groups
