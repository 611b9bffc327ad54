"""systemd units: read, taken down, enabled; states and links go into the journal first."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import journal
import links
from run import Failed, run

PROPERTIES = (
    "Id,Names,LoadState,ActiveState,SubState,UnitFileState,TriggeredBy,BusName,FragmentPath"
)
ASLEEP = ("inactive", "failed")
STOP_S = 300  # TimeoutStopSec is 90 s by default, and several may wait for it one after another


def show(units: Collection[str]) -> dict[str, dict[str, str]]:
    """{asked name: {property: value}} by one `systemctl show` (its answers keep the order)."""
    if not units:
        return {}
    _status, out, err = run(["systemctl", "show", "-p", PROPERTIES, "--", *units])
    blocks = [b for b in out.split("\n\n") if b.strip()]
    if len(blocks) != len(units):
        raise Failed(err.strip() or f"systemctl show: {len(blocks)} answers for {len(units)} units")
    return {
        unit: dict(line.split("=", 1) for line in block.strip().splitlines() if "=" in line)
        for unit, block in zip(units, blocks)
    }


def systemctl(*words: str, timeout_s: float = STOP_S) -> None:
    """Raises Failed. Without the SysV hook: it turns rc links that a native unit does not use, and
    reloads systemd for each unit (25 s of the lab's first prepare)."""
    command = ["env", "SYSTEMCTL_SKIP_SYSV=1", "systemctl", *words]
    code, out, err = run(command, timeout_s=timeout_s)
    if code:
        raise Failed((err or out).strip() or f"systemctl {words[0]}: exit status {code}")


def keep_states(names: Collection[str]) -> None:
    for name, unit in show(names).items():
        state = unit.get("UnitFileState") or "none"
        journal.setting(f"unit.{name}", f"{state} {unit['ActiveState']}", "")


def down(todo: dict[str, list[str]]) -> dict[str, Any]:
    """{"stop": [unit], "disable": [unit], "mask": [unit]}: each in the order given."""
    names = list(dict.fromkeys([*todo["stop"], *todo["disable"], *todo["mask"]]))
    keep_states(names)
    with links.watched(names):
        if todo["stop"]:
            systemctl("stop", "--", *todo["stop"])
        if todo["disable"]:
            systemctl("disable", "--quiet", "--no-reload", "--", *todo["disable"])
        if todo["mask"]:
            systemctl("mask", "--quiet", "--no-reload", "--", *todo["mask"])
        if todo["disable"] or todo["mask"]:
            systemctl("daemon-reload")
    return {}


def enable(name: str) -> dict[str, Any]:
    """A unit of ours whose file was just put in place; it is not started."""
    with links.watched([name]):
        systemctl("daemon-reload")
        systemctl("enable", "--quiet", "--", name)
    return {}


def default(target: str) -> dict[str, Any]:
    with links.watched(["default.target"]):
        systemctl("set-default", "--quiet", "--no-reload", target)
    return {}


def main(argv: list[str]) -> dict[str, Any]:
    """down JSON; enable UNIT; default TARGET"""
    action, word = argv
    if action == "down":
        return down(json.loads(word))
    if action == "enable":
        return enable(word)
    if action == "default":
        return default(word)
    raise ValueError(f"unknown action {action}")
