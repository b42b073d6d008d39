"""From the command line to a running session: begin or open a project, import labels, notice new images."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fewlabels.errors import InputError
from fewlabels.features import read_features
from fewlabels.labeling.collection import Collection
from fewlabels.labeling.importing import begin_project, import_file, refresh
from fewlabels.labeling.project import Project, check_place, is_project
from fewlabels.labeling.session import Session
from fewlabels.labeling.sources import Extraction, open_source


def start_session(
    folder: Path,
    *,
    photos: Path | None,
    labels: Path | None,
    extraction: Extraction,
    on_remark: Callable[[str], None] = lambda _: None,
) -> Session:
    """A session of a project, which is begun if it is not there yet.

    Args:
        folder: Of the project.
        photos: What a new project is of.
        labels: To import: a CSV file, or for a new project a folder with a sub-folder a class.
        extraction: How images become features.
        on_remark: Told what should be said about the images and labels.
    """
    if is_project(folder):
        project = Project.open(folder, write=True)
        try:
            if photos is not None and not _is_of(project, photos):
                raise InputError(
                    f"{folder} is a project of {project.root or 'features'}, not of {photos}. Leave --photos out, or name another project."
                )
            for remark in refresh(project, extraction):
                on_remark(remark)
            for remark in [] if labels is None else import_file(project, labels):
                on_remark(remark)
        except BaseException:
            project.close()
            raise
    elif photos is None:
        raise InputError(f"{folder} is not a labelling project yet. Begin it with --photos FOLDER.")
    else:
        check_place(folder, photos if photos.is_dir() else None)
        source = open_source(photos, labels=labels, extraction=extraction)
        for remark in source.remarks:
            on_remark(remark)
        project = begin_project(folder, source)
    return Session(project)


def _is_of(project: Project, photos: Path) -> bool:
    """Whether a project is of these photos, or of features equal to those in this file."""
    if project.root is not None or photos.is_dir():
        return project.root == photos.resolve()
    kept, given = project.load(), Collection.of_features(read_features(photos, labels_needed=False))
    return kept.names == given.names and np.array_equal(kept.features, given.features)
