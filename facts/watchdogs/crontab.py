"""Crontabs, byte for byte, and the words in them that start containers."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from facts.run.unknown import Section


@dataclass(frozen=True)
class Table:
    """A user's crontab, or a system one at `place`; inert: why cron passes over it.

    text decodes the bytes one to one (latin-1), so nothing is lost. kept: lines that bore the tag
    of held ones before the file was first written by us.
    """

    user: str
    text: str
    mode: int
    uid: int
    gid: int
    place: str | None = None
    inert: str | None = None
    kept: frozenset[str] = frozenset()

    @property
    def path(self) -> str:
        return self.place or f"/var/spool/cron/crontabs/{self.user}"

    @property
    def title(self) -> str:
        return self.place or f"the crontab of {self.user}"


@dataclass(frozen=True)
class Crontabs:
    """starters: words of their lines that name scripts which mention docker or an engine."""

    tables: tuple[Table, ...]
    starters: frozenset[str]


def table(user: str, found: Section, place: str | None = None) -> Table:
    return Table(
        user,
        base64.b64decode(found["b64"]).decode("latin-1"),
        found["mode"],
        found["uid"],
        found["gid"],
        place,
        found.get("inert"),
        frozenset(found.get("kept", ())),
    )


def parse(section: Section) -> Crontabs:
    users = [table(user, found) for user, found in sorted(section["users"].items())]
    system = [table("root", found, path) for path, found in section.get("system", {}).items()]
    return Crontabs((*users, *system), frozenset(section["starters"]))
