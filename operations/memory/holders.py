"""Programs outside of docker that keep memory from a launch: named before any teardown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from facts.memory.holders import Holders, Program
from facts.memory.memory import Memory
from facts.state import HostState
from facts.systemd.services import Services
from facts.watchdogs.starters import Starters
from operations.watchdogs import resurrection
from stacks.definition import Stack

NAMED = 3


@dataclass(frozen=True)
class Outlook:
    """staying: what neither the desktop nor a unit that is stopped takes along, the largest first;
    held_mib: of all of them, small ones included; most_mib: what could be available."""

    staying: tuple[Program, ...]
    held_mib: float
    most_mib: float


def going(state: HostState) -> set[tuple[str, str]]:
    """("system" or a user, unit) of what is stopped before a bind: services and watchdogs."""
    asked = state.services.asked.values() if isinstance(state.services, Services) else ()
    found = state.starters
    held = resurrection.plan(found)["units"] if isinstance(found, Starters) else ()
    names = {("system", unit.name) for unit in asked}
    return names | {(unit["scope"], unit["name"]) for unit in held if unit["stop"]}


def outlook(found: Holders, memory: Memory, state: HostState) -> Outlook:
    """With every container gone and the desktop down.

    What the kernel and its drivers take is not known and not counted, so that nobody is refused
    who might have enough; the floor itself is looked at before each bind.
    """
    staying = found.staying(going(state))
    held_mib = found.rest_mib + sum(program.held_mib for program in staying)
    return Outlook(staying, held_mib, max(0, memory.usable_mib - held_mib))


def worth_stopping(programs: Sequence[Program], missing_mib: float) -> Sequence[Program]:
    """The largest; none that would give back less than a tenth of what is missing: a VPN's or
    docker's own daemon is small, and who is told to stop it may lose the host."""
    return [p for p in programs[:NAMED] if p.held_mib * 10 >= missing_mib]


def told(programs: Sequence[Program]) -> str:
    """Each with its size and what stops it."""
    return "; ".join(f"{p.title} holds {p.held_mib:.0f} MiB: {p.stop}" for p in programs)


def refusals(state: HostState, stack: Stack) -> list[str]:
    """Why the stack cannot have its memory; where something could not be read, nothing is said."""
    memory, floor = state.memory, stack.memory.floor_mib
    if not isinstance(state.holders, Holders) or not isinstance(memory, Memory):
        return []
    seen = outlook(state.holders, memory, state)
    if not seen.staying or seen.most_mib >= floor:
        return []
    named = worth_stopping(seen.staying, floor - seen.most_mib) or seen.staying[:1]
    return [
        f"at most {seen.most_mib:.0f} MiB could be available, {stack.name} wants {floor} MiB: "
        f"programs that run outside of docker hold {seen.held_mib:.0f} of {memory.usable_mib} MiB; "
        f"stop what you can do without: {told(named)}"
    ]
