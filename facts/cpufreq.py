"""CPU frequency policies and their governors."""

from __future__ import annotations

from dataclasses import dataclass

from facts.unknown import Section


@dataclass(frozen=True)
class Policy:
    """governor is None where the kernel refuses the read: all CPUs of the policy are offline."""

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
                None if not found["online_cpus"] else found["governor"],
                tuple(found["offered"]),
            )
            for name, found in sorted(section["policies"].items())
        )
    )
