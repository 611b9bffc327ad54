"""Programs outside of any container that behave like an engine: they hold memory of the GPU, or
serve a model that they have loaded. Only found and named, never ended.

That they listen on the API port is in listeners.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from run import places, processes
from run.processes import Process, owner, private_mib
from run.servers import server_of

from engines.signs import OPEN, has_cuda, shown

# With less a server holds no model: one that waits for its first request has some 100 MiB.
LOADED_MIB = 1024


def found(running: list[Process]) -> Iterator[tuple[Process, str, list[str]]]:
    """(process, its control groups, signs) of each, but for the desktop's own programs."""
    screens = places.with_screen()
    for one in running:
        groups = places.cgroups(one.pid)
        if not places.outside(groups) or places.PODMAN.search(groups):
            continue
        server, held = server_of(one.argv), has_cuda(one.pid)
        loaded = private_mib(one.pid) if server and not held else 0.0
        if not held and loaded < LOADED_MIB:
            continue
        # The desktop's own programs draw with it; what serves a model would end with the desktop.
        if not server and places.whereabouts(groups, screens)["screen"]:
            continue
        size = f"holds {loaded:.0f} MiB" if loaded else OPEN
        yield one, groups, [*([server] if server else []), size]


def section(_: dict[str, Any]) -> dict[str, Any]:
    """{"programs": [{"name", "pid", "user", "unit", "user_unit", "signs"}]}; the processes of one
    service, and those that one of them started, are one program."""
    all_of_it = list(found(list(processes.processes())))
    pids = {one.pid for one, *_ in all_of_it}
    made: dict[Any, dict[str, Any]] = {}
    for one, groups, signs in all_of_it:
        place = places.whereabouts(groups, (set(), set()))
        unit, user_unit, user = place["unit"], place["user_unit"], owner(one.pid)
        key = (unit, user_unit, user) if unit or user_unit else one.pid
        if key in made or (key == one.pid and one.parent in pids):
            continue
        name = shown(os.path.basename(one.argv[0].split(" ")[0]))
        made[key] = {"name": name, "pid": one.pid, "user": user, "unit": unit}
        made[key].update(user_unit=user_unit, signs=signs)
    return {"programs": list(made.values())}
