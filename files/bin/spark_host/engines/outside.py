"""Programs outside of any container that hold memory of the GPU. Only found, never ended.

That they listen on the API port is in listeners.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from run import places, processes
from run.processes import Process, owner

from engines.signs import OPEN, has_cuda, shown


def found(running: list[Process]) -> Iterator[tuple[Process, str, list[str]]]:
    """(process, its control groups, signs) of each, but for what ends with the desktop."""
    screens = places.with_screen()
    for one in running:
        groups = places.cgroups(one.pid)
        if not places.outside(groups) or places.PODMAN.search(groups):
            continue
        if has_cuda(one.pid) and not places.whereabouts(groups, screens)["screen"]:
            yield one, groups, [OPEN]


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
