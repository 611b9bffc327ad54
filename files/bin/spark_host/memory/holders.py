"""Which programs outside of docker hold memory that a launch would miss. Only read, never ended.

holders   the same as the section of that name, asked for alone

What a program holds through a GPU without memory of its own is the host's memory and no part of
the program's resident set. nvidia-smi says it by process on GB10, although its whole is [N/A] there
(mostlygeek/llama-swap issue 782).
"""

from __future__ import annotations

import os
from typing import Any

from clocks.gpu import PROBE_S
from run import places, processes
from run.command import run
from run.places import cgroups, outside
from run.processes import owner, private_mib

SMALL_MIB = 32  # what is smaller counts in the sum and is not named
NAME_CHARS = 60


def on_gpu() -> tuple[dict[int, float], str | None]:
    """({pid: MiB}, why it could not be read); without nvidia-smi nothing is held there."""
    fields = ["--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    status, out, err = run(["nvidia-smi", *fields], PROBE_S)
    if status == 127:
        return {}, None
    if status:
        return {}, (err or out).strip() or f"nvidia-smi: exit status {status}"
    found: dict[int, float] = {}
    unsaid = []
    for line in out.splitlines():
        pid, _, mib = (word.strip() for word in line.partition(","))
        if pid.isdigit() and mib.isdigit():
            found[int(pid)] = found.get(int(pid), 0.0) + int(mib)
        elif pid.isdigit() and outside(cgroups(int(pid))):
            unsaid.append(f"{mib or 'nothing'} for pid {pid}")
    return found, f"nvidia-smi says {', '.join(unsaid)}" if unsaid else None


def title(argv: list[str]) -> str:
    """The program, and of an interpreter what it runs; other arguments stay on the host."""
    words = [os.path.basename(argv[0].split(" ")[0])]
    if processes.INTERPRETER.fullmatch(words[0]):
        module = argv[1:2] == ["-m"]
        words += argv[1:3] if module else [os.path.basename(w) for w in argv[1:2] if w[:1] != "-"]
    return shown(" ".join(filter(None, words)))


def shown(name: str) -> str:
    """As it may stand in a sentence: programs call themselves what they like, in whatever bytes."""
    return "".join(one if one.isprintable() else "?" for one in name[:NAME_CHARS]) or "nameless"


def programs(gpu_mib: dict[int, float]) -> list[dict[str, Any]]:
    """All that run outside of docker; the processes of a service are one, named by the largest."""
    screens = places.with_screen()
    found: dict[Any, list[dict[str, Any]]] = {}
    for process in processes.processes():
        pid, groups = process.pid, cgroups(process.pid)
        if not outside(groups):
            continue
        one = {"name": title(process.argv), "pid": pid, "user": owner(pid)}
        one.update(places.whereabouts(groups, screens))
        one.update(mib=private_mib(pid), gpu_mib=gpu_mib.get(pid, 0.0))
        service = one["unit"] or one["user_unit"]
        found.setdefault((service, one["user"]) if service else pid, []).append(one)
    return [together(members) for members in found.values()]


def together(members: list[dict[str, Any]]) -> dict[str, Any]:
    mib, gpu_mib = (sum(one[kind] for one in members) for kind in ("mib", "gpu_mib"))
    return {**max(members, key=size), "mib": mib, "gpu_mib": gpu_mib}


def size(one: dict[str, Any]) -> float:
    """At least: managed memory may be counted in both."""
    return float(max(one["mib"], one["gpu_mib"]))


def section(_: dict[str, Any]) -> dict[str, Any]:
    """{"programs": [{"name", "pid", "user", "unit", "user_unit", "screen", "mib", "gpu_mib"}] with
    the largest first, "rest_mib": of all that are too small to name and stay when the desktop ends,
    "gpu_unread": why or null}"""
    gpu_mib, unread = on_gpu()
    found = sorted(programs(gpu_mib), key=size, reverse=True)
    named = [one for one in found if size(one) >= SMALL_MIB]
    rest = sum(size(one) for one in found[len(named) :] if not one["screen"])
    return {"programs": named, "rest_mib": rest, "gpu_unread": unread}


def main(_argv: list[str]) -> dict[str, Any]:
    return section({})
