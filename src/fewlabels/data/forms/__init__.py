"""The forms in which benchmarks are stored: one file each, tried in this order."""

from pathlib import Path

from fewlabels.data.class_lists import Benchmark
from fewlabels.data.forms.cifar import CifarArchive
from fewlabels.data.forms.class_folders import ClassFolders
from fewlabels.data.forms.cub import CubArchive
from fewlabels.data.forms.form import Form
from fewlabels.data.forms.imagenet import FlatImages, IlsvrcFolders
from fewlabels.data.forms.mosaics import Mosaics
from fewlabels.data.forms.pickles import MiniPickles, TieredPickles
from fewlabels.errors import FileFormatError

FORMS: dict[str, tuple[type[Form], ...]] = {
    "cifar-fs": (CifarArchive, Mosaics, ClassFolders),
    "fc100": (CifarArchive, Mosaics, ClassFolders),
    "mini-imagenet": (MiniPickles, FlatImages, IlsvrcFolders, ClassFolders),
    "tiered-imagenet": (TieredPickles, IlsvrcFolders, ClassFolders),
    "cub": (CubArchive, ClassFolders),
}


def look_for_form(folder: Path, benchmark: Benchmark) -> Form | None:
    """The first form of the benchmark that is found in the folder, if any."""
    found = (form.find(folder, benchmark) for form in FORMS[benchmark.name])
    return next((form for form in found if form is not None), None)


def find_form(folder: Path, benchmark: Benchmark) -> Form:
    """The form in which the folder holds the benchmark."""
    if not folder.exists():
        raise FileFormatError(f"{folder} does not exist. Check the path for typos.")
    form = look_for_form(folder, benchmark)
    if form is None:
        looked = "; ".join(f"{form.NAME} ({form.WORDS})" for form in FORMS[benchmark.name])
        raise FileFormatError(
            f"{folder} must hold {benchmark.title} in one of these forms, got none: {looked}."
        )
    return form


__all__ = ["FORMS", "Form", "find_form", "look_for_form"]
