"""What beside crontabs could start a container or an engine on the host."""

from __future__ import annotations

from dataclasses import dataclass

from facts.run.unknown import Section
from facts.systemd.services import ASLEEP

ENABLED = ("enabled", "enabled-runtime", "generated", "transient")


@dataclass(frozen=True)
class Trigger:
    """A timer, path or socket that starts a unit."""

    name: str
    path: str
    active: str
    file_state: str

    @property
    def armed(self) -> bool:
        return self.active not in ASLEEP or self.file_state in ENABLED


@dataclass(frozen=True)
class Unit:
    """A service whose commands mention an engine.

    scope: system, or the user whose manager runs it; weight: starts (brings something up) or
    mentions; direct: by its own command, not only by a script; held: by us, behind a condition.
    """

    scope: str
    uid: int
    name: str
    path: str
    weight: str
    direct: bool
    scripts: tuple[str, ...]
    active: str
    file_state: str
    wanted_by: tuple[str, ...]
    triggers: tuple[Trigger, ...]
    held: bool

    @property
    def alive(self) -> bool:
        return self.active not in (*ASLEEP, "unknown")

    @property
    def can_start(self) -> bool:
        """Is there anything that would start it, now or at the next boot?"""
        return (
            self.alive
            or self.file_state in ENABLED
            or bool(self.wanted_by)
            or any(trigger.armed for trigger in self.triggers)
        )

    @property
    def stops(self) -> bool:
        """May it be stopped where it is held? An engine that runs as a service ends in its turn."""
        return not self.direct or self.active == "activating"

    @property
    def of_package(self) -> bool:
        return self.path.startswith(("/usr/lib/", "/lib/"))


@dataclass(frozen=True)
class Script:
    """In a cron.* folder, or run when a link comes up; inert: why nobody runs it."""

    path: str
    inert: str | None
    held: bool


@dataclass(frozen=True)
class AtJob:
    number: int
    uid: int
    when_s: int


@dataclass(frozen=True)
class Starters:
    units: tuple[Unit, ...]
    scripts: tuple[Script, ...]
    at_jobs: tuple[AtJob, ...]


def unit(found: Section) -> Unit:
    return Unit(
        scope=found["scope"],
        uid=int(found["uid"]),
        name=found["name"],
        path=found["path"],
        weight=found["weight"],
        direct=found["direct"],
        scripts=tuple(found["scripts"]),
        active=found["active"],
        file_state=found["file_state"],
        wanted_by=tuple(found["wanted_by"]),
        triggers=tuple(
            Trigger(one["name"], one["path"], one["active"], one["file_state"])
            for one in found["triggers"]
        ),
        held=found["held"],
    )


def parse(section: Section) -> Starters:
    return Starters(
        units=tuple(unit(one) for one in section["units"]),
        scripts=tuple(Script(s["path"], s["inert"], s["held"]) for s in section["scripts"]),
        at_jobs=tuple(AtJob(j["number"], j["uid"], j["when_s"]) for j in section["at_jobs"]),
    )
