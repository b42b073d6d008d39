"""Images of a project that were moved or renamed, found by their content.

A project keeps a stamp of each image: size, time of the last write and the digest of its content.
Stamps of former versions have no digest; then size and time must tell one image from all others.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import NamedTuple

from fewlabels.data import ImageSet
from fewlabels.data.decoding import UnreadableImageError
from fewlabels.features import FeatureSet

UNREAD = "unread "  # before the stamp of an image that could not be read
GONE = "gone"  # in the new name of an item whose name another image has now


def add_digests(stamps: Mapping[str, str], digests: Mapping[str, str]) -> dict[str, str]:
    """Stamps of files with the digests of their content.

    >>> add_digests({"a.jpg": "12 1700", "b.jpg": "9 1700"}, {"a.jpg": "1b98"})
    {'a.jpg': '12 1700 1b98', 'b.jpg': '9 1700'}
    """
    return {name: f"{stamp} {digests.get(name, '')}".rstrip() for name, stamp in stamps.items()}


def file_stamp(stamp: str) -> str:
    """Size and time of a stamp, without the digest.

    >>> file_stamp("12 1700 1b98"), file_stamp("")
    ('12 1700', '')
    """
    return " ".join(stamp.split()[:2])


class Moved(NamedTuple):
    """What became of the images of a project."""

    names: dict[str, str]  # new names of items, by the old ones
    n_found: int  # items whose images are there, under the old name or a new one


def find_moved(images: ImageSet, now: Mapping[str, str], stamps: Mapping[str, str]) -> Moved:
    """Items whose images are there under other names.

    Only files that have the size of a missing image are read. An item that is gone, and whose name
    another item gets, is called "NAME (gone)".

    Args:
        images: That are there now.
        now: Their stamps, without digests.
        stamps: Of the items.
    """
    stamps = {item: stamp.removeprefix(UNREAD) for item, stamp in stamps.items()}
    index = {name: row for row, name in enumerate(images.names)}

    def digest(name: str) -> str:
        try:
            return images.digest(index[name])
        except UnreadableImageError:
            return ""

    def is_there(item: str, stamp: str) -> bool:
        known = stamp.split()[2:]
        if item not in now or file_stamp(stamp) == now[item]:
            return item in now
        same_size = stamp.split()[:1] == now[item].split()[:1]
        return not known or (same_size and digest(item) == known[0])

    there = {item for item, stamp in stamps.items() if is_there(item, stamp)}
    missing = {item: stamp for item, stamp in stamps.items() if item not in there and stamp}
    sizes = {stamp.split()[0] for stamp in missing.values()}
    by_stamp: dict[str, list[str]] = {}
    by_digest: dict[str, list[str]] = {}
    for name, stamp in now.items() if missing else ():
        if name not in there and stamp.split()[0] in sizes:
            by_stamp.setdefault(stamp, []).append(name)
            by_digest.setdefault(digest(name), []).append(name)
    moved: dict[str, str] = {}
    for item in sorted(missing):
        stamp = missing[item]
        if known := stamp.split()[2:]:
            found = by_digest.get(known[0], [])
        else:
            alike = by_stamp.get(stamp, [])
            found = alike if len(alike) == 1 else []
        if free := [name for name in found if name not in moved.values()]:
            file = PurePosixPath(item).name
            moved[item] = min(free, key=lambda each: (PurePosixPath(each).name != file, each))
    n_found = len(there) + len(moved)
    for item in set(moved.values()) & missing.keys() - moved.keys():
        number, name = 1, f"{item} ({GONE})"
        while name in stamps or name in now or name in moved.values():
            number, name = number + 1, f"{item} ({GONE} {number + 1})"
        moved[item] = name
    return Moved(moved, n_found)


def rename_rows(features: FeatureSet, moved: Mapping[str, str]) -> FeatureSet:
    """The features with the new names of rows."""
    return replace(features, names=tuple(moved.get(name, name) for name in features.names or ()))
