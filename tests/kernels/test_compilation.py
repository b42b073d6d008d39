"""Compiled code on disk: used again, never stale, never required, never trusted if damaged."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fewlabels

SCRIPT = """
import json
import numpy as np
from fewlabels.kernels._preprocess import normalize_rows
x = np.array([[3.0, 4.0], [3e-13, 4e-13]])
normalize_rows(x)
hits = sum(normalize_rows.stats.cache_hits.values())
print(json.dumps({"norms": [round(float(norm), 9) for norm in np.hypot(*x.T)], "hits": hits}))
"""
FINGERPRINTS = """
import json
from fewlabels.kernels import cpu
from fewlabels.kernels.compilation import fingerprint
print(json.dumps(fingerprint(cpu.__name__)))
"""
COMPILED, LOADED = {"norms": [1.0, 1.0], "hits": 0}, {"norms": [1.0, 1.0], "hits": 1}


@pytest.fixture
def package(tmp_path):
    """A copy of the package without its data: tests change its files and its caches."""
    source = Path(fewlabels.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__", "embedded", "page", "splits")
    return Path(shutil.copytree(source, tmp_path / "site" / "fewlabels", ignore=ignored))


def run(package, script=SCRIPT, **variables):
    """What a script prints in a process that imports the copy and has a home of its own."""
    home = package.parent.parent / "home"
    cleared = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA", "XDG"))}
    environment = {**cleared, "PYTHONPATH": str(package.parent), "HOME": str(home), **variables}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def compiled_files(folder):
    return sorted(folder.rglob("*.nbc"))


def replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_compiled_code_is_kept_next_to_the_source_and_used_again(package):
    assert run(package) == COMPILED
    assert {path.parent for path in compiled_files(package.parent.parent)} == {
        package / "kernels" / "__pycache__"
    }
    assert run(package) == LOADED


def test_another_constant_in_another_file_compiles_anew(package):
    run(package)
    before = compiled_files(package)
    replace(
        package / "kernels" / "codes.py",
        "squared_norm_floor: float = 1e-30",
        "squared_norm_floor: float = 1e-20",
    )
    assert run(package) == {"norms": [1.0, 0.0], "hits": 0}
    kept = {path.name.split("-")[0] for path in compiled_files(package)}
    assert kept == {path.name.split("-")[0] for path in before}
    assert len(compiled_files(package)) == len(before), "stale files are removed"


def test_another_function_in_another_file_compiles_anew(package):
    run(package)
    replace(package / "kernels" / "_math.py", "total += a[k] * b[k]", "total += 4 * a[k] * b[k]")
    assert run(package) == {"norms": [0.5, 0.5], "hits": 0}


def test_a_file_that_changes_after_its_import_does_not_name_what_was_imported(package):
    """An upgrade while a process runs: what that process compiles is its own code."""
    path = package / "kernels" / "_preprocess.py"
    changed = path.read_text().replace("row[k] *= scale", "row[k] *= 2 * scale")
    late = "import pathlib, fewlabels.kernels._preprocess\n"
    late += f"pathlib.Path({str(path)!r}).write_text({changed!r})\n"
    assert run(package, late + SCRIPT) == COMPILED
    assert run(package) == {"norms": [2.0, 2.0], "hits": 0}


def test_every_number_of_the_readable_code_that_kernels_use_is_known_to_them(package):
    found = [run(package, FINGERPRINTS)]
    assert run(package, FINGERPRINTS) == found[0]
    for path, old, new in (
        ("methods/estimation.py", "lam_target: float = 10.0", "lam_target: float = 11.0"),
        ("preprocess/smoothing.py", "hops: int = 2", "hops: int = 3"),
        ("transport/solver.py", "step_limit: float = 5.0", "step_limit: float = 6.0"),
        ("methods/kmeans.py", "MAX_ITERATIONS = 100", "MAX_ITERATIONS = 101"),
    ):
        replace(package / path, old, new)
        found.append(run(package, FINGERPRINTS))
    assert len(set(found)) == 5


def test_a_comment_in_a_file_that_is_not_used_changes_nothing(package):
    run(package)
    replace(package / "kernels" / "cuda.py", '"""The', '"""Once more, the')
    assert run(package) == LOADED


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda content: content[: len(content) // 2],
        lambda _: b"no machine code" * 100,
        lambda content: content[:-100] + bytes([content[-100] ^ 1]) + content[-99:],
        lambda content: bytes(len(content)),
    ],
    ids=["empty", "cut", "other", "one bit", "zeros"],
)
def test_a_damaged_file_is_compiled_and_written_again(package, damage):
    run(package)
    for path in compiled_files(package):
        path.write_bytes(damage(path.read_bytes()))
    assert run(package) == COMPILED
    assert run(package) == LOADED


def test_the_folder_of_the_user_is_used_where_the_package_cannot_be_written(package):
    (package / "kernels" / "__pycache__").touch()  # a file in its place stops every user
    assert run(package) == COMPILED
    assert run(package) == LOADED
    assert compiled_files(package.parent.parent / "home")


def test_a_configured_folder_comes_first(package, tmp_path):
    assert run(package, NUMBA_CACHE_DIR=str(tmp_path / "given")) == COMPILED
    assert compiled_files(tmp_path / "given")
    assert not compiled_files(package)
    assert run(package, NUMBA_CACHE_DIR=str(tmp_path / "given")) == LOADED


def test_without_a_folder_to_write_to_everything_is_compiled_in_memory(package, tmp_path):
    (package / "kernels" / "__pycache__").touch()
    (tmp_path / "no folder").touch()
    assert run(package, HOME=str(tmp_path / "no folder")) == COMPILED
    assert not compiled_files(tmp_path)
