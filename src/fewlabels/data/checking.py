"""Check of a folder of images: can every image be read, and are the counts right?"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

from fewlabels.data.decoding import UnreadableImageError
from fewlabels.data.forms import Form
from fewlabels.data.image_set import CHUNK, ImageSet, Problem
from fewlabels.data.sources import Tile
from fewlabels.data.survey import Survey


class SplitCount(NamedTuple):
    """Counts of a split, and those of the literature, None where there are none."""

    split: str
    n_classes: int
    n_images: int
    n_unlabelled: int
    class_sizes: tuple[int, int]  # images of the smallest and of the largest class
    sides: tuple[int, int]  # shortest and longest side of all readable images, in pixels
    expected_classes: int | None
    expected_images: int | None


@dataclass(frozen=True)
class CheckReport:
    """The result of a check. Problems make images or counts wrong; remarks may be intended."""

    folder: str
    dataset: str | None  # the name of the benchmark, None for a plain folder
    form: str
    splits: tuple[SplitCount, ...]
    problems: tuple[Problem, ...]
    remarks: tuple[Problem, ...]

    @property
    def n_images(self) -> int:
        """The number of images that were checked."""
        return sum(split.n_images for split in self.splits)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        lists: dict[str, Any] = {
            "splits": self.splits,
            "problems": self.problems,
            "remarks": self.remarks,
        }
        plain = {name: [each._asdict() for each in found] for name, found in lists.items()}
        return {"folder": self.folder, "dataset": self.dataset, "form": self.form, **plain}


def check_survey(
    survey: Survey, *, on_progress: Callable[[int], None] | None = None
) -> CheckReport:
    """Decode every image, and compare the counts with those of the literature."""
    problems, counts = list(survey.problems), []
    for images in survey.image_sets:
        unreadable, sides = _decode_all(images, on_progress)
        problems += unreadable
        counts.append(_count(images, sides, survey.form))
    if survey.form is not None:
        problems += survey.form.verify()
    return CheckReport(
        folder=str(survey.folder),
        dataset=None if survey.form is None else survey.form.benchmark.name,
        form="plain folder" if survey.form is None else survey.form.NAME,
        splits=tuple(counts),
        problems=tuple(sorted(set(problems))),  # each tile of a damaged mosaic reports it
        remarks=survey.remarks,
    )


def _decode_all(
    images: ImageSet, on_progress: Callable[[int], None] | None
) -> tuple[list[Problem], tuple[int, int]]:
    """Unreadable images, and the shortest and longest side of the others."""

    def decode(start: int) -> tuple[int, list[Problem], list[int]]:
        problems: list[Problem] = []
        sides: list[int] = []
        rows = range(start, min(start + CHUNK, len(images)))
        for row in rows:
            try:
                sides += images.read(row).size
            except UnreadableImageError as error:
                name = images.names[row]
                if isinstance(images.sources[row], Tile):
                    name = name.rpartition("#")[0]
                problems.append(Problem(name, error.reason))
        return len(rows), problems, sides

    problems: list[Problem] = []
    sides: list[int] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for n_done, found, measured in pool.map(decode, range(0, len(images), CHUNK)):
            problems += found
            sides += measured
            if on_progress is not None:
                on_progress(n_done)
    return problems, (min(sides, default=0), max(sides, default=0))


def _count(images: ImageSet, sides: tuple[int, int], form: Form | None) -> SplitCount:
    sizes = images.class_sizes
    return SplitCount(
        split=images.split,
        n_classes=int((sizes > 0).sum()),
        n_images=len(images),
        n_unlabelled=int((images.labels < 0).sum()),
        class_sizes=(int(sizes.min(initial=len(images))), int(sizes.max(initial=0))),
        sides=sides,
        expected_classes=None if form is None else len(form.benchmark.classes[images.split]),
        expected_images=None if form is None else form.benchmark.n_images[images.split],
    )
