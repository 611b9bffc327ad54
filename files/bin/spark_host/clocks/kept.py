"""Governors, caps and the power profile as they were found: how they stand, and given back."""

from __future__ import annotations

import os
from typing import Any

from run.command import read
from run.verdicts import Entry, Looked, set_since, subject, verdict
from systemd import units

from clocks import cpufreq


def path_of(entry: Entry) -> str:
    file = {"governor": "scaling_governor", "cpu_max": "scaling_max_freq"}
    return f"{cpufreq.POLICIES}/{subject(entry)}/{file[entry['name'].split('.', 1)[0]]}"


def look(entry: Entry) -> dict[str, Any]:
    path = path_of(entry)
    now = read(path)
    if now is None and os.path.exists(path):
        return verdict("unread", "it cannot be read; its CPUs may be offline")
    return set_since(entry, now, "this host has no such policy any more")


def give(entry: Entry) -> None:
    with open(path_of(entry), "w") as file:
        file.write(entry["value"] + "\n")


def daemon(_entries: list[Entry], _looked: Looked) -> dict[str, str]:
    """What systemctl shows of power-profiles-daemon, which forgets no profile while it is down."""
    return units.show([cpufreq.DAEMON])[cpufreq.DAEMON]


def look_profile(entry: Entry, now: dict[str, str]) -> dict[str, Any]:
    if now["LoadState"] == "not-found":
        return verdict("gone", "power-profiles-daemon is not installed any more")
    found = cpufreq.profile()
    was = f"it was {entry['value']}, it is {found or 'out of force'}"
    return set_since(entry, found, "", was) if found else verdict("restore", was)


def give_profile(entry: Entry) -> None:
    cpufreq.set_profile(entry["value"])
