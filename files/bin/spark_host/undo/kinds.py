"""Giving back one entry of the journal: how it stands now (run/verdicts.py), and restoring it."""

from __future__ import annotations

import base64
import difflib
import os
from collections.abc import Collection
from typing import Any

from clocks import cpufreq
from engines.containers import policy_of
from memory import sysctls
from network import manager
from run import journal
from run.command import Failed, read, run
from run.verdicts import subject, verdict
from systemd import units
from watchdogs import crontab

GOVERNOR = cpufreq.POLICIES + "/{}/scaling_governor"
CAP = cpufreq.POLICIES + "/{}/scaling_max_freq"


# Files and links


def wanted(entry: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """The content to give back: the original, or the owner's later table without our tags."""
    mark = journal.fingerprint(now)
    ours = mark in (journal.fingerprint(entry), *entry["ours"])
    if entry["tag"] and "b64" in now and (entry["edits"] or not ours):
        return crontab.untagged(now, entry)
    return entry


def hint(entry: dict[str, Any], now: dict[str, Any]) -> str:
    """Which lines differ from what was written last; never their text, which may be a secret."""
    if not now["existed"]:
        return "it was removed since"
    if "b64" not in now or not entry["written"]:
        return "it was made anew since"
    old, new = (
        base64.b64decode(b64).decode("latin-1").splitlines()
        for b64 in (entry["written"], now["b64"])
    )
    if old == new:
        return "its mode, owner or last line's end was changed since"
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    lines = [
        f"{first + 1}" if last <= first + 1 else f"{first + 1}-{last}"
        for kind, _, _, first, last in blocks
        if kind != "equal"
    ]
    return f"edited since: line {', '.join(lines)}"


def look_file(entry: dict[str, Any], forced: Collection[str]) -> dict[str, str]:
    path = entry["path"]
    now = journal.content(path)
    mark = journal.fingerprint(now)
    target = entry if path in forced else wanted(entry, now)
    if mark == journal.fingerprint(target):
        return verdict(path, "same")
    if mark in entry["ours"] or path in forced or target is not entry:
        return verdict(path, "restore")
    kept = os.path.basename(journal.entry_path("files", path))
    return verdict(path, "edited", f"{hint(entry, now)}; the original is in {kept}")


def give_file(entry: dict[str, Any], forced: Collection[str]) -> None:
    path = entry["path"]
    now = journal.content(path)
    target = entry if path in forced else wanted(entry, now)
    if journal.fingerprint(now) not in (journal.fingerprint(entry), *entry["ours"]):
        journal.record(path, now, target)  # an edit that is written over is kept in the journal
    if not target["existed"]:
        journal.take_away(path)
        for folder in entry.get("made", ()):
            journal.remove_folder(folder)
        return
    journal.make_folder(os.path.dirname(path), 0o755)
    owner = (target["uid"], target["gid"])
    if "b64" in target:
        data = base64.b64decode(target["b64"])
        journal.write(path, data, target["mode"], owner, target.get("xattrs"))
        return
    journal.write_link(path, target["link"], owner)


# Units


def look_unit(entry: dict[str, Any], now: dict[str, str]) -> dict[str, str]:
    """now: what systemctl shows of it."""
    was_state, was_active = entry["value"].split()
    label, state = f"unit {subject(entry)}", now.get("UnitFileState") or "none"
    if now["LoadState"] == "not-found":
        return verdict(label, "gone", "it is not installed any more")
    ran, runs = was_active not in units.ASLEEP, now["ActiveState"] not in units.ASLEEP
    if was_state.startswith("masked") and ran and not runs:
        return verdict(label, "gone", "it ran although it was masked; it cannot be started so")
    if was_state.endswith("-runtime") and state != was_state:
        return verdict(label, "gone", f"its state {was_state} ended with a reboot")
    if state == was_state and runs >= ran:
        return verdict(label, "same")
    was = f"{was_state} and {'running' if ran else 'not running'}"
    is_now = f"{state} and {'running' if runs else 'not running'}"
    return verdict(label, "restore", f"it was {was}, it is {is_now}")


def start_units(entries: list[dict[str, Any]]) -> None:
    """Those that ran, all at once: systemd knows the order."""
    ran = [subject(e) for e in entries if e["value"].split()[1] not in units.ASLEEP]
    if ran:
        units.systemctl("start", "--", *ran)


# Governors and caps of CPU frequency policies


def look_governor(entry: dict[str, Any]) -> dict[str, str]:
    return look_policy(f"governor of {subject(entry)}", GOVERNOR.format(subject(entry)), entry)


def look_cap(entry: dict[str, Any]) -> dict[str, str]:
    return look_policy(f"clock cap of {subject(entry)}", CAP.format(subject(entry)), entry)


def look_policy(label: str, path: str, entry: dict[str, Any]) -> dict[str, str]:
    now = read(path)
    if not os.path.exists(path):
        return verdict(label, "gone", "this host has no such policy any more")
    if now is None:
        return verdict(label, "unread", "it cannot be read; its CPUs may be offline")
    if now == entry["value"]:
        return verdict(label, "same")
    if now in entry["ours"]:
        return verdict(label, "restore")
    return verdict(label, "edited", f"it is {now}, set by somebody since; it was {entry['value']}")


def give_governor(entry: dict[str, Any]) -> None:
    with open(GOVERNOR.format(subject(entry)), "w") as file:
        file.write(entry["value"] + "\n")


def give_cap(entry: dict[str, Any]) -> None:
    with open(CAP.format(subject(entry)), "w") as file:
        file.write(entry["value"] + "\n")


# NetworkManager's devices


def look_managed(entry: dict[str, Any]) -> dict[str, str]:
    """Given back together with the links, see network.py."""
    device = subject(entry)
    label, now = f"NetworkManager's hold on {device}", manager.is_managed(device)
    if now is None:
        return verdict(label, "gone", "there is no such device, or NetworkManager does not run")
    return verdict(label, "same" if now else "restore")


# The profile of power-profiles-daemon


def look_profile(entry: dict[str, Any], now: dict[str, str]) -> dict[str, str]:
    """now: what systemctl shows of the daemon, which forgets no profile while it is down."""
    label, was = "power profile", entry["value"]
    if now["LoadState"] == "not-found":
        return verdict(label, "gone", "power-profiles-daemon is not installed any more")
    found = cpufreq.profile()
    if found == was:
        return verdict(label, "same")
    if found is None or found in entry["ours"]:
        return verdict(label, "restore", f"it was {was}, it is {found or 'out of force'}")
    return verdict(label, "edited", f"it is {found}, set by somebody since; it was {was}")


# Kernel settings


def look_sysctl(entry: dict[str, Any]) -> dict[str, str]:
    label, now = f"sysctl {subject(entry)}", sysctls.live(subject(entry))
    if now is None:
        return verdict(label, "gone", "this kernel has no such setting")
    if now == entry["value"]:
        return verdict(label, "same")
    if now in entry["ours"]:
        return verdict(label, "restore")
    return verdict(label, "edited", f"it is {now}, set by somebody since; it was {entry['value']}")


def give_sysctl(entry: dict[str, Any]) -> None:
    sysctls.put(subject(entry), entry["value"])


# Restart policies of containers


def container_label(entry: dict[str, Any]) -> str:
    return f"container {subject(entry).rsplit('.', 1)[0]}"


def look_container(entry: dict[str, Any], found: list[dict[str, Any]]) -> dict[str, str]:
    """found: `docker inspect` of all containers; value: id, policy, and whether to start it."""
    label = container_label(entry)
    container_id, policy, start = entry["value"].split()
    now = next((c for c in found if c["Id"] == container_id), None)
    if now is None:
        return verdict(label, "gone", "it does not exist any more")
    runs = now["State"]["Running"]
    if policy_of(now) == policy and (runs or start != "start"):
        return verdict(label, "same")
    if policy_of(now) not in (policy, *entry["ours"]):
        return verdict(label, "edited", f"its restart policy is {policy_of(now)}, it was {policy}")
    return verdict(label, "restore")


def give_container(entry: dict[str, Any]) -> None:
    container_id, policy, start = entry["value"].split()
    commands = [["docker", "update", f"--restart={policy}", container_id]]
    if start == "start":
        commands.append(["docker", "start", container_id])
    for command in commands:
        code, _out, err = run(command, timeout_s=120)
        if code:
            raise Failed(err.strip() or f"{' '.join(command[:2])}: exit status {code}")
