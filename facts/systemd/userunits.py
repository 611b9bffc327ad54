"""Desktop units of users that could run without anybody at a desktop."""

from __future__ import annotations

from dataclasses import dataclass

from facts.run.unknown import Section


@dataclass(frozen=True)
class UserUnit:
    """One installed unit of one person with linger or a running manager."""

    user: str
    name: str
    masked: bool
    active: str

    @property
    def down(self) -> bool:
        return self.masked and self.active in ("inactive", "failed")


@dataclass(frozen=True)
class UserUnits:
    units: tuple[UserUnit, ...]


def parse(section: Section) -> UserUnits:
    found = section["units"]
    return UserUnits(tuple(UserUnit(u["user"], u["name"], u["masked"], u["active"]) for u in found))
