"""Programs outside of docker that keep memory from a launch: named before any teardown."""

from __future__ import annotations

from collections.abc import Sequence

from facts.holders import Holders, Program
from facts.memory import Memory
from facts.services import Services
from facts.snapshot import HostState
from stacks.definition import Stack

NAMED = 3


def told(programs: Sequence[Program]) -> str:
    """The largest, each with its size and what stops it."""
    return "; ".join(f"{p.title} holds {p.held_mib:.0f} MiB: {p.stop}" for p in programs[:NAMED])


def refusals(state: HostState, stack: Stack) -> list[str]:
    """Why the stack cannot have its memory even with every container gone and the desktop down.

    What the kernel and its drivers take is not known and not counted, so that nobody is refused
    who might have enough; the floor itself is looked at before each bind.
    """
    found, memory = state.holders, state.memory
    if not isinstance(found, Holders) or not isinstance(memory, Memory):
        return []
    services = state.services
    asked = services.asked.values() if isinstance(services, Services) else ()
    staying = found.staying({unit.name for unit in asked})
    held = found.rest_mib + sum(program.held_mib for program in staying)
    most, floor = memory.usable_mib - held, stack.memory.floor_mib
    if not staying or most >= floor:
        return []
    return [
        f"at most {max(0, most):.0f} MiB could be available, {stack.name} wants {floor} MiB: "
        f"programs that run outside of docker hold {held:.0f} of {memory.usable_mib} MiB; stop "
        f"what you can do without: {told(staying)}"
    ]
