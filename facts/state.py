"""A host's whole state at one moment, each part in its own words or Unknown."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from facts.adopt import adoptable
from facts.adopt.adoptable import Adoptable
from facts.clocks import cpufreq
from facts.clocks.cpufreq import Cpufreq
from facts.engines import containers, outside
from facts.engines.containers import Containers
from facts.engines.outside import Outsider
from facts.look import discovered, machine
from facts.look.discovered import Discovered
from facts.look.machine import Gpus, Machine
from facts.memory import holders, memory, oom, sysctl
from facts.memory.holders import Holders
from facts.memory.memory import Memory
from facts.memory.oom import Oom
from facts.memory.sysctl import Sysctl
from facts.model import images, shards
from facts.model.images import Images
from facts.model.shards import Leftover, Shards
from facts.network import fabric, listeners, reach
from facts.network.fabric import Fabric
from facts.network.listeners import Listeners
from facts.network.reach import Reach
from facts.run import journal, lease
from facts.run.journal import Entry
from facts.run.lease import Lease
from facts.run.unknown import Section, Unknown, parsed
from facts.systemd import boot, logind, maintenance, services, userunits
from facts.systemd.boot import Boot
from facts.systemd.logind import Logind
from facts.systemd.maintenance import Maintenance
from facts.systemd.services import Services
from facts.systemd.userunits import UserUnits
from facts.watchdogs import crontab, starters
from facts.watchdogs.crontab import Crontabs
from facts.watchdogs.starters import Starters


@dataclass(frozen=True)
class OwnFile:
    data: bytes
    mode: int


def files_of(section: Mapping[str, Any]) -> dict[str, OwnFile | None]:
    return {
        path: None if one is None else OwnFile(base64.b64decode(one["b64"]), one["mode"])
        for path, one in section.items()
    }


def part(parse: Callable[[Section], Any], when_asked: bool = False) -> Any:
    """A field of HostState: how its section is parsed; when_asked: None unless a job asks."""
    return field(metadata={"parse": parse, "when_asked": when_asked})


@dataclass(frozen=True)
class HostState:
    """One host as it was at one moment; each part read or Unknown, None when not asked for.

    A part is named here, and in files/bin/spark_host/snapshot.py by the same name.
    """

    lease: Lease | Unknown = part(lease.parse)
    boot: Boot | Unknown = part(boot.parse)
    services: Services | Unknown = part(services.parse)
    cpufreq: Cpufreq | Unknown = part(cpufreq.parse)
    fabric: Fabric | Unknown = part(fabric.parse)
    memory: Memory | Unknown = part(memory.parse)
    sysctl: Sysctl | Unknown = part(sysctl.parse)
    logind: Logind | Unknown = part(logind.parse)
    oom: Oom | Unknown = part(oom.parse)
    listeners: Listeners | Unknown = part(listeners.parse)
    crontab: Crontabs | Unknown = part(crontab.parse)
    starters: Starters | Unknown = part(starters.parse)
    maintenance: Maintenance | Unknown = part(maintenance.parse)
    reach: Reach | Unknown = part(reach.parse)
    userunits: UserUnits | Unknown = part(userunits.parse)
    containers: Containers | Unknown = part(containers.parse)
    outside: tuple[Outsider, ...] | Unknown = part(outside.parse)
    images: Images | Unknown = part(images.parse)
    leftovers: Mapping[str, tuple[Leftover, ...]] | Unknown | None = part(
        shards.leftovers, when_asked=True
    )
    shards: Shards | Unknown = part(shards.parse)
    files: Mapping[str, OwnFile | None] | Unknown = part(files_of)
    program: str | Unknown | None = part(lambda section: section["sha256"])
    record: Mapping[str, Any] | Unknown = part(dict)
    holders: Holders | Unknown | None = part(holders.parse, when_asked=True)
    adoptable: Adoptable | Unknown | None = part(adoptable.parse, when_asked=True)
    gpu: Gpus | Unknown | None = part(machine.gpus, when_asked=True)
    machine: Machine | Unknown | None = part(machine.parse, when_asked=True)
    discovered: Discovered | Unknown | None = part(discovered.parse, when_asked=True)
    journal: tuple[Entry, ...] | Unknown | None = part(journal.parse, when_asked=True)

    def has(self, path: str, data: bytes, mode: int = 0o644) -> bool:
        """Is a file of ours there, byte for byte?"""
        return not isinstance(self.files, Unknown) and self.files.get(path) == OwnFile(data, mode)

    def unknowns(self) -> dict[str, Unknown]:
        """Part -> Unknown, for everything that could not be read."""
        return {n: v for n, v in vars(self).items() if isinstance(v, Unknown)}


def state_of(answer: object) -> HostState:
    """Parse one snapshot document; a part that is missing or odd becomes Unknown."""
    said = answer if isinstance(answer, Mapping) else {}
    read: dict[str, Any] = {
        one.name: parsed(said.get(one.name), one.metadata["parse"])
        if one.name in said or not one.metadata["when_asked"]
        else None
        for one in fields(HostState)
    }
    return HostState(**read)


def unread(reason: str) -> HostState:
    """A host of which nothing is known."""
    return state_of({name: {"unknown": reason} for name in (one.name for one in fields(HostState))})
