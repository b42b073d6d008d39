"""Hostile input: every reader on mutated files, bombs, pickles, scripts and formulas in names.

Only our own errors, no hang, bounded memory. Each reader runs in a child process with a limit on
its memory, and must be done with each file in `MOST_SECONDS`.

On commit 7d831a6 a 243-byte pickle unfolded to 10^9 items, PostScript named holiday.jpg was handed
to Ghostscript, a 174 kB PNG took 1.8 GB, and labels.csv held formulas.
"""

import io
import json
import os
import pickle
import random
import resource
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fewlabels
from fewlabels.data.benchmarks import read_benchmark
from fewlabels.data.class_lists import BENCHMARKS
from fewlabels.data.decoding import UnreadableImageError, decode
from fewlabels.errors import FewLabelsError, FileFormatError, InputError
from fewlabels.evaluation.settings import read_settings
from fewlabels.features import FeatureSet, read_features
from fewlabels.labeling.journal import Journal
from fewlabels.labeling.label import label_folder
from fewlabels.labeling.labels_file import read_labels
from fewlabels.labeling.outputs import LabelRow, to_csv
from fewlabels.training.recipe import Recipe
from fewlabels.unpickle import load_plain

MOST_SECONDS = 5
MOST_MEMORY = 6 << 30  # bytes of address space, of which torch and its threads take most
ROWS = np.random.default_rng(0).gamma(1.0, size=(6, 3)).astype(np.float32)
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no such signals")


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Change, insert, remove, repeat or overwrite bytes, once to eight times."""
    made = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        place = rng.randrange(len(made) + 1)
        kind = rng.randrange(6)
        if kind == 0 and place < len(made):
            made[place] ^= 1 << rng.randrange(8)
        elif kind == 1 and place < len(made):
            made[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 2:
            made[place:place] = rng.randbytes(rng.randint(1, 8))
        elif kind == 3:
            del made[place : place + rng.randint(1, 16)]
        elif kind == 4:
            made[place:place] = made[max(0, place - rng.randint(1, 32)) : place]
        else:
            number = rng.choice((0, 1, 2**31 - 1, 2**32 - 1, 2**63 - 1))
            made[place : place + 8] = number.to_bytes(8, "little")
    return bytes(made)


def pictures() -> dict[str, bytes]:
    found = {}
    image = Image.fromarray(np.arange(48 * 3, dtype=np.uint8).reshape(6, 8, 3))
    for form in ("JPEG", "PNG", "BMP", "WEBP", "GIF", "TIFF"):
        buffer = io.BytesIO()
        image.save(buffer, form)
        found[form.lower()] = buffer.getvalue()
    return found


def seeds(tmp_path: Path) -> dict[str, tuple[bytes, object]]:
    """Of each kind of file: its bytes, and what reads a path."""
    made: dict[str, tuple[bytes, object]] = {}
    labels = np.array(["a", "b"] * 3)
    features = {"features": ROWS, "labels": labels.tolist()}
    FeatureSet.from_arrays(ROWS, labels).save(tmp_path / "f.safetensors")
    np.savez(tmp_path / "f.npz", features=ROWS, labels=labels)
    np.save(tmp_path / "f.npy", ROWS)
    torch.save({"features": torch.tensor(ROWS), "labels": ["a", "b"] * 3}, tmp_path / "f.pt")
    for suffix in (".pkl", ".plk"):
        (tmp_path / f"f{suffix}").write_bytes(pickle.dumps({"a": ROWS[:3], "b": ROWS[3:]}))
    suffixes = ["safetensors", "npz", "npy", "pt", "pkl", "plk"]
    try:
        import pyarrow
        from pyarrow import parquet

        columns = {"embedding": ROWS.tolist(), "label": features["labels"]}
        parquet.write_table(pyarrow.table(columns), tmp_path / "f.parquet")
        suffixes.append("parquet")
    except ImportError:
        pass
    for suffix in suffixes:
        path = tmp_path / f"f.{suffix}"
        made[path.suffix] = (
            path.read_bytes(),
            lambda path: read_features(path, labels_needed=False),
        )
    for form, data in pictures().items():
        made[f".{form}"] = data, lambda path: decode(path, where=str(path))
    csv = 'path,label\na.jpg,leek\n\'=b.jpg,plum\n"c,d.jpg","x""y"\n'
    names = ["a.jpg", "=b.jpg", "c,d.jpg"]
    made[".csv"] = csv.encode(), lambda path: read_labels(path, names)
    settings = b"[map.1-shot]\nlam = 10.0\nalpha = 0.2\n\n[map.5-shot]\nlam = 8.0\n"
    made[".settings.toml"] = settings, read_settings
    recipe = Path(fewlabels.__file__).parent.joinpath("training/recipes/modern.toml").read_bytes()
    made[".recipe.toml"] = recipe, Recipe.load
    journal = Journal(tmp_path / "j.sqlite")
    journal.add_items({"a": "", "b": ""})
    journal.decide({"a": "x", "b": "y"}, origin="person")
    journal.close()
    for path in tmp_path.glob("decisions.jsonl*"):
        path.unlink()

    def read_journal(path):
        for beside in path.parent.glob("decisions.jsonl"):
            beside.unlink()
        journal = Journal(path, write=False)
        try:
            return journal.current, journal.history("a"), journal.model_labels
        finally:
            journal.close()

    made |= mosaics(tmp_path / "mosaics")
    made[".sqlite"] = (tmp_path / "j.sqlite").read_bytes(), read_journal
    return made


def mosaics(folder: Path) -> dict[str, tuple[bytes, object]]:
    """The index of a set of mosaics, and one of the mosaics."""
    names = BENCHMARKS["cifar-fs"].classes["novel"]
    (folder / "novel").mkdir(parents=True)
    sheet = Image.fromarray(np.arange(96, dtype=np.uint8).reshape(4, 8, 3))
    for name in names:
        sheet.save(folder / "novel" / f"{name}.webp", lossless=True)
    index, first = folder / "index.json", folder / "novel" / f"{names[0]}.webp"
    classes = {name: {"split": "novel"} for name in names}
    index.write_text(json.dumps({"tile": 4, "cols": 2, "rows": 1, "classes": classes}))

    def read_as(place: Path):
        good = place.read_bytes()

        def read(path: Path) -> None:
            place.write_bytes(path.read_bytes())
            try:
                read_benchmark("cifar-fs", folder, split="novel").read(1)
            finally:
                place.write_bytes(good)

        return good, read

    return {".index.json": read_as(index), ".mosaic": read_as(first)}


def read_all(kind, data, read, numbers, folder: Path) -> list[str]:
    """In a child with little memory: what went wrong with the mutated files of these numbers."""
    wrong = []
    for number in numbers:
        rng = random.Random(f"{kind} {number}")
        path = folder / f"x{kind}"
        path.write_bytes(mutate(data, rng))
        begun = time.perf_counter()
        try:
            read(path)
        except FewLabelsError:
            pass
        except Exception as error:
            wrong.append(f"{number}: {type(error).__name__}: {error}")
        if time.perf_counter() - begun > MOST_SECONDS:
            wrong.append(f"{number}: slow")
    return wrong


KINDS = [
    *(".safetensors", ".npz", ".npy", ".pt", ".pkl", ".plk", ".parquet"),
    *(".jpeg", ".png", ".bmp", ".webp", ".gif", ".tiff"),
    *(".index.json", ".mosaic", ".csv", ".settings.toml", ".recipe.toml", ".sqlite"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_mutated_files(drill, tmp_path, kind):
    made = seeds(tmp_path)
    if kind not in made:
        pytest.skip("could not import 'pyarrow'")
    data, read = made[kind]
    many = 1000 if kind in (".index.json", ".mosaic") else 12_000  # these are read with 20 files
    numbers = [number for number, _ in enumerate(drill.tries(f"mutated {kind}", 60, many))]
    report = tmp_path / "report.json"
    (tmp_path / f"good{kind}").write_bytes(data)
    read(tmp_path / f"good{kind}")
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
            report.write_text(json.dumps(read_all(kind, data, read, numbers, tmp_path)))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    wrong = json.loads(report.read_text())  # a child that was killed wrote none
    drill.survived, drill.lost = len(numbers) - len(wrong), wrong


def nested(depth: int, width: int) -> bytes:
    """A pickle of lists that hold one list `width` times, `depth` deep: width ** depth items."""
    value: list[object] = [0] * width
    for _ in range(depth - 1):
        value = [value] * width
    return pickle.dumps({"features": value}, protocol=4)


def test_a_pickle_that_unfolds_without_end_is_refused(tmp_path):
    """Commit 7d831a6 hung on this file of 243 bytes."""
    bomb = nested(9, 10)
    assert len(bomb) < 400
    with pytest.raises(FileFormatError, match="share items"):
        load_plain(bomb, where="bomb", holds="features")
    value: list[object] = [0] * 10
    for _ in range(8):
        value = [value] * 10
    torch.save({"features": value}, tmp_path / "bomb.pt")
    with pytest.raises(FileFormatError):
        read_features(tmp_path / "bomb.pt")


def test_a_tensor_that_repeats_one_number_is_refused(tmp_path):
    torch.save({"features": torch.zeros(1).expand(10**6, 10**5)}, tmp_path / "bomb.pt")
    with pytest.raises(FileFormatError, match="repeated"):
        read_features(tmp_path / "bomb.pt", labels_needed=False)


def test_a_zip_bomb_is_refused(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (75_000, 1000)}
    )
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("features.npy", header.getvalue() + bytes(3 * 10**8))
    assert (tmp_path / "bomb.npz").stat().st_size < 10**6
    with pytest.raises(FileFormatError, match="must not grow more than 100 times"):
        read_features(tmp_path / "bomb.npz", labels_needed=False)


def test_a_parquet_bomb_is_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    values = pyarrow.array(np.zeros(80_000_000, np.float32))
    rows = pyarrow.FixedSizeListArray.from_arrays(values, 1000)
    parquet.write_table(pyarrow.table({"embedding": rows}), tmp_path / "bomb.parquet")
    assert (tmp_path / "bomb.parquet").stat().st_size < 10**6
    with pytest.raises(FileFormatError, match="must not grow more than 100 times"):
        read_features(tmp_path / "bomb.parquet", labels_needed=False)


@pytest.mark.parametrize("change", [{"rows": 10**9, "cols": 10**9}, {"rows": 10**40}])
def test_an_index_of_endless_tiles_is_refused(tmp_path, change):
    mosaics(tmp_path)
    about = json.loads((tmp_path / "index.json").read_text()) | change
    (tmp_path / "index.json").write_text(json.dumps(about))
    with pytest.raises(FileFormatError, match="at most 100,000 tiles"):
        read_benchmark("cifar-fs", tmp_path, split="novel")


class Evil:
    def __reduce__(self):
        return os.system, ("touch evil-was-here",)


@pytest.mark.parametrize("suffix", [".pkl", ".plk", ".pt", ".npy"])
def test_pickles_run_nothing(tmp_path, monkeypatch, suffix):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"evil{suffix}"
    if suffix == ".npy":
        np.save(path, np.array([Evil()], dtype=object), allow_pickle=True)
    else:
        path.write_bytes(pickle.dumps({"features": Evil()}))
    with pytest.raises(FileFormatError):
        read_features(path, labels_needed=False)
    assert not (tmp_path / "evil-was-here").exists()


def test_postscript_is_not_handed_to_a_program(tmp_path, monkeypatch):
    """Commit 7d831a6 started `gs` for a file named holiday.jpg."""
    program = tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/gs-was-called\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    (tmp_path / "holiday.jpg").write_text(
        "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"
    )
    with pytest.raises(UnreadableImageError, match="not of a known image format"):
        decode(tmp_path / "holiday.jpg", where="holiday.jpg")
    assert not (tmp_path / "gs-was-called").exists()


def test_a_wide_picture_takes_little_memory(tmp_path):
    """Commit 7d831a6 took 1.8 GB for a 16-bit PNG just below the limit of pixels."""
    path = tmp_path / "wide.png"
    side = 3000
    Image.fromarray(np.full((side, side), 30_000, np.uint16)).save(path)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            image = decode(path, where="wide.png")
            used = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
            right = image.getpixel((9, 9)) == (117, 117, 117)
            code = 0 if right and used < 8 * side * side else 2  # before: 21 bytes per pixel
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_formulas_in_names_and_labels_are_neutralized_and_read_back(tmp_path):
    """Commit 7d831a6 wrote them as they are, and a spreadsheet computes them."""
    evil = ['=HYPERLINK("http://x")', "+1", "-1.jpg", "@SUM(A1)", "\tx", "'=x", "plain"]
    rows = [LabelRow(name, "=cmd()", 1.0, "@x", 1.0, "person") for name in evil]
    text = to_csv(rows)
    for line in text.splitlines()[1:]:
        assert line.lstrip('"')[0] in "'p"
    (tmp_path / "labels.csv").write_text(text, newline="")
    found = read_labels(tmp_path / "labels.csv", evil).labels
    assert found == dict.fromkeys(evil, "=cmd()")


def test_ten_thousand_classes_are_refused_in_words(tmp_path):
    """Commit 7d831a6 was not done after 12 minutes (measured in the notes)."""
    rows = np.random.default_rng(0).gamma(1.0, size=(20_000, 8)).astype(np.float32)
    labels = np.where(np.arange(20_000) < 10_000, np.arange(20_000), -1)
    names = [f"class {i}" for i in range(10_000)]
    FeatureSet.from_arrays(rows, labels, names).save(tmp_path / "f.safetensors")
    with pytest.raises(InputError, match=r"got 20,000 rows and 10,000 classes\. Use"):
        label_folder(tmp_path / "f.safetensors", output=tmp_path / "labels.csv")
    assert not (tmp_path / "labels.csv").exists()


def test_a_path_that_could_mean_two_images_is_refused(tmp_path):
    """Commit 7d831a6 gave the label of `a.jpg` to ` a.jpg`, and likewise with x\\y and NFD."""
    decomposed, composed = "e\u0301.jpg", "\u00e9.jpg"
    names = ["a.jpg", " a.jpg", "x/y.jpg", "x\\y.jpg", composed, decomposed]
    path = tmp_path / "few.csv"
    path.write_text("path,label\n" + "".join(f"{name},{i}\n" for i, name in enumerate(names)))
    assert read_labels(path, names).labels == {name: str(i) for i, name in enumerate(names)}
    for name in names:  # alone, each means itself
        path.write_text(f"path,label\n{name},leek\n")
        assert read_labels(path, names).labels == {name: "leek"}
    path.write_text("path,label\n./a.jpg,leek\n")
    with pytest.raises(FewLabelsError, match=r"none of its 1 path is among the 6 items.*\./a\.jpg"):
        read_labels(path, names)
