"""Services that must be down for good: stopped, and with nothing left that can start them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyinfra.api.command import StringCommand

from facts.run.unknown import Unknown
from facts.systemd.services import Services, Unit
from operations.run.findings import Finding, Look, Wanted
from operations.run.job import Commands, Here, step
from operations.run.journal import quiet


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


def plan(services: Services, names: Sequence[str], together: Sequence[str] = ()) -> Changes:
    """What is still to do; empty when every unit of `names` is absent or down for good.

    together: names that go down beside these, and so start nothing

    Triggers (sockets, paths, timers) go first, or they would start the service again. A unit that
    something else still starts when it is disabled (a vendor's link, another unit, D-Bus) is
    masked, unless that other unit goes down too. A unit that cannot be masked, since its own file
    lies in /etc/systemd/system, is in `mask` as well: the host puts a drop-in on it instead.
    """
    stop: list[str] = []
    disable: list[str] = []
    mask: list[str] = []
    todo = [one for name in names for one in with_triggers(services, services.asked[name])]
    beside = [one for t in together for one in with_triggers(services, services.asked[t])]
    going = {name for one in (*todo, *beside) for name in one.names}
    for one in todo:
        if one.absent:
            continue
        if not one.asleep and one.name not in stop:
            stop.append(one.name)
        others = [starter for starter in one.starters if starter not in going]
        kept_down = one.held or one.file_state == "masked"
        if kept_down or (one.file_state == "disabled" and not others):
            continue
        target = mask if others or startable_without_enabling(one) else disable
        if one.name not in target:
            target.append(one.name)
    return Changes(tuple(stop), tuple(disable), tuple(mask))


def with_triggers(services: Services, unit: Unit) -> list[Unit]:
    """A unit after everything that triggers it; only itself when it is absent."""
    if unit.absent:
        return [unit]
    return [*(services.units[t] for t in unit.triggers if t in services.units), unit]


def unsettled(services: Services, asked: Sequence[str], together: Sequence[str] = ()) -> list[str]:
    """One sentence for each unit that is not down for good; together: as for plan."""
    todo = plan(services, asked, together)
    return [
        f"{unit.name} is {unit.active}/{unit.file_state or 'no file'}"
        + (f", started by {', '.join(unit.starters)}" if unit.starters and unit.asleep else "")
        for unit in (
            services.units[name] for name in dict.fromkeys((*todo.stop, *todo.disable, *todo.mask))
        )
    ]


def described(unit: Unit) -> str:
    if unit.absent:
        return "absent"
    held = ", held down by a drop-in" if unit.held else ""
    return f"{unit.name} {unit.active}/{unit.file_state or 'no file'}{held}"


def command(todo: Changes) -> str:
    """The changes as one call: the host keeps states and links in its journal before each."""
    return quiet("units", "down", json.dumps(vars(todo)))


def assess_units(
    part: str, wanted: str, found: Services | Unknown, names: Sequence[str]
) -> Iterator[Finding]:
    """A line for each unit with its sockets, paths and timers, as `plan` sees it among the rest."""
    for asked in names:
        line = Wanted(part, asked, wanted)
        if isinstance(found, Unknown):
            yield line.unread(found)
        elif not {*names} <= {*found.asked}:
            yield line.unread("not in the answer")
        else:
            left = unsettled(found, [asked], together=names)
            yield line.judged("; ".join(left) or described(found.asked[asked]), not left)


def assess(look: Look) -> Iterator[Finding]:
    names = look.settings.services_down
    return assess_units("services", "down for good", look.state.services, names)


@step
def down_for_good(here: Here) -> Commands:
    """
    Stop units with their sockets, paths and timers, and keep them from starting again.

    + here: this host's share of the run

    Absent units are fine. Undo: the states and links found are in the journal.
    """
    names = here.settings.services_down
    found = here.known(here.read().services, "services")
    if not plan(found, names):
        here.noop("the desktop services are down")
        return
    # What `disable` leaves of a unit shows only then: static or indirect ones need a mask as well.
    for _ in range(2):
        yield StringCommand(command(plan(found, names)))
        here.changed()
        found = here.known(here.read().services, "services")
        left = unsettled(found, names)
        if not left:
            return
    yield here.refuse(f"still not down for good: {', '.join(left)}")
