"""Restart policies of containers as they were found: how they stand now, and given back."""

from __future__ import annotations

from typing import Any

from run.command import Failed, run
from run.verdicts import Entry, Looked, subject, verdict

from engines import containers


def called(entry: Entry) -> str:
    return f"container {subject(entry).rsplit('.', 1)[0]}"


def read(_entries: list[Entry], _looked: Looked) -> list[dict[str, Any]]:
    """A daemon that was removed took its containers along."""
    return containers.inspect_all() if containers.installed() else []


def look(entry: Entry, found: list[dict[str, Any]]) -> dict[str, Any]:
    """found: `docker inspect` of all containers; value: id, policy, and whether to start it."""
    container_id, policy, start = entry["value"].split()
    now = next((c for c in found if c["Id"] == container_id), None)
    if now is None:
        return verdict("gone", "it does not exist any more")
    is_now = containers.policy_of(now)
    if is_now == policy and (now["State"]["Running"] or start != "start"):
        return verdict("same")
    if is_now not in (policy, *entry["ours"]):
        return verdict("edited", f"its restart policy is {is_now}, it was {policy}")
    return verdict("restore")


def give(entry: Entry) -> None:
    container_id, policy, start = entry["value"].split()
    commands = [["docker", "update", f"--restart={policy}", container_id]]
    if start == "start":
        commands.append(["docker", "start", container_id])
    for command in commands:
        code, _out, err = run(command, timeout_s=120)
        if code:
            raise Failed(err.strip() or f"{' '.join(command[:2])}: exit status {code}")
