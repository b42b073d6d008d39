"""`fewlabels extract` as a user runs it."""

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from fewlabels.backbones import build_backbone, save_backbone
from fewlabels.backbones.encoder import load_encoder
from fewlabels.data import BENCHMARKS, read_images
from fewlabels.features import FeatureSet, extract, read_features

PROMISED = {
    "images",
    "classes",
    "dim",
    "computed",
    "from_cache",
    "images_per_second",
    "seconds",
    "left_out",
    "fingerprint",
    "output",
    "store",
}


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """A cache of the test's own."""
    monkeypatch.setenv("FEWLABELS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "features"


@pytest.fixture
def photos(tmp_path):
    """Two classes of three images, and two images without a class."""
    rng = np.random.default_rng(0)
    for name in (
        "ant/1.png",
        "ant/2.png",
        "ant/3.png",
        "bee/1.png",
        "bee/2.png",
        "bee/3.png",
        "x.png",
        "y.png",
    ):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(path)
    return tmp_path / "photos"


@pytest.fixture
def checkpoint(tmp_path):
    """Files of conv4 backbones with random weights."""

    def write(seed=0):
        path = tmp_path / f"conv4-{seed}.safetensors"
        options = {"image_size": 16}
        save_backbone(
            path,
            build_backbone("conv4", **options, seed=seed),
            name="conv4",
            options=options,
            transform="square(16)",
            provenance={},
        )
        return path

    return write


def numbers_of(line):
    return re.findall(r"[\d,.–]+", line)


def test_a_folder_becomes_a_file_and_a_second_time_takes_it_from_the_cache(
    here, photos, checkpoint, tmp_path, cache
):
    command = [
        "extract",
        photos,
        "--backbone",
        checkpoint(),
        "--output",
        tmp_path / "new" / "photos.safetensors",
    ]
    first = here(*command)
    assert first.code == 0
    assert first.stderr.startswith(
        f"Written to {command[-1]}\nComputed features are kept in {cache}, 0.0 MB in total."
    )
    assert numbers_of(first.stdout.splitlines()[3])[:5] == ["8", "2", "64", "0", "0"]
    written = FeatureSet.load(command[-1])
    expected = extract(read_images(photos), [load_encoder(checkpoint())], store=None)
    np.testing.assert_allclose(written.features, expected.features, atol=1e-5)
    assert written.names == expected.names
    assert written.labels.tolist() == [-1, -1, 0, 0, 0, 1, 1, 1]
    assert (written.provenance["dataset"], written.provenance["backbone"]) == ("photos", "conv4")

    second = here(*command)
    assert numbers_of(second.stdout.splitlines()[3])[3] == "100"
    assert FeatureSet.load(command[-1]).fingerprint == written.fingerprint


def test_numpy_reads_what_is_written_for_it(here, photos, checkpoint, tmp_path):
    words = ["extract", photos, "--backbone", checkpoint(), "--no-cache", "--output"]
    for name in ("f.safetensors", "f.npz"):
        done = here(*words, tmp_path / name)
        assert done.code == 0, done.stderr
    ours = read_features(tmp_path / "f.safetensors")
    with np.load(tmp_path / "f.npz", allow_pickle=False) as found:
        np.testing.assert_array_equal(found["features"], ours.features)
        names = [str(found["class_names"][number]) for number in found["labels"]]
        assert dict(zip(found["names"].tolist(), names, strict=True)) == {
            name: ours.class_names[number]
            for name, number in zip(ours.names, ours.labels, strict=True)
        }
    again = read_features(tmp_path / "f.npz")
    assert again.class_names == ours.class_names
    np.testing.assert_array_equal(again.labels, ours.labels)


def test_json_is_all_of_stdout(here, photos, checkpoint, tmp_path):
    (photos / "ant" / "0.png").write_bytes(b"no image")
    (photos / "ant" / "9.png").touch()
    done = here(
        "extract",
        photos,
        "--backbone",
        checkpoint(),
        "--output",
        tmp_path / "f.safetensors",
        "--no-cache",
        "--json",
    )
    found = json.loads(done.stdout)
    assert found.keys() >= PROMISED
    assert (found["images"], found["computed"], found["from_cache"], found["store"]) == (
        8,
        8,
        0,
        None,
    )
    assert found["left_out"] == ["ant/0.png"]
    assert found["passed_over"] == ["ant/9.png: the file is empty"]
    talk = done.stderr.splitlines()
    assert (
        talk[0]
        == f"{photos} has problems: ant/9.png: the file is empty. `fewlabels data check` lists all."
    )
    assert talk[1].startswith(
        "fewlabels: 1 of 9 images cannot be read and are left out: ant/0.png. The first: "
    )
    assert talk[2:] == [f"Written to {tmp_path / 'f.safetensors'}"]


def test_copies_are_not_counted_as_cached_nor_unreadable_images_as_computed(
    here, photos, checkpoint, tmp_path
):
    (photos / "ant" / "copy.png").write_bytes((photos / "ant" / "1.png").read_bytes())
    (photos / "ant" / "0.png").write_bytes(b"no image")
    command = [
        "extract",
        photos,
        "--backbone",
        checkpoint(),
        "--output",
        tmp_path / "f.safetensors",
        "--json",
    ]
    first, second = (json.loads(here(*command).stdout) for _ in range(2))
    assert (first["images"], first["computed"], first["from_cache"]) == (9, 8, 0)
    assert (second["images"], second["computed"], second["from_cache"]) == (9, 0, 9)
    shown = here(*command[:-1]).stdout.splitlines()[3]
    assert numbers_of(shown)[3:5] == ["90", "1"]  # % from cache, left out


def test_what_could_not_be_kept_is_not_said_to_be_kept(here, photos, checkpoint, tmp_path):
    done = here(
        "extract",
        photos,
        "--backbone",
        checkpoint(),
        "--output",
        tmp_path / "f.safetensors",
        "--store",
        "/dev/null/x",
    )
    assert done.code == 0
    assert "8 images were not kept" in done.stderr
    assert "are kept in" not in done.stderr


@pytest.mark.parametrize("damage", [b"", b"no image"])
def test_strict_refuses_what_would_be_left_out(here, photos, checkpoint, tmp_path, damage):
    (photos / "ant" / "0.png").write_bytes(damage)
    done = here(
        "extract",
        photos,
        "--backbone",
        checkpoint(),
        "--output",
        tmp_path / "f.safetensors",
        "--strict",
    )
    assert done.code == 2
    assert done.stderr.startswith("fewlabels: ")
    assert "0.png" in done.stderr
    assert not (tmp_path / "f.safetensors").exists()


def test_backbones_stand_side_by_side(here, photos, checkpoint, tmp_path):
    first, second = checkpoint(0), checkpoint(1)
    output = tmp_path / "f.safetensors"
    assert here("extract", photos, "--backbone", f"{first}+{second}", "--output", output).code == 0
    joined = FeatureSet.load(output)
    assert (joined.dim, joined.provenance["backbone"]) == (128, "conv4+conv4")
    done = here(
        "extract", photos, "--backbone", first, "--backbone", second, "--output", output, "--json"
    )
    assert json.loads(done.stdout)["from_cache"] == 8
    assert FeatureSet.load(output).fingerprint == joined.fingerprint


def test_weights_views_store_and_encoding(here, photos, checkpoint, tmp_path, cache):
    output, store = tmp_path / "f.safetensors", tmp_path / "my store"
    chosen = [
        "--backbone",
        "conv4",
        "--weights",
        checkpoint(),
        "--views",
        "flip",
        "--store",
        store,
        "--encoding",
        "root8",
        "--num-workers",
        0,
    ]
    assert here("extract", photos, "--output", output, *chosen, "--batch-size", 3).code == 0
    expected = extract(read_images(photos), [load_encoder(checkpoint())], store=None, views="flip")
    step = np.sqrt(expected.features.max()) / 255
    np.testing.assert_allclose(
        np.sqrt(FeatureSet.load(output).features), np.sqrt(expected.features), atol=step
    )
    assert list(store.rglob("shard-*"))
    assert not cache.exists()


def test_a_plus_in_a_path_is_no_sum(here, photos, checkpoint, tmp_path):
    odd = checkpoint().rename(tmp_path / "conv4+more.safetensors")
    assert (
        here("extract", photos, "--backbone", odd, "--output", tmp_path / "f.safetensors").code == 0
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--split", "novel"], "--split must come with --dataset, got novel alone"),
        (["--store", "s", "--no-cache"], "--store and --no-cache must not be given together"),
        (["--encoding", "int4"], "encoding must be one of float32, float16, root8, got 'int4'"),
        (
            ["--backbone", "a+b", "--weights", "w.pt"],
            "--weights must come with one --backbone, got 2",
        ),
        (["--backbone", "resnet99"], "got 'resnet99'"),
        (["--backbone", "wrn28-10"], "weights must be the path of a checkpoint for wrn28-10"),
        (["--views", "none"], "views must be one of center, flip"),
        (["--dataset", "mnist"], "got 'mnist'"),
        (
            ["--output", "features.csv"],
            "--output must be a file that ends in .safetensors or .npz, the formats that are "
            "written, got features.csv",
        ),
        (
            ["--output", "{photos}/x.png/f.safetensors"],
            "cannot be written (File exists). Choose another path",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    here, photos, checkpoint, tmp_path, options, message
):
    options = [option.format(photos=photos) for option in options]
    given = [] if "--backbone" in options else ["--backbone", checkpoint()]
    place = [] if "--output" in options else ["--output", tmp_path / "f.safetensors"]
    done = here("extract", photos, *given, *place, *options)
    assert done.code == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert done.stderr.startswith("fewlabels: ")
    assert done.stderr.count("\n") == 1


def test_a_folder_that_is_not_there_or_empty(here, checkpoint, tmp_path):
    (tmp_path / "empty").mkdir()
    for folder, message in (("nowhere", "does not exist"), ("empty", "must hold images")):
        done = here("extract", tmp_path / folder, "--backbone", checkpoint())
        assert (done.code, done.stdout) == (2, "")
        assert message in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="no such signals there")
def test_ctrl_c_on_a_terminal_says_what_is_kept(photos, checkpoint, tmp_path, cache):
    """A slow backbone on a pseudo-terminal: a bar is shown; Ctrl-C ends with 130 and one sentence.

    The next run computes only the rest.
    """
    for number in range(300):
        Image.new("RGB", (16, 16), (number % 256, number // 256, 7)).save(photos / f"{number}.png")
    program = f"""
import sys, time
from fewlabels.features import embedding
plain = embedding.Network.__call__
def slow(self, pixels):
    time.sleep(0.1)
    return plain(self, pixels)
embedding.Network.__call__ = slow
from fewlabels.cli import main
sys.argv = ["fewlabels", "extract", {str(photos)!r}, "--backbone", {str(checkpoint())!r}]
sys.argv += ["--output", {str(tmp_path / "f.safetensors")!r}, "--batch-size", "4"]
main()
"""
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    environment |= {
        "FORCE_COLOR": "1",
        "TERM": "xterm-256color",
        "COLUMNS": "100",
        "TTY_COMPATIBLE": "1",
        "TTY_INTERACTIVE": "1",
    }
    running = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # a background job ignores it
        text=True,
    )
    talk = ""
    while not re.search(r"Computing features[^\n]* [1-9]\d*/308\D", talk):
        letter = running.stderr.read(1)
        assert letter, talk  # else the program has ended
        talk += letter
    running.send_signal(signal.SIGINT)
    rest = running.communicate(timeout=600)
    talk += rest[1]
    assert (running.returncode, rest[0]) == (130, "")
    assert re.search(r"Computing features.*images.*\d+/s", talk)
    assert (
        f"Interrupted: computed features are kept in {cache}; the same command continues." in talk
    )
    assert "Traceback" not in talk
    assert list(cache.rglob("shard-*"))


def test_a_split_of_a_benchmark(here, checkpoint, tmp_path):
    """CIFAR-FS as mosaics, three tiles a class instead of 600."""
    classes = BENCHMARKS["cifar-fs"].classes["novel"]
    about = {
        "tile": 16,
        "cols": 3,
        "rows": 1,
        "classes": {name: {"split": "novel"} for name in classes},
    }
    (tmp_path / "cifar" / "novel").mkdir(parents=True)
    (tmp_path / "cifar" / "index.json").write_text(json.dumps(about))
    rng = np.random.default_rng(0)
    for name in classes:
        sheet = Image.fromarray(rng.integers(0, 256, (16, 48, 3), dtype=np.uint8))
        sheet.save(tmp_path / "cifar" / "novel" / f"{name}.webp", lossless=True)
    output = tmp_path / "f.safetensors"
    command = [
        "extract",
        tmp_path / "cifar",
        "--dataset",
        "cifar-fs",
        "--backbone",
        checkpoint(),
        "--output",
        output,
    ]
    done = here(*command)
    assert done.code == 0, done.stderr
    assert "3 images where the literature counts 600; and 19 more" in done.stderr
    written = FeatureSet.load(output)
    assert (len(written), written.class_names) == (60, tuple(classes))
    assert (written.provenance["dataset"], written.provenance["split"]) == ("cifar-fs", "novel")
    assert written.names[4] == f"novel/{classes[1]}.webp#1"
    assert here(*command, "--split", "val").code == here(*command, "--strict").code == 2
