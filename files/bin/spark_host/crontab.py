"""User crontabs, as bytes, and which of the scripts that they run start containers."""

import base64
import json
import os
import re
import signal
import sys
import time

FOLDER = "/var/spool/cron/crontabs"
STARTERS = re.compile(rb"\b(docker|podman|nerdctl|vllm|sglang|ray start)\b")
ABSOLUTE = re.compile(rb"(?<![\w./-])/[\w./+@:-]+")
SCRIPT_LIMIT_BYTES = 262144  # a larger file is a program, not somebody's watchdog script


def starts_containers(path):
    """Does this file mention a container engine or an engine's launcher?"""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > SCRIPT_LIMIT_BYTES:
            return False
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return False
    return b"\0" not in data and bool(STARTERS.search(data))


def section(_):
    """{"users": {user: {mode, uid, gid, b64}}, "starters": [script path]}."""
    users, starters = {}, set()
    if not os.path.isdir(FOLDER):
        return {"users": {}, "starters": [], "installed": False}
    for user in sorted(os.listdir(FOLDER)):
        path = f"{FOLDER}/{user}"
        if not os.path.isfile(path) or user.startswith("tmp."):
            continue
        info = os.stat(path)
        with open(path, "rb") as file:
            data = file.read()
        users[user] = {
            "mode": info.st_mode & 0o7777,
            "uid": info.st_uid,
            "gid": info.st_gid,
            "b64": base64.b64encode(data).decode(),
        }
        paths = {p.decode() for p in ABSOLUTE.findall(data)}
        starters |= {p for p in paths if starts_containers(p)}
    return {"users": users, "starters": sorted(starters), "installed": True}


def running(script):
    """Process ids whose command line has this script as a word of its own."""
    pids = []
    for pid in os.listdir("/proc"):
        if not pid.isdigit():
            continue
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if script.encode() in words:
            pids.append(int(pid))
    return pids


def settle(scripts, wait_s):
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


def main(argv):
    """settle WAIT_S < scripts.json (on standard input, so that our own command line has none)."""
    return settle(json.load(sys.stdin), float(argv[1]))
