"""Looking at a host with ordinary commands."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from testinfra.host import Host

UNIT_PROPERTIES = "Id,LoadState,ActiveState,UnitFileState,TriggeredBy"


def read(host: Host, script: str) -> str:
    """What a read-only shell script prints; a test that cannot look fails, it never passes."""
    done = host.run("sh -c %s", script)
    if done.rc != 0:
        said = (done.stderr or done.stdout).strip()[-300:]
        pytest.fail(f"{script!r} ended with status {done.rc}: {said}", pytrace=False)
    return str(done.stdout)


@dataclass(frozen=True)
class Unit:
    """A unit as systemd has it, under its own name; triggers: its sockets, paths and timers."""

    name: str
    load: str
    active: str
    file: str
    triggers: tuple[str, ...]


@cache
def units(host: Host, names: tuple[str, ...]) -> dict[str, Unit]:
    """These units by the names asked for, and everything that triggers them, in one reading."""
    show = f"systemctl show --property={UNIT_PROPERTIES} --"
    script = (
        f"{show} {shlex.join(names)}; echo; "
        f"for t in $(systemctl show --property=TriggeredBy --value -- {shlex.join(names)}); "
        f"do {show} $t; echo; done"
    )
    blocks = [block for block in read(host, script).split("\n\n") if block.strip()]
    found = [_unit(block) for block in blocks]
    return dict(zip(names, found, strict=False)) | {unit.name: unit for unit in found[len(names) :]}


def _unit(block: str) -> Unit:
    said = dict(line.split("=", 1) for line in block.strip().splitlines())
    return Unit(
        said["Id"],
        said["LoadState"],
        said["ActiveState"],
        said.get("UnitFileState", ""),
        tuple(said.get("TriggeredBy", "").split()),
    )


def cannot_start(host: Host, one: Unit) -> bool:
    """Disabled or masked; or, where the owner's own file lies in a mask's place, held down."""
    return one.file in ("disabled", "masked") or held_down(host, one)


def held_down(host: Host, one: Unit) -> bool:
    """Does the unit, as systemd has it now, bear a condition that never holds?"""
    name = shlex.quote(one.name)
    stale = read(host, f"systemctl show --property=NeedDaemonReload --value -- {name}").strip()
    return stale == "no" and any(
        not host.file(path).exists
        for path in demanded(read(host, f"systemctl cat -- {name} 2>/dev/null || true"))
        if path.startswith("/nonexistent/")
    )


def demanded(text: str) -> list[str]:
    """The paths without which a unit of this text does not start: systemd.unit(5). An empty
    condition of any kind takes back all before it."""
    paths: list[str] = []
    section = ""
    for line in map(str.strip, text.splitlines()):
        key, _, value = (word.strip() for word in line.partition("="))
        if line.startswith("["):
            section = line
        elif section == "[Unit]" and key.startswith("Condition") and not value:
            paths = []
        elif (section, key) == ("[Unit]", "ConditionPathExists") and value.startswith("/"):
            paths.append(value)
    return paths


@dataclass(frozen=True)
class Containers:
    """names: of all containers, stopped ones included; running: their `docker inspect`."""

    names: tuple[str, ...]
    running: tuple[dict[str, Any], ...]

    @property
    def one(self) -> dict[str, Any]:
        """The only one that runs."""
        assert len(self.running) == 1, f"one running container expected, found: {self.names}"
        return self.running[0]


@cache
def containers(host: Host) -> Containers:
    """The containers of a host, in one reading."""
    text = read(
        host,
        "docker ps --all --format '{{.Names}}'; echo; "
        'ids=$(docker ps --quiet); if [ -n "$ids" ]; then docker inspect $ids; else echo []; fi',
    )
    names, _, documents = text.partition("[")
    return Containers(tuple(names.split()), tuple(json.loads("[" + documents)))
