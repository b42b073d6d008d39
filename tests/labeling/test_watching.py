"""A folder that is watched: each image once, when it is complete."""

import csv
import io
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fewlabels.errors import InputError
from fewlabels.labeling.inputs import read_inputs
from fewlabels.labeling.label import label_folder
from fewlabels.labeling.outcome import label_inputs
from fewlabels.labeling.predict import Predictor, predict_images, save_model
from fewlabels.labeling.session import open_session
from fewlabels.labeling.watching import watch_folder


@pytest.fixture
def model(photos, few, tmp_path, extraction, monkeypatch) -> Path:
    monkeypatch.setenv("FEWLABELS_CACHE", str(tmp_path / "cache"))
    outcome = label_inputs(read_inputs(photos, labels=few, extraction=extraction))
    save_model(tmp_path / "m.safetensors", outcome)
    return tmp_path / "m.safetensors"


def watch(folder, model, steps, **options):
    """What a watch says if these things happen between its looks."""
    left = list(steps)

    def wait() -> bool:
        if not left:
            return False
        left.pop(0)()
        return True

    predictor = Predictor.load(model, device="cpu")
    return [
        ([row.path for row in rows], [row.label for row in rows], remarks)
        for rows, remarks in watch_folder(folder, predictor, wait=wait, **options)
    ]


def nothing() -> None:
    pass


def test_an_image_is_labelled_once_when_nobody_writes_it_any_more(photos, model, tmp_path):
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    content = (photos / "plum-5.png").read_bytes()
    target = inbox / "day 1" / "new.png"

    def begin() -> None:
        target.parent.mkdir()
        target.write_bytes(content[:100])

    def go_on() -> None:
        with target.open("ab") as file:
            file.write(content[100:400])

    def finish() -> None:
        with target.open("ab") as file:
            file.write(content[400:])

    seen = watch(inbox, model, [begin, go_on, finish, nothing, nothing, nothing])
    assert seen == [(["day 1/new.png"], ["plum"], [])]


def test_those_already_there_a_change_and_one_that_cannot_be_read(photos, model, tmp_path):
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    shutil.copy(photos / "leek-5.png", inbox / "a.png")
    assert watch(inbox, model, [nothing, nothing]) == [(["a.png"], ["leek"], [])]
    assert watch(inbox, model, [nothing, nothing], skip_existing=True) == []

    def damage() -> None:
        (inbox / "b.png").write_bytes((photos / "plum-5.png").read_bytes()[:300])
        (inbox / "empty.png").touch()

    def replace() -> None:
        shutil.copyfile(photos / "apple-5.png", inbox / "a.png")

    def repair() -> None:
        shutil.copyfile(photos / "plum-5.png", inbox / "b.png")

    steps = [damage, nothing, nothing, repair, nothing, replace, nothing, nothing]
    seen = watch(inbox, model, steps, skip_existing=True)
    assert [each[:2] for each in seen] == [([], []), (["b.png"], ["plum"]), (["a.png"], ["apple"])]
    assert "b.png cannot be read" in seen[0][2][0]
    with pytest.raises(InputError, match="folder must be a folder"):
        watch(inbox / "a.png", model, [])


def test_a_project_predicts_as_its_model_does(photos, few, tmp_path, extraction, monkeypatch):
    monkeypatch.setenv("FEWLABELS_CACHE", str(tmp_path / "cache"))
    session = open_session(tmp_path / "p", photos=photos, labels=few, extraction=extraction)
    session.close()
    label_folder(tmp_path / "p", model=tmp_path / "m.safetensors")
    by_project, _ = predict_images(tmp_path / "p", [photos], device="cpu")
    by_model, _ = predict_images(tmp_path / "m.safetensors", [photos], device="cpu")
    assert [row[:3] for row in by_project] == [row[:3] for row in by_model]


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_says_each_line_once_and_ends_on_ctrl_c(photos, model, tmp_path, as_json):
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for i in range(2):
        shutil.copy(photos / f"leek-{i}.png", inbox)
    words = [sys.executable, "-m", "fewlabels", "watch", str(inbox), "--model", str(model)]
    words += ["--interval", "0.05", "--device", "cpu", *(["--json"] if as_json else [])]
    watcher = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # background jobs ignore it
    )
    try:
        lines = [watcher.stdout.readline() for _ in range(2 if as_json else 3)]
        shutil.copy(photos / "plum-3.png", inbox)
        lines.append(watcher.stdout.readline())
        watcher.send_signal(signal.SIGINT)
        rest, said = watcher.communicate(timeout=600)
    finally:
        watcher.kill()
    assert watcher.returncode == 130
    assert said.endswith("Interrupted: 3 images labelled.\n")
    assert rest == ""
    rows = [json.loads(line) for line in lines] if as_json else None
    rows = rows or list(csv.DictReader(io.StringIO("".join(lines))))
    assert [(row["path"], row["label"]) for row in rows] == [
        ("leek-0.png", "leek"),
        ("leek-1.png", "leek"),
        ("plum-3.png", "plum"),
    ]


def test_a_second_watch_that_appends_to_a_file_writes_no_second_header(photos, model, tmp_path):
    inbox, labels = tmp_path / "inbox", tmp_path / "labels.csv"
    inbox.mkdir()
    words = [sys.executable, "-m", "fewlabels", "watch", str(inbox), "--model", str(model)]
    for name in ("leek-0.png", "plum-3.png"):
        shutil.copy(photos / name, inbox)
        with labels.open("a") as file:
            watcher = subprocess.Popen(
                [*words, "--interval", "0.05", "--device", "cpu"],
                stdout=file,
                stderr=subprocess.DEVNULL,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        try:
            while name not in labels.read_text() and watcher.poll() is None:
                time.sleep(0.02)
            watcher.send_signal(signal.SIGINT)
            assert watcher.wait(timeout=600) == 130
        finally:
            watcher.kill()
    rows = list(csv.DictReader(io.StringIO(labels.read_text())))
    assert [row["path"] for row in rows] == ["leek-0.png", "leek-0.png", "plum-3.png"]


def test_an_archive_is_refused_before_anything_is_said(photos, model, tmp_path):
    archive = shutil.make_archive(str(tmp_path / "photos"), "zip", photos)
    with pytest.raises(InputError, match=r"folder must be a folder of images, got .*photos\.zip"):
        watch_folder(archive, Predictor.load(model, device="cpu"), wait=lambda: False)
