"""Who listens on the ports that a launch needs."""

from __future__ import annotations

from dataclasses import dataclass

from facts.engines.outside import Program
from facts.run.unknown import Section


@dataclass(frozen=True)
class Listener:
    """program: None for a socket of the kernel's own; container: id of the one it runs in."""

    port: int
    program: Program | None
    container: str | None


@dataclass(frozen=True)
class Listeners:
    all: tuple[Listener, ...]


def parse(section: Section) -> Listeners:
    return Listeners(
        tuple(
            Listener(int(one["port"]), program_of(one), one["container"])
            for one in section["listeners"]
        )
    )


def program_of(one: Section) -> Program | None:
    if one["pid"] is None:
        return None
    name = one["process"] or "a program"
    return Program(name, int(one["pid"]), one["user"], one["unit"], one["user_unit"])
