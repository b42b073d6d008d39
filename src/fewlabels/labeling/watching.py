"""watch_folder: labels of images as they arrive in a folder.

The folder is listed again and again. A file is labelled when two lists in a row show the same size
and time of it: then nobody writes it any more. One that cannot be read is named once, and tried
again when it changes. A file that changes after it was labelled is labelled again.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from fewlabels.data import read_images
from fewlabels.errors import FewLabelsError, FileFormatError, InputError
from fewlabels.io.stamps import Stamp
from fewlabels.labeling.outputs import LabelRow, check_abstain
from fewlabels.labeling.predict import Predictor


class Arrived(NamedTuple):
    """What is known of one list: labels of images, and words about files that cannot be read."""

    rows: list[LabelRow]
    remarks: list[str]


def watch_folder(
    folder: str | Path,
    predictor: Predictor,
    *,
    wait: Callable[[], bool],
    abstain: float = 0.0,
    skip_existing: bool = False,
) -> Iterator[Arrived]:
    """Labels of images as they arrive; those that are there already come first.

    Args:
        folder: Of images, at any depth.
        predictor: What labels them.
        wait: Called between two lists; the watch ends when it returns False.
        abstain: Confidence below which a label is left out.
        skip_existing: Whether images that are there at the start are left alone.
    """
    folder = Path(folder)
    check_abstain(abstain)
    if not folder.is_dir():
        raise InputError(f"folder must be a folder of images, got {folder}, which is none.")
    if not predictor.backbone:
        raise InputError(f"model must be made from images, got {predictor.source}.")
    return _watch(folder, predictor, wait, abstain, skip_existing)


def _watch(
    folder: Path,
    predictor: Predictor,
    wait: Callable[[], bool],
    abstain: float,
    skip_existing: bool,
) -> Iterator[Arrived]:
    done: dict[str, Stamp] = _list(folder) if skip_existing else {}
    before: dict[str, Stamp] = {}
    while True:
        now = _list(folder)
        ready = [
            name
            for name, stamp in now.items()
            if stamp.size and done.get(name) != stamp == before.get(name)
        ]
        if ready:
            yield _label(folder, ready, predictor, abstain)
            done |= {name: now[name] for name in ready}
        before = now
        if not wait():
            return


def _list(folder: Path) -> dict[str, Stamp]:
    """The stamp of every image in a folder, which may be empty, by name."""
    found = {}
    try:
        images = read_images(folder)
    except FileFormatError:  # no image yet
        return {}
    for index, name in enumerate(images.names):
        path = images.path(index)
        try:
            found[name] = Stamp.of(path or folder / name)
        except OSError:  # it went away
            continue
    return found


def _label(folder: Path, names: list[str], predictor: Predictor, abstain: float) -> Arrived:
    try:
        images = read_images(folder)
        place = {name: index for index, name in enumerate(images.names)}
        chosen = images.subset([place[name] for name in names if name in place])
        if not len(chosen):
            return Arrived([], [])
        return Arrived(*predictor.label_images(chosen, abstain=abstain))
    except FewLabelsError as error:  # none of them can be read
        return Arrived([], [str(error)])
