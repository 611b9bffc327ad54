"""Which run is at work on a host."""

from __future__ import annotations

from dataclasses import dataclass

from facts.run.unknown import Section


@dataclass(frozen=True)
class Holder:
    """run: its own name; origin: the process at its control machine (operations/control.py)."""

    run: str
    job: str
    who: str
    origin: str
    age_s: float


@dataclass(frozen=True)
class Lease:
    holder: Holder | None


def parse(section: Section) -> Lease:
    one = section["holder"]
    if one is None:
        return Lease(None)
    return Lease(
        Holder(one["run"], one["job"], one["who"], one["origin"], age_s=float(one["age_s"]))
    )
