"""Crontabs, byte for byte, and which of their lines start an engine, as the host judged them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field

from facts.run.unknown import Section


@dataclass(frozen=True)
class Line:
    """A job that starts an engine. tag: what it is held by, or "".

    scripts: as the line names them; word: of its own that says so, or ""; command: what cron gives
    to the shell.
    """

    tag: str
    scripts: tuple[str, ...]
    word: str
    command: str

    @property
    def why(self) -> str:
        return ", ".join(self.scripts) or self.word


@dataclass(frozen=True)
class Table:
    """A user's crontab, or a system one; inert: why cron passes over it.

    text decodes the bytes one to one (latin-1), so nothing is lost. kept: lines that bore the tag
    of held ones before the file was first written by us; lines: of those that start an engine, by
    number from 1; unended: number of a last job without a newline, which cron does not run.
    """

    user: str | None
    path: str
    text: str
    mode: int
    uid: int
    gid: int
    inert: str | None = None
    kept: frozenset[str] = frozenset()
    lines: Mapping[int, Line] = field(default_factory=dict)
    unended: int | None = None

    @property
    def title(self) -> str:
        return f"the crontab of {self.user}" if self.user else self.path


@dataclass(frozen=True)
class Crontabs:
    """deleted: paths of tables that somebody deleted while lines of them were held."""

    tables: tuple[Table, ...]
    deleted: tuple[str, ...] = ()


def line(found: Section) -> Line:
    return Line(found["tag"], tuple(found["scripts"]), found["word"], found["command"])


def table(user: str | None, found: Section) -> Table:
    return Table(
        user,
        found["path"],
        base64.b64decode(found["b64"]).decode("latin-1"),
        found["mode"],
        found["uid"],
        found["gid"],
        found.get("inert"),
        frozenset(found.get("kept", ())),
        {int(number): line(one) for number, one in found["lines"].items()},
        found["unended"],
    )


def parse(section: Section) -> Crontabs:
    users = [table(user, found) for user, found in sorted(section["users"].items())]
    system = [table(None, found) for found in section.get("system", {}).values()]
    return Crontabs((*users, *system), tuple(section["deleted"]))
