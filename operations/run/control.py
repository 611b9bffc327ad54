"""The process that runs a job, as another one on the same machine can recognise it."""

from __future__ import annotations

import getpass
import os
import platform
from pathlib import Path

PROC = Path("/proc")


def who() -> str:
    """User, machine and process, for a person."""
    return f"{getpass.getuser()}@{platform.node()} (pid {os.getpid()})"


def machine() -> str | None:
    """This boot of this machine, as seen from this PID namespace; None where there is no /proc."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink(PROC / 'self/ns/pid')}"  # noqa: PTH115 - not a path
    except OSError:
        return None


def started(pid: str) -> str | None:
    """When a process was started, in clock ticks since boot; None when there is none."""
    try:
        text = (PROC / pid / "stat").read_text()
    except OSError:
        return None
    # The name in brackets may have blanks and brackets of its own; the state comes behind it.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def origin() -> str:
    """This process; empty where it could not be recognised again."""
    here, pid = machine(), str(os.getpid())
    return f"{here} {pid} {started(pid)}" if here else ""


def has_ended(one: str) -> bool:
    """Is this the origin of a process of this machine that is gone? False where nobody can tell."""
    words = one.rsplit(" ", 2)
    return len(words) == 3 and words[0] == machine() and started(words[1]) != words[2]
