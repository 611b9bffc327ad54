"""What beside crontabs could start a container or an engine here, and holding it reversibly.

section: units and timers of the system and of users, scripts that cron runs or that run when a link
    comes up, at jobs. Commands and their arguments stay on the host; only whether and how they
    mention an engine leaves it.

hold < {"units": [...], "scripts": [...]}   puts a drop-in on each unit with a condition that never
    holds, so that nothing can start it (timer, socket, path, D-Bus, another unit, a person), stops
    it where asked, and takes the x bit from scripts. `systemctl mask` cannot do this: it refuses a
    unit whose own file lies in /etc/systemd/system.
rearm   takes all that away again and starts what ran
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import pwd
import re
import stat
import sys
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import crontab
import journal
import mentions
import units as units_of
from run import Failed, run

RECORD = "/var/lib/spark-converge/held.json"
DROP_IN = "zz-spark-converge-held.conf"
HELD = """# Held by spark-converge: an engine of another stack shall not be started meanwhile.
# Given back by its rollback or undo; by hand: remove this file, then systemctl daemon-reload.
[Unit]
ConditionPathExists=/nonexistent/held-by-spark-converge
"""
SYSTEM_FOLDERS = mentions.UNIT_FOLDERS
USER_FOLDERS = ("/etc/systemd/user", "/usr/local/lib/systemd/user", "/usr/lib/systemd/user")
OWN_USER_FOLDERS = ("~/.config/systemd/user", "~/.local/share/systemd/user")
RUNTIME = "/run/user/{}/systemd"
RUNTIME_FOLDERS = ("user", "transient", "generator", "generator.late")  # below it
PERIODIC_FOLDER = "/etc/cron."
PERIODIC = ("hourly", "daily", "weekly", "monthly", "yearly")
# Their scripts run when a link comes up, which a change of the fabric makes it do.
HOOKS = (
    "/etc/NetworkManager/dispatcher.d",
    "/etc/NetworkManager/dispatcher.d/*.d",
    "/etc/networkd-dispatcher/*.d",
    "/etc/network/if-up.d",
)
AT_FOLDERS = ("/var/spool/cron/atjobs", "/var/spool/at")
LINGER = "/var/lib/systemd/linger"
# The container engines themselves: they start containers on request, and by restart policies,
# which are looked at with the containers.
INFRASTRUCTURE = re.compile(
    r"(docker|containerd|buildkit|cri-docker|nvidia-.*|snap\.docker\..*|spark-converge-.*"
    r"|podman(-auto-update|-clean-transient|-kube@|-restart|-user-wait-network-online)?)"
    r"\.(service|socket|timer|path)"
)
ENVIRONMENT = re.compile(rb"^\s*Environment\s*=\s*(.*)$", re.MULTILINE)
ENVIRONMENT_FILE = re.compile(rb"^\s*EnvironmentFile\s*=\s*-?(\S+)", re.MULTILINE)
LINE_BYTES = 4096  # of a longer one the rest is not looked at: people may write their own units
GIVEN = re.compile(rb"([\"']?)(\w+)=(.*?)\1(?:\s|$)")
WORKING = re.compile(rb"^\s*WorkingDirectory\s*=\s*-?(\S+)", re.MULTILINE)
TRIGGER = re.compile(r"^\s*Unit\s*=\s*(\S+)\s*$", re.MULTILINE)
ACCEPT = re.compile(r"^\s*Accept\s*=\s*(?:yes|true|on|1)\s*$", re.MULTILINE | re.IGNORECASE)
EXPORT = re.compile(rb"^\w+=.*; export \w+$", re.MULTILINE)
STARTED_BY = ("WantedBy", "RequiredBy", "UpheldBy", "OnFailureOf", "OnSuccessOf")
PROPERTIES = "Id,LoadState,ActiveState,UnitFileState,TriggeredBy," + ",".join(STARTED_BY)


def files_of(
    folders: Iterable[str], passed_over: re.Pattern[str] = INFRASTRUCTURE
) -> dict[str, list[str]]:
    """{service: [its file, then drop-ins]} by precedence, but for masked ones."""
    found: dict[str, str] = {}
    masked: set[str] = set()
    drop_ins: dict[str, list[str]] = {}
    for folder in folders:
        for path in sorted(glob.glob(folder + "/*.service")):
            name = os.path.basename(path)
            if name in found or name in masked or passed_over.fullmatch(name):
                continue
            with contextlib.suppress(FileNotFoundError):  # a link that leads nowhere
                empty = os.stat(path).st_size == 0  # /dev/null is, too
                found.update({} if empty else {name: path})
                masked.update({name} if empty else ())
        for path in sorted(glob.glob(folder + "/*.service.d/*.conf")):
            drop_ins.setdefault(os.path.basename(os.path.dirname(path))[:-2], []).append(path)
    return {name: [path, *drop_ins.get(name, [])] for name, path in found.items()}


def commands_of(paths: list[str]) -> bytes:
    """The Exec lines of a unit's file and drop-ins, as one text."""
    return commands_in(texts_of(paths))


def texts_of(paths: list[str]) -> list[bytes]:
    return [mentions.JOINED.sub(b" ", mentions.text_of(path)) for path in paths]


def commands_in(texts: list[bytes]) -> bytes:
    return b"\n".join(line for text in texts for line in mentions.EXEC.findall(text))


def working(texts: list[bytes], home: str) -> list[str]:
    """Where the commands of a unit run: a script may be named without its folder."""
    found = [folder for text in texts for folder in WORKING.findall(text)]
    return [home if f == b"~" else f.decode("latin-1") for f in found]


def variables(texts: list[bytes]) -> dict[str, list[str]]:
    """{name: values} that a unit gives to its commands, and in which they may name a script."""
    found: dict[str, list[str]] = {}
    for text in texts:
        for line in ENVIRONMENT.findall(text):
            for _, name, value in GIVEN.findall(line[:LINE_BYTES]):
                found.setdefault(name.decode(), []).append(value.decode("latin-1"))
        for path in ENVIRONMENT_FILE.findall(text):
            given = crontab.variables(mentions.text_of(path.decode("latin-1")))
            for name, values in given.items():
                found.setdefault(name, []).extend(values)
    return found


def candidates(reader: mentions.Reader, folders: Iterable[str], home: str) -> list[dict[str, Any]]:
    """Units whose commands mention an engine: {name, path, weight, direct, scripts, held}."""
    found = []
    for name, paths in files_of(folders).items():
        texts = texts_of(paths)
        commands = commands_in(texts)
        own = reader.own(commands)
        of_package = paths[0].startswith(mentions.PACKAGES)
        scripts = reader.tokens(
            commands,
            home,
            packages_too=not of_package,
            beside=working(texts, home),
            variables=variables(texts) if b"$" in commands else None,
        )
        weight = mentions.heaviest([own, *(w for _, w in scripts)])
        if weight:
            found.append(
                {
                    "name": name,
                    "path": paths[0],
                    "weight": weight,
                    "direct": bool(own),
                    "scripts": [token for token, _ in scripts],
                    "held": any(os.path.basename(path) == DROP_IN for path in paths),
                }
            )
    return found


def enabled_in(folders: Iterable[str], name: str) -> bool:
    """Is there a link that has this unit, or an instance of this template, started?"""
    stem, _, tail = name.partition("@.")
    pattern = f"{stem}@*.{tail}" if tail else name
    kinds = ("wants", "requires", "upholds")
    return any(glob.glob(f"{folder}/*.{kind}/{pattern}") for folder in folders for kind in kinds)


def triggers_in(folders: Iterable[str], name: str) -> dict[str, str]:
    """Timers, paths and sockets whose files name this unit, or go by its name."""
    found = {}
    for folder in folders:
        for kind in ("timer", "path", "socket"):
            for path in sorted(glob.glob(f"{folder}/*.{kind}")):
                trigger = os.path.basename(path)
                text = mentions.text_of(path).decode("latin-1")
                named = TRIGGER.search(text)
                each = "@" if kind == "socket" and ACCEPT.search(text) else ""
                target = named[1] if named else f"{trigger.rsplit('.', 1)[0]}{each}.service"
                # Of a template any instance will do: Unit=lane@1.service or lane@%i.service.
                of_template = "@." in name and re.sub(r"@[^@]*\.", "@.", target)
                if name in (target, f"{target}.service", of_template) and trigger not in found:
                    found[trigger] = path
    return found


def manager(scope: str, uid: int) -> list[str] | None:
    """The systemctl that speaks to the manager of a scope; None where that one does not run."""
    if scope == "system":
        return ["systemctl"]
    runtime = RUNTIME.format(uid)
    if not os.path.exists(runtime + "/private"):
        return None
    environment = ["env", f"XDG_RUNTIME_DIR={os.path.dirname(runtime)}"]
    return ["runuser", "-u", scope, "--", *environment, "systemctl", "--user"]


def shown(systemctl: list[str] | None, names: list[str]) -> dict[str, dict[str, str]]:
    """{name: {property: value}} of units that the manager knows; templates have no properties."""
    whole = [name for name in names if "@." not in name]
    if not whole or systemctl is None:
        return {}
    _code, out, _err = run([*systemctl, "show", "-p", PROPERTIES, "--", *whole])
    blocks = [block for block in out.split("\n\n") if block.strip()]
    if len(blocks) != len(whole):
        return {}
    return {
        name: dict(line.split("=", 1) for line in block.strip().splitlines() if "=" in line)
        for name, block in zip(whole, blocks)
    }


def instances(systemctl: list[str] | None, template: str) -> dict[str, str]:
    """{instance: ActiveState} of a template, as far as the manager has any loaded."""
    if systemctl is None:
        return {}
    listed = ["list-units", "--all", "--full", "--plain", "--no-legend", "--no-pager"]
    _code, out, _err = run([*systemctl, *listed, "--", whole(template)])
    rows = [line.split(None, 4) for line in out.splitlines()]
    return {row[0]: row[2] for row in rows if len(row) > 3}


def activity(
    systemctl: list[str] | None, name: str, state: dict[str, str], unsaid: str = "unknown"
) -> str:
    """Of a unit, or of the most lively instance of a template; state: what the manager shows."""
    if "@." not in name:
        return state.get("ActiveState", unsaid if systemctl else "inactive")
    found = instances(systemctl, name).values()
    return next((one for one in found if one not in units_of.ASLEEP), "inactive")


def described(
    scope: str, uid: int, folders: Collection[str], found: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Candidates with how they stand, and what can start them."""
    systemctl = manager(scope, uid)
    states = shown(systemctl, [one["name"] for one in found])
    files = {one["name"]: triggers_in(folders, one["name"]) for one in found}
    named = {
        name: list(dict.fromkeys([*paths, *states.get(name, {}).get("TriggeredBy", "").split()]))
        for name, paths in files.items()
    }
    # All at once: a systemctl that asks costs more than all the reading of files.
    states.update(shown(systemctl, sorted({one for names in named.values() for one in names})))

    def file_state(name: str) -> str:
        said = "" if "@." in name else states.get(name, {}).get("UnitFileState", "")
        return said or ("enabled" if enabled_in(folders, name) else "disabled")

    for one in found:
        name = one["name"]
        state = states.get(name, {})
        yield {
            **one,
            "scope": scope,
            "uid": uid,
            "active": activity(systemctl, name, state),
            "file_state": file_state(name),
            "wanted_by": [unit for kind in STARTED_BY for unit in state.get(kind, "").split()],
            "triggers": [
                {
                    "name": trigger,
                    "path": files[name].get(trigger, ""),
                    "active": activity(systemctl, trigger, states.get(trigger, {}), "inactive"),
                    "file_state": file_state(trigger),
                }
                for trigger in named[name]
            ],
        }


def users() -> Iterator[pwd.struct_passwd]:
    """People (and root) whose user units could start: those with units, with linger, or here."""
    for person in pwd.getpwall():
        home = person.pw_dir
        own = any(os.path.isdir(mentions.expanded(f, home)) for f in OWN_USER_FOLDERS)
        here = os.path.isdir(RUNTIME.format(person.pw_uid))
        if own or here or os.path.exists(f"{LINGER}/{person.pw_name}"):
            yield person


def units(reader: mentions.Reader) -> list[dict[str, Any]]:
    found = list(
        described("system", 0, SYSTEM_FOLDERS, candidates(reader, SYSTEM_FOLDERS, "/root"))
    )
    for person in users():
        home = person.pw_dir
        own = [mentions.expanded(folder, home) for folder in OWN_USER_FOLDERS]
        runtime = [f"{RUNTIME.format(person.pw_uid)}/{name}" for name in RUNTIME_FOLDERS]
        folders = (*own, *runtime, *USER_FOLDERS)
        there = candidates(reader, folders, home)
        found += described(person.pw_name, person.pw_uid, folders, there)
    return found


def why_skipped(path: str) -> str | None:
    """Why nobody runs a script of these folders, None for one that is run."""
    by_name = path.startswith(PERIODIC_FOLDER)
    if by_name and not mentions.RUNNABLE.fullmatch(os.path.basename(path)):
        return "run-parts ignores such a name"
    if not os.stat(path).st_mode & stat.S_IXUSR:
        return "not executable"
    return None


def scripts(reader: mentions.Reader) -> list[dict[str, Any]]:
    found = []
    for folder in (*(f"{PERIODIC_FOLDER}{period}" for period in PERIODIC), *HOOKS):
        for path in sorted(glob.glob(folder + "/*")):
            if os.path.isfile(path) and reader.file(path, "/root"):
                why = why_skipped(path)
                held = bool(why) and path in load()["scripts"]
                found.append({"path": path, "inert": why, "held": held})
    return found


def at_jobs(reader: mentions.Reader) -> list[dict[str, Any]]:
    """Jobs of at(1) that mention an engine, by what a person needs to remove them: atrm NUMBER."""
    found = []
    for folder in AT_FOLDERS:
        for path in sorted(glob.glob(folder + "/[a-zA-Z=]*")):
            name = os.path.basename(path)
            if not re.fullmatch(r"[a-zA-Z=][0-9a-f]{13}", name):
                continue
            # The environment of whoever queued it stands before the command; it starts nothing.
            body = EXPORT.sub(b"", mentions.text_of(path))
            uid = os.stat(path).st_uid
            if reader.own(body) or reader.tokens(body, "/root"):
                when_s = int(name[6:], 16) * 60
                found.append({"number": int(name[1:6], 16), "uid": uid, "when_s": when_s})
    return found


def section(ask: dict[str, Any]) -> dict[str, Any]:
    """{"units": [...], "scripts": [...], "at_jobs": [...]}: of those that mention an engine."""
    reader = mentions.Reader(ask.get("words", ()))
    return {"units": units(reader), "scripts": scripts(reader), "at_jobs": at_jobs(reader)}


# Holding


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
        return f"{SYSTEM_FOLDERS[0]}/{unit['name']}.d/{DROP_IN}"
    home = pwd.getpwnam(unit["scope"]).pw_dir
    path = f"{mentions.expanded(OWN_USER_FOLDERS[0], home)}/{unit['name']}.d/{DROP_IN}"
    if not os.path.realpath(path).startswith(os.path.realpath(home) + "/"):
        raise ValueError(f"{path} leads out of {home}: not written")
    return path


def missing(folder: str) -> list[str]:
    """The folder and those above it that are not there, the deepest first."""
    return [] if os.path.isdir(folder) else [folder, *missing(os.path.dirname(folder))]


def whole(name: str) -> str:
    """All instances of a template, the unit itself otherwise."""
    return name.replace("@.", "@*.")


def reload(scopes: Iterable[tuple[str, int]]) -> None:
    for scope, uid in scopes:
        systemctl = manager(scope, uid)
        if systemctl:
            run([*systemctl, "daemon-reload"])


def hold(plan: dict[str, Any]) -> dict[str, Any]:
    """units: {scope, uid, name, file_state, active, stop, restart}; scripts: paths of cron.*."""
    record = load()
    paths = [drop_in(unit) for unit in plan["units"]]  # all of them, before anything is written
    for unit, path in zip(plan["units"], paths):
        key = f"{unit['scope']} {unit['name']}"
        if key not in record["units"] or not os.path.exists(path):
            record["units"][key] = {**unit, "restart": to_restart(unit)}
    for path in plan["scripts"]:
        if not why_skipped(path):  # a mode that was noted before is a hold that undo took back
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
    reload({(unit["scope"], unit["uid"]) for unit in plan["units"]})
    said = []
    for unit in plan["units"]:
        systemctl = manager(unit["scope"], unit["uid"])
        if unit["stop"] and systemctl:
            code, _out, err = run([*systemctl, "stop", "--", whole(unit["name"])], timeout_s=120)
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
    found = instances(manager(unit["scope"], unit["uid"]), unit["name"])
    return sorted(name for name, active in found.items() if active not in units_of.ASLEEP)


def journalled(unit: dict[str, Any]) -> dict[str, str]:
    """{unit: enablement and activity} for undo; a template has none, its instances do."""
    if "@." not in unit["name"]:
        return {unit["name"]: f"{unit['file_state'] or 'none'} {unit['active']}"}
    shown = units_of.show(list(instances(manager(unit["scope"], unit["uid"]), unit["name"])))
    return {
        name: f"{one.get('UnitFileState') or 'none'} {one['ActiveState']}"
        for name, one in shown.items()
    }


def installed(systemctl: list[str], name: str) -> bool:
    return shown(systemctl, [name]).get(name, {}).get("LoadState") != "not-found"


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
    reload({(unit["scope"], unit["uid"]) for unit in record["units"].values()})
    for unit in record["units"].values():
        systemctl = manager(unit["scope"], unit["uid"])
        again = [name for name in unit["restart"] if systemctl and installed(systemctl, name)]
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
    if argv[0] == "hold":
        plan = json.load(sys.stdin)
        with journal.alone():
            return hold(plan)
    if argv[0] == "rearm":
        with journal.alone():
            return rearm()
    raise ValueError(f"unknown action {argv[0]}")
