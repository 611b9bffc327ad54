"""Programs outside of docker that keep memory from a launch: named before any teardown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from facts.memory.holders import Holders, Program
from facts.memory.memory import Memory
from facts.run.unknown import Unknown
from facts.state import HostState
from facts.systemd.services import Services
from facts.watchdogs.starters import Starters
from operations.pair.identity import unlike
from operations.run.findings import Finding, Look, Wanted
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


def refusal(found: Outlook, memory: Memory, stack: Stack) -> list[str]:
    """Why the stack cannot have its memory; nothing where it can."""
    floor = stack.memory.floor_mib
    if not found.staying or found.most_mib >= floor:
        return []
    named = worth_stopping(found.staying, floor - found.most_mib) or found.staying[:1]
    return [
        f"at most {found.most_mib:.0f} MiB could be available, {stack.name} wants {floor} MiB: "
        f"programs that run outside of docker hold {found.held_mib:.0f} of {memory.usable_mib} "
        f"MiB; stop what you can do without: {told(named)}"
    ]


def assess(look: Look) -> Iterator[Finding]:
    """Programs that a teardown leaves running, and whether the stack has room beside them.

    Of ranks that run as wanted nothing is loaded anew, whatever room a load would need.
    """
    line = Wanted("memory", "memory outside of docker", f"leaves {look.stack.memory.floor_mib} MiB")
    found, memory = look.state.holders, look.state.memory
    if not isinstance(found, Holders) or not isinstance(memory, Memory):
        why = memory if isinstance(memory, Unknown) else found
        yield line.unread(why if isinstance(why, Unknown) else "not asked for")
        return
    seen = outlook(found, memory, look.state)
    largest = ", ".join(f"{p.title} {p.held_mib:.0f} MiB" for p in seen.staying[:NAMED])
    said = f"{seen.held_mib:.0f} MiB" + (f" ({largest})" if largest else "")
    said += f"; GPU not read: {found.gpu_unread}" if found.gpu_unread else ""
    why_not = refusal(seen, memory, look.stack)
    if found.gpu_unread and not why_not:  # what is held there could be too much
        yield line.unread(said)
        return
    loads = look.launches and bool(why_not and unlike(look))
    yield line.judged(said, not why_not, look.named(why_not, loads))
