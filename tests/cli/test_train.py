import json
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from PIL import Image

from fewlabels.backbones import load_backbone

TINY = ["--backbone", "conv4", "--device", "cpu"] + [
    word
    for change in (
        "image_size=16",
        "batch_size=4",
        "stages.0.epochs=1",
        "compile=false",
        "precision=float32",
    )
    for word in ("--set", change)
]


@pytest.fixture
def folders(tmp_path):
    rng = np.random.default_rng(0)
    for split, names in (("base", "ab"), ("val", "cd")):
        for name in names:
            (tmp_path / split / name).mkdir(parents=True)
            for number in range(4):
                Image.fromarray(rng.integers(0, 255, (20, 20, 3), dtype=np.uint8)).save(
                    tmp_path / split / name / f"{number}.png"
                )
    return tmp_path


def test_train_a_backbone_on_a_folder(here, folders):
    words = ["train", folders / "base", "--val", folders / "val", "--output", folders / "out"]
    done = here(*words, *TINY, "--json")
    assert done.code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["finished"]
    assert found["metrics"]["n_images"] == 8
    assert [each["epoch"] for each in found["epochs"]] == [1]
    assert "epoch 1/1  mixup+rotation  loss" in done.stderr
    assert "val PT+MAP" in done.stderr
    assert load_backbone(folders / "out" / "backbone.safetensors").name == "conv4"
    assert json.loads((folders / "out" / "metrics.json").read_text())["n_images"] == 8


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--recipe", "moderm"],
            "recipe must be one of baseline++, dct, dsn, leo, maml, matching, mct, modern, "
            "protonet, s2m2, simpleshot or a TOML file",
        ),
        (["--backbone", "resnet13"], "backbone must be one of wrn28-10"),
        pytest.param(
            ["--device", "cuda"],
            "device 'cuda' is not available here",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is here"),
        ),
        (["--extract", "val"], "--extract must name splits of a benchmark"),
        (["--evaluate", "novel"], "--evaluate must be left out with --recipe modern"),
        (["--set", "n_way=5"], "'n_way' is a setting of recipes for episodes"),
        (["--dataset", "cifar-fs", "--val", "x"], "--val must be left out with --dataset"),
        (["--val", "nowhere"], "nowhere"),
    ],
)
def test_bad_requests(here, folders, words, said):
    done = here("train", folders / "base", "--output", folders / "out", *TINY, *words)
    assert done.code == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


EPISODES = ["--recipe", "protonet", "--backbone", "conv4", "--device", "cpu"] + [
    word
    for change in ("image_size=16", "n_epochs=1", "steps_per_epoch=2", "n_way=2", "n_query=2")
    for word in ("--set", change)
]


def test_train_a_system_on_episodes_of_a_folder(here, folders):
    words = [*EPISODES, "--set", "shots=[1]", "--output", folders / "out"]
    done = here("train", folders / "base", "--val", folders / "val", *words)
    assert done.code == 0, done.stderr
    assert "epoch 1/1  protonet  loss" in done.stderr
    assert "val ProtoNet" in done.stderr
    assert "system.safetensors" in done.stderr
    assert load_backbone(folders / "out" / "backbone.safetensors").name == "conv4"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "shots=[3]"], "smallest base class, 4, got 3 + 2"),
        (["--set", "n_way=3"], "n_way must be at most the number of base classes, 2, got 3"),
        (["--set", "batch_size=4"], "'batch_size' is a setting of recipes for classification"),
        (["--extract", "val"], "--extract must be left out with --recipe protonet"),
        (["--evaluate", "novel"], "--evaluate must name splits of a benchmark, got no --dataset"),
    ],
)
def test_bad_requests_for_episodes(here, folders, words, said):
    done = here("train", folders / "base", "--output", folders / "out", *EPISODES, *words)
    assert done.code == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_damaged_image_is_left_out_by_name_or_refused(here, folders):
    (folders / "base" / "a" / "0.png").write_bytes(b"no image")
    (folders / "base" / "a" / "1.png").write_bytes(b"")
    strict = here("train", folders / "base", "--output", folders / "strict", *TINY, "--strict")
    assert strict.code == 2
    assert "1.png" in strict.stderr
    done = here(
        "train", folders / "base", "--output", folders / "out", *TINY, "--set", "batch_size=2"
    )
    assert done.code == 0, done.stderr
    assert "a/1.png" in done.stderr
    assert "1 of 7 images cannot be read and are left out: a/0.png" in done.stderr


def test_a_class_without_any_readable_image_is_named(here, folders):
    for path in (folders / "base" / "a").iterdir():
        path.write_bytes(b"no image")
    done = here("train", folders / "base", "--output", folders / "out", *TINY)
    assert done.code == 2
    assert "at least one image, got none for 'a'" in done.stderr


def test_tensorboard_is_an_extra(here, folders):
    done = here("train", folders / "base", "--output", folders / "out", *TINY, "--tensorboard")
    if find_spec("tensorboard") is None:
        assert done.code == 2
        assert (
            "Writing TensorBoard logs needs tensorboard: pip install 'fewlabels[tensorboard]'"
            in done.stderr
        )
    else:
        assert list((folders / "out" / "tensorboard").iterdir())
