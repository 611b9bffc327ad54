"""Whatever else sets a CPU governor, down for good before one is set."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from pyinfra.api.command import StringCommand

from facts.clocks.cpufreq import Cpufreq
from facts.run.unknown import Unknown
from facts.state import HostState
from facts.systemd.services import Services
from operations.clocks.cpufreq import NO_POLICIES
from operations.run.findings import Finding, Look, Wanted
from operations.run.job import Commands, Here, step
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


def assess(look: Look) -> Iterator[Finding]:
    line = Wanted("cpu", "other governor owners", "none can start")
    found, cpus = other_owners(look.state, look.settings.governor_owners), look.state.cpufreq
    if isinstance(found, Unknown) or isinstance(cpus, Unknown):
        yield line.unread(found if isinstance(found, Unknown) else str(cpus))
        return
    if not cpus.supported:
        yield line.lacking(NO_POLICIES)
        return
    left = [*left_over(found), *(f"{one} also sets the governor" for one in cpus.left_alone)]
    down = [services.described(unit) for unit in found.asked.values() if not unit.absent]
    yield line.judged("; ".join(left or down) or "none here", not left)


@step
def sole_owner(here: Here) -> Commands:
    """
    Take down whatever else sets a governor, before one is set.

    + here: this host's share of the run

    Units that run an engine, and cron lines, are only named: an engine may run on.
    Undo: states, links and the power profile found are in the journal.
    """
    names = here.settings.governor_owners
    state = here.read()
    if isinstance(state.cpufreq, Cpufreq) and not state.cpufreq.supported:
        here.noop("unsupported: this host has no CPU frequency policies")
        return
    found = here.known(other_owners(state, names), "owners of the CPU governor")
    cpus = here.known(state.cpufreq, "owners of the CPU governor")
    for one in cpus.left_alone:
        told = "also sets the CPU governor; it is left as it is, take that out of it"
        here.warn(f"{one} {told}")
    if not changes(found):
        here.noop("nothing else sets the CPU governor")
        return
    for phrase in left_over(found):
        here.say(f"sets the CPU governor, too: {phrase}")
    profile = cpus.profile
    if isinstance(profile, Unknown):
        here.warn(f"power profile {profile}; undo cannot set it")
    elif profile:
        here.say(f"power profile in force: {profile}")
    kept = None if isinstance(profile, Unknown) else profile
    # What `disable` leaves of a unit shows only then: static or indirect ones need a mask as well.
    for _ in range(2):
        question = {**vars(changes(found)), "profile": kept}
        yield StringCommand(quiet("cpufreq", "settle"), _stdin=json.dumps(question))
        kept = None
        here.changed()
        found = here.known(other_owners(here.read(), names), "owners of the CPU governor")
        left = left_over(found)
        if not left:
            return
    yield here.refuse(
        f"what else sets the CPU governor is not down for good: "
        f"{', '.join(left)}; see what starts it (systemctl status)",
    )
