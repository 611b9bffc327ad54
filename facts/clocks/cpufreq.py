"""CPU frequency policies with their governors and caps, and what else sets a governor."""

from __future__ import annotations

from dataclasses import dataclass

from facts.run.unknown import Section, Unknown
from facts.systemd import services
from facts.systemd.services import Services

UNREADABLE = "(unreadable)"


@dataclass(frozen=True)
class Policy:
    """governor is None where all CPUs of the policy are offline (the kernel refuses access), and
    UNREADABLE, which is never the wanted one, where it refuses although some are online.

    cap_khz: scaling_max_freq; top_khz, bottom_khz: what the CPUs can do; back_khz: the limit found
    before ours, None where none of ours is in force; steps_khz: the only frequencies that the
    driver knows, empty for one that takes any.
    """

    name: str
    governor: str | None
    offered: tuple[str, ...]
    cap_khz: int | None = None
    top_khz: int | None = None
    bottom_khz: int | None = None
    steps_khz: tuple[int, ...] = ()
    back_khz: int | None = None

    @property
    def offline(self) -> bool:
        return self.governor is None


@dataclass(frozen=True)
class Cpufreq:
    """No policies: the host has no frequency scaling driver (unsupported, not converged).

    writers: units whose commands write a governor, found by their text; left_alone: phrases, of
    what does so too and is not changed from here (units that run an engine, cron lines); profile:
    the one that power-profiles-daemon has in force, None while it does not run.
    """

    policies: tuple[Policy, ...]
    writers: Services
    left_alone: tuple[str, ...]
    profile: str | Unknown | None

    @property
    def supported(self) -> bool:
        return bool(self.policies)


def offline(found: Section) -> bool:
    """Without a list of its CPUs (the kernel refuses that too) the governor tells."""
    cpus: str | None = found["online_cpus"]
    return found["governor"] is None if cpus is None else not cpus


def parse(section: Section) -> Cpufreq:
    profile = section["profile"]
    return Cpufreq(
        policies=tuple(
            Policy(
                name,
                None if offline(found) else found["governor"] or UNREADABLE,
                tuple(found["offered"]),
                found["cap_khz"],
                found["top_khz"],
                found["bottom_khz"],
                tuple(found["steps_khz"]),
                found["back_khz"],
            )
            for name, found in sorted(section["policies"].items())
        ),
        writers=services.parse(section["writers"]),
        left_alone=tuple(section["left_alone"]),
        profile=Unknown(str(profile["unknown"])) if isinstance(profile, dict) else profile,
    )
