"""What keeps the host's packages and firmware up to date, as far as it is at work right now."""

from __future__ import annotations

from dataclasses import dataclass

from facts.run.unknown import Section


@dataclass(frozen=True)
class Maintenance:
    """busy: a sentence for each program that holds a lock of the packages or keeps the host from
    shutting down; needrestart: is it installed?"""

    busy: tuple[str, ...]
    needrestart: bool


def parse(section: Section) -> Maintenance:
    return Maintenance(busy=tuple(section["busy"]), needrestart=section["needrestart"])
