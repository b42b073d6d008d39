"""What the page offers to download: every format of `fewlabels export`, the report and the model.

A format that copies pictures becomes one zip file. Where the pictures are too many for that, the
page shows the command that writes them to a folder.
"""

import shlex
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fewlabels.errors import unknown_choice
from fewlabels.labeling.exports import export_labels, find_format, format_names
from fewlabels.labeling.label import label_folder
from fewlabels.labeling.session import Session

REPORT, MODEL = "report", "model"
OTHERS = {  # besides the formats: file, and what it is
    REPORT: ("report.html", "a report to read and to send"),
    MODEL: ("model.safetensors", "a model for `fewlabels predict`"),
}
MOST_BYTES = 1 << 29  # of pictures in a zip file


def list_downloads(session: Session) -> list[dict[str, Any]]:
    """Name, words and command of each, and whether the server makes it ("here")."""
    # A table's pictures are shown, not exported.
    project, has_pictures = str(session.project.folder), session.project.root is not None
    are_small = has_pictures and _bytes_of_pictures(session) <= MOST_BYTES
    found = []
    for form in map(find_format, format_names()):
        if form.needs_pictures and not has_pictures:
            continue
        name = form.name
        command = ["fewlabels", "export", project, "--to", name, "--output", f"labels-{name}"]
        here = are_small or not form.needs_pictures
        if name == "parquet":
            here = find_spec("pyarrow") is not None  # else the command says what to install
        found.append(
            {"name": name, "words": form.words, "here": here, "command": shlex.join(command)}
        )
    for name, (file, words) in OTHERS.items():
        command = ["fewlabels", "label", project, f"--{name}", file]
        found.append({"name": name, "words": words, "here": True, "command": shlex.join(command)})
    return found


def _bytes_of_pictures(session: Session) -> int:
    total = 0
    for row in range(len(session.collection)):
        path = session.collection.path(row)
        if path is not None and path.is_file():
            total += path.stat().st_size
    return total


def make_download(session: Session, name: str, folder: Path) -> Path:
    """Write a download below an empty folder; returns the file, a zip file if there are several."""
    session.keep_answer()
    project = session.project.folder
    if name in OTHERS:
        file = folder / OTHERS[name][0]
        command = shlex.join(["fewlabels", "label", str(project), f"--{name}", file.name])
        how: dict[str, Any] = {name: file, "command": command}
        how |= {"method": session.method, "settings": session.settings}
        label_folder(project, sub_classes=session.sub_classes, **how)
        return file
    if name not in format_names():
        raise unknown_choice("name", name, [*format_names(), *OTHERS])
    how = {"link": True, "sub_classes": session.sub_classes}
    written = export_labels(project, to=name, output=folder / "out", **how).output
    files = sorted(path for path in written.rglob("*") if path.is_file())
    if len(files) == 1:
        return files[0]
    packed = folder / f"labels-{name}.zip"
    # Pictures are compressed already.
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED, strict_timestamps=False) as archive:
        for path in files:
            archive.write(path, path.relative_to(written).as_posix())
    return packed
