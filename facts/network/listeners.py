"""Who listens on the ports that a launch needs."""

from __future__ import annotations

from dataclasses import dataclass

from facts.run.unknown import Section


@dataclass(frozen=True)
class Listener:
    """pid: None for a socket of the kernel's own; container: id of the one it runs in."""

    port: int
    process: str | None
    pid: int | None
    container: str | None


@dataclass(frozen=True)
class Listeners:
    all: tuple[Listener, ...]


def parse(section: Section) -> Listeners:
    return Listeners(
        tuple(
            Listener(int(one["port"]), one["process"], one["pid"], one["container"])
            for one in section["listeners"]
        )
    )
