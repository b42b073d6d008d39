"""The user's folder for what can be made again, and what fewlabels remembers there about links."""

import os
import sys
from contextlib import suppress
from pathlib import Path

from fewlabels.errors import FewLabelsError
from fewlabels.io.files import read_json, write_json

# The second is the name of the package before it became fewlabels.
CACHE_VARIABLES = ("FEWLABELS_CACHE", "PTMAP_CACHE")
CACHE_FOLDERS = ("fewlabels", "ptmap")
LINKS = "links.json"  # by folder of links, the folders that they lead to


def cache_folder() -> Path:
    """FEWLABELS_CACHE, or a folder below the platform's one for caches.

    The variable and the folder of the former name, ptmap, are used where the new ones do not exist.
    """
    for variable in CACHE_VARIABLES:
        if chosen := os.environ.get(variable):
            return Path(chosen)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        given = Path(os.environ.get("XDG_CACHE_HOME", ""))
        # The XDG standard says to ignore a relative path.
        base = given if given.is_absolute() else Path.home() / ".cache"
    new, old = (base / name for name in CACHE_FOLDERS)
    return old if (old / "features").is_dir() and not (new / "features").is_dir() else new


def remember_links(folder: Path, root: Path) -> None:
    """Remember that links in `folder`, which fewlabels wrote, lead to images below `root`."""
    known, key = _known_links(), str(folder.resolve())
    known[key] = sorted({*known.get(key, []), *map(str, linked_roots(root))})
    with suppress(FewLabelsError):  # then they are not followed, as any other links
        write_json(cache_folder() / LINKS, known)


def linked_roots(folder: Path) -> tuple[Path, ...]:
    """The folders that links in `folder` may lead to: itself, and what `remember_links` noted.

    Any other link is not followed: a folder from elsewhere could show private images by it.
    """
    real = folder.resolve()
    noted = [root for each in (real, *real.parents) for root in _known_links().get(str(each), [])]
    return (real, *map(Path, noted))


def _known_links() -> dict[str, list[str]]:
    with suppress(FewLabelsError):  # it is not there yet, or damaged
        found: dict[str, list[str]] = read_json(cache_folder() / LINKS, holds="links", way_out="")
        return found
    return {}
