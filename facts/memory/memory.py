"""Unified memory as /proc/meminfo has it, and the segments in /dev/shm."""

from __future__ import annotations

from dataclasses import dataclass

from facts.run.unknown import Section


@dataclass(frozen=True)
class Segment:
    """verdict: leftover (a dead engine's), live, foreign (not an engine's) or special; dead: nobody
    holds it."""

    name: str
    size_bytes: int
    verdict: str
    dead: bool = False


@dataclass(frozen=True)
class Memory:
    """hugepages_mib: reserved for huge pages, which nothing of ours uses; shm_mib: what may be in
    /dev/shm, None where it was not read; cma_mib and cma_free_mib: of the region for devices that
    want memory in one piece, 0 where a kernel has none."""

    total_mib: int
    free_mib: int
    available_mib: int
    cached_mib: int
    swap_mib: int
    swap_free_mib: int
    segments: tuple[Segment, ...]
    hugepages_mib: int = 0
    shm_mib: int | None = None
    cma_mib: int = 0
    cma_free_mib: int = 0

    @property
    def usable_mib(self) -> int:
        """What could be available at all."""
        return self.total_mib - self.hugepages_mib

    @property
    def leftovers(self) -> tuple[Segment, ...]:
        return tuple(s for s in self.segments if s.verdict == "leftover")

    @property
    def unknown(self) -> tuple[Segment, ...]:
        """What nobody holds and nobody knows: named, never removed."""
        return tuple(s for s in self.segments if s.verdict == "foreign" and s.dead)


def parse(section: Section) -> Memory:
    kib = section["meminfo_kib"]
    return Memory(
        total_mib=kib["MemTotal"] // 1024,
        free_mib=kib["MemFree"] // 1024,
        available_mib=kib["MemAvailable"] // 1024,
        cached_mib=kib["Cached"] // 1024,
        swap_mib=kib["SwapTotal"] // 1024,
        swap_free_mib=kib["SwapFree"] // 1024,
        segments=tuple(
            Segment(s["name"], s["bytes"], s["verdict"], bool(s.get("dead")))
            for s in section["shm"]
        ),
        hugepages_mib=kib.get("Hugetlb", 0) // 1024,
        shm_mib=section["shm_kib"] // 1024 if "shm_kib" in section else None,
        cma_mib=kib.get("CmaTotal", 0) // 1024,
        cma_free_mib=kib.get("CmaFree", 0) // 1024,
    )
