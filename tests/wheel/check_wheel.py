"""What a new user does, with an installed wheel and nothing else: label, predict, serve, evaluate.

Run by `make wheel-test` in an environment that holds the wheel and its dependencies only, outside
the repository: `python check_wheel.py FOLDER_OF_CLASS_FOLDERS`.
"""

import csv
import json
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

CLASSES, N_IMAGES = ("Kaiser", "Leek", "Satsumas"), 8  # of the folder that is labelled
SECONDS = 300  # for a command, first import and first compilation included


def run(*arguments: object, folder: Path) -> str:
    """The output of a command of the installed program."""
    program = Path(sys.executable).with_name("fewlabels")
    done = subprocess.run(
        [program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        cwd=folder,
    )
    if done.returncode:
        raise SystemExit(f"fewlabels {' '.join(map(str, arguments))}: {done.stderr}{done.stdout}")
    return done.stdout


def check_serve(folder: Path) -> None:
    """The page answers at the address that the server prints."""
    program = Path(sys.executable).with_name("fewlabels")
    command = [program, "serve", "mine.fewlabels", "--photos", "photos", "--labels", "few.csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=\S+", address), address
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            page = opener.open(address, timeout=30).read().decode()
            assert "<title>" in page, page[:200]
        finally:
            server.terminate()


def main(source: Path) -> None:
    """Label photographs of three classes from one label each, and use the other commands once."""
    import fewlabels

    assert "site-packages" in fewlabels.__file__, fewlabels.__file__
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "photos").mkdir()
        truth = {}
        for kind in (source / name for name in CLASSES):
            for number, image in enumerate(sorted(kind.glob("*.jpg"))[:N_IMAGES]):
                truth[f"{kind.name}-{number}.jpg"] = kind.name
                shutil.copy(image, folder / "photos" / f"{kind.name}-{number}.jpg")
        few = [(path, label) for path, label in truth.items() if path.endswith("-0.jpg")]
        text = "path,label\n" + "".join(f"{path},{label}\n" for path, label in few)
        (folder / "few.csv").write_text(text)
        run(*("label", "photos", "--labels", "few.csv", "--output", "labels.csv"), folder=folder)
        with (folder / "labels.csv").open(newline="") as file:
            found = {row["path"]: row["label"] for row in csv.DictReader(file)}
        assert set(found) == set(truth), found
        right = sum(found[path] == label for path, label in truth.items())
        assert right > len(truth) / 2, f"{right} of {len(truth)} right"
        check_serve(folder)
        ran = run("evaluate", "--episodes", "10", "--json", folder=folder)
        assert json.loads(ran)["results"][0]["n_episodes"] == 10
    print(f"The wheel of fewlabels {fewlabels.__version__} works: {right} of {len(truth)} right.")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
