"""Desktop units of users, down for good in each user's own folder."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pyinfra.api.command import StringCommand

from facts.run.unknown import Unknown
from facts.systemd.userunits import UserUnit, UserUnits
from operations.run.findings import Finding, Look, Wanted
from operations.run.job import Commands, Here, step
from operations.run.journal import quiet


def left(found: UserUnits) -> list[UserUnit]:
    """Units that somebody's session could still start."""
    return [one for one in found.units if not one.down]


def described(one: UserUnit) -> str:
    return f"{one.active}{', masked' if one.masked else ''} for {one.user}"


def assess(look: Look) -> Iterator[Finding]:
    """One line a unit, with the people for whom it is not down."""
    found = look.state.userunits
    for name in look.settings.user_units_down:
        line = Wanted("services", f"user unit {name}", "down for every user")
        if isinstance(found, Unknown):
            yield line.unread(found)
            continue
        mine = [one for one in found.units if one.name == name]
        bad = [one for one in mine if not one.down]
        yield line.judged("; ".join(map(described, bad or mine)) or "absent", not bad)


@step
def down_for_good(here: Here) -> Commands:
    """
    Mask and stop desktop units of people with linger or a running manager, each in their folder.

    + here: this host's share of the run

    Undo: the masks (links) and what ran are in the journal.
    """
    todo = left(here.known(here.read().userunits, "units of users"))
    if not todo:
        here.noop("no user's session starts a desktop unit")
        return
    asked = [{"user": u.user, "name": u.name, "active": u.active} for u in todo]
    yield StringCommand(quiet("userunits", "down", json.dumps({"units": asked})))
    here.changed()
    still = left(here.known(here.read().userunits, "units of users"))
    if still:
        told = ", ".join(f"{one.name} {described(one)}" for one in still)
        yield here.refuse(f"still not down for good: {told}")
