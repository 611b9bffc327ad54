"""One governor and one cap on every CPU frequency policy, now and after every boot."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyinfra.api.command import StringCommand

from facts.clocks.cpufreq import UNREADABLE, Cpufreq, Policy
from facts.run.unknown import Unknown
from facts.state import HostState
from facts.systemd.services import Services
from operations.run.findings import Finding, Look, Wanted
from operations.run.job import Commands, Here, step
from operations.run.journal import put, quiet, setting

UNIT = "spark-converge-governor.service"
UNIT_PATH = f"/etc/systemd/system/{UNIT}"
SYSFS = "/sys/devices/system/cpu/cpufreq"
NO_POLICIES = "no CPU frequency policies"


def unit_text(want: str, cap_mhz: int | None) -> bytes:
    """The boot unit for this governor, and this cap or none."""
    template = (Path(__file__).parents[2] / "files" / "units" / UNIT).read_text()
    cap_khz = str((cap_mhz or 0) * 1000)
    return template.replace("@GOVERNOR@", want).replace("@CAP_KHZ@", cap_khz).encode()


def wrong_policies(found: Cpufreq, want: str) -> list[str]:
    """Policies under another governor; one whose CPUs are all offline cannot be set and waits."""
    return [p.name for p in found.policies if not p.offline and p.governor != want]


def unreadable(found: Cpufreq) -> list[str]:
    """Policies that refuse to say their governor: without it undo could not give it back."""
    return [p.name for p in found.policies if p.governor == UNREADABLE]


def not_offered(found: Cpufreq, want: str) -> list[str]:
    """A sentence for each policy that neither offers the governor nor runs under it: what a driver
    offers is not always said."""
    return [
        f"{p.name} offers {' '.join(p.offered) or 'nothing'}, not {want}"
        for p in found.policies
        if not p.offline and want not in (*p.offered, p.governor)
    ]


def capped_khz(policy: Policy, cap_mhz: int) -> int | None:
    """What scaling_max_freq of a policy comes to under a cap, None for one that is left alone: it
    never runs faster than the cap, or its CPUs are all offline.

    A driver with fixed steps takes the highest step below the cap.
    """
    limit = cap_mhz * 1000
    if policy.offline or policy.top_khz is None or policy.top_khz <= limit:
        return None
    return max((step for step in policy.steps_khz if step <= limit), default=limit)


def wrong_caps(found: Cpufreq, cap_mhz: int) -> dict[str, int]:
    """{policy: the cap that it should have, in kHz} of those that have another one."""
    wanted = {p: capped_khz(p, cap_mhz) for p in found.policies}
    return {p.name: khz for p, khz in wanted.items() if khz is not None and p.cap_khz != khz}


def left_caps(found: Cpufreq, cap_mhz: int | None) -> dict[str, int]:
    """{policy: the limit to give back, in kHz} of those under a cap that is not asked for any more:
    it was taken out of the owner's file, or raised to where it leaves them alone."""
    return {
        p.name: p.back_khz
        for p in found.policies
        if p.back_khz is not None and not p.offline
        if cap_mhz is None or capped_khz(p, cap_mhz) is None
    }


def not_cappable(found: Cpufreq, cap_mhz: int) -> list[str]:
    """A sentence for each policy that cannot run as slowly as the cap wants."""
    return [
        f"{p.name} runs at {p.bottom_khz // 1000} MHz at least, above clocks.cpu_max_mhz {cap_mhz}"
        for p in found.policies
        if p.bottom_khz and not p.offline and p.bottom_khz > cap_mhz * 1000
    ]


def offline_note(found: Cpufreq) -> str | None:
    """Which policies cannot be set now; the boot unit sets them at the next start."""
    names = [p.name for p in found.policies if p.offline]
    return f"skipped, all CPUs offline: {', '.join(names)}" if names else None


def persisted(state: HostState, want: str, cap_mhz: int | None) -> bool:
    """Is our boot unit there for this governor and cap, byte for byte, and enabled?"""
    unit = state.services.asked.get(UNIT) if isinstance(state.services, Services) else None
    enabled = unit is not None and unit.file_state == "enabled"
    own = None if isinstance(state.files, Unknown) else state.files.get(UNIT_PATH)
    return enabled and own is not None and own.data == unit_text(want, cap_mhz)


def assess(look: Look) -> Iterator[Finding]:
    """The governor now and at boot."""
    state, want = look.state, look.settings.governor
    now, boot = Wanted("cpu", "governor", want), Wanted("cpu", "governor at boot", want)
    found = state.cpufreq
    if not isinstance(found, Cpufreq):
        yield now.unread(found)
        return
    if not found.supported:
        yield from (now.lacking(NO_POLICIES), boot.lacking(NO_POLICIES))
        return
    wrong = set(wrong_policies(found, want))
    offline = [p.name for p in found.policies if p.offline]
    told = [f"{p.name} {p.governor}" for p in found.policies if p.name in wrong]
    told = told or [f"{want} on {len(found.policies) - len(offline)} policies"]
    told += [f"{name} offline" for name in offline]
    refuse = look.named(not_offered(found, want), look.settles)
    yield now.judged(", ".join(told), not wrong, refuse)
    if isinstance(state.files, Unknown) or isinstance(state.services, Unknown):
        yield boot.unread("its boot unit could not be read")
        return
    kept = persisted(state, want, look.cluster.clocks.cpu_max_mhz)
    seen = f"{UNIT} {'enabled' if kept else 'absent, changed or not enabled'}"
    yield boot.judged(seen, kept)


def assess_cap(look: Look) -> Iterator[Finding]:
    """The clock limit that the owner's file has, or a cap that it has no more."""
    cap_mhz, found = look.cluster.clocks.cpu_max_mhz, look.state.cpufreq
    line = Wanted("cpu", "CPU clock cap", "none" if cap_mhz is None else f"{cap_mhz} MHz")
    if not isinstance(found, Cpufreq):
        yield from [line.unread(found)] if cap_mhz is not None else []
        return
    wrong = {**left_caps(found, cap_mhz), **(wrong_caps(found, cap_mhz) if cap_mhz else {})}
    told = [f"{p.name} {(p.cap_khz or 0) // 1000} MHz" for p in found.policies if p.name in wrong]
    if cap_mhz is None:
        told = [f"{one}, of an earlier owner's file" for one in told]
        yield from [line.judged(", ".join(told), False)] if told else []
    elif not found.supported:
        yield line.lacking(NO_POLICIES)
    else:
        slower = sum(p.top_khz is not None and p.top_khz <= cap_mhz * 1000 for p in found.policies)
        held = f"on {len(found.policies) - slower} policies, {slower} never run that fast"
        refuse = look.named(not_cappable(found, cap_mhz), look.settles)
        yield line.judged(", ".join(told) or held, not wrong, refuse)


def kept_then(keep: Sequence[str], write: Sequence[str]) -> str:
    """Every write is tried: a policy whose CPUs have just gone offline refuses (EBUSY), and is no
    reason to leave the others. What came of it is read back."""
    return " && ".join([*keep, f"{{ {'; '.join(write)}; true; }}"])


@step
def governor(here: Here) -> Commands:
    """
    Run every policy under one governor, and have a boot unit do so again after each start; the cap
    of the owner's file goes into the same unit.

    + here: this host's share of the run

    A host without policies is left alone and said so. Undo: the governors found are in the journal.
    """
    want = here.settings.governor
    cap_mhz = here.cluster.clocks.cpu_max_mhz
    state = here.read()
    found = here.known(state.cpufreq, "CPU governors")
    if not found.supported:
        here.warn("unsupported: this host has no CPU frequency policies")
        return
    if names := unreadable(found):
        yield here.refuse(
            f"the governor of {', '.join(names)} cannot be read, although CPUs of it "
            "are online; nothing was set; read its scaling_governor in "
            f"{SYSFS} by hand, then run this again",
        )
        return
    if note := offline_note(found):
        here.warn(note)
    wrong = wrong_policies(found, want)
    lasting = persisted(state, want, cap_mhz)
    if not wrong and lasting:
        here.noop(f"{len(found.policies)} CPU frequency policies under {want}")
        return
    if not lasting:
        yield put(UNIT_PATH, unit_text(want, cap_mhz), 0o644)
        yield StringCommand(quiet("units", "enable", UNIT))
    if wrong:
        before = {p.name: p.governor or "" for p in found.policies}
        keep = [setting(f"governor.{name}", before[name], want) for name in wrong]
        write = [f"echo {shlex.quote(want)} > {SYSFS}/{name}/scaling_governor" for name in wrong]
        yield StringCommand(kept_then(keep, write))
    here.changed()
    now = here.read()
    left = wrong_policies(here.known(now.cpufreq, "CPU governors"), want)
    if left or not persisted(now, want, cap_mhz):
        seen = f"{', '.join(left)} not under {want}" if left else f"{UNIT} is not enabled"
        yield here.refuse(f"{seen} after the change")


@step
def capped(here: Here) -> Commands:
    """
    Hold every policy below the clock of the owner's file; without one only a cap of ours is taken
    back.

    + here: this host's share of the run

    Undo: the limits found are in the journal.
    """
    cap_mhz = here.cluster.clocks.cpu_max_mhz
    found = here.known(here.read().cpufreq, "CPU clocks")
    if not found.supported:
        if cap_mhz is not None:
            told = "unsupported: this host has no CPU frequency policies"
            here.warn(told)
        return
    wrong = {} if cap_mhz is None else wrong_caps(found, cap_mhz)
    stale = left_caps(found, cap_mhz)
    if not wrong and not stale:
        asked = f"at or below {cap_mhz} MHz" if cap_mhz else "without a cap (clocks.cpu_max_mhz)"
        here.noop(f"{len(found.policies)} CPU frequency policies {asked}")
        return
    if stale:
        yield StringCommand(quiet("cpufreq", "uncap", *stale))
    if wrong and cap_mhz is not None:
        before = {p.name: str(p.cap_khz or p.top_khz) for p in found.policies}
        keep = [setting(f"cpu_max.{name}", before[name], str(khz)) for name, khz in wrong.items()]
        write = [f"echo {cap_mhz * 1000} > {SYSFS}/{name}/scaling_max_freq" for name in wrong]
        yield StringCommand(kept_then(keep, write))
    here.changed()
    now = here.known(here.read().cpufreq, "CPU clocks")
    if names := left_caps(now, cap_mhz):
        told = "still under a cap that is not in the owner's file any more; see what else writes"
        yield here.refuse(f"{', '.join(names)} {told} scaling_max_freq")
        return
    left = {} if cap_mhz is None else wrong_caps(now, cap_mhz)
    above = [p.name for p in now.policies if p.name in left and (p.cap_khz or 0) > left[p.name]]
    if above:
        yield here.refuse(
            f"{', '.join(above)} may run faster than {cap_mhz} MHz after the change; "
            "see what else writes scaling_max_freq",
        )
    elif left:
        told = f"{', '.join(left)} held below {cap_mhz} MHz by something else (heat?)"
        here.warn(told)
