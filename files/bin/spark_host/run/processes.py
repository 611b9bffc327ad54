"""What runs here, by /proc."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import NamedTuple


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
