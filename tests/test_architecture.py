"""A room of the house knows only the rooms upstream of it (ARCHITECTURE.md)."""

import ast
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).resolve().parents[1] / "src" / "fewlabels"
EVERYWHERE = {"errors", "devices", "io"}  # rooms that every room may import, except these three
UPSTREAM = {  # room: the rooms that it may import, besides those and itself
    "errors": set(),
    "io": {"errors"},
    "devices": {"errors"},
    "unpickle": set(),
    "blanks": set(),
    "data": {"unpickle"},
    "backbones": set(),
    "preprocess": set(),
    "transport": set(),
    "kernels": set(),
    "training": {"data", "backbones", "features", "methods", "evaluation"},
    "features": {"data", "backbones", "unpickle", "blanks"},
    "methods": {"preprocess", "transport"},
    "confidence": {"preprocess", "methods"},
    "estimators": {"blanks", "preprocess", "transport", "methods", "confidence"},
    "evaluation": {"features", "preprocess", "transport", "methods", "confidence", "kernels"},
    "paper": {"data", "features", "preprocess", "transport", "methods", "confidence", "evaluation"},
    "labeling": {
        "data",
        "backbones",
        "features",
        "preprocess",
        "transport",
        "methods",
        "confidence",
        "evaluation",
    },
}
LIGHT = {
    "typer",
    "fewlabels.errors",
    "fewlabels.cli",
    "fewlabels.__version__",
}  # what `fewlabels --help` may load besides the standard library
FILES = [path for path in sorted(HOUSE.rglob("*.py")) if path != HOUSE / "__init__.py"]
EVERY_FILE = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HOUSE)))


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


@EVERY_FILE
def test_a_room_imports_only_rooms_upstream(path):
    room = path.relative_to(HOUSE).parts[0].removesuffix(".py")
    names = list(imported(ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
    rooms = {name.split(".")[1] for name in names if name.startswith("fewlabels.")} - {
        room,
        "__version__",
    }
    if room != "cli":  # it may import all, inside its commands
        allowed = UPSTREAM[room] | (set() if room in EVERYWHERE else EVERYWHERE)
        assert rooms <= allowed, f"{room} must not import {rooms - allowed}"


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.parent == HOUSE / "cli"], ids=lambda path: path.name
)
def test_commands_import_heavy_things_inside_functions(path):
    for name in imported(on_loading(ast.parse(path.read_text(encoding="utf-8")))):
        top = name.split(".")[0]
        assert (
            top in sys.stdlib_module_names or top in LIGHT or ".".join(name.split(".")[:2]) in LIGHT
        ), name
