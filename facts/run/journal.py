"""What the host's journal would give back, and how each thing stands now."""

from __future__ import annotations

from dataclasses import dataclass

from facts.run.unknown import Section


@dataclass(frozen=True)
class Entry:
    """name: a path, or for people (`unit cups.service`, `fabric links`).

    starts: what a unit that is a timer, path or socket starts.
    verdict: same (as it was found), restore, edited (by somebody since), gone, unread.
    """

    name: str
    verdict: str
    why: str
    starts: tuple[str, ...] = ()


def parse(section: Section) -> tuple[Entry, ...]:
    return tuple(
        Entry(e["name"], e["verdict"], e["why"], tuple(e.get("starts", ())))
        for e in section["entries"]
    )
