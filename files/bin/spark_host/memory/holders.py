"""Which programs outside of docker hold memory that a launch would miss. Only read, never ended.

holders   the same as the section of that name, asked for alone

What a program holds through a GPU without memory of its own is the host's memory and no part of
the program's resident set. nvidia-smi says it by process on GB10, although its whole is [N/A] there
(mostlygeek/llama-swap issue 782).
"""

from __future__ import annotations

import os
import re
from typing import Any

from clocks.gpu import PROBE_S
from engines.podman import owner
from run import processes
from run.command import read, run
from watchdogs import crontab

PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024
SMALL_MIB = 32  # what is smaller counts in the sum and is not named
QUICK_MIB = 8  # what is larger is asked for exactly, which takes the kernel a walk over its pages
NAME_CHARS = 60
PSS = re.compile(r"^Pss_Anon:\s+(\d+) kB", re.MULTILINE)
DOCKER = re.compile(r"/docker[-/][0-9a-f]{64}")
GROUP = re.compile(r"^\d+:([^:]*):(.*)$", re.MULTILINE)
# Below slices only: what lies in a container's own tree has names that the host's systemd lacks.
SERVICE = re.compile(r"(?:/[^/]+\.slice)*/([\w:.@\\-]+\.service)(?=/|$)", re.ASCII)
SCOPE = re.compile(r"(?:/[^/]+\.slice)*/session-([^/]+)\.scope(?=/|$)")
MANAGER = re.compile(r"(?:/[^/]+\.slice)*/user@(\d+)\.service(?=/|$)")
SESSIONS = "/run/systemd/sessions"
SEEN = ("x11", "wayland", "mir")  # sessions with a screen: they end with the desktop
Screens = tuple[set[str], set[str]]  # ids of sessions with a screen, uids of those who have one


def private_mib(pid: int) -> float:
    """Resident memory of a process without what it shares, with others or with files; of pages
    that forks have in common (a loader's workers) its part, which statm counts in each as a whole.
    """
    words = (read(f"/proc/{pid}/statm") or "0 0 0").split()
    mib = max(0, int(words[1]) - int(words[2])) * PAGE_KIB / 1024
    part = PSS.search(read(f"/proc/{pid}/smaps_rollup") or "") if mib > QUICK_MIB else None
    return int(part[1]) / 1024 if part else mib


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


def with_screen() -> Screens:
    ids, uids = set(), set()
    for name in os.listdir(SESSIONS) if os.path.isdir(SESSIONS) else ():
        path = f"{SESSIONS}/{name}"
        if not os.path.isfile(path):  # ID.ref is a FIFO, which ends no sooner than the session
            continue
        told = dict(re.findall(r"^(\w+)=(.*)$", read(path) or "", re.MULTILINE))
        # What a closing one has left behind has outlived its desktop already.
        if told.get("TYPE") in SEEN and told.get("STATE") != "closing":
            ids.add(name)
            uids.add(told.get("UID", ""))
    return ids, uids


def title(argv: list[str]) -> str:
    """The program, and of an interpreter what it runs; other arguments stay on the host."""
    words = [os.path.basename(argv[0].split(" ")[0])]
    if crontab.INTERPRETER.fullmatch(words[0]):
        module = argv[1:2] == ["-m"]
        words += argv[1:3] if module else [os.path.basename(w) for w in argv[1:2] if w[:1] != "-"]
    return shown(" ".join(filter(None, words)))


def shown(name: str) -> str:
    """As it may stand in a sentence: programs call themselves what they like, in whatever bytes."""
    return "".join(one if one.isprintable() else "?" for one in name[:NAME_CHARS]) or "nameless"


def cgroups(pid: int) -> str:
    return read(f"/proc/{pid}/cgroup") or ""


def place(groups: str) -> str:
    """Where systemd has a process, out of its cgroups; v1 has a line for each controller too."""
    found = dict(GROUP.findall(groups))
    return str(found.get("name=systemd") or found.get("", ""))


def outside(groups: str) -> bool:
    """Of docker as a launch knows it: a user's own docker stays. One that is gone is nowhere."""
    return bool(groups) and (not DOCKER.search(groups) or bool(MANAGER.match(place(groups))))


def whereabouts(groups: str, screens: Screens) -> dict[str, Any]:
    """{"unit": of the system, "user_unit": of a user, "screen": it ends with the desktop}."""
    path = place(groups)
    manager = MANAGER.match(path)
    if manager:
        own = SERVICE.match(path[manager.end() :])
        user_unit = own[1] if own else ""
        return {"unit": "", "user_unit": user_unit, "screen": manager[1] in screens[1]}
    unit, scope = SERVICE.match(path), SCOPE.match(path)
    screen = bool(scope and scope[1] in screens[0])
    return {"unit": unit[1] if unit else "", "user_unit": "", "screen": screen}


def programs(gpu_mib: dict[int, float]) -> list[dict[str, Any]]:
    """All that run outside of docker; the processes of a service are one, named by the largest."""
    screens = with_screen()
    found: dict[Any, list[dict[str, Any]]] = {}
    for process in processes.processes():
        pid, groups = process.pid, cgroups(process.pid)
        if not outside(groups):
            continue
        one = {"name": title(process.argv), "pid": pid, "user": owner(pid)}
        one.update(whereabouts(groups, screens))
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
