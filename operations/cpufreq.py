"""One governor on every CPU frequency policy, now and after every boot, and no other owner."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pyinfra import logger
from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation

from facts.cpufreq import Cpufreq
from facts.services import Services
from facts.snapshot import HostState
from facts.unknown import Unknown
from operations import services
from operations.job import Commands, Job, refuse
from operations.journal import put, quiet, setting

UNIT = "spark-converge-governor.service"
UNIT_PATH = f"/etc/systemd/system/{UNIT}"
SYSFS = "/sys/devices/system/cpu/cpufreq"
# systemd refuses to mask a unit whose own file lies where the mask would have to be.
LOCAL_UNITS = "/etc/systemd/system/"


def unit_text(want: str) -> bytes:
    """The boot unit for this governor."""
    template = (Path(__file__).parents[1] / "files" / "units" / UNIT).read_bytes()
    return template.replace(b"@GOVERNOR@", want.encode())


def wrong_policies(found: Cpufreq, want: str) -> list[str]:
    """Policies under another governor; one whose CPUs are all offline cannot be set and waits."""
    return [p.name for p in found.policies if not p.offline and p.governor != want]


def not_offered(found: Cpufreq, want: str) -> list[str]:
    """A sentence for each policy that does not offer the governor."""
    return [
        f"{p.name} offers {' '.join(p.offered) or 'nothing'}, not {want}"
        for p in found.policies
        if not p.offline and want not in p.offered
    ]


def other_owners(state: HostState, names: Sequence[str]) -> Services | Unknown:
    """All units that set a governor: the known ones, then those found by their commands."""
    if isinstance(state.services, Unknown):
        return state.services
    if isinstance(state.cpufreq, Unknown):
        return state.cpufreq
    found = state.cpufreq.writers
    asked = {name: unit for name, unit in state.services.asked.items() if name in names}
    known = {unit.name for unit in asked.values()}
    asked |= {name: unit for name, unit in found.asked.items() if unit.name not in known}
    return Services(asked, {**found.units, **state.services.units})


def owner_changes(found: Services) -> services.Changes:
    """What is still to do until no other owner can start.

    A unit of the owner's own that is static cannot be masked; once its timers and sockets are down,
    and when no other unit wants it, it is left at that.
    """
    todo = services.plan(found, list(found.asked))
    own = {u.name for u in found.units.values() if u.path.startswith(LOCAL_UNITS)}
    idle = {n for n in own if found.units[n].file_state == "static" and not found.units[n].starters}
    return replace(todo, mask=tuple(name for name in todo.mask if name not in idle))


def owners_left(found: Services) -> list[str]:
    """One phrase for each other owner that runs or could start."""
    todo = owner_changes(found)
    names = dict.fromkeys((*todo.stop, *todo.disable, *todo.mask))
    return [f"{n} is {found.units[n].active}/{found.units[n].file_state}" for n in names]


@operation()
def sole_owner(job: Job, rank: int, names: Sequence[str]) -> Commands:
    """
    Take down whatever else sets a governor, before one is set.

    + job: the run (its question has the units)
    + rank: of this host
    + names: the known owners, e.g. ``tuned.service``; others are found by their commands

    Undo: states, links and the power profile found are in the journal.
    """
    host = job.hosts[rank]
    state = job.read(host)
    if isinstance(state.cpufreq, Cpufreq) and not state.cpufreq.supported:
        host.noop("unsupported: this host has no CPU frequency policies")
        return
    found = other_owners(state, names)
    if isinstance(found, Unknown) or not isinstance(state.cpufreq, Cpufreq):
        yield refuse(job, f"{host.name}: owners of the CPU governor {found}")
        return
    if not owner_changes(found):
        host.noop("nothing else sets the CPU governor")
        return
    for phrase in owners_left(found):
        host.log(f"sets the CPU governor, too: {phrase}", log_func=logger.info)
    profile = state.cpufreq.profile
    if isinstance(profile, Unknown):
        host.log(f"power profile {profile}; undo cannot set it", log_func=logger.warning)
    elif profile:
        host.log(f"power profile in force: {profile}", log_func=logger.info)
    kept = None if isinstance(profile, Unknown) else profile
    # What `disable` leaves of a unit shows only then: static or indirect ones need a mask as well.
    for _ in range(2):
        question = {**vars(owner_changes(found)), "profile": kept}
        yield StringCommand(quiet("cpufreq", "settle"), _stdin=json.dumps(question))
        kept = None
        job.changed(host)
        found = other_owners(job.read(host), names)
        left = [str(found)] if isinstance(found, Unknown) else owners_left(found)
        if isinstance(found, Unknown) or not left:
            break
    if left:
        yield refuse(
            job,
            f"{host.name}: what else sets the CPU governor is not down for good: "
            f"{', '.join(left)}; see what starts it (systemctl status)",
        )


def persisted(state: HostState, want: str) -> bool:
    """Is our boot unit there for this governor, byte for byte, and enabled?"""
    if isinstance(state.files, Unknown) or not isinstance(state.services, Services):
        return False
    own, unit = state.files.get(UNIT_PATH), state.services.asked.get(UNIT)
    return (
        own is not None
        and own.data == unit_text(want)
        and unit is not None
        and unit.file_state == "enabled"
    )


@operation()
def governor(job: Job, rank: int, want: str) -> Commands:
    """
    Run every policy under one governor, and have a boot unit do so again after each start.

    + job: the run
    + rank: of this host
    + want: e.g. ``schedutil`` (seed 000: `performance` held all cores at their peak for ever)

    A host without policies is left alone and said so. Undo: the governors found are in the journal.
    """
    host = job.hosts[rank]
    state = job.read(host)
    found = state.cpufreq
    if not isinstance(found, Cpufreq):
        yield refuse(job, f"{host.name}: CPU governors {found}")
        return
    if not found.supported:
        host.log("unsupported: this host has no CPU frequency policies", log_func=logger.warning)
        return
    wrong = wrong_policies(found, want)
    if not wrong and persisted(state, want):
        host.noop(f"{len(found.policies)} CPU frequency policies under {want}")
        return
    if not persisted(state, want):
        yield put(UNIT_PATH, unit_text(want), 0o644)
        yield StringCommand(quiet("units", "enable", UNIT))
    if wrong:
        before = {p.name: p.governor or "" for p in found.policies}
        keep = [setting(f"governor.{name}", before[name], want) for name in wrong]
        write = [f"echo {shlex.quote(want)} > {SYSFS}/{name}/scaling_governor" for name in wrong]
        yield StringCommand(" && ".join([*keep, *write]))
    job.changed(host)
    now = job.read(host)
    left = wrong_policies(now.cpufreq, want) if isinstance(now.cpufreq, Cpufreq) else ["unread"]
    if left or not persisted(now, want):
        seen = f"{', '.join(left)} not under {want}" if left else f"{UNIT} is not enabled"
        yield refuse(job, f"{host.name}: {seen} after the change")
