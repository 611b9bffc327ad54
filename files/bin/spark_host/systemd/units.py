"""systemd units: read, taken down, enabled; states and links go into the journal first."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Collection, Iterator
from typing import Any

from run import journal
from run.command import Failed, read, run

from systemd import links

PROPERTIES = (
    "Id,Names,LoadState,ActiveState,SubState,UnitFileState,FragmentPath,DropInPaths,TriggeredBy,"
    "Triggers,WantedBy,RequiredBy,UpheldBy,BoundBy"
)
# Highest precedence first: systemd.unit(5).
FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
WANTS = ("wants", "requires", "upholds")
BUS_SERVICES = "/usr/share/dbus-1/system-services/*.service"
TRIGGERS = ("timer", "path", "socket")
SUFFIXES = (".service", ".timer", ".socket", ".path", ".mount")
DEFAULT = "default.target"
ASLEEP = ("inactive", "failed")
DROP_IN = "zz-spark-converge-down.conf"
DOWN = b"""# Down for good by spark-converge: the unit's file lies where a mask would have to be.
# Given back by its undo; by hand: remove this file, then systemctl daemon-reload.
[Unit]
ConditionPathExists=/nonexistent/down-by-spark-converge
"""
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


def canonical(name: str) -> str:
    """The unit that a name leads to by its links: gdm.service for gdm3.service.

    systemd itself says so only while the unit is not masked: of a masked one each alias is a unit
    of its own that never runs, whatever the real one does.
    """
    for _ in range(8):  # links that lead in a circle end here
        paths = (f"{folder}/{name}" for folder in FOLDERS)
        path = next((p for p in paths if os.path.lexists(p)), None)
        target = os.path.basename(os.readlink(path)) if path and os.path.islink(path) else name
        if "." not in target or target == name:  # /dev/null: masked under this name
            break
        name = target
    return name


def started_by(trigger: str, now: dict[str, str]) -> list[str]:
    """What a timer, path or socket starts; now: what systemctl shows of it.

    A masked one has no more to say: then its file below the mask is asked.
    """
    stem, _, kind = trigger.rpartition(".")
    if kind not in TRIGGERS or now.get("Triggers"):
        return now.get("Triggers", "").split()
    text = next(filter(None, (read(f"{folder}/{trigger}") for folder in FOLDERS)), "")
    named = re.search(r"^\s*(?:Unit|Service)\s*=\s*(\S+)", text, re.MULTILINE)
    return [canonical(named[1] if named else f"{stem}.service")]


def bus_activated() -> set[str]:
    """Names of the units that D-Bus starts when somebody asks for their service."""
    texts = (read(path) or "" for path in glob.glob(BUS_SERVICES))
    return {m[1] for t in texts if (m := re.search(r"^SystemdService=(\S+)", t, re.MULTILINE))}


def lasting_starters(unit: dict[str, str], found: Collection[str], bus: set[str]) -> list[str]:
    """What starts a unit also when it is disabled: `disable` takes away the links in /etc only.

    found: paths of all links there; bus: as bus_activated() says.
    """
    names = unit.get("Names", "").split()
    kinds = ("WantedBy", "RequiredBy", "UpheldBy", "BoundBy")
    wanting = dict.fromkeys(w for kind in kinds for w in unit.get(kind, "").split())
    top = FOLDERS[0]
    others = [
        one
        for one in wanting
        if not any(f"{top}/{one}.{kind}/{name}" in found for kind in WANTS for name in names)
    ]
    calls = [f"D-Bus as {n}" for n in names if n in bus and f"{top}/{n}" not in found]
    return others + calls


def neighbours(name: str) -> Iterator[str]:
    """What probably triggers a unit, or is triggered by it: by its name, where there is a file."""
    stem, _, kind = name.rpartition(".")
    kinds = {"service": TRIGGERS, **dict.fromkeys(TRIGGERS, ("service",))}.get(kind, ())
    for other in (f"{stem}.{one}" for one in kinds if not stem.endswith("@")):
        if any(os.path.lexists(f"{folder}/{other}") for folder in FOLDERS):
            yield other


def section(ask: dict[str, Any]) -> dict[str, Any]:
    """{"units": as show() says, under the asked names; "triggers": what triggers those, and what
    they trigger}; each unit with the "starters" that outlive a disable.

    One question where what triggers a unit has its name, as nearly all do: each costs a slow host
    the better part of a second.
    """
    real = {name: canonical(name) for name in ask["units"]}
    guessed = (canonical(other) for name in real.values() for other in neighbours(name))
    shown = show(list(dict.fromkeys([*real.values(), *guessed])))
    words = ("TriggeredBy", "Triggers")
    near = {
        t for name in real.values() for word in words for t in shown[name].get(word, "").split()
    }
    triggers = {name: canonical(name) for name in sorted(near)}
    shown |= show(list(dict.fromkeys(name for name in triggers.values() if name not in shown)))
    found, bus = set(links.paths(links.FOLDERS)), bus_activated()

    def described(names: dict[str, str]) -> dict[str, dict[str, Any]]:
        return {
            name: {**shown[unit], "starters": lasting_starters(shown[unit], found, bus)}
            for name, unit in names.items()
        }

    return {"units": described(real), "triggers": described(triggers)}


def default_fault() -> str | None:
    """What is wrong with the link of the default target itself, None when it is sound or absent."""
    path = f"{FOLDERS[0]}/{DEFAULT}"
    if not os.path.lexists(path):
        return None
    if not os.path.islink(path):
        return "a plain file instead of a link"
    target = os.readlink(path)
    if not os.path.exists(path):
        return f"a link to {target}, which is not there"
    if os.path.dirname(os.path.realpath(path)) not in map(os.path.realpath, FOLDERS):
        return f"a link to {target}, outside of systemd's folders"
    return None


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


def unmaskable(name: str) -> bool:
    """Does a file or link of the owner's lie where the mask would have to be?"""
    path = f"{FOLDERS[0]}/{name}"
    return os.path.lexists(path) and os.path.realpath(path) != "/dev/null"


def drop_in(name: str) -> str:
    return f"{FOLDERS[0]}/{name}.d/{DROP_IN}"


def hold_down(name: str) -> None:
    """What a mask does, by a condition that never holds."""
    journal.put(drop_in(name), 0o644, (os.geteuid(), os.getegid()), DOWN)


def down(todo: dict[str, list[str]]) -> dict[str, Any]:
    """{"stop": [unit], "disable": [unit], "mask": [unit]}: each in the order given.

    A unit that systemd refuses to mask gets a drop-in that keeps it from starting.
    """
    names = list(dict.fromkeys([*todo["stop"], *todo["disable"], *todo["mask"]]))
    keep_states(names)
    with links.watched(names):
        if todo["stop"]:
            systemctl("stop", "--", *todo["stop"])
        if todo["disable"]:
            systemctl("disable", "--quiet", "--no-reload", "--", *todo["disable"])
        mask = [name for name in todo["mask"] if not unmaskable(name)]
        if mask:
            systemctl("mask", "--quiet", "--no-reload", "--", *mask)
        for name in todo["mask"]:
            if name not in mask:
                hold_down(name)
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
    """`set-default` itself refuses a plain file and a link that leads nowhere: they go first."""
    path = f"{links.FOLDERS[0]}/{DEFAULT}"
    with links.watched([DEFAULT]):
        if os.path.lexists(path) and not os.path.islink(path):
            journal.remove(path)
        elif os.path.islink(path) and not os.path.exists(path):
            os.unlink(path)
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
