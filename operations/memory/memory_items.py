"""What verify looks at of a host's memory: figures, kernel settings, and who ends processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from facts.look.machine import Machine
from facts.memory.holders import Holders
from facts.memory.memory import Memory
from facts.memory.oom import Oom
from facts.memory.sysctl import Sysctl
from facts.run.unknown import Unknown
from facts.state import HostState
from facts.systemd.logind import Logind
from operations.memory import holders, oom, sysctl
from operations.run.findings import Item, judged, unread
from operations.systemd import logind
from stacks.definition import Stack


def shared_memory(state: HostState) -> Item:
    found = state.memory
    if not isinstance(found, Memory):
        return unread("memory", "shared memory", "no dead segments", found)
    left = found.leftovers
    size_mib = sum(s.size_bytes for s in left) / 2**20
    seen = f"{len(left)} dead segments, {size_mib:.1f} MiB" if left else "none"
    return judged("memory", "shared memory", "no dead segments", seen, not left)


def headroom(state: HostState, stack: Stack) -> Item:
    """MemFree beside MemAvailable: on unified memory page cache is not free for the GPU."""
    found, floor = state.memory, stack.memory.floor_mib
    wanted = f"{floor} MiB in all, available before a bind"
    if not isinstance(found, Memory):
        return unread("memory", "memory", wanted, found)
    seen = f"{found.total_mib} MiB, {found.available_mib} available, {found.free_mib} free"
    seen += f", {found.hugepages_mib} reserved for huge pages" if found.hugepages_mib else ""
    return judged("memory", "memory", wanted, seen, found.usable_mib >= floor)


def outside(state: HostState, stack: Stack) -> Item:
    """Programs that a teardown leaves running, and whether the stack has room beside them."""
    name, wanted = "memory outside of docker", f"leaves {stack.memory.floor_mib} MiB"
    found, memory = state.holders, state.memory
    if not isinstance(found, Holders) or not isinstance(memory, Memory):
        why = memory if isinstance(memory, Unknown) else found
        return unread("memory", name, wanted, why if isinstance(why, Unknown) else "not asked for")
    seen = holders.outlook(found, memory, state)
    largest = ", ".join(f"{p.title} {p.held_mib:.0f} MiB" for p in seen.staying[: holders.NAMED])
    told = f"{seen.held_mib:.0f} MiB" + (f" ({largest})" if largest else "")
    told += f"; GPU not read: {found.gpu_unread}" if found.gpu_unread else ""
    good = not holders.refusals(state, stack)
    if good and found.gpu_unread:  # what is held there could be too much
        return unread("memory", name, wanted, told)
    return judged("memory", name, wanted, told, good)


def kernel_setting(state: HostState, key: str, value: object) -> Item:
    """One setting: live, and after the next boot."""
    found, name, wanted = state.sysctl, f"sysctl {key}", str(value)
    if not isinstance(found, Sysctl):
        return unread("memory", name, wanted, found)
    now = found.values.get(key)
    if now is None:
        return Item("memory", name, wanted, "this kernel has no such setting", "unsupported")
    late = sysctl.overruled(found, {key: value})
    return judged("memory", name, wanted, "; ".join([now, *late]), now == wanted and not late)


def kernel_settings(state: HostState, want: Mapping[str, object]) -> Iterator[Item]:
    yield from (kernel_setting(state, key, value) for key, value in want.items())
    name, wanted = "sysctl at boot", sysctl.PATH
    if not isinstance(state.files, Mapping):
        yield unread("memory", name, wanted, state.files)
        return
    good = sysctl.kept(state, want)
    yield judged("memory", name, wanted, "as written" if good else "absent or changed", good)


def logged_out(state: HostState) -> Item:
    """Segments of a user who has logged out: logind removes them unless told otherwise."""
    found, name, wanted = state.logind, "RemoveIPC of logind", "no, now and at boot"
    if not isinstance(found, Logind):
        return unread("memory", name, wanted, found)
    if found.remove_ipc is None:
        return Item("memory", name, wanted, "no logind runs", "unsupported")
    seen = "yes" if found.remove_ipc else "no"
    seen += "" if logind.kept(state) else f", {logind.PATH} absent or changed"
    seen += f"; lingering: {', '.join(found.lingering)}" if found.lingering else ""
    return judged("memory", name, wanted, seen, logind.settled(state))


def killers(state: HostState, stack: Stack) -> Item:
    """Programs that end others for want of memory, with the headroom that the stack leaves."""
    name, wanted = "OOM killers", f"none that ends {stack.name}"
    if not isinstance(state.oom, Oom) or not isinstance(state.memory, Memory):
        why = state.memory if isinstance(state.oom, Oom) else state.oom
        return unread("memory", name, wanted, str(why))
    if state.oom.unread:
        told = "; ".join(f"{one}: {why}" for one, why in state.oom.unread.items())
        return unread("memory", name, wanted, told)
    seen = [oom.told(one, state.memory, stack) for one in state.oom.killers]
    good = not oom.refusals(state, stack)
    return judged("memory", name, wanted, "; ".join(seen) or "none runs", good)


def docker_limits(state: HostState) -> Item:
    """What a container that sets no ulimits gets; the stacks set memlock themselves, as RDMA needs
    all its memory locked."""
    name, wanted = "limits of dockerd", "-"
    if not isinstance(state.machine, Machine):
        return unread("memory", name, wanted, state.machine or "not asked for")
    found = state.machine.docker_limits
    if found is None:
        return Item("memory", name, wanted, "dockerd does not run", "unsupported")
    return judged("memory", name, wanted, ", ".join(f"{k} {v}" for k, v in found.items()), True)


def items(state: HostState, stack: Stack, settings: Mapping[str, object]) -> list[Item]:
    """settings: sysctl of files/host.yaml."""
    return [
        headroom(state, stack),
        outside(state, stack),
        shared_memory(state),
        *kernel_settings(state, settings),
        logged_out(state),
        killers(state, stack),
        docker_limits(state),
    ]
