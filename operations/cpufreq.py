"""One governor on every CPU frequency policy, now and after every boot."""

from __future__ import annotations

import shlex
from pathlib import Path

from pyinfra import logger
from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation

from facts.cpufreq import Cpufreq
from facts.services import Services
from facts.snapshot import HostState
from facts.unknown import Unknown
from operations.job import Commands, Job, refuse
from operations.journal import put, quiet, setting

UNIT = "spark-converge-governor.service"
UNIT_PATH = f"/etc/systemd/system/{UNIT}"
SYSFS = "/sys/devices/system/cpu/cpufreq"


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
