"""Units and scripts that could start an engine, held reversibly.

put < {"units": [...], "scripts": [...]}   puts a drop-in on each unit with a condition that never
    holds, so that nothing can start it (timer, socket, path, D-Bus, another unit, a person), stops
    it where asked, and takes the x bit from scripts. `systemctl mask` cannot do this: it refuses a
    unit whose own file lies in /etc/systemd/system.
rearm   takes all that away again and starts what ran
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import stat
import sys
from typing import Any

from run import homes, journal
from run.command import Failed, run
from systemd import scopes, units

from watchdogs import crontab

RECORD = "/var/lib/spark-converge/held.json"
DROP_IN = "zz-spark-converge-held.conf"
HELD = """# Held by spark-converge: an engine of another stack shall not be started meanwhile.
# Given back by its rollback or undo; by hand: remove this file, then systemctl daemon-reload.
[Unit]
ConditionPathExists=/nonexistent/held-by-spark-converge
"""


def load() -> dict[str, Any]:
    """What is held: {"units": {"scope name": {...}}, "scripts": {path: mode or link's target}}.

    folders: those that were made for it.
    """
    record: dict[str, Any] = {"units": {}, "scripts": {}, "folders": []}
    with contextlib.suppress(FileNotFoundError), open(RECORD) as file:
        record.update(json.load(file))
    return record


def keep(record: dict[str, Any]) -> None:
    journal.make_folder(os.path.dirname(RECORD), 0o755)
    journal.write(RECORD, json.dumps(record, indent=1).encode(), 0o600)


def drop_in(unit: dict[str, Any]) -> str:
    """Path of the drop-in that holds a unit; raises ValueError for a home that leads elsewhere."""
    if unit["scope"] == "system":
        return f"{scopes.UNIT_FOLDERS[0]}/{unit['name']}.d/{DROP_IN}"
    home = pwd.getpwnam(unit["scope"]).pw_dir
    path = f"{homes.expanded(scopes.OWN_USER_FOLDERS[0], home)}/{unit['name']}.d/{DROP_IN}"
    if not os.path.realpath(path).startswith(os.path.realpath(home) + "/"):
        raise ValueError(f"{path} leads out of {home}: not written")
    return path


def missing(folder: str) -> list[str]:
    """The folder and those above it that are not there, the deepest first."""
    return [] if os.path.isdir(folder) else [folder, *missing(os.path.dirname(folder))]


def put(plan: dict[str, Any]) -> dict[str, Any]:
    """units: {scope, uid, name, file_state, active, stop, restart}; scripts: paths of cron.*."""
    record = load()
    paths = [drop_in(unit) for unit in plan["units"]]  # all of them, before anything is written
    for unit, path in zip(plan["units"], paths):
        key = f"{unit['scope']} {unit['name']}"
        if key not in record["units"] or not os.path.exists(path):
            record["units"][key] = {**unit, "restart": to_restart(unit)}
    for path in plan["scripts"]:
        if not crontab.why_skipped(path):  # with a mode noted before: undo took that hold back
            mode = stat.S_IMODE(os.stat(path).st_mode)
            record["scripts"][path] = os.readlink(path) if os.path.islink(path) else mode
    new = [folder for path in paths for folder in missing(os.path.dirname(path))]
    record["folders"] = sorted({*record["folders"], *new}, reverse=True)
    keep(record)
    for unit, path in zip(plan["units"], paths):
        if unit["scope"] == "system":
            for name, state in journalled(unit).items():
                journal.setting(f"unit.{name}", state, "")
        journal.put(path, 0o644, (os.geteuid(), os.getegid()), HELD.encode())
    scopes.reload({(unit["scope"], unit["uid"]) for unit in plan["units"]})
    said = []
    for unit in plan["units"]:
        systemctl = scopes.manager(unit["scope"], unit["uid"])
        if unit["stop"] and systemctl:
            stop = [*systemctl, "stop", "--", scopes.whole(unit["name"])]
            code, _out, err = run(stop, timeout_s=120)
            said += [err.strip()] if code else []
    for path in plan["scripts"]:
        change_mode(path, stat.S_IMODE(os.stat(path).st_mode) & ~0o111)
    if plan["scripts"]:
        crontab.settle(plan["scripts"])
    if said:
        raise Failed("; ".join(said))
    return {}


def to_restart(unit: dict[str, Any]) -> list[str]:
    """What the hold stops and the re-arm has to start again: the unit, or instances of it."""
    if not unit["restart"]:
        return []
    if "@." not in unit["name"]:
        return [unit["name"]]
    found = instances(unit)
    return sorted(name for name, active in found.items() if active not in units.ASLEEP)


def instances(unit: dict[str, Any]) -> dict[str, str]:
    return scopes.instances(scopes.manager(unit["scope"], unit["uid"]), unit["name"])


def journalled(unit: dict[str, Any]) -> dict[str, str]:
    """{unit: enablement and activity} for undo; a template has none, its instances do."""
    if "@." not in unit["name"]:
        return {unit["name"]: f"{unit['file_state'] or 'none'} {unit['active']}"}
    return {
        name: f"{one.get('UnitFileState') or 'none'} {one['ActiveState']}"
        for name, one in units.show(list(instances(unit))).items()
    }


def make_link(path: str, target: str) -> None:
    """A script that was a link to another, which a hold replaced by a copy that nobody may run."""
    if os.path.isfile(path):
        journal.write_link(path, target, (os.geteuid(), os.getegid()))


def change_mode(path: str, mode: int) -> None:
    info = os.stat(path)
    with open(path, "rb") as file:
        data = file.read()
    journal.put(path, mode, (info.st_uid, info.st_gid), data)


def rearm() -> dict[str, Any]:
    """Everything in the record, given back; what somebody removed meanwhile stays away.

    One that cannot be given back keeps none of the others from it.
    """
    record, said = load(), []
    for unit in record["units"].values():
        try:
            journal.take_away(drop_in(unit))
        except KeyError:  # there is no such user any more, nor a unit
            continue
        except (Failed, OSError, ValueError) as error:
            said.append(str(error))
    for folder in record["folders"]:  # the deepest of a tree first, as sorted
        journal.remove_folder(folder)
    scopes.reload({(unit["scope"], unit["uid"]) for unit in record["units"].values()})
    for unit in record["units"].values():
        systemctl = scopes.manager(unit["scope"], unit["uid"])
        again = [
            name for name in unit["restart"] if systemctl and scopes.installed(systemctl, name)
        ]
        if systemctl and again:
            code, _out, err = run([*systemctl, "start", "--", *again], timeout_s=120)
            said += [err.strip()] if code else []
    for path, was in record["scripts"].items():
        if isinstance(was, str):
            make_link(path, was)
        elif os.path.exists(path):
            change_mode(path, was)
    if said:
        raise Failed("; ".join(said))
    if os.path.exists(RECORD):
        os.unlink(RECORD)
    return {}


def main(argv: list[str]) -> dict[str, Any]:
    if argv[0] == "put":
        plan = json.load(sys.stdin)
        with journal.alone():
            return put(plan)
    if argv[0] == "rearm":
        with journal.alone():
            return rearm()
    raise ValueError(f"unknown action {argv[0]}")
