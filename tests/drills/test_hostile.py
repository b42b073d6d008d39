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
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fewlabels
from fewlabels.data import read_images
from fewlabels.data.benchmarks import read_benchmark
from fewlabels.data.class_lists import BENCHMARKS
from fewlabels.data.decoding import UnreadableImageError, decode, known_formats
from fewlabels.data.video import read_frames
from fewlabels.errors import FewLabelsError, FileFormatError, InputError
from fewlabels.evaluation.settings import read_settings
from fewlabels.features import FeatureSet, read_features
from fewlabels.fitting import Fitted, fit
from fewlabels.io.moves import Move, begin_moves, read_moves
from fewlabels.labeling.boxes import crop_images
from fewlabels.labeling.collection import Shown
from fewlabels.labeling.inputs import identify
from fewlabels.labeling.journal import Journal
from fewlabels.labeling.label import label_folder
from fewlabels.labeling.labels_file import read_labels
from fewlabels.labeling.names import NamePrior, read_names
from fewlabels.labeling.outputs import LabelRow, to_csv
from fewlabels.labeling.project import Project
from fewlabels.labeling.text_copy import read_copy
from fewlabels.paper.ledger import read_cells, write_cells
from fewlabels.training.recipe import Recipe
from fewlabels.training.state import read_state, write_state
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
    # Encoders of AVIF and HEIC want some pixels.
    image = Image.fromarray(np.arange(48 * 3, dtype=np.uint8).reshape(6, 8, 3))
    for form in dict.fromkeys(("TIFF", *known_formats())):
        buffer = io.BytesIO()
        image.save(buffer, form)
        found[form.lower()] = buffer.getvalue()
    return found


def seeds(tmp_path: Path, kind: str) -> dict[str, tuple[bytes, object]]:
    """Of a kind of file, and some others: its bytes, and what reads a path."""
    for kinds, make in ((MOSAICS, mosaics), (TABLES, tables), (OF_PROJECTS, of_projects)):
        if kind in kinds:
            return make(tmp_path)
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

    made[".sqlite"] = (tmp_path / "j.sqlite").read_bytes(), read_journal
    return made


def tables(tmp_path: Path) -> dict[str, tuple[bytes, object]]:
    """Texts that people and other programs write: embeddings, texts, class names, boxes."""
    draw = Image.fromarray(np.zeros((40, 60, 3), np.uint8))
    (tmp_path / "photos").mkdir()
    for name in ("a.png", "b.png"):
        draw.save(tmp_path / "photos" / name)
    images = read_images(tmp_path / "photos")
    vectors = "id,label,embedding\n" + "".join(f'{i},x,"[{i}, 0.5]"\n' for i in range(6))
    columns = "id,e0,e1,e2\n" + "".join(f"{i},1,2.5,-1e3\n" for i in range(6))
    texts = "id,body,label\n" + "".join(f'{i},"a text, {i}",{"xy"[i % 2]}\n' for i in range(6))
    csv = "path,x,y,width,height,id,label\na.png,1,2,20,20,7,leek\nb.png,0,0,9.5,9,8,\n"
    coco = {
        "images": [{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "b.png"}],
        "categories": [{"id": 1, "name": "leek"}],
        "annotations": [
            {"id": 5, "image_id": 1, "bbox": [0, 1, 9, 9.5], "category_id": 1},
            {"id": 6, "image_id": 2, "bbox": [3, 1, 9, 9], "category_id": 1},
        ],
    }
    detections = [{"conf": 0.9, "bbox": [0.1, 0.2, 0.3, 0.4]}, {"conf": 0.1, "bbox": [0, 0, 1, 1]}]
    found = [{"file": name, "detections": detections} for name in ("a.png", "b.png")]

    def crop(path: Path) -> None:
        cropped = crop_images(images, path).images
        for row in range(len(cropped)):
            cropped.read(row)

    def read_texts(path: Path) -> None:
        identify(path, {"text": "body"})

    def read_vectors(path: Path) -> None:
        read_features(path, labels_needed=False)

    return {
        ".vectors.csv": (vectors.encode(), read_vectors),
        ".columns.csv": (columns.encode(), read_vectors),
        ".texts.csv": (texts.encode(), read_texts),
        ".names.txt": (b"leek\nplum\nred cabbage\n", read_names),
        ".boxes.csv": (csv.encode(), crop),
        ".coco.json": (json.dumps(coco).encode(), crop),
        ".detections.json": (json.dumps({"images": found}).encode(), crop),
    }


def of_projects(tmp_path: Path) -> dict[str, tuple[bytes, object]]:
    """What fewlabels itself wrote, and somebody else changed; and videos."""
    sorted_ = tmp_path / "sorted"
    begin_moves(sorted_ / "m.jsonl", [Move(tmp_path / "x.jpg", sorted_ / "x.jpg")])
    names = [f"{i}" for i in range(6)]
    features = FeatureSet.from_arrays(ROWS, [-1] * 6, [], {}, names)
    shown, prior = Shown(tmp_path, texts=tuple(names)), NamePrior(("a", "b"), ROWS[:2], 10.0)
    folder = tmp_path / "p"
    Project.create(folder, features, title="t", labels={"0": "a"}, shown=shown, prior=prior).close()
    fit("map", ROWS[:4], ["a", "b", "a", "b"], ROWS[4:]).save(tmp_path / "m.safetensors")
    write_cells(tmp_path / "cells.json", {"0" * 16: {"accuracy": 80.5, "method": "map"}})
    write_state(tmp_path / "s.pt", {"recipe": {}, "images": "x", "learner": torch.tensor(ROWS)})

    def read_as(place: Path, read):
        good = place.read_bytes()

        def read_there(path: Path) -> None:
            place.write_bytes(path.read_bytes())
            try:
                read()
            finally:
                place.write_bytes(good)

        return good, read_there

    def load() -> None:
        with Project.open(folder) as project:
            project.load()
            assert project.prior is not None

    made = {
        ".moves.jsonl": read_as(sorted_ / "m.jsonl", lambda: read_moves(sorted_ / "m.jsonl")),
        ".decisions.jsonl": ((folder / "decisions.jsonl").read_bytes(), read_copy),
        ".shown.json": read_as(folder / "shown.json", load),
        ".classes.json": read_as(folder / "classes.json", load),
        ".model": ((tmp_path / "m.safetensors").read_bytes(), Fitted.load),
        ".cells.json": ((tmp_path / "cells.json").read_bytes(), read_cells),
        ".state": (
            (tmp_path / "s.pt").read_bytes(),
            lambda path: read_state(path, recipe={}, fingerprint="x"),
        ),
    }
    if find_spec("av"):
        made[".mp4"] = video(tmp_path)
    return made


def video(tmp_path: Path) -> tuple[bytes, object]:
    import av

    (tmp_path / "videos").mkdir()
    place = tmp_path / "videos" / "v.mp4"
    with av.open(str(place), "w") as container:
        stream = container.add_stream("mpeg4", rate=2)
        stream.width, stream.height, stream.pix_fmt = 16, 16, "yuv420p"
        for number in range(6):
            pixels = np.full((16, 16, 3), 40 * number, np.uint8)
            for packet in stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)

    def read(path: Path) -> None:
        place.write_bytes(path.read_bytes())
        frames = read_frames(place.parent, every=1)
        for row in range(min(len(frames), 3)):
            frames.read(row)

    return place.read_bytes(), read


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


MOSAICS = (".index.json", ".mosaic")
TABLES = (
    *(".vectors.csv", ".columns.csv", ".texts.csv", ".names.txt"),
    *(".boxes.csv", ".coco.json", ".detections.json"),
)
OF_PROJECTS = (
    *(".moves.jsonl", ".decisions.jsonl", ".shown.json", ".classes.json"),
    *(".model", ".cells.json", ".state", ".mp4"),
)
KINDS = [
    *(".safetensors", ".npz", ".npy", ".pt", ".pkl", ".plk", ".parquet"),
    *(".jpeg", ".png", ".bmp", ".webp", ".gif", ".tiff", ".avif", ".heif"),
    *(".csv", ".settings.toml", ".recipe.toml", ".sqlite", *MOSAICS, *TABLES, *OF_PROJECTS),
]
NEEDED = {".parquet": "pyarrow", ".mp4": "av", ".avif": "pillow_heif", ".heif": "pillow_heif"}
SLOW = (*MOSAICS, ".mp4", ".shown.json", ".classes.json")  # read with other files


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_mutated_files(drill, tmp_path, kind):
    made = seeds(tmp_path, kind)
    if kind not in made:
        pytest.skip(f"could not import '{NEEDED[kind]}'")
    data, read = made[kind]
    many = 1000 if kind in SLOW else 8_000
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
