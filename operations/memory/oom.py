"""Would a program that ends others for want of memory end the engine? Asked before a launch.

Nothing is changed: the owner is told which line to change (field case F05).
"""

from __future__ import annotations

from collections.abc import Iterator

from facts.memory.memory import Memory
from facts.memory.oom import Killer, Oom
from facts.state import HostState
from operations.run.findings import Finding, Look, Wanted, aside
from stacks.definition import Stack


def short_of_memory(killer: Killer, memory: Memory, steady_mib: int) -> bool:
    """Is its memory threshold reached with the stack loaded?"""
    return steady_mib <= killer.memory.of(memory.total_mib)


def short_of_swap(killer: Killer, memory: Memory) -> bool:
    """Is its swap threshold reached as the host is now?"""
    if not memory.swap_mib:
        return killer.swapless
    return memory.swap_free_mib <= killer.swap.of(memory.swap_mib)


def fires(killer: Killer, memory: Memory, stack: Stack) -> bool:
    """Would it act with the stack loaded? A stack without an expected figure is not judged."""
    steady = stack.memory.steady_available_mib
    return (
        steady is not None
        and not killer.spares
        and short_of_memory(killer, memory, steady)
        and short_of_swap(killer, memory)
    )


def told(killer: Killer, memory: Memory, stack: Stack) -> str:
    """`earlyoom acts below 2048 MiB, 7229 MiB of headroom`, with what else holds it back."""
    floor, steady = killer.memory.of(memory.total_mib), stack.memory.steady_available_mib
    said = f"{killer.name} (pid {killer.pid}) acts "
    said += f"above a memory pressure of {killer.pressure}, and " if killer.pressure else ""
    said += f"below {floor:.0f} MiB available"
    if killer.spares:
        return f"{said}, {killer.spares}"
    if steady is not None:
        said += f", {steady - floor:.0f} MiB of headroom"
    if not memory.swap_mib and not killer.swapless:
        return f"{said}, never on a host without swap"
    if not short_of_swap(killer, memory):
        swap = killer.swap.of(memory.swap_mib)
        said += f", held back while more than {swap:.0f} MiB of swap are free"
    return said


def advice(state: HostState) -> list[str]:
    """What cannot be held against a figure: memory pressure, which a load of weights makes."""
    return [
        f"{one.name} (pid {one.pid}) ends what is below a control group under a memory pressure of "
        f"{one.pressure}, engines too; a load of weights may reach that: ManagedOOMMemoryPressure= "
        "of that unit sets it"
        for one in (state.oom.killers if isinstance(state.oom, Oom) else ())
        if one.pressure
    ]


def refusals(state: HostState, stack: Stack) -> list[str]:
    """One sentence for each that would end an engine of the stack on this host."""
    found, memory = state.oom, state.memory
    if not isinstance(found, Oom) or not isinstance(memory, Memory):
        return []  # the preflight says what could not be read
    if stack.memory.steady_available_mib is None:
        return []  # nothing to hold a threshold against, read or not
    said = [
        f"{name} ends programs when memory is short, and at which point could not be read "
        f"({why}): it might end {stack.name}; mend that setting, or stop the program while the "
        "stack is served"
        for name, why in found.unread.items()
    ]
    for killer in found.killers:
        if fires(killer, memory, stack):
            floor, steady = killer.memory.of(memory.total_mib), stack.memory.steady_available_mib
            said.append(
                f"{killer.name} (pid {killer.pid}) would end {stack.name}: it acts below "
                f"{floor:.0f} MiB available, the loaded stack leaves about {steady} MiB; lower "
                f"{killer.option} in {killer.where} and restart {killer.name}"
            )
    return said


def assess(look: Look) -> Iterator[Finding]:
    """Programs that end others for want of memory, with the headroom that the stack leaves."""
    state, stack = look.state, look.stack
    line = Wanted("memory", "OOM killers", f"none that ends {stack.name}")
    if not isinstance(state.oom, Oom) or not isinstance(state.memory, Memory):
        yield line.unread(str(state.memory if isinstance(state.oom, Oom) else state.oom))
        return
    yield aside("advice", look.named(advice(state), look.launches))
    why_not, unread = refusals(state, stack), state.oom.unread
    if unread and not (why_not and look.launches):
        yield line.unread("; ".join(f"{one}: {why}" for one, why in unread.items()))
        return
    seen = [told(one, state.memory, stack) for one in state.oom.killers]
    refuse = look.named(why_not, look.launches)
    yield line.judged("; ".join(seen) or "none runs", not why_not, refuse)
