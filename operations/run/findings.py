"""One line of verify's page for one host, and the ways to make one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from facts.run.unknown import Unknown

# unsupported: this host has no such thing; unknown: it could not be read. Neither is "ok".
Verdict = Literal["ok", "drift", "unsupported", "unknown"]


@dataclass(frozen=True)
class Item:
    """One line of the page for one host; part groups the lines."""

    part: str
    name: str
    wanted: str
    found: str
    verdict: Verdict


def judged(part: str, name: str, wanted: str, found: str, good: bool) -> Item:
    return Item(part, name, wanted, found, "ok" if good else "drift")


def unread(part: str, name: str, wanted: str, why: Unknown | str) -> Item:
    return Item(part, name, wanted, str(why), "unknown")


@dataclass(frozen=True)
class Line:
    """One comparison: found by rank, None where it could not be read."""

    name: str
    found: tuple[str | None, ...]
    verdict: Verdict
    note: str = ""
