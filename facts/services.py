"""systemd units by their canonical names, with what can start them."""

from __future__ import annotations

from dataclasses import dataclass

from facts.unknown import Section

# A unit in one of these file states is started by nobody but a person or another unit's request,
# after the next boot too (masked-runtime ends with it).
NOT_STARTED_AT_BOOT = ("disabled", "masked")
ASLEEP = ("inactive", "failed")


@dataclass(frozen=True)
class Unit:
    """name is canonical (gdm.service for gdm3); load: loaded, not-found, masked, ..."""

    name: str
    load: str
    active: str
    file_state: str
    triggers: tuple[str, ...]
    bus_name: str

    @property
    def absent(self) -> bool:
        return self.load == "not-found" and self.active in ASLEEP

    @property
    def asleep(self) -> bool:
        return self.active in ASLEEP


@dataclass(frozen=True)
class Services:
    """asked: unit as asked for -> unit found; units: canonical name -> unit, triggers included."""

    asked: dict[str, Unit]
    units: dict[str, Unit]


def unit(properties: Section) -> Unit:
    return Unit(
        name=properties["Id"],
        load=properties["LoadState"],
        active=properties["ActiveState"],
        file_state=properties.get("UnitFileState", ""),
        triggers=tuple(properties.get("TriggeredBy", "").split()),
        bus_name=properties.get("BusName", ""),
    )


def parse(section: Section) -> Services:
    asked = {name: unit(properties) for name, properties in section["units"].items()}
    found = [*asked.values(), *(unit(p) for p in section["triggers"].values())]
    return Services(asked=asked, units={one.name: one for one in found})
