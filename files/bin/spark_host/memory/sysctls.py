"""Kernel settings (sysctl): their live values, and the files that set them at boot."""

from __future__ import annotations

import glob
import json
import os
from typing import Any

from run import journal
from run.command import Failed, read
from run.verdicts import Entry, set_since, subject

ROOT = "/proc/sys"
# In the order in which a file hides those of its name in later folders (sysctl.d(5)).
FOLDERS = (
    "/etc/sysctl.d",
    "/run/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/usr/lib/sysctl.d",
    "/lib/sysctl.d",
)


def path_of(key: str) -> str:
    return f"{ROOT}/{key.replace('.', '/')}"


def live(key: str) -> str | None:
    """The value with single spaces, None where this kernel has no such setting."""
    path = path_of(key)
    if not os.path.exists(path):
        return None
    found = read(path)
    if found is None:
        raise Failed(f"{path} cannot be read")
    return " ".join(found.split())


def assignments(text: str, keys: list[str]) -> dict[str, str]:
    """{key: value} of the asked keys in one file; the last line of a key wins.

    A pattern (net.*.rmem) never matters here: a line with the whole name goes before it.
    """
    found = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        key = name.strip().lstrip("-").replace("/", ".")
        if equals and key in keys:
            found[key] = " ".join(value.split())
    return found


def files() -> list[str]:
    """The files of sysctl.d in the order in which they are applied at boot."""
    by_name: dict[str, str] = {}
    for folder in FOLDERS:
        for path in glob.glob(folder + "/*.conf"):
            by_name.setdefault(os.path.basename(path), path)
    return [by_name[name] for name in sorted(by_name)]


def section(ask: dict[str, Any]) -> dict[str, Any]:
    """{"values": {key: value or null}, "files": [{"path", "values"}] that set an asked key}."""
    keys = list(ask["sysctl"])
    found = [{"path": p, "values": assignments(read(p) or "", keys)} for p in files()]
    return {"values": {key: live(key) for key in keys}, "files": [f for f in found if f["values"]]}


def put(key: str, value: str) -> None:
    with open(path_of(key), "w") as file:
        file.write(value + "\n")


def look(entry: Entry) -> dict[str, Any]:
    return set_since(entry, live(subject(entry)), "this kernel has no such setting")


def give(entry: Entry) -> None:
    put(subject(entry), entry["value"])


def main(argv: list[str]) -> dict[str, Any]:
    """set JSON of {key: value}: the value found goes into the journal first"""
    if argv[0] != "set":
        raise ValueError(f"unknown action {argv[0]}")
    with journal.alone():
        for key, value in json.loads(argv[1]).items():
            found = live(key)
            if found is not None:
                journal.setting(f"sysctl.{key}", found, value)
                put(key, value)
    return {}
