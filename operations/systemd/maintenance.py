"""Updates held while a model is served, and let go again on request; nothing is ever upgraded."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from facts.run.journal import Entry
from facts.run.unknown import Unknown
from facts.state import HostState
from facts.systemd.maintenance import Maintenance
from facts.systemd.services import Services, Unit, drop_in
from operations.run.findings import Finding, Look, Wanted
from operations.run.job import Commands, Here, Job, fail, step
from operations.run.journal import announce, journal_of, put, quiet
from operations.run.program import missing
from operations.systemd import services

NEEDRESTART = "/etc/needrestart/conf.d/zz-spark-converge.conf"
NEEDRESTART_TEXT = (
    b"# Written by spark-converge: after an upgrade, list what should be restarted, restart nothing"
    b"\n# (dockerd would take the engine down). Its undo or rearm_maintenance removes this file.\n"
    b"$nrconf{restart} = 'l';\n"
)
WAIT_S = 600
LOOK_EVERY_S = 5
TELL_EVERY_S = 60
AT_WORK = ("activating", "deactivating", "reloading")


def runs(unit: Unit) -> bool:
    """Is a run of a oneshot or the like in progress? A daemon that idles is none."""
    return unit.active in AT_WORK


def at_work(state: HostState, names: Sequence[str]) -> list[str]:
    """A sentence for each run that must not be cut off: units, and holders of package locks."""
    found = state.services
    if not isinstance(found, Services) or not isinstance(state.maintenance, Maintenance):
        return []
    held = [found.asked[name] for name in names]
    started = [found.units[t] for one in held for t in one.triggered if t in found.units]
    busy = [one for one in held if runs(one)]
    busy += [one for one in started if runs(one) or (one.active, one.sub) == ("active", "running")]
    units = [f"{one.name} is {one.active}" for one in dict.fromkeys(busy)]
    return [*units, *state.maintenance.busy]


def needrestart_missing(state: HostState) -> bool:
    """Is needrestart there without our file? It would restart dockerd after an upgrade."""
    if not isinstance(state.maintenance, Maintenance) or isinstance(state.files, Unknown):
        return False
    return state.maintenance.needrestart and not state.has(NEEDRESTART, NEEDRESTART_TEXT)


def unsettled(state: HostState, names: Sequence[str]) -> list[str]:
    """What is not held yet, a sentence each; what could not be read is none of it."""
    found = state.services
    left = services.unsettled(found, names) if isinstance(found, Services) else []
    return left + ([f"{NEEDRESTART} is missing"] if needrestart_missing(state) else [])


def unread(state: HostState) -> list[str]:
    parts = {"services": state.services, "maintenance": state.maintenance, "files": state.files}
    return [f"{name} {part}" for name, part in parts.items() if isinstance(part, Unknown)]


def assess(look: Look) -> Iterator[Finding]:
    """What would change a driver or restart dockerd by itself."""
    state, names = look.state, look.settings.maintenance_held
    yield from services.assess_units("maintenance", "held", state.services, names)
    line = Wanted("maintenance", "needrestart", "restarts nothing")
    for part in (state.maintenance, state.files):
        if isinstance(part, Unknown):
            yield line.unread(part)
            return
    gone = isinstance(state.maintenance, Maintenance) and not state.maintenance.needrestart
    missing = needrestart_missing(state)
    told = "absent" if gone else "restarts services as it likes" if missing else line.wanted
    yield line.judged(told, not missing)


def _wait(state: State, host: Host, job: Job, names: Sequence[str]) -> bool:
    """Wait for the end of what runs; never end it: a half-written package or firmware is worse."""
    began, told = time.monotonic(), -float(TELL_EVERY_S)
    while True:
        job.changed(host)
        now = job.read(host)
        busy = unread(now) or at_work(now, names)
        waited_s = time.monotonic() - began
        if not busy:
            return True
        if waited_s > WAIT_S:
            return fail(
                state, host, job,
                f"{host.name}: {'; '.join(busy)} still after {WAIT_S // 60} minutes; an "
                "update is never cut off from here: let it end, then run this again",
            )  # fmt: skip
        if waited_s - told >= TELL_EVERY_S:
            told = waited_s
            host.log(f"waiting ({waited_s:.0f} s): {'; '.join(busy)}", log_func=logger.info)
        time.sleep(LOOK_EVERY_S)


@step
def held(here: Here) -> Commands:
    """
    Hold everything that upgrades packages, drivers or firmware by itself; nothing is upgraded.

    + here: this host's share of the run

    A run in progress is awaited, up to ten minutes, then named and refused; it is never ended.
    Undo: states, links and the file are in the journal; rearm_maintenance.py gives just these back.
    """
    names = here.settings.maintenance_held
    state = here.read()
    unknown = unread(state)
    if unknown:
        yield here.refuse(f"{'; '.join(unknown)}")
        return
    busy, left = at_work(state, names), unsettled(state, names)
    if not busy and not left:
        here.noop("updates are held")
        return
    if busy and not here.executing:
        here.warn(f"would wait for: {'; '.join(busy)}")
    if busy:
        yield FunctionCommand(_wait, (here.job, names), {})
    if needrestart_missing(here.read()):
        yield put(NEEDRESTART, NEEDRESTART_TEXT, 0o644)
        here.changed()
    for _ in range(2):  # a static unit shows only after its disable that it needs a mask
        found = here.read().services
        todo = services.plan(found, names) if isinstance(found, Services) else None
        if not todo:
            break
        yield StringCommand(services.command(todo))
        here.changed()
    state = here.read()
    if at_work(state, names):  # one that began just before its timer was held
        yield FunctionCommand(_wait, (here.job, names), {})
        state = here.read()
    left = unread(state) or unsettled(state, names)
    if left:
        yield here.refuse(f"updates are not held: {', '.join(left)}")


def held_units(found: Services, entries: Sequence[Entry], names: Sequence[str]) -> list[str]:
    """The units by their own names, each with the timers, paths and sockets that went down with it.

    Of a trigger that is held the unit itself shows nothing any more, so the journal is asked too.
    """
    units = []
    for name in names:
        one = found.asked[name]
        units += [near.name for near in services.with_triggers(found, one)]
        aliases = {name, one.name, *one.names}
        units += [e.name.removeprefix("unit ") for e in entries if aliases & set(e.starts)]
    return list(dict.fromkeys(units))


@step
def rearmed(here: Here) -> Commands:
    """
    Give the held updates back as they were found, and nothing else.

    + here: this host's share of the run
    """
    names = here.settings.maintenance_held
    state = here.read()
    if not isinstance(state.journal, tuple) or not isinstance(state.services, Services):
        why = state.services if isinstance(state.journal, tuple) else state.journal
        yield here.refuse(f"what is held is {why}")
        return
    units = held_units(state.services, state.journal, names)
    ours = {NEEDRESTART, *(f"unit {name}" for name in units), *map(drop_in, units)}
    entries = [e for e in journal_of(state) if e.name in ours and e.verdict == "restore"]
    if not entries:
        here.noop("no update is held by this project")
        return
    if not here.executing:
        announce(here.host, entries, ())
    yield from missing(state, here.job.known)
    asked = json.dumps({"units": units, "files": [NEEDRESTART]})
    yield StringCommand(quiet("rearm", asked))
    here.changed()
    left = [e.name for e in journal_of(here.read()) if e.name in ours and e.verdict == "restore"]
    if left:
        yield here.refuse(f"still held: {', '.join(left)}")
