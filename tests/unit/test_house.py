"""The floor plan: the same rooms on both sides of the wire, arrows one way, no crowded corridor."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOST_SIDE = "files/bin/spark_host"
SIDES = ("facts", "operations", HOST_SIDE)
# What may stand side by side before nobody finds a thing any more; __init__.py does not count.
MOST = 13


def modules(folder: Path) -> list[Path]:
    return [p for p in sorted(folder.rglob("*.py")) if "__pycache__" not in p.parts]


def imports(path: Path) -> Iterator[str]:
    """Dotted names that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{one.name}" for one in node.names)


def arrows(side: str) -> dict[str, set[str]]:
    """{room: the other rooms of its side that it imports}."""
    top = ROOT / side
    rooms = {p.name for p in top.iterdir() if (p / "__init__.py").is_file()}
    found: dict[str, set[str]] = {room: set() for room in rooms}
    for room in rooms:
        for path in modules(top / room):
            for name in imports(path):
                words = name.split(".")
                if side != HOST_SIDE:
                    if words[0] != side:
                        continue
                    words = words[1:]
                if words and words[0] in rooms - {room}:
                    found[room].add(words[0])
    return found


def reached(room: str, among: dict[str, set[str]]) -> set[str]:
    todo, seen = [*among[room]], set[str]()
    while todo:
        one = todo.pop()
        if one not in seen:
            seen.add(one)
            todo += among[one]
    return seen


@pytest.mark.parametrize("side", [*SIDES, "lab"])
def test_no_room_needs_one_that_needs_it(side: str) -> None:
    among = arrows(side)
    assert {room for room in among if room in reached(room, among)} == set()


def test_a_room_has_the_same_name_on_every_side_that_has_it() -> None:
    """What is read, judged and changed of one subsystem is found by one word."""
    known = set(arrows("operations"))
    assert set(arrows("facts")) <= known
    assert set(arrows(HOST_SIDE)) <= known


@pytest.mark.parametrize("top", ["facts", "operations", "files", "stacks", "inventory", "lab"])
def test_no_corridor_is_crowded(top: str) -> None:
    folders = [ROOT / top, *(p for p in (ROOT / top).rglob("*") if p.is_dir())]
    crowded = {
        str(folder.relative_to(ROOT)): len(doors)
        for folder in folders
        if len(doors := [p for p in folder.iterdir() if not p.name.startswith(("__", "."))]) > MOST
    }
    assert crowded == {}


@pytest.mark.parametrize(
    ("lower", "higher"),
    [("facts", "operations"), ("facts", "deploys"), ("stacks", "operations"),
     ("inventory", "operations"), ("inventory", "stacks"), ("operations", "deploys"),
     ("gates", "operations"), ("lab", "deploys"), ("lab", "operations")],
)  # fmt: skip
def test_no_arrow_between_the_top_folders_runs_back_up(lower: str, higher: str) -> None:
    back = {
        f"{path.relative_to(ROOT)} -> {name}"
        for path in modules(ROOT / lower)
        for name in imports(path)
        if name.split(".")[0] == higher
    }
    assert back == set()
