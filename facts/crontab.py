"""User crontabs, byte for byte, and the scripts in them that start containers."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from facts.unknown import Section


@dataclass(frozen=True)
class Table:
    """One user's crontab: text decodes the bytes one to one (latin-1), so nothing is lost."""

    user: str
    text: str
    mode: int
    uid: int
    gid: int

    @property
    def path(self) -> str:
        return f"/var/spool/cron/crontabs/{self.user}"


@dataclass(frozen=True)
class Crontabs:
    tables: tuple[Table, ...]
    starters: frozenset[str]  # paths named in them whose text mentions docker, podman, an engine


def parse(section: Section) -> Crontabs:
    return Crontabs(
        tables=tuple(
            Table(
                user,
                base64.b64decode(found["b64"]).decode("latin-1"),
                found["mode"],
                found["uid"],
                found["gid"],
            )
            for user, found in sorted(section["users"].items())
        ),
        starters=frozenset(section["starters"]),
    )
