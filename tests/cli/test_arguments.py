"""Errors of the core, with the names of options."""

import pytest
import typer.main

from fewlabels.cli import app
from fewlabels.cli.arguments import option_names, to_options


def names(command):
    return option_names(typer.main.get_command(app).commands[command])


def test_names_come_from_the_command():
    label = names("label")
    assert label["photos"] == "PHOTOS"
    assert label["copy_to"] == "--copy-to"
    assert label["lam"] == "--set lam"
    assert label["n_workers"] == label["num_workers"] == "--num-workers"
    assert names("serve")["photos"] == "--photos"
    assert names("predict")["model"] == "--model"
    assert names("predict")["images"] == "IMAGES"
    evaluate = names("evaluate")
    assert evaluate["lam"] == "--lam"  # has its short form
    assert evaluate["prior"] == "--set prior"
    assert evaluate["n_shot"] == "--shots"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("labels must be a file.", "--labels must be a file."),
        ("copy_to needs a folder.", "--copy-to needs a folder."),
        (
            "there are no labels. Give labels=FILE.csv.",
            "there are no labels. Give --labels FILE.csv.",
        ),
        (
            "output must not be a, which is labels already.",
            "--output must not be a, which is --labels already.",
        ),
        ("a label must have labels must", "a label must have labels must"),
        ("labels.csv: labels must", "labels.csv: labels must"),
        ("copy_to_x must", "copy_to_x must"),
    ],
)
def test_only_arguments_are_renamed(message, expected):
    assert to_options(message, names("label")) == expected


def test_ways_out_become_options():
    known = {**names("extract"), **names("tune")}
    assert to_options("Use device='cpu'.", known) == "Use --device cpu."
    assert to_options("overwrite with force=True.", known) == "overwrite with --force."
    assert to_options("Give per_class=K, dataset='cub'.", known) == (
        "Give --per-class K, --dataset cub."
    )
    for message in (
        "/tmp/dataset=cub/x.csv cannot be written.",
        "dataset=cub/x.csv cannot be written.",
        "my_device=cpu, device must be cpu",
    ):
        assert to_options(message, known) == message
