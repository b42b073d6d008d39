"""`fewlabels data`."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def folder(tmp_path) -> Path:
    for name in ("leek", "[red]kaiser"):  # the latter must not be taken for markup
        (tmp_path / name).mkdir()
        for number in range(16):
            pixels = np.random.default_rng(number).integers(0, 256, (6, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    return tmp_path


def test_list_as_json(here):
    found = {each["dataset"]: each for each in json.loads(here("data", "list", "--json").stdout)}
    assert found["cifar-fs"]["images"]["base"] == 38_400
    assert found["cub"]["classes"]["novel"] == 50


def test_list_names_every_benchmark_its_counts_and_forms(here):
    done = here("data", "list")
    assert done.code == 0, done.stderr
    for words in (
        "cifar-fs",
        "64 · 38,400",
        "351 · 448,695",
        "11,788",
        "cifar-100-python.tar.gz",
        "CUB_200_2011/",
        "mini-imagenet-cache",
    ):
        assert words in done.stdout
    assert not any(
        line != line.rstrip() for line in done.stdout.splitlines() if line.startswith("  ")
    )


def test_a_good_folder_passes(here, folder):
    done = here("data", "check", folder, "--strict")
    assert done.code == 0, done.stderr
    assert "No problems: all 32 images can be read." in done.stdout
    assert "6 to 8" in done.stdout
    assert done.stderr == ""


def test_a_damaged_folder_fails_and_names_each_file(here, folder):
    (folder / "[red]kaiser" / "cut.png").write_bytes(b"\x89PNG")
    (folder / "leek" / "empty.png").write_bytes(b"")
    done = here("data", "check", folder)
    assert done.code == 1
    assert "2 problems" in done.stdout
    assert "  [red]kaiser/cut.png: it is damaged, or not of a known image format" in done.stdout
    assert "  leek/empty.png: the file is empty" in done.stdout
    assert "No problems" not in done.stdout


def test_remarks_fail_only_under_strict(here, folder):
    (folder / "leek" / "0.png").unlink()
    for arguments, code in (((), 0), (("--strict",), 1)):
        done = here("data", "check", folder, *arguments)
        assert done.code == code
        assert "1 remark\n  leek: 15 images, fewer than the 16" in done.stdout


def test_json_holds_the_whole_report(here, folder):
    for number in range(30):
        (folder / "leek" / f"bad{number:02d}.png").write_bytes(b"x")
    text = here("data", "check", folder)
    assert "and 10 more; --json lists all" in text.stdout
    done = here("data", "check", folder, "--json")
    report = json.loads(done.stdout)
    assert done.code == 1
    assert len(report["problems"]) == 30
    assert report["splits"][0]["n_images"] == 62


def test_counts_that_differ_from_the_literature_are_shown_beside_them(here, tmp_path):
    from fewlabels.data import BENCHMARKS

    for name in BENCHMARKS["cub"].split_classes("all"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (4, 4)).save(tmp_path / name / "x.png")
    done = here("data", "check", tmp_path, "--dataset", "cub")
    assert done.code == 1
    assert "CUB" in done.stdout
    assert "50 of 2,953" in done.stdout
    assert "novel: 50 images where the literature counts 2,953" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere does not exist"),
        ([".", "--dataset", "birds"], "dataset must be one of cifar-fs, fc100"),
    ],
)
def test_mistakes_end_in_one_line(here, arguments, message):
    done = here("data", "check", *arguments)
    assert (done.code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr


def test_the_program_itself(program, folder):
    done = program("data", "check", folder)
    assert (done.code, done.stderr) == (0, "")
    assert "check" in program("data", "--help").stdout
