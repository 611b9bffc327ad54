"""What beside crontabs could start a container or an engine here; holds.py holds it.

section: units and timers of the system and of users, scripts that cron runs or that run when a link
    comes up, at jobs. Commands and their arguments stay on the host; only whether and how they
    mention an engine leaves it.
"""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from run import homes
from systemd import scopes, specifiers

from watchdogs import crontab, holds, lines, mentions

RUNTIME_FOLDERS = ("user", "transient", "generator", "generator.late")
# Their scripts run when a link comes up, which a change of the fabric makes it do.
HOOKS = (
    "/etc/NetworkManager/dispatcher.d",
    "/etc/NetworkManager/dispatcher.d/*.d",
    "/etc/networkd-dispatcher/*.d",
    "/etc/network/if-up.d",
)
AT_FOLDERS = ("/var/spool/cron/atjobs", "/var/spool/at")
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
RUNS_AS = re.compile(rb"^\s*User\s*=\s*(\S+)", re.MULTILINE)
TRIGGER = re.compile(r"^\s*Unit\s*=\s*(\S+)\s*$", re.MULTILINE)
ACCEPT = re.compile(r"^\s*Accept\s*=\s*(?:yes|true|on|1)\s*$", re.MULTILINE | re.IGNORECASE)
EXPORT = re.compile(rb"^\w+=.*; export \w+$", re.MULTILINE)


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
    found = [folder.strip(b"\"'") for text in texts for folder in WORKING.findall(text)]
    return [home if f == b"~" else homes.expanded(f.decode("latin-1"), home) for f in found]


def home_in(texts: list[bytes], home: str) -> str:
    """Of whom a unit of the system names with User=; the manager's without."""
    found = [name.decode("latin-1") for text in texts for name in RUNS_AS.findall(text)]
    if not found:
        return home
    name = found[-1]
    if specifiers.ANY in name:  # user@.service of Debian has User=%i
        return f"/home/{name}"
    with contextlib.suppress(KeyError, ValueError, OverflowError):
        return (pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)).pw_dir
    return home


def variables(texts: list[bytes]) -> dict[str, list[str]]:
    """{name: values} that a unit gives to its commands, and in which they may name a script."""
    found: dict[str, list[str]] = {}
    for text in texts:
        for line in ENVIRONMENT.findall(text):
            for _, name, value in GIVEN.findall(line[:LINE_BYTES]):
                found.setdefault(name.decode(), []).append(value.decode("latin-1"))
        for path in ENVIRONMENT_FILE.findall(text):
            for place in mentions.instances(path.decode("latin-1")):
                given = lines.variables(mentions.text_of(place))
                for name, values in given.items():
                    found.setdefault(name, []).extend(values)
    return found


def candidates(
    reader: mentions.Reader, folders: Iterable[str], person: pwd.struct_passwd | None = None
) -> list[dict[str, Any]]:
    """Units whose commands mention an engine: {name, path, weight, direct, scripts, held}.

    person: whose manager runs them, None for the system's
    """
    found = []
    for name, paths in files_of(folders).items():
        texts = [specifiers.expanded(text, name, person) for text in texts_of(paths)]
        home = person.pw_dir if person else home_in(texts, "/root")
        given = variables(texts)
        commands = commands_in(texts)
        own = reader.own(commands)
        of_package = paths[0].startswith(mentions.PACKAGES)
        scripts = reader.tokens(
            commands,
            home,
            packages_too=not of_package,
            beside=[*working(texts, home), *crontab.path_of(given)],
            variables=given,
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
                    "held": any(os.path.basename(path) == holds.DROP_IN for path in paths),
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


def described(
    scope: str, uid: int, folders: Collection[str], found: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Candidates with how they stand, and what can start them."""
    systemctl = scopes.manager(scope, uid)
    states = scopes.shown(systemctl, [one["name"] for one in found])
    files = {one["name"]: triggers_in(folders, one["name"]) for one in found}
    named = {
        name: list(dict.fromkeys([*paths, *states.get(name, {}).get("TriggeredBy", "").split()]))
        for name, paths in files.items()
    }
    # All at once: a systemctl that asks costs more than all the reading of files.
    states.update(
        scopes.shown(systemctl, sorted({one for names in named.values() for one in names}))
    )

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
            "active": scopes.activity(systemctl, name, state),
            "file_state": file_state(name),
            "wanted_by": [
                unit for kind in scopes.STARTED_BY for unit in state.get(kind, "").split()
            ],
            "triggers": [
                {
                    "name": trigger,
                    "path": files[name].get(trigger, ""),
                    "active": scopes.activity(
                        systemctl, trigger, states.get(trigger, {}), "inactive"
                    ),
                    "file_state": file_state(trigger),
                }
                for trigger in named[name]
            ],
        }


def units(reader: mentions.Reader) -> list[dict[str, Any]]:
    there = candidates(reader, scopes.UNIT_FOLDERS)
    found = list(described("system", 0, scopes.UNIT_FOLDERS, there))
    for person in scopes.users():
        home = person.pw_dir
        own = [homes.expanded(folder, home) for folder in scopes.OWN_USER_FOLDERS]
        runtime = [f"{scopes.RUNTIME.format(person.pw_uid)}/{name}" for name in RUNTIME_FOLDERS]
        folders = (*own, *runtime, *scopes.USER_FOLDERS)
        there = candidates(reader, folders, person)
        found += described(person.pw_name, person.pw_uid, folders, there)
    return found


def scripts(reader: mentions.Reader) -> list[dict[str, Any]]:
    found = []
    for folder in (*(f"{crontab.PLACES.periodic}{period}" for period in crontab.PERIODIC), *HOOKS):
        for path in sorted(glob.glob(folder + "/*")):
            if os.path.isfile(path) and reader.file(path, "/root"):
                why = crontab.why_skipped(path)
                held = bool(why) and path in holds.load()["scripts"]
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
