"""The package as others import it."""

import ast
import doctest
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import fewlabels
from fewlabels.backbones.efficientnet_lite import VARIANTS

PROJECT = tomllib.loads(
    (Path(__file__).resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8")
)["project"]


PUBLIC = pytest.mark.parametrize("name", fewlabels.__all__)


@PUBLIC
def test_every_public_name_is_there_and_documented(name):
    thing = getattr(fewlabels, name)
    assert thing.__name__ == name
    assert thing.__module__.startswith("fewlabels.")
    assert thing.__doc__
    assert name in dir(fewlabels)


@PUBLIC
def test_every_public_name_but_an_error_has_an_example(name):
    """The examples are run as tests of the modules in src."""
    thing = getattr(fewlabels, name)
    is_error = isinstance(thing, type) and issubclass(thing, Exception)
    assert is_error or doctest.DocTestParser().get_examples(thing.__doc__)


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(fewlabels.__file__).read_text(encoding="utf-8"))
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    )
    seen = {}
    for node in block.body:
        (alias,) = node.names
        assert alias.asname == alias.name  # "as" exports it
        seen[alias.name] = node.module
    assert sorted(seen) == fewlabels.__all__
    for name, module in seen.items():
        assert getattr(import_module(module), name) is getattr(fewlabels, name)


def test_a_star_import_brings_them_all():
    names = {}
    exec("from fewlabels import *", names)
    assert set(fewlabels.__all__) <= names.keys()


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'fewlabels' has no attribute 'nothing'"):
        fewlabels.nothing  # noqa: B018


def test_one_version_everywhere():
    assert fewlabels.__version__ == PROJECT["version"] == version("fewlabels")


# Other programs of the package index, whose names ours once had or might be taken for.
TAKEN = {"ptmap", "pt-map"}


def test_whoever_installs_as_told_gets_this_package():
    """Texts and messages name this package with extras that it has, or the folder itself."""
    assert PROJECT["name"].lower() not in TAKEN
    root = Path(__file__).resolve().parents[1]
    texts = [root / "README.md", root / "SKILL.md", *root.glob("docs/*.md")]
    texts += root.glob("src/**/*.py")
    told = {
        (text.relative_to(root).as_posix(), words)
        for text in texts
        for words in re.findall(
            r"pip install (?:-U )?'?([\w.-]+(?:\[[^\]]+\])?)", text.read_text(encoding="utf-8")
        )
    }
    assert ("README.md", ".") in told
    extras = {*PROJECT["optional-dependencies"], ""}
    packages = {words.partition("[")[0] for _, words in told}
    assert packages == {".", "pillow", PROJECT["name"]}
    named = {words.rstrip("]").partition("[")[2] for _, words in told} - {"{extra}"}
    assert len(named) > 5
    # What fills {extra} in.
    for path in root.glob("src/**/*.py"):
        named |= {
            *re.findall(
                r'(?:MissingExtraError|import_extra)\([^)]*extra="(\w*)"',
                path.read_text(encoding="utf-8"),
            )
        }
    named |= {variant.extra for variant in VARIANTS.values()}
    assert named <= extras, named - extras


def test_types_are_for_others_too():
    assert (Path(fewlabels.__file__).parent / "py.typed").is_file()


def test_import_needs_no_heavy_package():
    script = """
import sys, fewlabels
heavy = {"torch", "numpy", "numba", "sklearn", "scipy", "PIL", "typer"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_lowest_typer_is_one_that_works():
    """0.12 refuses the types of our arguments; up to 0.17, a missing argument is a traceback.

    Seen with Click 8.5. Commit 7d831a6 declared 0.12.
    """
    (declared,) = (each for each in PROJECT["dependencies"] if each.startswith("typer"))
    lowest = tuple(map(int, declared.partition(">=")[2].split(".")))
    assert lowest >= (0, 18)
