"""The whole state of the host in one run: the parts below, each on its own.

A part that fails says {"unknown": reason}; the others still answer.
"""

from __future__ import annotations

import importlib
import json
import threading
import time
from typing import Any

from run.command import Failed

LIMIT_S = 150  # the longest that a part waits for one program is 60 s
WORKERS = 4  # what they do is to wait for other programs
STUCK_S = 20  # without any answer for so long another one begins

# RecursionError: JSON that is nested a thousand deep.
FAULTS = (Failed, OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)

# Part -> the module whose section() reads it, or the function itself.
ALWAYS = {
    "lease": "run.lease",
    "boot": "systemd.boot",
    "services": "systemd.units",
    "cpufreq": "clocks.cpufreq",
    "fabric": "network.addresses",
    "memory": "memory.memory",
    "sysctl": "memory.sysctls",
    "logind": "systemd.logind",
    "oom": "memory.oom",
    "listeners": "network.listeners",
    "crontab": "watchdogs.crontab",
    "starters": "watchdogs.starters",
    "maintenance": "systemd.maintenance",
    "reach": "network.reach",
    "userunits": "systemd.userunits",
    "containers": "engines.containers",
    "outside": "engines.outside",
    "images": "engines.images",
    "shards": "model.shards",
    "files": "run.installed:files",
    "program": "run.installed:program",
    "record": "run.installed:record",
}
# Read, and even loaded, only when a job asks for them.
WHEN_ASKED = {
    "machine": "look.machine",
    "gpu": "clocks.gpu",
    "discovered": "look.discovered",
    "journal": "undo.restore",
    "leftovers": "model.place",
    "holders": "memory.holders",
    "adoptable": "adopt.look",
}


def answer(name: str, ask: dict[str, Any]) -> Any:
    module, _, function = (ALWAYS.get(name) or WHEN_ASKED[name]).partition(":")
    try:
        return getattr(importlib.import_module(module), function or "section")(ask)
    except FAULTS as error:
        return {"unknown": f"{type(error).__name__}: {error}"}


def main(argv: list[str]) -> dict[str, Any]:
    ask = json.loads(argv[0])
    names = [*ALWAYS, *(name for name in WHEN_ASKED if name in ask.get("extra", ()))]
    todo, found = names[::-1], {}
    done = threading.Semaphore(0)

    # Bare threads: concurrent.futures loads so much that it costs a slow host more than it saves.
    def work() -> None:
        while True:
            try:
                name = todo.pop()
            except IndexError:  # none is left
                return
            try:
                found[name] = answer(name, ask)
            finally:
                done.release()

    # Daemons: one that never comes back (a file on a dead NFS server) ends with the program.
    def begin() -> None:
        threading.Thread(target=work, daemon=True).start()

    for _ in range(WORKERS):
        begin()
    deadline = time.monotonic() + LIMIT_S
    for _ in names:
        while not done.acquire(timeout=min(STUCK_S, max(0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                break
            begin()  # all of them may wait for the same dead mount
    late = {
        "unknown": f"no answer in {LIMIT_S} s; does something that it reads lie on a dead mount?"
    }
    return {name: found.get(name, late) for name in names}
