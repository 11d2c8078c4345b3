"""The table of rooms: which room may import what. Read from the source, so that imports inside functions count too."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("core", "probe", "wire", "agent", "launcher", "replay", "tui")
OTHER_ROOMS = {
    "core": set(),
    "probe": set(),
    "wire": {"core"},
    "agent": {"core", "wire"},
    "launcher": {"core", "wire"},
    "replay": {"core"},
    "tui": {"core", "wire", "agent", "launcher", "replay"},
}
# The ring's layout is the contract between the probe and the agent.
EXCEPTIONS = {"agent": {"distmon.probe.ring"}}
# Rooms whose third-party packages are limited. What loads into a training process, or drives its Horovod, finds these frameworks
# there: it may import them late, once the training itself has, and needs none of them to be loaded.
THIRD_PARTY = {"core": {"msgspec"}}
FRAMEWORKS = {"horovod", "keras", "numpy", "tensorflow", "torch"}
STANDALONE = ("probe", "launcher/driver")


def sources(folder: str) -> list[Path]:
    """Python files of a folder; those made by builds are not there."""
    return sorted((ROOT / folder).rglob("*.py"))


def imports(tree: ast.AST) -> Iterator[str]:
    """Full names of all imported modules, wherever they stand in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def broken_rules(room: str, source: str) -> list[str]:
    """Imports that the room's row of the table does not allow."""
    allowed = {f"distmon.{name}" for name in {room, *OTHER_ROOMS[room]}}
    broken = []
    for name in imports(ast.parse(source)):
        top = name.partition(".")[0]
        if top == "distmon":
            excepted = any(name == module or name.startswith(module + ".") for module in EXCEPTIONS.get(room, ()))
            if ".".join(name.split(".")[:2]) not in allowed and not excepted:
                broken.append(name)
        elif top in ROOMS:
            broken.append(f"{name} (is distmon.{name})")
        elif room in THIRD_PARTY and top not in sys.stdlib_module_names | THIRD_PARTY[room]:
            broken.append(name)
    return broken


def not_standalone(source: str) -> list[str]:
    """Imports that are neither the standard library nor, inside a function, a framework that the training brings."""
    tree = ast.parse(source)
    late = {id(node) for outer in ast.walk(tree) if isinstance(outer, ast.FunctionDef) for node in ast.walk(outer)}
    broken = []
    for node in ast.walk(tree):
        allowed = sys.stdlib_module_names | (FRAMEWORKS if id(node) in late else set())
        if isinstance(node, ast.Import | ast.ImportFrom):
            alone = ast.Module(body=[node], type_ignores=[])
            broken += [name for name in imports(alone) if name.partition(".")[0] not in allowed]
    return broken


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_its_row_allows(room: str) -> None:
    broken = {str(path.relative_to(ROOT)): broken_rules(room, path.read_text()) for path in sources(room)}
    assert {path: names for path, names in broken.items() if names} == {}


@pytest.mark.parametrize("folder", STANDALONE)
def test_what_runs_under_the_trainings_python_needs_the_standard_library_alone(folder: str) -> None:
    broken = {str(path.relative_to(ROOT)): not_standalone(path.read_text()) for path in sources(folder)}
    # The ring is read by the agent under its full name, and the probe loads itself by path: neither imports distmon.
    assert {path: names for path, names in broken.items() if names} == {}


@pytest.mark.parametrize("folder", STANDALONE)
def test_what_runs_under_the_trainings_python_parses_as_python_3_8(folder: str) -> None:
    for path in sources(folder):
        ast.parse(path.read_text(), filename=str(path), feature_version=(3, 8))


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("core", "import zmq"),
        ("core", "def late():\n    import distmon.wire.frames"),
        ("wire", "from distmon.replay import session"),
        ("agent", "from distmon.probe import hooks"),
        ("launcher", "from distmon import tui"),
        ("tui", "import distmon.probe.ring"),
        ("tui", "from core import events"),
    ],
)
def test_the_rule_sees_a_forbidden_import(room: str, source: str) -> None:
    assert broken_rules(room, source)


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("core", "import msgspec\nimport json"),
        ("agent", "from distmon.probe.ring import RingReader"),
        ("agent", "from distmon.probe import ring"),
        ("tui", "from distmon.launcher.runner import Runner"),
    ],
)
def test_the_rule_lets_an_allowed_import_pass(room: str, source: str) -> None:
    assert broken_rules(room, source) == []


def test_a_framework_is_allowed_late_only() -> None:
    assert not_standalone("import torch") == ["torch"]
    assert not_standalone("def hook():\n    import torch\n    import json") == []
    assert not_standalone("def hook():\n    import msgspec") == ["msgspec"]
