"""CPU frequency policies and their governors."""

from __future__ import annotations

from dataclasses import dataclass

from facts.unknown import Section

UNREADABLE = "(unreadable)"


@dataclass(frozen=True)
class Policy:
    """governor is None where all CPUs of the policy are offline (the kernel refuses access), and
    UNREADABLE, which is never the wanted one, where it refuses although some are online."""

    name: str
    governor: str | None
    offered: tuple[str, ...]

    @property
    def offline(self) -> bool:
        return self.governor is None


@dataclass(frozen=True)
class Cpufreq:
    """No policies: the host has no frequency scaling driver (unsupported, not converged)."""

    policies: tuple[Policy, ...]

    @property
    def supported(self) -> bool:
        return bool(self.policies)


def parse(section: Section) -> Cpufreq:
    return Cpufreq(
        tuple(
            Policy(
                name,
                (found["governor"] or UNREADABLE) if found["online_cpus"] else None,
                tuple(found["offered"]),
            )
            for name, found in sorted(section["policies"].items())
        )
    )
