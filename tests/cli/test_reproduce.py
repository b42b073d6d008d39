"""`fewlabels reproduce`."""

import json
import re

import numpy as np
import pytest

from fewlabels.paper.ledger import read_cells, write_cells


@pytest.fixture
def novel(tmp_path):
    """Twenty classes of a hundred and one rows, in a file without labels."""
    rng = np.random.default_rng(0)
    centers = np.repeat(rng.gamma(1.0, size=(20, 6)), 101, axis=0)
    path = tmp_path / "novel.npy"
    (tmp_path / "artifacts").mkdir()
    np.save(path, (centers * rng.gamma(2.0, size=centers.shape)).astype(np.float32))
    return [
        f"--features=cifar-fs:wrn28-10:novel={path}",
        "--per-class=101",
        "--artifacts",
        tmp_path / "artifacts",
    ]


def test_a_table_is_printed_and_kept(here, novel, tmp_path):
    done = here(
        "reproduce", "table5", *novel, "--episodes", 5, "--output", tmp_path / "out", "--no-plot"
    )
    assert done.code == 0, done.stderr
    assert "Table 5: Backbones, with NCM and K-Means" in done.stdout
    assert "87.69 ± 0.23" in done.stdout
    assert done.stdout.count("no features of") == 8
    assert len(re.findall(r" no features +–", done.stdout)) == 2 * 4 * 8
    assert done.stderr.rstrip().endswith("index.html, and JSON, Markdown and LaTeX of table5")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "cells.json",
        "index.html",
        "table5.json",
        "table5.md",
        "table5.tex",
    ]
    assert json.loads((tmp_path / "out" / "table5.json").read_text())["command"].startswith(
        "fewlabels reproduce table5"
    )
    assert len(json.loads((tmp_path / "out" / "cells.json").read_text())) == 8


def test_json_is_what_was_written(here, novel, tmp_path):
    words = ["reproduce", "table5", *novel, "--episodes", 5, "--no-plot", "--json"]
    done = here(*words, "--output", tmp_path / "out")
    assert done.code == 0, done.stderr
    assert json.loads(done.stdout) == [json.loads((tmp_path / "out" / "table5.json").read_text())]
    listed = json.loads(here("reproduce", "--list", "--json").stdout)
    assert len(listed) > 10
    assert len({tuple(each) for each in listed}) == 1  # the same columns in all


def test_without_any_features_it_says_so_once(here, tmp_path):
    (tmp_path / "empty").mkdir()
    words = ("--artifacts", tmp_path / "empty", "--output", tmp_path / "out")
    done = here("reproduce", "table5", "table2", *words)
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr.startswith("fewlabels: no features for table2, table5 in ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("episodes", [1, 0, -5])
def test_fewer_episodes_than_an_interval_needs_are_refused(here, novel, tmp_path, episodes):
    out = tmp_path / "out"
    done = here("reproduce", "table5", *novel, "--episodes", episodes, "--output", out)
    assert (done.code, done.stdout) == (2, "")
    expected = f"--episodes must be at least 2, or cells have no interval, got {episodes}."
    assert done.stderr == f"fewlabels: {expected}\n"
    assert not list(out.iterdir())


def test_a_part_of_the_episodes_is_named_by_its_number(here, novel, tmp_path):
    words = ("--episodes", 5, "--output", tmp_path / "out", "--no-plot")
    done = here("reproduce", "table2", *novel, *words)
    assert done.code == 0, done.stderr
    assert "n = 5 episodes per cell" in done.stdout
    assert re.search(r"Transfer\+SGC = sgc after .*, n = 2 episodes", done.stdout)


def test_the_second_run_measures_nothing_new(here, novel, tmp_path):
    words = [
        "reproduce",
        "table2",
        *novel,
        "--episodes",
        5,
        "--output",
        tmp_path / "out",
        "--no-plot",
    ]
    assert here(*words).code == 0
    before = (tmp_path / "out" / "cells.json").read_bytes()
    again = here(*words)
    assert again.code == 0
    assert (tmp_path / "out" / "cells.json").read_bytes() == before


def test_stored_cells_make_new_pages_without_measuring(here, novel, tmp_path):
    words = ["reproduce", "table2", *novel, "--episodes", 5, "--output", tmp_path / "out"]
    assert here(*words, "--no-plot").code == 0
    path = tmp_path / "out" / "cells.json"
    cells = read_cells(path)
    other = {f"{number:016x}": cell for number, cell in enumerate(cells.values())}  # other code
    write_cells(path, other)
    assert here(*words, "--no-plot", "--stored").code == 0
    assert read_cells(path) == other
    rows = json.loads((tmp_path / "out" / "table2.json").read_text())["data"]["rows"]
    measured = [row["method"] for row in rows if row["ours"] and row["ours"]["1"]]
    assert measured == ["S2M2_R", "PT+NCM", "Transfer+SGC", "PT+MAP"]


def test_what_measures_nothing_can_be_reproduced_alone(here, novel, tmp_path):
    words = (*novel, "--output", tmp_path / "out", "--no-plot")
    assert here("reproduce", "table1", "figure2", *words).code == 0
    assert (
        here("reproduce", "table1", "--artifacts", tmp_path, "--output", tmp_path / "o").code == 0
    )


def test_the_list_needs_no_features(here, tmp_path):
    done = here("reproduce", "--list", "--artifacts", tmp_path)
    assert done.code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[3:-1] if line[:1].isalpha()][
        :3
    ] == ["table1", "table2", "table3"]
    assert "0 of 9 here" in done.stdout
    assert re.search(r"table1 +Parameters +needs none", done.stdout)


def test_the_readme_is_written_from_the_results(here, novel, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("<!-- results:begin -->\n<!-- results:end -->\n")
    done = here(
        "reproduce",
        "table5",
        *novel,
        "--episodes",
        5,
        "--output",
        tmp_path / "out",
        "--no-plot",
        "--readme",
        readme,
    )
    assert done.code == 0, done.stderr
    assert "PT+MAP" in readme.read_text()
    again = here("reproduce", "--readme", readme, "--output", tmp_path / "out")
    assert (again.code, again.stdout) == (0, "")
    assert "already up to date" in again.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "--list shows what there is"),
        (["table9"], "table1, table2, table3"),
        (["table5", "--output", "/dev/null/results"], "cannot be written"),
        (["table5", "--features", "novel.npy"], "DATASET:BACKBONE:SPLIT=FILE"),
        (
            ["table5", "--features", "cifar-fs:wrn28-10:novel=nowhere.npy"],
            "nowhere.npy does not exist",
        ),
        (["table5", "--artifacts", "/nope"], "--artifacts must be a folder, got /nope"),
        (["--list", "--artifacts", "/nope"], "--artifacts must be a folder, got /nope"),
        (["--readme", "nowhere.md"], "nowhere.md cannot be read"),
    ],
)
def test_bad_input_ends_in_one_line(here, tmp_path, words, expected):
    words = words if "--output" in words else [*words, "--output", tmp_path / "out"]
    done = here("reproduce", *words)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith("fewlabels: ")
    assert done.stderr.count("\n") == 1
    assert expected in done.stderr


def test_features_of_another_dataset_are_refused(here, novel, tmp_path):
    words = [str(word).replace("cifar-fs:wrn28-10", "cub:resnet12") for word in novel]
    done = here("reproduce", "table5", *words, "--output", tmp_path / "out")
    assert done.code == 2
    assert "the novel classes of cub must be 50, got 20" in done.stderr
