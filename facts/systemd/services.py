"""systemd units by their canonical names, with what can start them."""

from __future__ import annotations

from dataclasses import dataclass

from facts.run.unknown import Section

ASLEEP = ("inactive", "failed")
DROP_IN = "zz-spark-converge-down.conf"  # as in spark_host/units.py


def drop_in(name: str) -> str:
    """Where it lies for a unit."""
    return f"/etc/systemd/system/{name}.d/{DROP_IN}"


@dataclass(frozen=True)
class Unit:
    """name is canonical (gdm.service for gdm3); load: loaded, not-found, masked, ...

    names: with its aliases; sub: running, exited, ...; triggers: sockets, paths, timers that start
    it; triggered: what it starts itself, as a timer; starters: what starts it although it is
    disabled (other units, D-Bus); path: of its file, empty where it has none; held: our drop-in
    keeps it from starting, since systemd refuses to mask it.
    """

    name: str
    names: tuple[str, ...]
    load: str
    active: str
    sub: str
    file_state: str
    triggers: tuple[str, ...]
    triggered: tuple[str, ...]
    starters: tuple[str, ...]
    path: str
    held: bool

    @property
    def absent(self) -> bool:
        return self.load == "not-found" and self.active in ASLEEP

    @property
    def asleep(self) -> bool:
        return self.active in ASLEEP


@dataclass(frozen=True)
class Services:
    """asked: unit as asked for -> unit found; units: canonical name -> unit, with what triggers
    those and what they trigger."""

    asked: dict[str, Unit]
    units: dict[str, Unit]


def unit(properties: Section) -> Unit:
    return Unit(
        name=properties["Id"],
        names=tuple(properties.get("Names", properties["Id"]).split()),
        load=properties["LoadState"],
        active=properties["ActiveState"],
        sub=properties.get("SubState", ""),
        file_state=properties.get("UnitFileState", ""),
        triggers=tuple(properties.get("TriggeredBy", "").split()),
        triggered=tuple(properties.get("Triggers", "").split()),
        starters=tuple(properties["starters"]),
        path=properties.get("FragmentPath", ""),
        held=f"/{DROP_IN}" in properties.get("DropInPaths", ""),
    )


def parse(section: Section) -> Services:
    asked = {name: unit(properties) for name, properties in section["units"].items()}
    found = [*asked.values(), *(unit(p) for p in section["triggers"].values())]
    return Services(asked=asked, units={one.name: one for one in found})
