"""CPU frequency policies, and what else on this host sets their governor.

section: the policies; units whose commands write a governor; the active power profile.

settle < {"stop", "disable", "mask", "profile"}   takes other owners down for good, as `units down`
    does. power-profiles-daemon is first put on its neutral profile: a platform that it has put into
    power-saver stays there when it is stopped.
"""

from __future__ import annotations

import glob
import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import journal
import mentions
import starters
import units
from run import Failed, read, run

POLICIES = "/sys/devices/system/cpu/cpufreq"
DAEMON = "power-profiles-daemon.service"
RUNS = f"/run/systemd/units/invocation:{DAEMON}"  # systemd's own mark, without a question to it
PROFILE = "profile.power-profiles-daemon"
NEUTRAL = "balanced"
# Since 0.20 it goes by the first name, and before by the second alone.
BUS_NAMES = (
    ("org.freedesktop.UPower.PowerProfiles", "/org/freedesktop/UPower/PowerProfiles"),
    ("net.hadess.PowerProfiles", "/net/hadess/PowerProfiles"),
)
TOOL = re.compile(rb"\bcpufreq-set\b|\bcpupower\b[^\n]*\bfrequency-set\b")
NAMED = re.compile(rb"\bscaling_governor\b")
# What a script writes a value with; one that only reads the governor does none of it.
WRITES = re.compile(rb"\b(echo|printf|tee|dd|write|write_text|sysfs)\b")
# Ours, and what runs the owner's whole boot script: our boot unit comes after that one.
PASSED_OVER = re.compile(r"(spark-converge-.*|rc-local)\.service")


def policies() -> dict[str, dict[str, Any]]:
    """{policy: governor, offered, online_cpus, limits and steps in kHz}."""
    found = {}
    for folder in sorted(glob.glob(POLICIES + "/policy*")):
        found[os.path.basename(folder)] = {
            "governor": read(folder + "/scaling_governor"),
            "offered": (read(folder + "/scaling_available_governors") or "").split(),
            "online_cpus": read(folder + "/affected_cpus"),
            "cap_khz": khz(folder + "/scaling_max_freq"),
            "top_khz": khz(folder + "/cpuinfo_max_freq"),
            "bottom_khz": khz(folder + "/cpuinfo_min_freq"),
            "steps_khz": [
                int(word)
                for word in (read(folder + "/scaling_available_frequencies") or "").split()
            ],
        }
    return found


def khz(path: str) -> int | None:
    text = read(path)
    return int(text) if text and text.isdigit() else None


def writes_governor(text: bytes) -> bool:
    return bool(TOOL.search(text) or (NAMED.search(text) and WRITES.search(text)))


def writers() -> Iterator[str]:
    """Services whose commands, or scripts that these name, write a governor."""
    for name, paths in starters.files_of(starters.SYSTEM_FOLDERS, PASSED_OVER).items():
        if "@." in name:
            continue  # a template does nothing by itself
        commands = starters.commands_of(paths)
        if writes_governor(commands) or any(map(writes_governor, scripts(commands))):
            yield name


def scripts(commands: bytes) -> Iterator[bytes]:
    for token in dict.fromkeys(mentions.TOKEN.findall(commands)):
        for path in mentions.places(token.decode("latin-1"), "/root", []):
            yield mentions.text_of(path)


def profile() -> str | None:
    """power-saver, balanced or performance; None while the daemon does not run. Never starts it."""
    if not os.path.islink(RUNS):
        return None
    said = ""
    for name, path in BUS_NAMES:
        words = ["get-property", name, path, name, "ActiveProfile"]
        code, out, err = run(["busctl", "--system", "--auto-start=no", *words], timeout_s=10)
        if code == 0 and out.startswith('s "'):
            return out.strip()[3:-1]
        said = err.strip() or said
    raise Failed(f"power profile: {said}")


def profile_or_why() -> str | dict[str, str] | None:
    """The same, {"unknown": why} where the daemon runs and does not say."""
    try:
        return profile()
    except Failed as error:
        return {"unknown": str(error)}


def set_profile(wanted: str) -> None:
    said = ""
    for name, path in BUS_NAMES:
        words = ["set-property", name, path, name, "ActiveProfile", "s", wanted]
        code, _out, err = run(["busctl", "--system", "--auto-start=no", *words], timeout_s=30)
        if code == 0:
            return
        said = err.strip() or said
    raise Failed(f"power profile {wanted}: {said}")


def section(_: dict[str, Any]) -> dict[str, Any]:
    found = sorted(writers())
    return {
        "policies": policies(),
        "writers": units.with_neighbours(found) if found else {"units": {}, "triggers": {}},
        "profile": profile_or_why(),
    }


def settle(todo: dict[str, Any]) -> dict[str, Any]:
    if todo["profile"]:
        journal.setting(PROFILE, todo["profile"], NEUTRAL)
        set_profile(NEUTRAL)
    return units.down(todo)


def main(argv: list[str]) -> dict[str, Any]:
    if argv != ["settle"]:
        raise ValueError(f"unknown action {' '.join(argv)}")
    return settle(json.load(sys.stdin))
