"""What verify looks at of a host's clocks: the governor, its owners, the limits asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from facts.clocks.cpufreq import Cpufreq
from facts.run.unknown import Unknown
from facts.state import HostState
from inventory.host_settings import HostSettings
from inventory.schema import Cluster
from operations.clocks import cpufreq, governor_owners, gpu
from operations.run.findings import Item, judged, unread
from operations.systemd import services


def governor(state: HostState, want: str, cap_mhz: int | None) -> Iterator[Item]:
    found = state.cpufreq
    if not isinstance(found, Cpufreq):
        yield unread("cpu", "governor", want, found)
        return
    if not found.supported:
        for name in ("governor", "governor at boot"):
            yield Item("cpu", name, want, "no CPU frequency policies", "unsupported")
        return
    wrong = set(cpufreq.wrong_policies(found, want))
    offline = [p.name for p in found.policies if p.offline]
    told = [f"{p.name} {p.governor}" for p in found.policies if p.name in wrong]
    told = told or [f"{want} on {len(found.policies) - len(offline)} policies"]
    told += [f"{name} offline" for name in offline]
    yield judged("cpu", "governor", want, ", ".join(told), not wrong)
    if isinstance(state.files, Unknown) or isinstance(state.services, Unknown):
        yield unread("cpu", "governor at boot", want, "its boot unit could not be read")
        return
    kept = cpufreq.persisted(state, want, cap_mhz)
    seen = f"{cpufreq.UNIT} {'enabled' if kept else 'absent, changed or not enabled'}"
    yield judged("cpu", "governor at boot", want, seen, kept)


def owners(state: HostState, names: Sequence[str]) -> Item:
    name, wanted = "other governor owners", "none can start"
    found = governor_owners.other_owners(state, names)
    if isinstance(found, Unknown):
        return unread("cpu", name, wanted, found)
    if isinstance(state.cpufreq, Cpufreq) and not state.cpufreq.supported:
        return Item("cpu", name, wanted, "no CPU frequency policies", "unsupported")
    left = governor_owners.left_over(found)
    if isinstance(state.cpufreq, Cpufreq):
        left += [f"{one} also sets the governor" for one in state.cpufreq.left_alone]
    down = [services.described(unit) for unit in found.asked.values() if not unit.absent]
    return judged("cpu", name, wanted, "; ".join(left or down) or "none here", not left)


def limits(cluster: Cluster, state: HostState) -> Iterator[Item]:
    """The clock limits that the owner's file has, and a cap that it has no more."""
    cap_mhz, found = cluster.clocks.cpu_max_mhz, state.cpufreq
    if cap_mhz is not None or (isinstance(found, Cpufreq) and cpufreq.left_caps(found, None)):
        yield cpu_cap(state, cap_mhz)
    if cluster.clocks.gpu_mhz is not None:
        yield gpu_lock(state, cluster.clocks.gpu_mhz)


def cpu_cap(state: HostState, cap_mhz: int | None) -> Item:
    wanted = "none" if cap_mhz is None else f"{cap_mhz} MHz"
    name, found = "CPU clock cap", state.cpufreq
    if not isinstance(found, Cpufreq):
        return unread("cpu", name, wanted, found)
    if not found.supported:
        return Item("cpu", name, wanted, "no CPU frequency policies", "unsupported")
    wrong = {**cpufreq.left_caps(found, cap_mhz)}
    wrong |= {} if cap_mhz is None else cpufreq.wrong_caps(found, cap_mhz)
    told = [f"{p.name} {(p.cap_khz or 0) // 1000} MHz" for p in found.policies if p.name in wrong]
    if cap_mhz is None:
        told = [f"{one}, of an earlier owner's file" for one in told]
        return judged("cpu", name, wanted, ", ".join(told), not wrong)
    slower = sum(p.top_khz is not None and p.top_khz <= cap_mhz * 1000 for p in found.policies)
    held = f"on {len(found.policies) - slower} policies, {slower} never run that fast"
    return judged("cpu", name, wanted, ", ".join(told) or held, not wrong)


def gpu_lock(state: HostState, span: tuple[int, int]) -> Item:
    """Ok means that our unit set the lock; what a GPU is locked to cannot be read."""
    name, wanted, found = "GPU clock lock", f"{span[0]} to {span[1]} MHz", gpu.seen(state)
    if isinstance(found, Unknown) or found.unread:
        why = found if isinstance(found, Unknown) else found.unread or ""
        return unread("cpu", name, wanted, why)
    if found.found is None:
        return Item("cpu", name, wanted, "no nvidia-smi here", "unsupported")
    if isinstance(state.files, Unknown) or isinstance(state.services, Unknown):
        return unread("cpu", name, wanted, f"{gpu.UNIT} could not be read")
    left = gpu.unlocked(state, found, span)
    return judged("cpu", name, wanted, ", ".join(left) or f"set by {gpu.UNIT}", not left)


def items(cluster: Cluster, state: HostState, settings: HostSettings) -> Iterator[Item]:
    """settings: files/host.yaml."""
    yield from governor(state, settings.governor, cluster.clocks.cpu_max_mhz)
    yield owners(state, settings.governor_owners)
    yield from limits(cluster, state)
