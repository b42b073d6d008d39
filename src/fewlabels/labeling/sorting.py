"""move_photos: photographs moved into one folder per class, with a journal to move them back."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from fewlabels.data.listing import AVIF, HEIC, SUFFIXES
from fewlabels.errors import InputError
from fewlabels.io.files import make_folder, remove_temporaries
from fewlabels.io.moves import Move, begin_moves, check_journal, finish_moves
from fewlabels.io.words import count, listing
from fewlabels.labeling.exports.base import Item
from fewlabels.labeling.exports.export import find_items
from fewlabels.labeling.labels_file import DEEPEST, DOUBTFUL_FOLDER, NONE_FOLDER
from fewlabels.labeling.outputs import check_abstain, folder_names

JOURNALS = "moves-*.jsonl"
MOVED = (*SUFFIXES, *HEIC, *AVIF)  # what is moved, and moved back
OUTLIER = 0.5  # probability of no class from which an image is put there


class Moved(NamedTuple):
    """What was moved, or would be."""

    journal: Path | None  # None for a preview
    moves: tuple[Move, ...]
    counts: dict[str, int]  # by folder
    remarks: tuple[str, ...]

    def describe(self) -> str:
        """How many files, into which folders, and how to move them back."""
        folders = ", ".join(f"{name} {n:,}" for name, n in self.counts.items())
        files = count(len(self.moves), "file")
        if self.journal is None:
            return f"Preview, nothing was moved: {files} would move: {folders}."
        return f"{files} moved: {folders}.\nTo move them back: fewlabels undo {self.journal}"


def move_photos(
    source: str | Path,
    output: str | Path,
    *,
    labels: str | Path | None = None,
    photos: str | Path | None = None,
    class_from: str = DEEPEST,
    abstain: float = 0.0,
    sub_classes: str = "",
    dry_run: bool = False,
) -> Moved:
    """Move photographs into one folder per class, as `fewlabels move` does.

    Images of no class and doubtful ones, also those whose label was left out as too doubtful, get
    folders of their own; images without a label stay where they are, and so do links. Nothing is
    overwritten. `undo_moves` moves everything back.

    Args:
        source: Labelling project, or folder of images.
        output: Where the folders of the classes are made; not inside the folder of images.
        labels: As in `export_labels`.
        photos: As in `export_labels`.
        class_from: As in `export_labels`.
        abstain: Confidence, 0 to 1, below which an image is doubtful.
        sub_classes: What stands between class and sub-class: folders are nested.
        dry_run: Only say what would be moved.
    """
    check_abstain(abstain)
    found = find_items(source, labels=labels, photos=photos, class_from=class_from)
    output = Path(output)
    if found.root is None or not found.root.is_dir():
        raise InputError(f"source must have a folder of images, got {source}, which has none.")
    root, place = found.root.resolve(), output.resolve()
    if place.is_relative_to(root) or root.is_relative_to(place):
        raise InputError(
            f"output must not lie inside the folder of images {found.root} or around it, "
            f"got {output}. Name another."
        )
    if output.is_dir():
        remove_temporaries(output)
        check_journal(output, JOURNALS)
    used = {item.label for item in found.items if item.label} | {NONE_FOLDER, DOUBTFUL_FOLDER}
    names = folder_names(used, sub_classes)
    moves, counts, n_links, n_left = [], Counter[str](), 0, 0
    taken: dict[Path, set[str]] = {}
    for item in found.items:
        folder = _folder_of(item, abstain)
        if item.file is None or not folder:
            n_left += item.file is not None
        elif item.file.is_symlink():
            n_links += 1
        else:
            name = names.get(folder, folder)
            moves.append(Move(item.file.absolute(), _free(place / name, item.file.name, taken)))
            counts[name] += 1
    if not moves:
        raise InputError("there are no labelled images to move. Label them first.")
    remarks = list(found.remarks)
    if n_left:
        remarks.append(f"{count(n_left, 'image')} without a label stay where they are.")
    if n_links:
        remarks.append(f"{count(n_links, 'link')} to files stay where they are.")
    renamed = [f"'{old}' as '{new}'" for old, new in names.items() if old and old != new]
    if renamed:
        remarks.append(f"Folders of other names: {listing(sorted(renamed))}.")
    journal = None
    if not dry_run:
        make_folder(output.parent)
        journal = output / f"moves-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}.jsonl"
        begin_moves(journal, moves)
        finish_moves(journal)
    return Moved(journal, tuple(moves), dict(sorted(counts.items())), tuple(remarks))


def _folder_of(item: Item, abstain: float) -> str:
    """The class or the folder of an item, "" for none."""
    is_left_out = bool(item.guess) and not item.label  # by `label_folder(abstain=...)`
    is_guessed = item.is_predicted or is_left_out
    if item.is_of_no_class or (is_guessed and item.none_of_these >= OUTLIER):
        return NONE_FOLDER
    if is_left_out or (item.is_predicted and item.confidence < abstain):
        return DOUBTFUL_FOLDER
    return item.label


def _free(folder: Path, name: str, taken: dict[Path, set[str]]) -> Path:
    """A path in a folder where nothing is and nothing will be, even where case does not count."""
    if folder not in taken:
        there = folder.iterdir() if folder.is_dir() else ()
        taken[folder] = {each.name.lower() for each in there}
    number = 2
    stem, suffix = PurePosixPath(name).stem, PurePosixPath(name).suffix
    while name.lower() in taken[folder]:
        name, number = f"{stem}-{number}{suffix}", number + 1
    taken[folder].add(name.lower())
    return folder / name
