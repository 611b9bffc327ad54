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
from typing import Any, NamedTuple

from run import journal
from run.command import Failed
from run.processes import INTERPRETER, Process, processes

from watchdogs import lines, mentions


class Places(NamedTuple):
    """Where cron's tables and scripts lie; periodic: of cron.hourly and the like, up to the dot."""

    users: str
    system: tuple[str, ...]
    drop_ins: str
    periodic: str


def places(root: str) -> Places:
    etc = f"{root}/etc"
    system = (f"{etc}/crontab", f"{etc}/anacrontab")
    return Places(f"{root}/var/spool/cron/crontabs", system, f"{etc}/cron.d", f"{etc}/cron.")


PLACES = places("")  # the only one: whoever looks elsewhere puts another in its place
# What Debian's cron takes from cron.d: cron(8), "Debian specific".
NAME = re.compile(r"[A-Za-z0-9_-]+")
SETTLE_S = 20  # a watchdog that runs at this moment is awaited so long, then ended
PERIODIC = ("hourly", "daily", "weekly", "monthly", "yearly")
END_S = 5  # from the polite signal to the other one
ASSIGNED = re.compile(r"\w+=")


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
    """{"rearmed": [path], "deleted": [path]}"""
    done = []
    for entry in journal.entries():
        path = entry.get("path", "")
        now = journal.content(path) if entry.get("tag") else {}
        then = untagged(now, entry) if "b64" in now else now
        if then != now:
            data = base64.b64decode(then["b64"])
            journal.put(path, now["mode"], (now["uid"], now["gid"]), data, entry["tag"])
            done.append(path)
    return {"rearmed": done, "deleted": deleted()}


def table(path: str, reader: mentions.Reader, home: str | None = None) -> dict[str, Any]:
    """home: of the user whose table it is, None for a system one; unended: see lines."""
    info = os.stat(path)
    with open(path, "rb") as file:
        data = file.read()
    return {
        "path": path,
        "mode": info.st_mode & 0o7777,
        "uid": info.st_uid,
        "gid": info.st_gid,
        "b64": base64.b64encode(data).decode(),
        "kept": [line.decode("latin-1") for line in kept(journal.load("files", path))],
        "lines": verdicts(reader, path, data, home),
        "unended": lines.unended(data.decode("latin-1")),
    }


def home_of(user: str) -> str:
    try:
        return pwd.getpwnam(user).pw_dir
    except (KeyError, ValueError):  # ValueError: a null byte, which no name has
        return "/nonexistent"


def why_skipped(path: str) -> str | None:
    """Why nobody runs a script of these folders, None for one that is run."""
    by_name = path.startswith(PLACES.periodic)
    if by_name and not mentions.RUNNABLE.fullmatch(os.path.basename(path)):
        return "run-parts ignores such a name"
    if not os.stat(path).st_mode & stat.S_IXUSR:
        return "not executable"
    return None


def why_inert(path: str) -> str | None:
    """Why cron passes over a system table, None for one that it runs."""
    info = os.stat(path)
    if os.path.dirname(path) == PLACES.drop_ins and not NAME.fullmatch(os.path.basename(path)):
        return "cron ignores files of such a name"
    if info.st_uid != 0:
        return "cron ignores files that are not root's"
    if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "cron ignores files that others may write"
    return None


def path_of(given: dict[str, list[str]]) -> list[str]:
    """Folders of a PATH that was given, but for those of packages."""
    folders = [f for path in given.get("PATH", ()) for f in path.split(":") if f]
    return [f for f in folders if not f"{f}/".startswith(mentions.PACKAGES)]


def verdicts(
    reader: mentions.Reader, path: str, data: bytes, home: str | None = None
) -> dict[str, dict[str, Any]]:
    """{number of a line: {"tag", "scripts", "word", "command"}} of the jobs that start an engine.

    tag: what it is held by, or ""; scripts: as the line names them; word: of its own, that says so,
    or ""; command: what cron gives to the shell. home: whose table it is, None for a system one
    """
    given = lines.variables(data)
    found = {}
    for number, line in enumerate(data.decode("latin-1").split("\n"), start=1):
        tag, bare = lines.parted(line)
        if not lines.is_job(bare):
            continue
        text = (lines.rest(path, home is None, bare) or bare).encode("latin-1")
        own = home_of(lines.user(path, bare)) if home is None else home
        named = {
            token
            for one in given.get("HOME") or [own]
            for token, _ in reader.tokens(text, one, beside=path_of(given), variables=given)
        }
        word = mentions.names_engine(text) or ""
        if named or word:
            command = lines.command(path, home is None, bare)
            found[str(number)] = {
                **{"tag": tag, "scripts": sorted(named), "word": word, "command": command}
            }
    return found


def listed(folder: str) -> list[str]:
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def user_tables() -> list[tuple[str, str]]:
    """(user, path); crontab(1) works in tmp.*, and a name with a dot before it is no user's."""
    found = [(user, f"{PLACES.users}/{user}") for user in listed(PLACES.users)]
    return [(u, p) for u, p in found if os.path.isfile(p) and not u.startswith(("tmp.", "."))]


def system_tables() -> list[str]:
    drop_ins = (f"{PLACES.drop_ins}/{name}" for name in listed(PLACES.drop_ins))
    return [path for path in (*PLACES.system, *drop_ins) if os.path.isfile(path)]


def holds_lines(entry: dict[str, Any]) -> bool:
    """Had what was last written to a table lines that we held?"""
    written = base64.b64decode(entry.get("written") or "").split(b"\n")
    before = kept(entry)
    return any(tag_of(entry).match(line) and line not in before for line in written)


def deleted() -> list[str]:
    """Tables that somebody deleted while lines of them were held: no file to give those back to."""
    tagged = [entry for entry in journal.read_all()[0] if entry.get("tag")]
    gone = [entry for entry in tagged if not os.path.lexists(entry["path"])]
    return [entry["path"] for entry in gone if holds_lines(entry)]


def section(ask: dict[str, Any]) -> dict[str, Any]:
    """{"users": {user: table}, "system": {path: table and "inert"}, "deleted": [path]}."""
    reader = mentions.Reader(ask.get("words", ()))
    return {
        "users": {user: table(path, reader, home_of(user)) for user, path in user_tables()},
        "system": {
            path: {**table(path, reader), "inert": why_inert(path)} for path in system_tables()
        },
        "deleted": deleted(),
        "installed": os.path.isdir(PLACES.users),
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
