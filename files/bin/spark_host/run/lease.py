"""Who is at work on this host from a control machine: one run at a time.

/run/spark-converge/lease.json has {"run", "job", "who", "origin", "renewed_s"}: the run's own name,
what it is called for a person, the process at the control machine, and when it gave its last sign
of life, in seconds since this host's boot. LAPSE_S later the lease is nobody's, so that a control
machine that was lost keeps nobody away for long; a reboot forgets it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from typing import Any

from run import journal

FOLDER = "/run/spark-converge"
LAPSE_S = 60


def now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Not journal.alone(): a sign of life must not wait for a change that takes minutes."""
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    with open(f"{FOLDER}/lease.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def holder() -> dict[str, Any] | None:
    """The lease with its "age_s", None when nobody has one or it has lapsed."""
    try:
        with open(f"{FOLDER}/lease.json") as file:
            found: dict[str, Any] = json.load(file)
    except (OSError, ValueError):
        return None
    age_s = now_s() - found["renewed_s"]
    return {**found, "age_s": round(age_s, 1)} if age_s < LAPSE_S else None


def take(mine: dict[str, Any]) -> None:
    """Take or renew the lease unless somebody else has it.

    mine: {"run", "job", "who", "origin"}; "over" may name a run that is known to have ended.
    """
    with alone():
        found = holder()
        if found is None or found["run"] in (mine["run"], mine.get("over")):
            kept = {key: mine[key] for key in ("run", "job", "who", "origin")}
            text = json.dumps({**kept, "renewed_s": now_s()})
            journal.write(f"{FOLDER}/lease.json", text.encode(), 0o600)


def release(run: str) -> None:
    with alone():
        found = holder()
        if found is not None and found["run"] == run:
            os.unlink(f"{FOLDER}/lease.json")


def section(ask: dict[str, Any]) -> dict[str, Any]:
    """{"holder": the lease or null}. A run that executes sends its own along and takes it so: that
    costs no round trip more."""
    if ask.get("lease"):
        take(json.loads(ask["lease"]))
    return {"holder": holder()}


def main(argv: list[str]) -> dict[str, Any]:
    """renew JSON; release RUN"""
    action, word = argv
    if action == "renew":
        take(json.loads(word))
    elif action == "release":
        release(word)
    else:
        raise ValueError(f"unknown action {action}")
    return {"holder": holder()}
