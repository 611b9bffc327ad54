"""Are the ports of a stack free for its launch, and will they stay so? (field case H05)"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from facts.memory.sysctl import Sysctl
from facts.network.listeners import Listener, Listeners
from facts.state import HostState
from inventory.schema import Cluster
from operations.engines.recognise import container_of, stack_of
from operations.run.findings import Finding, Look, Wanted, aside
from stacks.definition import Stack

RANGE = "net.ipv4.ip_local_port_range"
RESERVED = "net.ipv4.ip_local_reserved_ports"


def needed(stack: Stack, rank: int) -> dict[int, str]:
    """{port: what it is for} on the host of one rank; workers listen on none that is fixed."""
    if rank:
        return {}
    meeting = {stack.ports.rendezvous: "rendezvous"} if stack.ports.rendezvous else {}
    return {stack.ports.api: "API", **meeting}


def asked(cluster: Cluster, wanted: Sequence[Stack], known: Sequence[Stack]) -> tuple[int, ...]:
    """Ports that the job's stack needs, and those where one of the owner's stacks would answer."""
    owners = [one for one in known if one.name in (cluster.stack, cluster.rollback_stack)]
    needs = {port for one in wanted for port in needed(one, rank=0)}
    return tuple(sorted(needs | {one.ports.api for one in owners}))


def told(listener: Listener, state: HostState) -> str:
    container = container_of(listener, state)
    if container is not None:
        return f"container {container.name}"
    if listener.program is None:
        return "the kernel (no process has the socket)"
    return listener.program.title


def goes_down(
    listener: Listener, state: HostState, known: Sequence[Stack], stops_others: bool
) -> bool:
    """Does a launch end this listener, or is it the wanted rank itself?"""
    container = container_of(listener, state)
    return container is not None and (stops_others or stack_of(container, known) is not None)


def held(
    cluster: Cluster, rank: int, state: HostState, stack: Stack, known: Sequence[Stack]
) -> list[tuple[Listener, str]]:
    """(listener, what its port is for) that stand in the way of a launch on this host."""
    if not isinstance(state.listeners, Listeners):
        return []
    stops_others = cluster.policy.foreign_containers == "stop"
    wanted = needed(stack, rank)
    return [
        (one, wanted[one.port])
        for one in state.listeners.all
        if one.port in wanted and not goes_down(one, state, known, stops_others)
    ]


def refusals(
    cluster: Cluster, rank: int, state: HostState, stack: Stack, known: Sequence[Stack]
) -> list[str]:
    """One sentence for each port that somebody else has."""
    said = [
        f"port {one.port} ({what} of {stack.name}) is held by {told(one, state)}; end that, or "
        "give one of the two another port"
        for one, what in held(cluster, rank, state, stack, known)
    ]
    return list(dict.fromkeys(said))  # once for IPv4 and IPv6


def spans(text: str | None) -> Iterator[tuple[int, int]]:
    """The (first, last) of `8888,25000-25010`; nothing of what is odd."""
    for part in (text or "").split(","):
        first, dash, last = part.strip().partition("-")
        if first.isdigit() and (not dash or last.isdigit()):
            yield int(first), int(last or first)


def by_chance(rank: int, state: HostState, stack: Stack) -> list[str]:
    """One sentence for each port that any program's outgoing connection may get before a bind."""
    if not isinstance(state.sysctl, Sysctl):
        return []
    limits = (state.sysctl.values.get(RANGE) or "").split()
    if len(limits) != 2 or not all(word.isdigit() for word in limits):
        return []
    low, high = map(int, limits)
    reserved = list(spans(state.sysctl.values.get(RESERVED)))
    return [
        f"port {port} ({what} of {stack.name}) lies in {RANGE} {low}-{high}, so that an outgoing "
        f"connection may take it; add it to {RESERVED}"
        for port, what in needed(stack, rank).items()
        if low <= port <= high and not any(a <= port <= b for a, b in reserved)
    ]


def assess(look: Look) -> Iterator[Finding]:
    """Who has the ports of the stack on this host."""
    state, stack, wanted = look.state, look.stack, needed(look.stack, look.rank)
    told_wanted = ", ".join(f"{port} ({what})" for port, what in wanted.items()) or "none"
    line, chance = Wanted("engine", "ports", told_wanted), by_chance(look.rank, state, stack)
    yield aside("advice", look.named(chance, look.launches))
    if not isinstance(state.listeners, Listeners):
        yield line.unread(state.listeners)
        return
    seen = [f"{one.port} {told(one, state)}" for one in state.listeners.all if one.port in wanted]
    taken = refusals(look.cluster, look.rank, state, stack, look.known)
    found = "; ".join(dict.fromkeys([*seen, *chance])) or ("free" if wanted else "none needed")
    yield line.judged(found, not taken, look.named(taken, look.launches))
