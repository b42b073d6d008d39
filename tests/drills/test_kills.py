"""kill -9 at any moment: a rerun ends as an undisturbed run, and nothing is left behind.

On commit 7d831a6, 39 of 50 projects that were killed while they were made could not be made again,
11 of 12 lost the labels of sub-folders in silence, 1 of 20 copies was a truncated photograph under
the right name, and a temporary file of a training stayed for good.
"""

import json
import os
import resource
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

from fewlabels.io.container import Container
from fewlabels.labeling.project import Project

TRAIN = ["--backbone", "conv4", "--device", "cpu"] + [
    word
    for change in (
        *("image_size=16", "batch_size=4", "stages.0.epochs=2"),
        *("compile=false", "precision=float32"),
    )
    for word in ("--set", change)
]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no such signals")


@pytest.fixture
def tools(start, leftovers, warm_up):
    return start, leftovers, warm_up


def content(folder: Path) -> dict[str, object]:
    """What a run made, without the times that it took."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = os.readlink(path)  # noqa: PTH115
        elif path.suffix == ".json":
            found[name] = without_times(json.loads(path.read_text()))
        elif path.name == "log.jsonl":
            lines = path.read_text().splitlines()
            found[name] = [without_times(json.loads(line)) for line in lines]
        elif path.suffix == ".npz":
            found[name] = {key: value.tolist() for key, value in np.load(path).items()}
        elif path.suffix in (".csv", ".safetensors", ".png"):
            found[name] = path.read_bytes()
        elif path.is_file():
            found[name] = "here"  # such as state.pt and reports, which hold times
    return found


def without_times(value: object) -> object:
    if isinstance(value, dict):
        wrong = ("seconds", "time", "images_per_second", "command", "episodes_per_second")
        wrong += ("digest",)  # of a cell with its time
        return {key: without_times(item) for key, item in value.items() if key not in wrong}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def rehearse(drill, tools, tmp_path, name, n, arguments, *, made="out", once=None):
    """Kill, run again, compare with an undisturbed run.

    Where `once` is there after the kill, the command was done: it refuses to do it twice.
    """
    start, leftovers, warm_up = tools
    keep = tmp_path / "cache"

    def fresh():
        shutil.rmtree(tmp_path / made, ignore_errors=True)
        shutil.rmtree(keep, ignore_errors=True)

    warm_up(arguments)
    fresh()
    child = start(*arguments)
    assert child.wait() == 0, child.log.read_text()
    seconds, total = time.monotonic() - child.begun, int(child.counts.read_text())
    wanted = content(tmp_path / made)
    assert total > 3
    assert wanted
    for number, rng in enumerate(drill.tries(f"kill -9 of {name}", *n)):
        fresh()
        if number % 3:  # before an operation on a file, or at any moment
            where = rng.randrange(total)
            start(*arguments, kill_at=where).wait()
        else:
            where = rng.uniform(0, seconds)
            start(*arguments).kill(where)
        again, code = start("--version"), 0
        assert again.wait() == 0
        if once is None or not once.exists():
            again = start(*arguments)
            code = again.wait()
        found = content(tmp_path / made)
        differ = [key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key)]
        left = leftovers(tmp_path)
        drill.judge(
            code == 0 and not differ and not left,
            f"killed at {where}: code {code}, different {differ}, left {left}, "
            f"{again.log.read_text()[-300:]}",
        )


def test_kill_label(drill, tools, tmp_path, photos, encoder):
    words = ["label", photos, "--backbone", encoder, "--output", tmp_path / "out" / "labels.csv"]
    words += [
        "--model",
        tmp_path / "out" / "m.safetensors",
        "--report",
        tmp_path / "out" / "r.html",
    ]
    rehearse(drill, tools, tmp_path, "label", (2, 20), words)


def test_kill_export(drill, tools, tmp_path, photos, encoder):
    words = ["label", photos, "--backbone", encoder, "--output", tmp_path / "out" / "labels.csv"]
    words += ["--copy-to", tmp_path / "out" / "sorted", "--link-to", tmp_path / "out" / "linked"]
    words += ["--label-studio", tmp_path / "out" / "tasks.json"]
    rehearse(drill, tools, tmp_path, "label with copies", (2, 20), words)


def test_kill_export_to_a_format(drill, tools, tmp_path, photos):
    """The folder is there completely or not at all, and no temporary one stays."""
    output = tmp_path / "out" / "hf"
    words = ["export", photos, "--to", "hf", "--output", output]
    rehearse(drill, tools, tmp_path, "export", (2, 30), words, once=output)


def tree(folder: Path) -> dict[str, bytes]:
    """The files below a folder, without journals of moves, whose names hold the time."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith("moves-")
    }


def test_kill_move(drill, start, warm_up, tmp_path, photos):
    """Photographs go back, or all arrive; each is complete at one of the two places."""
    kept, sorted_ = tmp_path / "kept", tmp_path / "sorted"
    shutil.copytree(photos, kept)
    move = ["move", photos, "--output", sorted_]
    warm_up(move)
    before, after = tree(kept), tree(sorted_)
    for number, rng in enumerate(drill.tries("kill -9 of move and undo", 4, 60)):
        for folder in (photos, sorted_):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(kept, photos)
        start(*move, kill_at=rng.randrange(45)).wait()
        if not list(sorted_.glob("moves-*.jsonl")):  # it was killed before it began
            start(*move).wait()
        undo = ["undo", sorted_, *([] if number % 2 else ["--finish"])]
        said = ""
        for kill_at in (rng.randrange(45), -1):
            if list(sorted_.glob("moves-*.jsonl")):  # else all is back already
                child = start(*undo, kill_at=kill_at)
                child.wait()
                said = child.log.read_text()[-300:]
        found = tree(photos), tree(sorted_) if sorted_.exists() else {}
        rest = {name: each for name, each in before.items() if "/" not in name}
        wanted = (before, {}) if number % 2 else (rest, after)
        drill.judge(found == wanted, f"{number}: {[*map(list, found)]} {said}")


def test_kill_merge(drill, start, warm_up, leftovers, tmp_path):
    """Merging again ends with the same decisions, and the project is whole."""
    from fewlabels.features import FeatureSet
    from fewlabels.labeling.check import check_project

    names = [f"{i}.jpg" for i in range(40)]
    rows = np.random.default_rng(0).gamma(1.0, size=(40, 4)).astype(np.float32)
    for name, (first, shift) in {"a": (0, 0), "b": (20, 1)}.items():
        features = FeatureSet.from_arrays(rows, [-1] * 40, [], {}, names)
        with Project.create(tmp_path / name, features, title=name) as project:
            for i in range(first, first + 20):
                label = f"class {(i + shift) % 3}"
                project.journal.decide({names[i % 40]: label}, origin="person")
            project.journal.decide({"1.jpg": f"of {name}"}, origin="person")
    shutil.copytree(tmp_path / "a", tmp_path / "kept")
    merge = ["merge", tmp_path / "a", tmp_path / "b"]

    def read():
        with Project.open(tmp_path / "a") as project:
            journal = project.journal
            whole = all(each.right for each in check_project(tmp_path / "a"))
            opinions = journal.opinions
            labels = {name: each.label for name, each in journal.current.items()}
            return labels, journal.marks, opinions, whole

    warm_up(merge)
    wanted = read()
    assert wanted[3]
    assert wanted[1] == {"1.jpg": "conflict"}
    seconds = 0.3
    for number, rng in enumerate(drill.tries("kill -9 of merge", 3, 60)):
        shutil.rmtree(tmp_path / "a")
        shutil.copytree(tmp_path / "kept", tmp_path / "a")
        if number % 2:
            start(*merge, kill_at=rng.randrange(12)).wait()
        else:
            start(*merge).kill(rng.uniform(0, seconds))
        again = start(*merge)
        code = again.wait()
        found = read()
        left = leftovers(tmp_path)
        good = code == 0 and found == wanted and not left
        drill.judge(good, f"{number}: {code} {left} {again.log.read_text()[-300:]}")


def test_kill_while_photographs_are_followed(drill, tmp_path, photos, encoder):
    """Photographs that were renamed: killed meanwhile, labels and features follow next time."""
    from fewlabels.features.store import FeatureStore
    from fewlabels.labeling.check import check_project
    from fewlabels.labeling.collection import Extraction
    from fewlabels.labeling.inputs import read_inputs

    how = Extraction(str(encoder), "cpu", None, 0, FeatureStore(tmp_path / "store"))
    inputs = read_inputs(photos, extraction=how)
    folder, kept = tmp_path / "p.fewlabels", tmp_path / "kept"
    inputs.begin_project(folder).close()
    shutil.copytree(folder, kept)
    for path in sorted(photos.rglob("*.png")):
        path.rename(path.with_name(f"new {path.name}"))
    wanted = {
        str(Path(name).with_name(f"new {Path(name).name}")): label
        for name, label in inputs.labels.items()
    }

    def follow(kill_at):
        done = 0

        def count(event, values):
            nonlocal done
            done += 1
            if done == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

        if kill_at > 0:
            sys.addaudithook(count)
        with Project.open(folder, write=True) as project:
            images = project.list_images()
            project.follow(images)
            project.refresh(images, how)

    for rng in drill.tries("kill -9 while photographs are followed", 5, 100):
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        pid = os.fork()
        if pid == 0:
            try:
                follow(rng.randrange(1, 260))
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        follow(0)
        with Project.open(folder) as project:
            labels = {name: each.label for name, each in project.journal.current.items()}
            rows = project.load()
        whole = all(each.right for each in check_project(folder))
        extra = {path.name for path in folder.iterdir()} - {path.name for path in kept.iterdir()}
        good = labels == wanted and len(rows) == 12 and whole and not extra
        drill.judge(good, f"{len(labels)}, {len(rows)}, {whole}, {extra}")


def rows_of(child) -> dict[str, dict]:
    """What `watch --json` has printed, by path."""
    found = {}
    for line in child.log.read_text().split("\n")[:-1]:
        if line.startswith("{"):
            row = json.loads(line)
            found[row["path"]] = row
    return found


def test_kill_watch(drill, tools, tmp_path, photos, encoder):
    """It labels everything again after a kill; what it stored meanwhile is right."""
    start, leftovers, warm_up = tools
    model = tmp_path / "m.safetensors"
    warm_up(
        ["label", photos, "--backbone", encoder, "--model", model, "--output", tmp_path / "l.csv"]
    )
    words = ["watch", photos, "--model", model, "--interval", 0.01, "--json"]

    def watch():
        child = start(*words)
        while len(rows_of(child)) < 12 and time.monotonic() - child.begun < 120:
            time.sleep(0.01)
        os.kill(child.pid, signal.SIGINT)
        return child, child.wait()

    child, code = watch()
    wanted = rows_of(child)
    assert len(wanted) == 12, child.log.read_text()
    assert code == 130
    for number, rng in enumerate(drill.tries("kill -9 of watch", 2, 20)):
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        if number % 2:
            start(*words, kill_at=rng.randrange(40)).kill(1.5)
        else:
            start(*words).kill(rng.uniform(0, 1.5))
        child, code = watch()
        left = leftovers(tmp_path)
        good = rows_of(child) == wanted and code == 130 and not left
        drill.judge(good, f"{number}: {code} {left} {child.log.read_text()[-300:]}")


def test_a_copy_that_ends_in_the_middle_is_made_again(tmp_path, photos, encoder, warm_up):
    """Commit 7d831a6 left half of the photograph under its name, and copied it to large-2.png."""
    pixels = np.random.default_rng(0).integers(0, 255, (150, 150, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(photos / "large.png")
    size = (photos / "large.png").stat().st_size
    words = ["label", photos, "--backbone", encoder, "--output", tmp_path / "labels.csv"]
    words += ["--copy-to", tmp_path / "sorted"]
    warm_up(words)
    shutil.rmtree(tmp_path / "sorted")
    child = os.fork()
    if child == 0:
        try:  # a file that grows beyond the limit kills its process
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1000, size - 1000))
            warm_up(words)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGXFSZ
    warm_up(words)
    (copy,) = (tmp_path / "sorted").rglob("*large*")
    assert copy.read_bytes() == (photos / "large.png").read_bytes()


def test_kill_extract(drill, tools, tmp_path, photos, encoder):
    words = ["extract", photos, "--backbone", encoder]
    words += ["--output", tmp_path / "out" / "f.safetensors"]
    rehearse(drill, tools, tmp_path, "extract", (2, 20), words)


def test_kill_evaluate(drill, tools, tmp_path, features):
    words = ["evaluate", features, "--engine", "torch", "--episodes", 10, "--output"]
    rehearse(drill, tools, tmp_path, "evaluate", (2, 20), [*words, tmp_path / "out"])


def save_base_classes(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for name in "ab":
        (folder / name).mkdir(parents=True)
        for number in range(4):
            pixels = rng.integers(0, 255, (20, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


def save_novel(folder: Path) -> None:
    rng = np.random.default_rng(0)
    centers = np.repeat(rng.gamma(1.0, size=(20, 6)), 101, axis=0)
    (folder / "artifacts").mkdir()
    np.save(folder / "novel.npy", (centers * rng.gamma(2.0, size=centers.shape)).astype("f4"))


def reproduce(folder: Path) -> list[object]:
    words = ["reproduce", "table5", f"--features=cifar-fs:wrn28-10:novel={folder / 'novel.npy'}"]
    words += ["--per-class=101", "--artifacts", folder / "artifacts", "--episodes", 5]
    return [*words, "--no-plot", "--device", "cpu"]


def test_kill_train(drill, tools, tmp_path):
    save_base_classes(tmp_path / "base")
    words = ["train", tmp_path / "base", "--output", tmp_path / "out", "--checkpoint-every", 1]
    rehearse(drill, tools, tmp_path, "train", (2, 15), [*words, *TRAIN])


def test_kill_reproduce(drill, tools, tmp_path):
    save_novel(tmp_path)
    words = [*reproduce(tmp_path), "--output", tmp_path / "out"]
    rehearse(drill, tools, tmp_path, "reproduce", (1, 5), words)


def test_kill_creation(drill, leftovers, tmp_path, photos, encoder):
    """Commit 7d831a6: "is a project of features, not of", or no labels of sub-folders."""
    from fewlabels.features.store import FeatureStore
    from fewlabels.labeling.collection import Extraction
    from fewlabels.labeling.inputs import read_inputs

    store = FeatureStore(tmp_path / "store")
    how = Extraction(str(encoder), "cpu", None, 0, store)
    inputs = read_inputs(photos, extraction=how)
    folder = tmp_path / "p.fewlabels"

    def make(kill_at):
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
            return
        done = 0

        def count(event, values):
            nonlocal done
            done += 1
            if done == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            if kill_at < 0:  # at any moment
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.setitimer(signal.ITIMER_REAL, -kill_at / 1e4)
            else:
                sys.addaudithook(count)
            inputs.begin_project(folder).close()
        finally:
            os._exit(0)

    tries = drill.tries("kill -9 while a project is made", 10, 200)
    for number, rng in enumerate(tries):
        shutil.rmtree(folder, ignore_errors=True)
        make(rng.randrange(1, 120) if number % 2 else -rng.randrange(1, 800))
        if not folder.exists():
            inputs.begin_project(folder).close()
        with Project.open(folder, write=True) as project:
            labels = {name: each.label for name, each in project.journal.current.items()}
            rows = len(project.load())
        left = leftovers(tmp_path)
        drill.judge(
            labels == inputs.labels and rows == 12 and not left, f"{len(labels)}, {rows}, {left}"
        )


def post_until_killed(address, token, rows, told):
    """Give labels to some rows, one by one, and write down what the server acknowledged."""
    headers = {"x-fewlabels-token": token, "content-type": "application/json"}
    with httpx.Client(base_url=address, trust_env=False, headers=headers, timeout=60) as client:
        for number, row in enumerate(rows):
            label = f"class {number % 3}"
            try:
                answer = client.post("/api/decide", json={"items": [row], "label": label})
            except httpx.HTTPError:
                return
            if answer.status_code == 200:
                told.append((row, label))


def test_kill_serve(drill, start, leftovers, tmp_path, features):
    folder = tmp_path / "features.fewlabels"
    import fewlabels.labeling.server  # noqa: F401 - so that the children need not

    for number, rng in enumerate(drill.tries("kill -9 of serve, three clients", 1, 15)):
        child = start("serve", features, "--no-open", "--port", 0)
        while "token=" not in child.log.read_text():
            time.sleep(0.02)
        address, _, token = child.log.read_text().split("\n")[0].partition("/?token=")
        if "http" not in address:
            line = next(each for each in child.log.read_text().split("\n") if "token=" in each)
            address, _, token = line.partition("/?token=")
        told = [[] for _ in range(3)]
        clients = [
            threading.Thread(
                target=post_until_killed,
                args=(address, token.strip(), range(60 * i, 60 * i + 60), told[i]),
            )
            for i in range(3)
        ]
        for each in clients:
            each.start()
        while sum(map(len, told)) < rng.randrange(1, 60) and any(c.is_alive() for c in clients):
            time.sleep(0.01)
        child.kill(0)
        for each in clients:
            each.join()
        with Project.open(folder, write=True) as project:
            names = project.load().names
            kept = project.journal.current
        lost = [each for some in told for each in some if kept[names[each[0]]].label != each[1]]
        drill.judge(not lost and not leftovers(tmp_path), f"try {number}: {lost}")


def annotate_until_killed(address, token, names, told):
    """Send annotations as Label Studio does, and write down what the server acknowledged."""
    headers = {"authorization": f"Bearer {token}"}
    with httpx.Client(base_url=address, trust_env=False, headers=headers, timeout=60) as client:
        for number in range(30):
            name, label = names[number % len(names)], f"class {number}"
            event = {
                "action": "ANNOTATION_CREATED",
                "task": {"data": {"image": f"/data/local-files/?d={name}"}},
                "annotation": {"result": [{"value": {"choices": [label]}}]},
            }
            try:
                answer = client.post("/webhook", json=event)
            except httpx.HTTPError:
                return
            if answer.status_code == 201 and answer.json() == {"learned": 1}:
                told.append((name, label))


def test_kill_api(drill, start, leftovers, tmp_path, photos, encoder):
    """The same for the REST interface: annotations of Label Studio that were acknowledged."""
    folder = tmp_path / "photos.fewlabels"
    names = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))
    import fewlabels.labeling.rest  # noqa: F401 - so that the children need not

    for number, rng in enumerate(drill.tries("kill -9 of serve --api, three clients", 1, 15)):
        words = ["serve", photos, "--api", "--backbone", encoder, "--port", 0]
        child = start(*words)
        while "Ctrl-C stops" not in child.log.read_text():
            assert "Error" not in child.log.read_text(), child.log.read_text()
            time.sleep(0.02)
        lines = child.log.read_text().split("\n")
        place = next(i for i, line in enumerate(lines) if line.startswith("http"))
        told = [[] for _ in range(3)]
        clients = [
            threading.Thread(
                target=annotate_until_killed,
                args=(lines[place], lines[place + 1], names[4 * i : 4 * i + 4], told[i]),
            )
            for i in range(3)
        ]
        for each in clients:
            each.start()
        while sum(map(len, told)) < rng.randrange(1, 60) and any(c.is_alive() for c in clients):
            time.sleep(0.01)
        child.kill(0)
        for each in clients:
            each.join()
        with Project.open(folder, write=True) as project:
            kept = {name: project.journal.history(name) for name in names}
        lost = [
            (name, label)
            for some in told
            for name, label in some
            if label not in [entry["label"] for entry in kept[name]]
        ]
        drill.judge(any(told) and not lost and not leftovers(tmp_path), f"try {number}: {lost}")


def test_two_processes_do_not_write_one_output(tmp_path, start):
    """Commit 7d831a6 let them: 56 of 87 cells were kept."""
    from fewlabels.io.files import held

    save_base_classes(tmp_path / "base")
    save_novel(tmp_path)
    with held(tmp_path / "out"):
        for words in (
            ["train", tmp_path / "base", "--output", tmp_path / "out", *TRAIN],
            [*reproduce(tmp_path), "--output", tmp_path / "out"],
        ):
            child = start(*words)
            assert child.wait() == 2
            assert "another process is writing to" in child.log.read_text()
    with held(tmp_path / "out"):  # free again
        pass
    assert list((tmp_path / "out").iterdir()) == []


def test_a_container_is_what_the_drills_compare(tmp_path):
    """The digest makes equal content equal bytes, on which the comparison above relies."""
    kind = Container(key="ptmap_test", version=1, holds="a test", way_out="")
    first, second = (kind.pack({"a": np.ones(3)}, {"b": 1}) for _ in range(2))
    assert first == second
