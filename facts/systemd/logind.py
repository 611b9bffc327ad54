"""What logind does with the shared memory of users who have logged out."""

from __future__ import annotations

from dataclasses import dataclass

from facts.run.unknown import Section


@dataclass(frozen=True)
class Logind:
    """remove_ipc: what the running logind does, None where there is none; lingering: users whose
    services run without a login."""

    remove_ipc: bool | None
    lingering: tuple[str, ...]


def parse(section: Section) -> Logind:
    if section.get("absent"):
        return Logind(None, ())
    return Logind(bool(section["remove_ipc"]), tuple(section["lingering"]))
