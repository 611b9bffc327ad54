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
