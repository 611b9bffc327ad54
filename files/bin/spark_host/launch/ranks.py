"""Containers of an engine on this host: how they are doing, saving, ending, and the quiet after."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
import time
from typing import Any

from engines import containers, podman
from run import journal
from run.command import Failed, run, which

STATE = "/var/lib/spark-converge"
PODMAN_POLL_S = 2  # a container that comes back and dies again stays longer than that
LOG_LINES = 400  # a poll every few seconds never needs more
# What the kernel and NVIDIA's driver say when memory runs out: [seed 002, tonyd2wild's ladder].
KERNEL = re.compile(r"NV_ERR_|NVRM|Out of memory|oom-kill|oom_reaper|page allocation failure")


def look(name: str, since: str) -> dict[str, Any]:
    """{"state": {...} or null, "log": [lines after `since`], "now": seconds}."""
    now = time.time()
    code, out, err = run(["docker", "inspect", "--type", "container", name])
    if code and "No such container" not in err:
        return {"ok": False, "message": err.strip()}
    if code:
        return {"state": None, "log": [], "now": now}
    one = json.loads(out)[0]
    code, out, err = run(["docker", "logs", "--since", since, "--tail", str(LOG_LINES), name])
    return {
        "state": {**one["State"], "RestartCount": one["RestartCount"], "Id": one["Id"]},
        "log": (out + err).splitlines(),
        "now": now,
    }


def kernel(seconds: float) -> dict[str, Any]:
    """{"lines": [what the kernel said about memory in the last seconds]}; older ones are left out:
    a healthy host has dozens of them."""
    words = ["journalctl", "--dmesg", "--no-pager", "--output=short-iso-precise"]
    code, out, err = run([*words, f"--since=-{seconds:.0f}s"])
    if code:
        return {"ok": False, "message": err.strip() or f"journalctl: exit status {code}"}
    return {"lines": [line for line in out.splitlines() if KERNEL.search(line)][-LOG_LINES:]}


def save(folder: str, names: list[str]) -> dict[str, Any]:
    """Keep what runs now, readable by root only: inspect, the end of the log, and the compose files
    of each. {"folder", "unread": [compose file: why]}: one on a share that is closed to root is no
    reason to leave its engine up."""
    target = f"{STATE}/saved/{folder}"
    os.makedirs(target, mode=0o700, exist_ok=True)
    unread = []
    for name in names:
        code, out, err = run(["docker", "inspect", "--type", "container", name])
        if code:
            return {"ok": False, "message": err.strip()}
        _code, log, log_err = run(["docker", "logs", "--tail", "2000", name])
        journal.write(f"{target}/{name}.inspect.json", out.encode(), 0o600)
        journal.write(f"{target}/{name}.log", (log + log_err).encode(), 0o600)
        labels = json.loads(out)[0]["Config"].get("Labels") or {}
        paths = labels.get("com.docker.compose.project.config_files", "").split(",")
        for at, path in enumerate(paths):  # numbered: all of them may be called compose.yaml
            try:
                with open(path, "rb") as file:
                    data = file.read()
            except FileNotFoundError:  # no compose, or its file is gone
                continue
            except OSError as error:
                unread.append(f"{path}: {error.strerror}")
                continue
            journal.write(f"{target}/{name}.{at}.{os.path.basename(path)}", data, 0o600)
    return {"folder": target, "unread": unread}


def keep_policy(name: str, start: str) -> str:
    """Journal a container's restart policy and whether undo starts it again (start: "start", if it
    runs now, or "leave"); the policy found."""
    code, out, err = run(["docker", "inspect", "--type", "container", name])
    if code:
        raise Failed(err.strip() or f"docker inspect {name}: exit status {code}")
    one = json.loads(out)[0]
    policy = containers.policy_of(one)
    start = start if one["State"]["Running"] else "leave"
    if policy != "no" or start == "start":
        # By id: another container may get the same name later.
        journal.setting(f"restart.{name}.{one['Id'][:12]}", f"{one['Id']} {policy} {start}", "no")
    return policy


def end(grace_s: int, names: list[str]) -> dict[str, Any]:
    """Policy to "no", stop, remove, and look again: success means that none is left.

    Without the policy change a container in its restart back-off comes back with the daemon.
    """
    said = []
    for name in names:
        with contextlib.suppress(Failed):  # one that is gone already; docker's no comes below
            keep_policy(name, "leave")
        run(["docker", "update", "--restart=no", name])
        code, _out, err = run(["docker", "stop", "--time", str(grace_s), name], grace_s + 60)
        if code:
            said.append(err.strip())
        code, _out, err = run(["docker", "rm", "--force", name])
        if code:
            said.append(err.strip())
    code, out, err = run(["docker", "ps", "--all", "--format", "{{.Names}}"])
    if code:
        return {"ok": False, "message": err.strip()}
    left = sorted(set(names) & set(out.split()))
    return {"ok": not left, "left": left, "message": "; ".join(said)}


def stop(grace_s: int, names: list[str]) -> dict[str, Any]:
    """Stop containers that are not ours: policy kept in the journal, then "no"; not removed."""
    policies = {}
    for name in names:
        policies[name] = keep_policy(name, "start")
        run(["docker", "update", "--restart=no", name])
        code, _out, err = run(["docker", "stop", "--time", str(grace_s), name], grace_s + 60)
        if code:
            return {"ok": False, "message": err.strip()}
    return {"policies": policies}


def watch_podman(until: float, seen: set[str]) -> None:
    """Podman tells nobody when a container starts: its monitors are looked for until then."""
    while which("podman"):
        seen |= {podman.title(one) for one in podman.running()}
        left_s = until - time.time()
        if left_s <= 0:
            return
        time.sleep(min(PODMAN_POLL_S, left_s))


def quiet(seconds: float, known: list[str]) -> dict[str, Any]:
    """Watch for `seconds`: the containers (not among `known`) that run or start meanwhile."""
    until = time.time() + seconds
    by_podman: set[str] = set()
    watch = threading.Thread(target=watch_podman, args=(until, by_podman))
    watch.start()
    code, out, err = run(
        ["docker", "events", "--since", f"{time.time():.0f}", "--until", f"{until:.0f}"]
        + ["--filter", "type=container", "--filter", "event=start", "--format", "{{json .}}"],
        timeout_s=seconds + 60,
    )
    watch.join()
    if code:
        return {"ok": False, "message": err.strip()}
    started = {
        e["Actor"]["Attributes"].get("name", e["Actor"]["ID"])
        for e in map(json.loads, out.splitlines())
    }
    running = {c["Name"].lstrip("/") for c in containers.inspect_all() if c["State"]["Running"]}
    return {"back": sorted((started | running | by_podman) - set(known))}


def main(argv: list[str]) -> dict[str, Any]:
    action, rest = argv[0], argv[1:]
    if action == "look":
        return look(rest[0], rest[1])
    if action == "kernel":
        return kernel(float(rest[0]))
    if action == "save":
        return save(rest[0], rest[1:])
    if action == "end":
        return end(int(rest[0]), rest[1:])
    if action == "stop":
        return stop(int(rest[0]), rest[1:])
    if action == "quiet":
        return quiet(float(rest[0]), rest[1:])
    if action == "record":
        os.makedirs(STATE, mode=0o755, exist_ok=True)
        journal.write(f"{STATE}/generation.json", sys.stdin.read().encode(), 0o644)
        return {}
    raise ValueError(f"unknown action {action}")
