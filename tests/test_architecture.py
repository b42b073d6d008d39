"""A folder of the package imports only the folders upstream of it (ARCHITECTURE.md)."""

import ast
import sys
from pathlib import Path

import pytest

import fewlabels

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "fewlabels"
EVERYWHERE = {"errors", "devices", "io"}  # that every part may import, except these three
UPSTREAM = {  # folder or file: what it may import, besides those and itself
    "errors": set(),
    "io": {"errors"},
    "devices": {"errors"},
    "unpickle": set(),
    "blanks": set(),
    "__main__": {"cli"},
    "data": {"unpickle"},
    "backbones": set(),
    "preprocess": set(),
    "transport": set(),
    "kernels": {"preprocess", "transport", "methods"},  # their constants
    "training": {"data", "backbones", "features", "methods", "evaluation"},
    "features": {"data", "backbones", "unpickle", "blanks"},
    "methods": {"preprocess", "transport"},
    "fitting": {"preprocess", "transport", "methods", "confidence"},
    "confidence": {"preprocess", "methods"},
    "estimators": {"blanks", "preprocess", "transport", "methods", "confidence", "fitting"},
    "evaluation": {
        "features",
        "preprocess",
        "transport",
        "methods",
        "confidence",
        "fitting",
        "kernels",
    },
    "paper": {
        "data",
        "features",
        "preprocess",
        "transport",
        "methods",
        "confidence",
        "fitting",
        "evaluation",
    },
    "labeling": {
        "data",
        "backbones",
        "features",
        "preprocess",
        "transport",
        "methods",
        "confidence",
        "fitting",
        "evaluation",
    },
}
LIGHT = {  # what `fewlabels --help` may load besides the standard library
    "typer",
    "fewlabels.errors",
    "fewlabels.cli",
    "fewlabels.io.words",
    "fewlabels.__version__",
}
FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]
EVERY_FILE = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))


def imported(nodes):
    """Full names of what import statements import: "fewlabels.errors.InputError", "numpy"."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def on_loading(node):
    """The nodes that run when a module is loaded: not in functions nor under TYPE_CHECKING."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or (
            isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
        ):
            continue
        yield child
        yield from on_loading(child)


def part_of(name):
    """The folder or file of the package that "fewlabels.x.y" or a public name is in."""
    part = name.split(".")[1]
    public = part in fewlabels.__all__
    return getattr(fewlabels, part).__module__.split(".")[1] if public else part


@EVERY_FILE
def test_a_part_imports_only_parts_upstream(path):
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    names = imported(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    parts = {part_of(name) for name in names if name.startswith("fewlabels.")}
    if part != "cli":  # it may import all, inside its commands
        allowed = UPSTREAM[part] | (set() if part in EVERYWHERE else EVERYWHERE)
        others = parts - {part, "__version__"} - allowed
        assert not others, f"{part} must not import {others}"


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.parent == PACKAGE / "cli"], ids=lambda path: path.name
)
def test_commands_import_heavy_things_inside_functions(path):
    for name in imported(on_loading(ast.parse(path.read_text(encoding="utf-8")))):
        parts = name.split(".")
        above = {".".join(parts[:depth]) for depth in range(1, len(parts) + 1)}
        assert parts[0] in sys.stdlib_module_names or above & LIGHT, name
