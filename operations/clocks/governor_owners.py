"""Whatever else sets a CPU governor, down for good before one is set."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyinfra import logger
from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation

from facts.clocks.cpufreq import Cpufreq
from facts.run.unknown import Unknown
from facts.state import HostState
from facts.systemd.services import Services
from operations.run.job import Commands, Job, refuse
from operations.run.journal import quiet
from operations.systemd import services


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


def changes(found: Services) -> services.Changes:
    """What is still to do until no other owner can start."""
    return services.plan(found, list(found.asked))


def left_over(found: Services) -> list[str]:
    """One phrase for each other owner that runs or could start."""
    todo = changes(found)
    names = dict.fromkeys((*todo.stop, *todo.disable, *todo.mask))
    return [f"{n} is {found.units[n].active}/{found.units[n].file_state}" for n in names]


@operation()
def sole_owner(job: Job, rank: int, names: Sequence[str]) -> Commands:
    """
    Take down whatever else sets a governor, before one is set.

    + job: the run (its question has the units)
    + rank: of this host
    + names: the known owners, e.g. ``tuned.service``; others are found by their commands

    Units that run an engine, and cron lines, are only named: an engine may run on.
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
    for one in state.cpufreq.left_alone:
        told = "also sets the CPU governor; it is left as it is, take that out of it"
        host.log(f"{one} {told}", log_func=logger.warning)
    if not changes(found):
        host.noop("nothing else sets the CPU governor")
        return
    for phrase in left_over(found):
        host.log(f"sets the CPU governor, too: {phrase}", log_func=logger.info)
    profile = state.cpufreq.profile
    if isinstance(profile, Unknown):
        host.log(f"power profile {profile}; undo cannot set it", log_func=logger.warning)
    elif profile:
        host.log(f"power profile in force: {profile}", log_func=logger.info)
    kept = None if isinstance(profile, Unknown) else profile
    # What `disable` leaves of a unit shows only then: static or indirect ones need a mask as well.
    for _ in range(2):
        question = {**vars(changes(found)), "profile": kept}
        yield StringCommand(quiet("cpufreq", "settle"), _stdin=json.dumps(question))
        kept = None
        job.changed(host)
        found = other_owners(job.read(host), names)
        left = [str(found)] if isinstance(found, Unknown) else left_over(found)
        if isinstance(found, Unknown) or not left:
            break
    if left:
        yield refuse(
            job,
            f"{host.name}: what else sets the CPU governor is not down for good: "
            f"{', '.join(left)}; see what starts it (systemctl status)",
        )
