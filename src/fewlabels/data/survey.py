"""The content of a folder, found by file names: a benchmark in one of its forms, or images."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fewlabels.data.benchmarks import gather
from fewlabels.data.class_lists import BENCHMARKS, find_benchmark
from fewlabels.data.folders import read_images
from fewlabels.data.forms import Form, find_form, look_for_form
from fewlabels.data.forms.class_folders import SPLIT_FOLDERS
from fewlabels.data.image_set import ALL, SPLITS, ImageSet, Problem
from fewlabels.data.listing import ListedImage, list_folders
from fewlabels.errors import FileFormatError, InputError

# Intersection over union of the class names of a folder and of a benchmark, from which on the
# folder is taken for the benchmark. Set by hand.
MIN_LIKENESS = 0.5
PAIR = 2  # images of a class: one to label, one to classify
EPISODE = 16  # images of a class in the usual 1-shot episode: 1 labelled, 15 queries
ALONE = "the class has one image, which leaves none to classify"


@dataclass(frozen=True, eq=False)
class Survey:
    """The content of a folder, before its images are decoded."""

    folder: Path
    form: Form | None  # None for a plain folder
    image_sets: tuple[ImageSet, ...]
    problems: tuple[Problem, ...]
    remarks: tuple[Problem, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.image_sets))


def survey_folder(folder: str | Path, *, dataset: str | None = None) -> Survey:
    """List the content of a folder, as a benchmark if it is one.

    Args:
        dataset: The benchmark it should hold; by default the one with the most similar classes,
            if any.
    """
    folder = Path(folder)
    form = guess_form(folder) if dataset is None else find_form(folder, find_benchmark(dataset))
    return _survey_plain(folder) if form is None else _survey_benchmark(form)


def guess_form(folder: Path) -> Form | None:
    """The form of the benchmark whose classes and splits are most similar to the folder's, or None.

    Two benchmarks with the same classes differ in their splits, so these are compared second.
    """
    likeness: dict[Form, tuple[float, float]] = {}
    for form in (look_for_form(folder, benchmark) for benchmark in BENCHMARKS.values()):
        if form is not None:
            placed, known = form.placed(), set(form.benchmark.split_classes(ALL))
            shared = known & placed.keys()
            rightly = [name for name in shared if placed[name] == {form.benchmark.split_of(name)}]
            likeness[form] = (len(shared) / len(known | placed.keys()), len(rightly) / len(known))
    best = max(likeness.values(), default=(0.0, 0.0))
    if best[0] < MIN_LIKENESS:
        return None
    alike = [form for form, like in likeness.items() if like == best]
    if len(alike) > 1:
        names = [form.benchmark.name for form in alike]
        raise InputError(
            f"{folder} can be read as {' or as '.join(names)}. "
            f"Name the benchmark, as in dataset='{names[0]}'."
        )
    return alike[0]


def _survey_benchmark(form: Form) -> Survey:
    problems: list[Problem] = []
    image_sets = []
    for split in SPLITS:
        try:
            image_sets.append(gather(form, split, partial(_read_class, form, split, problems)))
        except FileFormatError as error:  # the classes of the split are not known
            problems.append(Problem(split, str(error)))
    problems += [problem for images in image_sets for problem in images.problems]
    return Survey(form.root, form, tuple(image_sets), tuple(problems))


def _read_class(form: Form, split: str, problems: list[Problem], name: str) -> list[ListedImage]:
    try:
        return form.list_class(name)
    except FileFormatError as error:
        problems.append(Problem(split, str(error)))
        return []


def _survey_plain(folder: Path) -> Survey:
    inside = list_folders(folder, root=folder, problems=[]) if folder.is_dir() else []
    split_folders = [path for path in inside if path.name in SPLIT_FOLDERS]
    image_sets: tuple[ImageSet, ...]
    if len(split_folders) > 1:
        image_sets = tuple(_read_split(path) for path in split_folders)
    else:
        image_sets = (read_images(folder),)
    problems, remarks = [problem for images in image_sets for problem in images.problems], []
    for place, images in enumerate(image_sets):
        for earlier in image_sets[:place]:
            shared = sorted(set(images.class_names) & set(earlier.class_names))
            both = f"the class is in {earlier.split} and in {images.split}"
            problems += [Problem(name, both) for name in shared]
        for name, size in zip(images.class_names, images.class_sizes.tolist(), strict=True):
            if size < PAIR:
                problems.append(Problem(name, ALONE))
            elif size < EPISODE:
                few = f"{size} images, fewer than the {EPISODE} per class of a usual 1-shot episode"
                remarks.append(Problem(name, few))
        if images.class_names and (n_unlabelled := int((images.labels < 0).sum())):
            beside = f"unlabelled images beside the class folders: {n_unlabelled:,}"
            remarks.append(Problem(images.name, beside))
    return Survey(folder, None, image_sets, tuple(problems), tuple(remarks))


def _read_split(folder: Path) -> ImageSet:
    """The images of a split folder, named from the folder above it."""
    images = read_images(folder)
    problems = tuple(Problem(f"{folder.name}/{name}", reason) for name, reason in images.problems)
    names = tuple(f"{folder.name}/{name}" for name in images.names)
    return replace(
        images, name=folder.name, split=SPLIT_FOLDERS[folder.name], names=names, problems=problems
    )
