"""The power profile as it was found: how it stands now, and given back."""

from __future__ import annotations

from typing import Any

from run.verdicts import Entry, Looked, set_since, verdict
from systemd import units

from clocks import cpufreq


def read(_entries: list[Entry], _looked: Looked) -> dict[str, str]:
    """What systemctl shows of power-profiles-daemon, which forgets no profile while it is down."""
    return units.show([cpufreq.DAEMON])[cpufreq.DAEMON]


def look(entry: Entry, now: dict[str, str]) -> dict[str, Any]:
    if now["LoadState"] == "not-found":
        return verdict("gone", "power-profiles-daemon is not installed any more")
    found = cpufreq.profile()
    was = f"it was {entry['value']}, it is {found or 'out of force'}"
    return set_since(entry, found, "", was) if found else verdict("restore", was)


def give(entry: Entry) -> None:
    cpufreq.set_profile(entry["value"])
