"""Crontabs of users and of the system, as bytes, and which of their commands start containers.

settle < {"scripts": [path or name], "commands": [text]}   awaits, then ends what held watchdogs run
rearm   gives every held line back, by the journal: all that was tagged since the first hold
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pwd
import re
import signal
import stat
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from run import journal
from run.command import Failed
from run.processes import INTERPRETER, Process, processes

from watchdogs import mentions

FOLDER = "/var/spool/cron/crontabs"
SYSTEM = ("/etc/crontab", "/etc/anacrontab")
DROP_INS = "/etc/cron.d"
# What Debian's cron takes from cron.d: cron(8), "Debian specific".
NAME = re.compile(r"[A-Za-z0-9_-]+")
SETTLE_S = 20  # a watchdog that runs at this moment is awaited so long, then ended
PERIODIC_FOLDER = "/etc/cron."
PERIODIC = ("hourly", "daily", "weekly", "monthly", "yearly")
END_S = 5  # from the polite signal to the other one
ASSIGNED = re.compile(r"\w+=")
HELD = re.compile(rb"^#[A-Z0-9-]+-\d{8} ")
# NAME = value, either of them in quotes or not: crontab(5).
VARIABLE = re.compile(rb"^[ \t]*[\"']?([A-Za-z_]\w*)[\"']?[ \t]*=(.*)$", re.MULTILINE)


def tag_of(entry: dict[str, Any]) -> re.Pattern[bytes]:
    return re.compile(rb"#" + re.escape(entry["tag"].encode()) + rb"-\d{8} ")


def kept(entry: dict[str, Any] | None) -> list[bytes]:
    """Lines that bore the tag of held ones before this tool first wrote the file: not ours to arm.

    entry: of the file in the journal, if there is one
    """
    if not entry or not entry.get("tag"):
        return []
    original = base64.b64decode(entry.get("b64", ""))
    return [line for line in original.split(b"\n") if tag_of(entry).match(line)]


def untagged(now: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """The content of a table without our held tag; lines tagged before our time stay."""
    tag, before = tag_of(entry), kept(entry)
    lines = [
        line if line in before else tag.sub(b"", line, count=1) if tag.match(line) else line
        for line in base64.b64decode(now["b64"]).split(b"\n")
    ]
    return {**now, "b64": base64.b64encode(b"\n".join(lines)).decode()}


def rearm() -> dict[str, Any]:
    """{"rearmed": [path]}"""
    done = []
    for entry in journal.entries():
        path = entry.get("path", "")
        now = journal.content(path) if entry.get("tag") else {}
        then = untagged(now, entry) if "b64" in now else now
        if then != now:
            data = base64.b64decode(then["b64"])
            journal.put(path, now["mode"], (now["uid"], now["gid"]), data, entry["tag"])
            done.append(path)
    return {"rearmed": done}


def table(path: str) -> tuple[dict[str, Any], bytes]:
    info = os.stat(path)
    with open(path, "rb") as file:
        data = file.read()
    return {
        "mode": info.st_mode & 0o7777,
        "uid": info.st_uid,
        "gid": info.st_gid,
        "b64": base64.b64encode(data).decode(),
        "kept": [line.decode("latin-1") for line in kept(journal.load("files", path))],
    }, data


def home_of(user: str) -> str:
    try:
        return pwd.getpwnam(user).pw_dir
    except (KeyError, ValueError):  # ValueError: a null byte, which no name has
        return "/nonexistent"


def why_skipped(path: str) -> str | None:
    """Why nobody runs a script of these folders, None for one that is run."""
    by_name = path.startswith(PERIODIC_FOLDER)
    if by_name and not mentions.RUNNABLE.fullmatch(os.path.basename(path)):
        return "run-parts ignores such a name"
    if not os.stat(path).st_mode & stat.S_IXUSR:
        return "not executable"
    return None


def why_inert(path: str) -> str | None:
    """Why cron passes over a system table, None for one that it runs."""
    info = os.stat(path)
    if os.path.dirname(path) == DROP_INS and not NAME.fullmatch(os.path.basename(path)):
        return "cron ignores files of such a name"
    if info.st_uid != 0:
        return "cron ignores files that are not root's"
    if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "cron ignores files that others may write"
    return None


def variables(data: bytes) -> dict[str, list[str]]:
    """{name: values} that a table gives to the commands below."""
    found: dict[str, list[str]] = {}
    for name, said in VARIABLE.findall(data):
        value = said.strip().decode("latin-1")
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
        found.setdefault(name.decode(), []).append(value[1:-1] if quoted else value)
    return found


def by_home(path: str, data: bytes) -> dict[str, bytes]:
    """{home: lines} of a system table, whose lines name the user that runs them."""
    found: dict[str, list[bytes]] = {}
    for line in data.split(b"\n"):
        bare = HELD.sub(b"", line).lstrip()
        words = bare.split(None, 6)
        at = 1 if bare.startswith(b"@") else 5
        user = words[at].decode("latin-1") if len(words) > at else "root"
        home = "/root" if user == "root" or path == "/etc/anacrontab" else home_of(user)
        found.setdefault(home, []).append(line)
    return {home: b"\n".join(lines) for home, lines in found.items()}


def path_of(given: dict[str, list[str]]) -> list[str]:
    """Folders of a PATH that was given, but for those of packages."""
    folders = [f for path in given.get("PATH", ()) for f in path.split(":") if f]
    return [f for f in folders if not f"{f}/".startswith(mentions.PACKAGES)]


def starter_words(reader: mentions.Reader, home: str, lines: bytes, data: bytes) -> set[str]:
    """Words of some lines of a table; data: the whole of it, with its assignments."""
    given = variables(data)
    beside = path_of(given)
    homes = given.get("HOME") or [home]
    return {
        token
        for one in homes
        for token, _ in reader.tokens(lines, one, beside=beside, variables=given)
    }


def listed(folder: str) -> list[str]:
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def section(ask: dict[str, Any]) -> dict[str, Any]:
    """{"users": {user: table}, "system": {path: table and "inert"}, "starters": [word of a line]}.

    A table is {mode, uid, gid, b64, kept}. Starters are written as in the lines: paths, names.
    """
    reader = mentions.Reader(ask.get("words", ()))
    users, system, starters = {}, {}, set()
    for user in listed(FOLDER):
        path = f"{FOLDER}/{user}"
        # crontab(1) works in tmp.*; a name with a dot before it is no user's (nor cron's)
        if os.path.isfile(path) and not user.startswith(("tmp.", ".")):
            users[user], data = table(path)
            starters |= starter_words(reader, home_of(user), data, data)
    for path in [*SYSTEM, *(f"{DROP_INS}/{name}" for name in listed(DROP_INS))]:
        if os.path.isfile(path):
            found, data = table(path)
            system[path] = {**found, "inert": why_inert(path)}
            for home, lines in by_home(path, data).items():
                starters |= starter_words(reader, home, lines, data)
    return {
        "users": users,
        "system": system,
        "starters": sorted(starters),
        "installed": os.path.isdir(FOLDER),
    }


# A watchdog that runs while it is held


def simple(command: str) -> Iterator[list[str]]:
    """Command lines of the parts of a shell command that mention an engine.

    A shell becomes the last part of what it is given, without a process of its own.
    """
    import shlex  # noqa: PLC0415 - not loaded by every read of the host

    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    words.commenters = ""
    parts: list[list[str]] = [[]]
    try:
        for word in words:
            parts += [[]] if re.fullmatch(r"[;&|()]+", word) else []
            parts[-1].append(word)
    except ValueError:  # a quote that has no end: cron's shell refuses it too
        return
    for part in parts:
        argv = [word for word in part if not re.fullmatch(r"[;&|()]+", word)]
        cut = next((n for n, word in enumerate(argv) if re.match(r"[<>]", word)), len(argv))
        argv = argv[: cut - 1 if cut and cut < len(argv) and argv[cut - 1].isdigit() else cut]
        while argv and ASSIGNED.match(argv[0]):
            argv = argv[1:]
        if mentions.names_engine(" ".join(argv).encode()):
            yield argv


def runs_script(argv: list[str], scripts: Iterable[str]) -> bool:
    """Is this a script itself, or an interpreter with it?

    A name without its folder, as a crontab may have it, stands for the script in any folder.
    """
    ran = argv[:1]
    if INTERPRETER.fullmatch(os.path.basename(argv[0])):
        ran += [word for word in argv[1:] if not word.startswith("-")][:1]
    return any(
        word == script or (script[:1] != "/" and word.endswith("/" + script.lstrip("./~")))
        for word in ran
        for script in scripts
    )


def running(scripts: Collection[str], commands: Collection[str] = ()) -> list[Process]:
    """Instances of these scripts and cron commands, and everything that descends from one."""
    wanted = [argv for command in commands for argv in simple(command)]
    everything = {one.pid: one for one in processes()}
    ours, pid = set(), os.getpid()
    while pid in everything:  # also whatever this program itself was started by
        ours.add(pid)
        pid = everything[pid].parent
    found = {
        one.pid
        for one in everything.values()
        if runs_script(one.argv, scripts)
        or one.argv in wanted
        or (one.argv[1:2] == ["-c"] and one.argv[2:3] and one.argv[2] in commands)
    } - ours
    while True:
        more = {one.pid for one in everything.values() if one.parent in found} - found
        if not more:
            return [everything[pid] for pid in sorted(found)]
        found |= more


def there(ended: list[Process]) -> list[Process]:
    now = {(one.pid, one.started) for one in processes()}
    return [one for one in ended if (one.pid, one.started) in now]


def end(found: list[Process]) -> list[Process]:
    """Ask them to end, then make them; those that are there all the same."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for one in there(found):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, number)
        deadline = time.monotonic() + END_S
        while there(found) and time.monotonic() < deadline:
            time.sleep(0.1)
    return there(found)


def settle(
    scripts: Collection[str], commands: Collection[str] = (), wait_s: float = SETTLE_S
) -> dict[str, Any]:
    """Wait for running instances of held watchdogs; end what is still there after wait_s.

    {"ended": [pid]}; raises Failed naming those that do not end.
    """
    deadline = time.monotonic() + wait_s
    while running(scripts, commands) and time.monotonic() < deadline:
        time.sleep(0.5)
    found = running(scripts, commands)
    left = ", ".join(f"{one.pid} ({one.argv[0]})" for one in end(found))
    if left:
        raise Failed(f"what a held watchdog had started does not end: {left}")
    return {"ended": [one.pid for one in found]}


def main(argv: list[str]) -> dict[str, Any]:
    """settle, rearm; what is to settle comes on standard input, so that no command line has it."""
    if argv == ["settle"]:
        asked = json.load(sys.stdin)
        return settle(asked["scripts"], asked["commands"])
    if argv == ["rearm"]:
        return rearm()
    raise ValueError(f"unknown action {' '.join(argv)}")
