"""The memory ritual before a bind: write back, drop the page cache, compact, with figures.

On GB10's unified memory a warm page cache starves the GPU allocator some 20 minutes into a load
(seed 002, step 3), so this runs before every launch; it is an act, not a state to converge to.
"""

from __future__ import annotations

import os
from typing import Any

from run.command import Failed, read

from memory import shm

FIGURES = ("MemTotal", "MemFree", "MemAvailable", "Cached", "Shmem", "Mapped")


def figures() -> dict[str, int]:
    with open("/proc/meminfo") as file:
        lines = (line.split() for line in file)
        return {w[0][:-1] + "_kib": int(w[1]) for w in lines if w[0][:-1] in FIGURES}


def ritual() -> dict[str, dict[str, int]]:
    before = figures()
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3\n")
    if os.path.exists("/proc/sys/vm/compact_memory"):
        with open("/proc/sys/vm/compact_memory", "w") as file:
            file.write("1\n")
    return {"before": before, "after": figures()}


def main(_: list[str]) -> dict[str, dict[str, int]]:
    return ritual()


def section(_: dict[str, Any]) -> dict[str, Any]:
    figures = {}
    for line in (read("/proc/meminfo") or "").splitlines():
        name, _colon, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            figures[name] = int(words[0])
    if "MemTotal" not in figures:
        raise Failed("/proc/meminfo has no MemTotal")
    size = os.statvfs(shm.FOLDER)
    shm_kib = size.f_blocks * size.f_frsize // 1024
    return {"meminfo_kib": figures, "shm": shm.segments(), "shm_kib": shm_kib}
