"""Pictures in forms that cannot be read here: said, rather than passed over in silence."""

import os
from collections import Counter
from pathlib import Path

FOREIGN = {  # suffix: what to do about it
    **dict.fromkeys((".heic", ".heif"), "export them as JPEG, or set the camera to 'most compatible'"),
    **dict.fromkeys((".avif", ".jxl", ".jp2", ".psd", ".svg"), "export them as JPEG or PNG"),
    **dict.fromkeys((".cr2", ".cr3", ".nef", ".arw", ".dng", ".raf", ".orf", ".rw2"), "develop these raw photographs to JPEG"),
    **dict.fromkeys((".mp4", ".mov", ".avi", ".mkv"), "extract pictures from these films"),
    **dict.fromkeys((".zip", ".tar", ".tgz", ".gz", ".7z", ".rar"), "unpack them"),
}


def remark_foreign(folder: Path) -> list[str]:
    """One remark for each way out that files in the folder need; none for a folder of plain images."""
    found: Counter[str] = Counter()
    for _, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if not each.startswith(".")]
        found.update(suffix for name in names if (suffix := Path(name).suffix.lower()) in FOREIGN and not name.startswith("."))
    ways: dict[str, list[str]] = {}
    for suffix, count in sorted(found.items()):
        ways.setdefault(FOREIGN[suffix], []).append(f"{count:,} {suffix}")
    return [f"Not read: {' and '.join(files)} files; {way}." for way, files in ways.items()]
