"""Programs outside of docker that hold memory, as far as a launch would miss it."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from facts.engines import outside
from facts.run.unknown import Section


@dataclass(frozen=True)
class Program(outside.Program):
    """mib: private memory of the program, or of all of a service; gpu_mib: what it holds through
    the GPU, which on a unified host is the same memory; screen: it ends with the desktop."""

    screen: bool
    mib: float
    gpu_mib: float

    @property
    def held_mib(self) -> float:
        """At least: what is managed for both may be counted in both, so they are not added."""
        return max(self.mib, self.gpu_mib)

    def part_of(self, units: Collection[tuple[str, str]]) -> bool:
        """Is it of one of these ("system" or a user, unit), or of an instance of a template?"""
        scope, unit = ("system", self.unit) if self.unit else (self.user, self.user_unit)
        return (scope, unit) in units or (scope, re.sub(r"@.*\.", "@.", unit)) in units


@dataclass(frozen=True)
class Holders:
    """rest_mib: of all that are too small to name and stay when the desktop ends; gpu_unread: why
    nvidia-smi said nothing."""

    programs: tuple[Program, ...]
    rest_mib: float
    gpu_unread: str | None

    def staying(self, going: Collection[tuple[str, str]]) -> tuple[Program, ...]:
        """Those that neither the desktop nor one of these units takes along, the largest first."""
        return tuple(p for p in self.programs if not p.screen and not p.part_of(going))


def parse(section: Section) -> Holders:
    return Holders(
        programs=tuple(Program(**one) for one in section["programs"]),
        rest_mib=section["rest_mib"],
        gpu_unread=section["gpu_unread"],
    )
