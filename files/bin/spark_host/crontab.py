"""Crontabs of users and of the system, as bytes, and which of their commands start containers."""

from __future__ import annotations

import base64
import json
import os
import pwd
import re
import signal
import stat
import sys
import time
from typing import Any

import mentions

FOLDER = "/var/spool/cron/crontabs"
SYSTEM = ("/etc/crontab", "/etc/anacrontab")
DROP_INS = "/etc/cron.d"
# What Debian's cron takes from cron.d: cron(8), "Debian specific".
NAME = re.compile(r"[A-Za-z0-9_-]+")


def table(path: str) -> tuple[dict[str, Any], bytes]:
    info = os.stat(path)
    with open(path, "rb") as file:
        data = file.read()
    return {
        "mode": info.st_mode & 0o7777,
        "uid": info.st_uid,
        "gid": info.st_gid,
        "b64": base64.b64encode(data).decode(),
    }, data


def home_of(user: str) -> str:
    try:
        return pwd.getpwnam(user).pw_dir
    except KeyError:
        return "/nonexistent"


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


def listed(folder: str) -> list[str]:
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def section(ask: dict[str, Any]) -> dict[str, Any]:
    """{"users": {user: table}, "system": {path: table and "inert"}, "starters": [word of a line]}.

    A table is {mode, uid, gid, b64}. Starters are written as in the lines: paths, names.
    """
    reader = mentions.Reader(ask.get("words", ()))
    users, system, starters = {}, {}, set()
    for user in listed(FOLDER):
        path = f"{FOLDER}/{user}"
        # crontab(1) works in tmp.*; a name with a dot before it is no user's (nor cron's)
        if os.path.isfile(path) and not user.startswith(("tmp.", ".")):
            users[user], data = table(path)
            starters |= {token for token, _ in reader.tokens(data, home_of(user))}
    for path in [*SYSTEM, *(f"{DROP_INS}/{name}" for name in listed(DROP_INS))]:
        if os.path.isfile(path):
            found, data = table(path)
            system[path] = {**found, "inert": why_inert(path)}
            starters |= {token for token, _ in reader.tokens(data, "/root")}
    return {
        "users": users,
        "system": system,
        "starters": sorted(starters),
        "installed": os.path.isdir(FOLDER),
    }


def running(script: str) -> list[int]:
    """Process ids whose command line has this script as a word of its own.

    A name without its folder, as a crontab may have it, stands for the script in any folder.
    """
    whole = script.encode()
    tail = b"/" + whole.lstrip(b"./~")
    pids = []
    for pid in os.listdir("/proc"):
        if not pid.isdigit():
            continue
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if whole in words or (whole[:1] != b"/" and any(w.endswith(tail) for w in words)):
            pids.append(int(pid))
    return pids


def settle(scripts: list[str], wait_s: float) -> dict[str, Any]:
    """Wait for running instances of held watchdogs; end what is still there after wait_s."""
    ended = []
    deadline = time.monotonic() + wait_s
    while any(running(s) for s in scripts) and time.monotonic() < deadline:
        time.sleep(0.5)
    for script in scripts:
        for pid in running(script):
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                continue
            ended.append({"pid": pid, "script": script})
    return {"ended": ended}


def main(argv: list[str]) -> dict[str, Any]:
    """settle WAIT_S < scripts.json (on standard input, so that our own command line has none)."""
    return settle(json.load(sys.stdin), float(argv[1]))
