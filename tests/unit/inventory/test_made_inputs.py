"""Thousands of made inputs for everything that is read from a file or an answer.

Whatever comes, each ends in a value or in lines: no traceback, no hang over a second, and no line
that a terminal would obey. The seed of an input that fails is its number.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from facts.engines import containers
from facts.run.unknown import parsed
from inventory import schema
from inventory.schema import InventoryError
from stacks import definition
from stacks.definition import StackError
from tests.unit.inventory.test_inventory import PAIR
from tests.unit.on_host import module
from tests.unit.stacks.test_stacks_definition import lock

journal, shards = module("run.journal"), module("model.shards")
STACK = (definition.FOLDER / "lab.yaml").read_text(encoding="utf-8")
INSPECT = json.dumps(
    {
        "installed": True,
        "podman": [{"name": "a", "image": "b", "user": "root"}],
        "containers": [
            {
                **{"Id": "0" * 64, "Name": "/a", "RestartCount": 0, "Image": "x", "Created": "y"},
                "State": {"Status": "running", "Running": True, "ExitCode": 0, "StartedAt": "z"},
                **{"Reference": "a/b:c", "Labels": {"k": "v"}, "Published": [1], "Restart": "no"},
            }
        ],
    }
)
INDEX = json.dumps({"metadata": {"total_size": 1}, "weight_map": {"a.weight": "model.safetensors"}})
ENTRY = json.dumps({"kind": "file", "subject": "/etc/x", "value": "eA==", "mode": 420, "ours": []})
ODD = (
    *(
        "",
        "null",
        "true",
        "1e999",
        "-0",
        "0x_",
        "2026-13-45",
        "!!int abc",
        "*a",
        "&a [*a]",
        "[",
        "]",
    ),
    *("{", "}", "'", '"', ":", "- ", "\n", "\t", "\x00", "\x1b[31m", '"\\x1b]0;m\\x07"', "\ufeff"),
    *(
        "\u202e",
        "\ud7ff",
        "{{",
        "{{ 9**9 }}",
        "(a+)+$",
        "<<: *a",
        "%",
        "|",
        ">",
        "?",
        "..",
        "~nouser",
    ),
    *("[" * 3000, "9" * 5000, "x" * 70_000, "a: " * 200, "&b {<<: *b}", ".nan", "127.1", "::1%e"),
)


def made(base: str, number: int) -> str:
    """The base with a few of its parts changed, moved, doubled or replaced."""
    dice = random.Random(number)  # noqa: S311 - made inputs, and the same ones every time
    text = base
    for _ in range(dice.choice((1, 1, 2, 3, 8))):
        words = re.split(r"([\s:,\[\]{}\"']+)", text)
        at, other = dice.randrange(len(words)), dice.randrange(len(words))
        kind = dice.randrange(6)
        if kind == 0:
            words[at] = dice.choice(ODD)
        elif kind == 1:
            words[at] += dice.choice(ODD)
        elif kind == 2:
            words[at], words[other] = words[other], words[at]
        elif kind == 3:
            del words[min(at, other) : max(at, other)]
        elif kind == 4:
            words[at] = "".join(chr(dice.randrange(1, 0xD7FF)) for _ in range(dice.randrange(9)))
        else:
            words[at:at] = words[min(at, other) : max(at, other)]
        text = "".join(words)[:200_000]
    return text


def owner(text: str, folder: Path) -> list[str]:
    path = folder / "pair.yaml"
    path.write_text(text, encoding="utf-8")
    try:
        schema.load(path)
    except InventoryError as error:
        return error.lines
    return []


def stack(text: str, folder: Path) -> list[str]:
    return _stack(folder, text, lock("lab"))


def locked(text: str, folder: Path) -> list[str]:
    return _stack(folder, STACK, text)


def _stack(folder: Path, text: str, its_lock: str) -> list[str]:
    (folder / "lab.yaml").write_text(text, encoding="utf-8")
    (folder / "lab.lock.yaml").write_text(its_lock, encoding="utf-8")
    try:
        definition.load("lab")
    except StackError as error:
        return error.lines
    return []


def inspected(text: str, _: Path) -> list[str]:
    try:
        section = json.loads(text)
    except (ValueError, RecursionError):
        return []
    # A reason may quote what was found; whoever prints it asks str() of it.
    found = parsed(section, containers.parse)
    return [] if isinstance(found, containers.Containers) else [repr(str(found))]


def indexed(text: str, folder: Path) -> list[str]:
    path = folder / "model.safetensors.index.json"
    path.write_text(text, encoding="utf-8")
    said = shards.index_fault(str(path), {"model.safetensors"})
    return [said] if said else []


def kept(text: str, folder: Path) -> list[str]:
    place = folder / "journal" / "file"
    place.mkdir(parents=True, exist_ok=True)
    (place / "00.json").write_text(text, encoding="utf-8")
    return [repr(json.dumps(journal.entries(), default=str))[:100]]


KINDS: dict[str, tuple[Callable[[str, Path], list[str]], str]] = {
    "owner's file": (owner, PAIR),
    "stack": (stack, STACK),
    "lock": (locked, lock("lab")),
    "inspect": (inspected, INSPECT),
    "index": (indexed, INDEX),
    "journal": (kept, ENTRY),
}


def tried(kind: str, count: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge, base = KINDS[kind]
    monkeypatch.setattr(definition, "FOLDER", folder)
    monkeypatch.setattr(journal, "ROOT", str(folder / "journal"))
    for number in range(count):
        text = made(base, number)
        began = time.process_time()
        lines = judge(text, folder)
        assert time.process_time() - began < 1, f"input {number} of {kind}"
        for line in lines:
            assert line.isprintable(), f"input {number} of {kind}"


@pytest.mark.parametrize("kind", KINDS)
def test_hundreds_of_made_inputs_end_in_lines(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried(kind, 84, tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_twenty_thousand_made_inputs_end_in_lines(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried(kind, 3334, tmp_path, monkeypatch)


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_made_inputs_begin_from_is_right(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, base = KINDS[kind]
    monkeypatch.setattr(definition, "FOLDER", tmp_path)
    monkeypatch.setattr(journal, "ROOT", str(tmp_path / "journal"))
    assert isinstance(yaml.safe_load(base), dict)
    if kind in {"stack", "lock", "index"}:
        assert judge(base, tmp_path) == []
