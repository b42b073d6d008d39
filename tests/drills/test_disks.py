"""Full and read-only disks: the old state stays readable, and what was not kept is named.

On commit 7d831a6 a decision on a full disk was answered by a bare 500, thumbnails by 404, the
creation of a project ended in tracebacks, and a read-only project was "not a labelling project".
"""

import errno
import os
import resource
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from fewlabels.errors import FewLabelsError, InputError
from fewlabels.features import FeatureSet
from fewlabels.features.recipe import FeatureRecipe
from fewlabels.features.store import FeatureStore
from fewlabels.io.files import write_file
from fewlabels.io.moves import Move, MovesEndedError, begin_moves, finish_moves
from fewlabels.labeling.check import check_project
from fewlabels.labeling.exports import export_labels
from fewlabels.labeling.merging import merge_projects
from fewlabels.labeling.project import Project

ROWS = np.random.default_rng(0).gamma(1.0, size=(40, 6)).astype(np.float32)
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no such signals")


def make(folder: Path) -> Project:
    names = [f"{i}.jpg" for i in range(40)]
    features = FeatureSet.from_arrays(ROWS, [-1] * 40, [], {}, names)
    return Project.create(folder, features, title="t", labels={"0.jpg": "a", "1.jpg": "b"})


class Full:
    """A disk on which no file may grow beyond a number of bytes, as on a full one."""

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes

    def __enter__(self) -> None:
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.n_bytes, self.before[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)


def test_decisions_on_a_full_disk(drill, tmp_path):
    with make(tmp_path / "p") as project:
        journal = project.journal
        for rng in drill.tries("full disk: decisions", 20, 400):
            name, label = f"{rng.randrange(40)}.jpg", f"class {rng.randrange(4)}"
            before = journal.current
            kept, words = False, ""
            with Full(rng.randrange(60_000)):
                try:
                    journal.decide({name: label}, origin="person")
                    kept = True
                except InputError as error:
                    words = str(error)
            now = journal.current
            if kept:
                good = now[name].label == label
            else:
                good = now == before and "The decision was not kept. Free some space" in words
            journal.decide({name: label}, origin="person")  # there is room again
            with Project.open(tmp_path / "p") as other:
                good &= other.journal.current[name].label == label
            drill.judge(good, f"{kept} {words}")


def test_projects_made_on_a_full_disk(drill, tmp_path):
    for rng in drill.tries("full disk: projects made", 10, 200):
        folder = tmp_path / "p"
        try:
            with Full(rng.randrange(70_000)):
                make(folder).close()
        except FewLabelsError as error:
            good = "cannot be written" in str(error) and not folder.exists()
        else:
            good = folder.exists()
        if not folder.exists():
            make(folder).close()
        with Project.open(folder) as project:
            good &= len(project.journal.current) == 2
        drill.judge(good and len(list(tmp_path.iterdir())) == 1, str(list(tmp_path.iterdir())))
        shutil.rmtree(folder)


def test_files_on_a_full_disk(drill, tmp_path):
    path = tmp_path / "labels.csv"
    write_file(path, b"old")
    for rng in drill.tries("full disk: files", 20, 400):
        try:
            with Full(rng.randrange(2000)):
                write_file(path, bytes(1000))
        except InputError:
            good = path.read_bytes() == b"old"
        else:
            good = path.read_bytes() == bytes(1000)
            write_file(path, b"old")
        drill.judge(good and len(list(tmp_path.iterdir())) == 1, "changed or left over")


def test_exports_on_a_full_disk(drill, tmp_path, photos):
    """The output is there completely or not at all."""
    for rng in drill.tries("full disk: exports", 10, 150):
        form = rng.choice(("hf", "imagefolder", "csv", "coco", "cvat", "fiftyone"))
        output = tmp_path / "out" / form
        try:
            with Full(rng.randrange(4000)):
                export_labels(photos, to=form, output=output)
        except InputError as error:
            good = "cannot be written" in str(error) and not output.exists()
            export_labels(photos, to=form, output=output)  # there is room again
        else:
            good = True
        good &= any(path.is_file() for path in output.rglob("*"))
        drill.judge(good and len(list(output.parent.iterdir())) == 1, form)
        shutil.rmtree(output.parent)


def test_moves_on_a_full_disk(drill, tmp_path):
    """Between two disks: photographs that do not fit stay; later the rest follows."""
    sys.addaudithook(refuse_links(tmp_path))
    sizes = [100 * i + 1 for i in range(12)]
    for rng in drill.tries("full disk: moves between two disks", 10, 150):
        moves, wanted = [], {}
        for i, size in enumerate(sizes):
            path = tmp_path / "photos" / f"{i}.jpg"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(bytes([i]) * size)
            wanted[path.name] = path.read_bytes()
            moves.append(Move(path, tmp_path / "sorted" / f"{i}.jpg"))
        journal, words = tmp_path / "sorted" / "moves-1.jsonl", ""
        try:
            with Full(rng.randrange(1500)):
                begin_moves(journal, moves)
        except InputError as error:
            words = str(error)
            begin_moves(journal, moves)
        try:
            with Full(rng.randrange(1500)):
                finish_moves(journal)
        except MovesEndedError as error:
            words = str(error)
            there = [each for move in moves for each in move if each.exists()]
            assert {each.name: each.read_bytes() for each in there} == wanted
        good = not words or "no file is lost" in words or "cannot be written" in words
        finish_moves(journal)
        found = {path.name: path.read_bytes() for path in (tmp_path / "sorted").glob("*.jpg")}
        left = [path.name for path in (tmp_path / "sorted").iterdir() if path.name[0] == "."]
        drill.judge(good and found == wanted and not left, f"{words} {left}")
        shutil.rmtree(tmp_path / "sorted")


def refuse_links(below: Path):
    """An audit hook: links below a folder fail, as they do between two file systems."""

    def refuse(event, values):
        if event == "os.link" and str(values[0]).startswith(str(below)):
            raise OSError(errno.EXDEV, "another file system")

    return refuse


def test_merges_on_a_full_disk(drill, tmp_path):
    """All decisions of the other project come, or none."""
    for name, label in (("a", "x"), ("b", "y")):
        with make(tmp_path / name) as project:
            for i in range(2, 30):
                each = f"{i}.jpg"
                project.journal.decide({each: f"{label} {i % 3}"}, origin="person")
    shutil.copytree(tmp_path / "a", tmp_path / "kept")
    with Project.open(tmp_path / "a") as project:
        before = project.journal.standing, project.journal.n_decisions
    merge_projects(tmp_path / "a", tmp_path / "b")
    with Project.open(tmp_path / "a") as project:
        after = project.journal.n_decisions, project.journal.marks
    for rng in drill.tries("full disk: merges", 10, 150):
        shutil.rmtree(tmp_path / "a")
        shutil.copytree(tmp_path / "kept", tmp_path / "a")
        good = True
        try:
            with Full(rng.randrange(120_000)):
                merge_projects(tmp_path / "a", tmp_path / "b")
        except InputError as error:
            with Project.open(tmp_path / "a") as project:
                good = (project.journal.standing, project.journal.n_decisions) == before
            good &= "cannot be written" in str(error)
        merge_projects(tmp_path / "a", tmp_path / "b")
        with Project.open(tmp_path / "a") as project:
            good &= (project.journal.n_decisions, project.journal.marks) == after
        drill.judge(good and all(each.right for each in check_project(tmp_path / "a")), "not whole")


def test_the_store_on_a_full_disk(drill, tmp_path):
    """Rows that do not fit are computed again next time; those that are there are right."""
    recipe = FeatureRecipe("conv4", "0" * 32, "crop(32)", "center", "float32", 6)
    digests = [f"{i:032x}" for i in range(40)]
    for rng in drill.tries("full disk: the store", 20, 300):
        store = FeatureStore(tmp_path / "store")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that rows cannot be kept
            with Full(rng.randrange(2500)):
                store.put(recipe, digests, ROWS)
            found = FeatureStore(tmp_path / "store").get(recipe, digests)
        good = bool((found.rows[found.known] == ROWS[found.known]).all())
        FeatureStore(tmp_path / "store").put(recipe, digests, ROWS)
        again = FeatureStore(tmp_path / "store").get(recipe, digests)
        drill.judge(good and bool(again.known.all()), "not right")
        shutil.rmtree(tmp_path / "store")


def test_thumbnails_on_a_full_disk(tmp_path, photos, encoder):
    """Commit 7d831a6 answered 404."""
    from fewlabels.labeling.collection import Extraction
    from fewlabels.labeling.inputs import read_inputs
    from fewlabels.labeling.thumbnails import Thumbnails

    how = Extraction(str(encoder), "cpu", None, 0, FeatureStore(tmp_path / "store"))
    thumbnails = Thumbnails(read_inputs(photos, extraction=how).collection, tmp_path / "t")
    with Full(10):
        picture = thumbnails.get(0)
    assert not [path for path in (tmp_path / "t").rglob("*") if path.is_file()]
    assert thumbnails.get(0) == picture


READ = """
import os, sys
from pathlib import Path
from fewlabels.errors import InputError
from fewlabels.io.files import held
from fewlabels.labeling.project import Project
folder = Path(sys.argv[1])
with Project.open(folder) as project:  # imports what it needs
    project.load()
if os.geteuid() == 0:  # who may write everywhere
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
with Project.open(folder) as project:
    assert len(project.journal.current) == 2
    assert len(project.load()) == 40
try:
    Project.open(folder, write=True)
except InputError as error:
    assert "Copy the project to a place where you may write" in str(error), error
else:
    raise SystemExit("it was opened for writing")
try:
    with held(folder):
        raise SystemExit("it was held")
except InputError as error:
    assert "cannot be written" in str(error), error
print("fine")
"""


def test_a_read_only_project_can_be_read():
    """Commit 7d831a6 said that it "is not a labelling project"; serve and train: tracebacks."""
    folder = Path("/tmp") / f"fewlabels-drill-{os.getpid()}"  # others may not look into tmp_path
    folder.mkdir()
    try:
        make(folder / "p").close()
        for path in (folder / "p").iterdir():
            path.chmod(0o444)
        (folder / "p").chmod(0o555)
        command = [sys.executable, "-c", READ, str(folder / "p")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout == "fine\n", done.stderr
    finally:
        (folder / "p").chmod(0o755)
        shutil.rmtree(folder)
