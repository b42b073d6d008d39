"""Pictures in forms that cannot be read here: said, rather than passed over in silence."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

FOREIGN = {  # suffix: what to do about it
    **dict.fromkeys(
        (".heic", ".heif"), "export them as JPEG, or set the camera to 'most compatible'"
    ),
    **dict.fromkeys((".avif", ".jxl", ".jp2", ".psd", ".svg"), "export them as JPEG or PNG"),
    **dict.fromkeys(
        (".cr2", ".cr3", ".nef", ".arw", ".dng", ".raf", ".orf", ".rw2"),
        "develop these raw photographs to JPEG",
    ),
    **dict.fromkeys((".mp4", ".mov", ".avi", ".mkv"), "extract pictures from these films"),
    **dict.fromkeys((".zip", ".tar", ".tgz", ".gz", ".7z", ".rar"), "unpack them"),
}


def is_foreign(path: Path) -> bool:
    """Whether a file is a picture, by its name, that cannot be read here."""
    return path.suffix.lower() in FOREIGN


def remark_foreign(paths: Iterable[Path]) -> list[str]:
    """One remark for each way out that files need, those inside folders included; none for plain images.

    >>> remark_foreign([Path("a.heic"), Path("b.HEIC"), Path("c.jpg")])
    ["Not read: 2 .heic files; export them as JPEG, or set the camera to 'most compatible'."]
    """
    found: Counter[str] = Counter()
    for path in paths:
        found.update(
            each.suffix.lower()
            for each in (_inside(path) if path.is_dir() else [path])
            if is_foreign(each)
        )
    ways: dict[str, list[str]] = {}
    for suffix, count in sorted(found.items()):
        ways.setdefault(FOREIGN[suffix], []).append(f"{count:,} {suffix}")
    return [f"Not read: {' and '.join(files)} files; {way}." for way, files in ways.items()]


def _inside(folder: Path) -> Iterator[Path]:
    for _, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if not each.startswith(".")]
        yield from (Path(name) for name in names if not name.startswith("."))
