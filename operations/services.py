"""Services that must be down for good: stopped, and with nothing left that can start them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation

from facts.services import NOT_STARTED_AT_BOOT, Services, Unit
from facts.unknown import Unknown
from operations.job import Commands, Job, refuse
from operations.journal import quiet


@dataclass(frozen=True)
class Changes:
    """Canonical unit names, each list in the order in which to act."""

    stop: tuple[str, ...]
    disable: tuple[str, ...]
    mask: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.stop or self.disable or self.mask)


def startable_without_enabling(unit: Unit) -> bool:
    """Static and indirect units have no switch of their own: D-Bus, an alias link or another unit
    starts them, so only a mask keeps them down (colord is static, gdm is indirect). The states
    that end in -runtime have one that the next boot forgets."""
    return unit.file_state not in ("enabled", "linked")


def plan(services: Services, names: Sequence[str]) -> Changes:
    """What is still to do; empty when every unit of `names` is absent or down for good.

    Triggers (sockets, paths, timers) go first, or they would start the service again.
    """
    stop: list[str] = []
    disable: list[str] = []
    mask: list[str] = []
    for unit in (services.asked[name] for name in names):
        if unit.absent:
            continue
        triggers = [services.units[t] for t in unit.triggers if t in services.units]
        for one in (*triggers, unit):
            if not one.asleep and one.name not in stop:
                stop.append(one.name)
            if one.file_state in NOT_STARTED_AT_BOOT or one.absent:
                continue
            target = mask if startable_without_enabling(one) else disable
            if one.name not in target:
                target.append(one.name)
    return Changes(tuple(stop), tuple(disable), tuple(mask))


def unsettled(services: Services, asked: Sequence[str]) -> list[str]:
    """One sentence for each unit that is not down for good."""
    todo = plan(services, asked)
    names = dict.fromkeys((*todo.stop, *todo.disable, *todo.mask))
    return [f"{n} is {services.units[n].active}/{services.units[n].file_state}" for n in names]


def command(todo: Changes) -> str:
    """The changes as one call: the host keeps states and links in its journal before each."""
    return quiet("units", "down", json.dumps(vars(todo)))


@operation()
def down_for_good(job: Job, rank: int, names: Sequence[str]) -> Commands:
    """
    Stop units with their sockets, paths and timers, and keep them from starting again.

    + job: the run (its question has the units)
    + rank: of this host
    + names: the units, e.g. ``cups.service``

    Absent units are fine. Undo: the states and links found are in the journal.
    """
    host = job.hosts[rank]
    found = job.read(host).services
    if isinstance(found, Unknown):
        yield refuse(job, f"{host.name}: services {found}")
        return
    todo = plan(found, names)
    if not todo:
        host.noop("the desktop services are down")
        return
    yield StringCommand(command(todo))
    job.changed(host)
    now = job.read(host).services
    left = [str(now)] if isinstance(now, Unknown) else unsettled(now, names)
    if left:
        yield refuse(job, f"{host.name}: still not down for good: {', '.join(left)}")
