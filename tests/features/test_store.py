"""The store never gives a wrong row and never crashes, whatever happens to its files."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from fewlabels.errors import InputError
from fewlabels.features import FeatureStore
from fewlabels.features.recipe import FeatureRecipe
from fewlabels.features.store import default_root
from fewlabels.io.locks import lock

RECIPE = FeatureRecipe(
    backbone="conv4",
    weights="0" * 32,
    transform="crop(32)",
    views="center",
    precision="float32",
    dim=3,
)


def digest_of(number):
    return f"{number:032x}"


def row_of(number):
    return np.array([number, number + 0.5, -number], np.float32)


def put(store, numbers, recipe=RECIPE):
    store.put(
        recipe,
        [digest_of(number) for number in numbers],
        np.stack([row_of(number) for number in numbers]),
    )


def assert_holds(store, numbers, recipe=RECIPE, *, among=range(12)):
    found = store.get(recipe, [digest_of(number) for number in among])
    assert found.known.tolist() == [number in numbers for number in among]
    for number, row, known in zip(among, found.rows, found.known, strict=True):
        assert not known or row.tolist() == row_of(number).tolist()


def shards(store, recipe=RECIPE):
    return sorted((store.root / recipe.key).glob("shard-*"))


@pytest.fixture
def store(tmp_path):
    return FeatureStore(tmp_path / "store")


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6, unique=True), max_size=6),
    st.lists(st.integers(0, 30), max_size=40),
)
def test_it_answers_as_a_dict_would(tmp_path_factory, written, asked):
    store = FeatureStore(tmp_path_factory.mktemp("store"))
    for numbers in written:
        put(store, numbers)
    assert_holds(store, {number for numbers in written for number in numbers}, among=asked)


def test_opening_and_asking_make_nothing(store):
    assert_holds(store, set())
    assert not store.root.exists()
    assert store.n_bytes == 0


def test_the_recipe_can_be_read_by_a_person(store):
    put(store, [1])
    written = json.loads((store.root / RECIPE.key / "recipe.json").read_text())
    assert (written["backbone"], written["transform"], written["version"]) == (
        "conv4",
        "crop(32)",
        1,
    )


def test_another_recipe_sees_nothing(store):
    put(store, [1, 2])
    assert_holds(store, set(), replace(RECIPE, views="flip"))
    assert_holds(store, {1, 2})


def test_an_image_without_digest_is_never_found(store):
    put(store, [0])
    assert store.get(RECIPE, [None, digest_of(0), None]).known.tolist() == [False, True, False]


def test_the_same_rows_make_the_same_shard(store):
    put(store, [1, 2])
    put(store, [1, 2])
    assert len(shards(store)) == 1
    assert store.n_bytes == sum(
        path.stat().st_size for path in store.root.rglob("*") if path.is_file()
    )


def test_a_shard_is_the_same_file_as_in_older_versions(store):
    """Both hashes were taken from a store that version 0.1, called ptmap, wrote."""
    put(store, [1, 2])
    assert RECIPE.key == "d18d3840905ef2996e487fb6058ed9e0"
    assert [path.name for path in shards(store)] == [
        "shard-8a8c36e22e855d2fe693d51dbdbe09b4.safetensors"
    ]


@pytest.mark.parametrize(
    "rows", [np.zeros((1, 3), "f4"), np.zeros((2, 4), "f4"), np.zeros((2, 3), "f8")]
)
def test_rows_that_do_not_fit_are_refused(store, rows):
    with pytest.raises(InputError, match=r"rows must be float32 of shape \(2, 3\)"):
        store.put(RECIPE, [digest_of(1), digest_of(2)], rows)


def test_a_file_is_no_store(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="must be a folder, got the file"):
        FeatureStore(tmp_path / "file")


# Damage


def cut_off(path, other):
    path.write_bytes(path.read_bytes()[:-5])


def empty(path, other):
    path.write_bytes(b"")


def flip_a_bit_of_a_row(path, other):
    held = bytearray(path.read_bytes())
    held[-1] ^= 1
    path.write_bytes(held)


def flip_a_bit_of_a_digest(path, other):
    with safetensors.safe_open(path, framework="numpy") as file:
        digests = file.get_tensor("digests").tobytes()
    held = bytearray(path.read_bytes())
    held[held.index(digests) + 15] ^= 0b1000  # digest 1 becomes digest 9
    path.write_bytes(held)


def replace_by_noise(path, other):
    path.write_bytes(os.urandom(200))


def replace_by_features_of_others(path, other):
    safetensors.numpy.save_file({"rows": np.ones((2, 3), "f4")}, path)


def replace_by_a_shard_of_another_recipe(path, other):
    path.unlink()
    (path.parent / other.name).write_bytes(
        other.read_bytes()
    )  # whole, under its right name, in the wrong folder


@pytest.mark.parametrize(
    "damage",
    [
        cut_off,
        empty,
        flip_a_bit_of_a_row,
        flip_a_bit_of_a_digest,
        replace_by_noise,
        replace_by_features_of_others,
        replace_by_a_shard_of_another_recipe,
    ],
)
def test_a_damaged_shard_is_noticed_removed_and_written_again(store, damage):
    other = replace(RECIPE, weights="1" * 32)
    store.put(other, [digest_of(1)], np.full((1, 3), 7, np.float32))
    put(store, [1, 2])
    [victim] = shards(store)
    put(store, [3])
    damage(victim, shards(store, other)[0])
    with pytest.warns(
        UserWarning, match=r"shard-.*(is damaged|belongs to another recipe): it is removed"
    ):
        assert_holds(store, {3})
    assert len(shards(store)) == 1
    put(store, [1, 2])
    assert_holds(store, {1, 2, 3})


def test_files_of_others_are_left_alone(store):
    put(store, [1])
    for name in ("notes.txt", "shard-mine.safetensors", "shard-.safetensors"):
        (store.root / RECIPE.key / name).write_text("not yours")
    assert_holds(store, {1})
    assert len(list((store.root / RECIPE.key).iterdir())) == 5


@pytest.mark.filterwarnings(
    "ignore:.*is damaged"
)  # or not noticed, if the whole one is opened first
def test_rows_in_a_damaged_shard_are_taken_from_another_that_has_them(store):
    put(store, [1, 2])
    [victim] = shards(store)
    put(store, [1, 2, 3])
    cut_off(victim, None)
    assert_holds(store, {1, 2, 3})


def test_a_disk_that_takes_nothing_is_a_warning(store):
    store.root.mkdir()
    (store.root / RECIPE.key).touch()  # a file where the folder should be
    with pytest.warns(
        UserWarning,
        match=r"features of 2 images were not kept: .* cannot be written \(File exists\)",
    ):
        put(store, [1, 2])
    assert_holds(store, set())


def test_what_a_dead_process_left_is_swept_and_what_a_living_one_writes_is_not(store):
    put(store, [1])
    dead, alive = (
        store.root / RECIPE.key / f".shard-x.safetensors.{name}.fewlabels"
        for name in ("01234567", "89abcdef")
    )
    dead.touch()
    with alive.open("wb") as file:
        lock(file)
        put(store, [2])
    assert not dead.exists()
    assert alive.exists()
    assert_holds(store, {1, 2})


# Several processes


WRITER = """
import sys
import numpy as np
from fewlabels.features.recipe import FeatureRecipe
from fewlabels.features.store import FeatureStore
root, start, stop = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
recipe = FeatureRecipe(
    backbone="conv4", weights="0" * 32, transform="crop(32)", views="center",
    precision="float32", dim=3,
)
store = FeatureStore(root)
for number in range(start, stop):
    pair = (number, number + 1)
    rows = np.array([[n, n + 0.5, -n] for n in pair], np.float32)
    store.put(recipe, [f"{n:032x}" for n in pair], rows)
    found = store.get(recipe, [f"{n:032x}" for n in range(start, number + 2)])
    assert found.known.all() and (found.rows[:, 0] == np.arange(start, number + 2)).all()
"""


def test_several_processes_write_and_read_at_once(store):
    writers = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", WRITER, store.root, str(start), str(start + 30)]
        )
        for start in (0, 0, 20)
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert_holds(store, set(range(51)), among=range(60))
    assert not list((store.root / RECIPE.key).glob(".*"))


# Where


def test_the_place_can_be_chosen_by_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("PTMAP_CACHE", str(tmp_path / "old"))
    monkeypatch.delenv("FEWLABELS_CACHE", raising=False)
    assert FeatureStore().root == tmp_path / "old" / "features"
    monkeypatch.setenv("FEWLABELS_CACHE", str(tmp_path / "new"))
    assert FeatureStore().root == tmp_path / "new" / "features"


@pytest.mark.parametrize(
    ("existing", "expected"),
    [
        ([], "fewlabels"),
        (["ptmap"], "ptmap"),
        (["fewlabels"], "fewlabels"),
        (["ptmap", "fewlabels"], "fewlabels"),
    ],
)
def test_a_store_of_the_former_name_is_used_if_there_is_no_new_one(
    monkeypatch, tmp_path, existing, expected
):
    for name in ("FEWLABELS_CACHE", "PTMAP_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in existing:
        put(FeatureStore(tmp_path / name / "features"), [1])
    store = FeatureStore()
    assert store.root == tmp_path / expected / "features"
    assert_holds(store, {1} if existing else set())


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "~/.cache/fewlabels/features"),
        ("linux", {"XDG_CACHE_HOME": "/elsewhere"}, "/elsewhere/fewlabels/features"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "~/.cache/fewlabels/features"),
        ("darwin", {"XDG_CACHE_HOME": "/elsewhere"}, "~/Library/Caches/fewlabels/features"),
        ("win32", {}, "~/AppData/Local/fewlabels/features"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/fewlabels/features"),
    ],
)
def test_each_platform_has_its_place_for_caches(monkeypatch, platform, variables, expected):
    for name in ("FEWLABELS_CACHE", "PTMAP_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nobody")  # where no store of the former name exists
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert default_root() == Path(expected).expanduser()


def test_the_store_needs_no_torch():
    code = (
        "import sys; from fewlabels.features import FeatureStore; FeatureStore(); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
