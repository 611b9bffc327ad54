"""What runs here, by /proc."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
from collections.abc import Iterator
from typing import NamedTuple

from run.command import read

GONE = "unknown"  # the owner of a process that has just ended
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024
QUICK_MIB = 8  # what is larger is asked for exactly, which takes the kernel a walk over its pages
PSS = re.compile(r"^Pss_Anon:\s+(\d+) kB", re.MULTILINE)
# What runs a script that stands behind it; an editor or a pager that has it open is none of these.
INTERPRETER = re.compile(r"-?((ba|da|z|k|mk|a)?sh|busybox|python[\d.]*|perl|ruby|node|php)")


class Process(NamedTuple):
    """started: clock ticks since boot, which tell it from a later one with its number."""

    pid: int
    parent: int
    started: int
    argv: list[str]


def processes() -> Iterator[Process]:
    """All that have a command line: neither kernel threads nor ended ones."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")[:-1]
            with open(f"/proc/{name}/stat", "rb") as file:
                rest = file.read().rsplit(b")", 1)[1].split()
        except (OSError, IndexError):
            continue
        if words:
            argv = [os.fsdecode(word) for word in words]
            yield Process(int(name), int(rest[1]), int(rest[19]), argv)


def links(folder: str) -> Iterator[str]:
    """Where the links of a folder lead; one that has just gone leads nowhere."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                yield os.readlink(f"{folder}/{name}")


def owner(pid: int) -> str:
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return GONE
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def private_mib(pid: int) -> float:
    """Resident memory of a process without what it shares, with others or with files; of pages
    that forks have in common (a loader's workers) its part, which statm counts in each as a whole.
    """
    words = (read(f"/proc/{pid}/statm") or "0 0 0").split()
    mib = max(0, int(words[1]) - int(words[2])) * PAGE_KIB / 1024
    part = PSS.search(read(f"/proc/{pid}/smaps_rollup") or "") if mib > QUICK_MIB else None
    return int(part[1]) / 1024 if part else mib
