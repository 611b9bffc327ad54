"""Wireless connections of a host, and who keeps their secrets."""

from __future__ import annotations

from dataclasses import dataclass

from facts.run.unknown import Section

# NetworkManager's secret flags: 1 is kept by an agent in a user's session, 2 is asked each time.
OF_A_SESSION = 1 | 2


@dataclass(frozen=True)
class Wifi:
    """One connection of NetworkManager on a wireless device. users: those alone who may use it,
    as `connection.permissions` has them; secret_flags: of its password or key."""

    device: str
    name: str
    uuid: str
    users: str
    secret_flags: tuple[int, ...]

    @property
    def of_a_session(self) -> bool:
        """Does it come up only while somebody is logged in to a desktop?"""
        return bool(self.users) or any(flags & OF_A_SESSION for flags in self.secret_flags)


@dataclass(frozen=True)
class Reach:
    wifi: tuple[Wifi, ...]


def parse(section: Section) -> Reach:
    return Reach(
        tuple(
            Wifi(w["device"], w["name"], w["uuid"], w["users"], tuple(w["secret_flags"]))
            for w in section["wifi"]
        )
    )
