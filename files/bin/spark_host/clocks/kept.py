"""Governors and clock caps as they were found: how they stand now, and given back."""

from __future__ import annotations

import os
from typing import Any

from run.command import read
from run.verdicts import Entry, set_since, subject, verdict

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
