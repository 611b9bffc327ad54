"""Units as they were found: how they stand now, and started again."""

from __future__ import annotations

import os
from typing import Any

from run.verdicts import Entry, Looked, among, key, subject, to_give, verdict

from systemd import links, logind, units

LOGIND = "/etc/systemd/logind.conf.d/"


def read(entries: list[Entry], _looked: Looked) -> dict[str, dict[str, str]]:
    return units.show([subject(e) for e in entries])


def look(entry: Entry, shown: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Its verdict, and for a timer, path or socket what that starts."""
    now = shown[subject(entry)]
    word, why = judged(*entry["value"].split(), now)
    return verdict(word, why, starts=units.started_by(subject(entry), now))


def judged(was_state: str, was_active: str, now: dict[str, str]) -> tuple[str, str]:
    state = now.get("UnitFileState") or "none"
    if now["LoadState"] == "not-found":
        return "gone", "it is not installed any more"
    ran, runs = was_active not in units.ASLEEP, now["ActiveState"] not in units.ASLEEP
    if was_state.startswith("masked") and ran and not runs:
        return "gone", "it ran although it was masked; it cannot be started so"
    if was_state.endswith("-runtime") and state != was_state:
        return "gone", f"its state {was_state} ended with a reboot"
    if state == was_state and runs >= ran:
        return "same", ""
    was = f"{was_state} and {'running' if ran else 'not running'}"
    return "restore", f"it was {was}, it is {state} and {'running' if runs else 'not running'}"


def start(looked: Looked) -> None:
    """Those that ran, all at once: systemd knows the order."""
    todo = to_give(looked, "unit.")
    ran = [subject(e) for e in todo if e["value"].split()[1] not in units.ASLEEP]
    if ran:
        units.systemctl("start", "--", *ran)


def end_own(entry: Entry) -> None:
    """A unit whose file is ours alone ends before its file goes."""
    folder, name = os.path.split(entry["path"])
    ours = not entry["existed"] and not os.path.islink(entry["path"])
    if ours and folder == units.FOLDERS[0] and name.endswith(units.SUFFIXES):
        units.systemctl("stop", "--", name)


def reload(looked: Looked) -> None:
    if among((e for e, _ in looked), *(f"{folder}/" for folder in links.FOLDERS)):
        units.systemctl("daemon-reload")


def reload_logind(looked: Looked) -> None:
    if any(key(e).startswith(LOGIND) for e, _ in looked):
        logind.reload()
